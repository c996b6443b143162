package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/protection"
)

// guard has retries avoid nodes that fail the jobs of several queues (ADR 23), and opens and closes breakers (ADR 27). Several may
// run: what another one has done is not done again.
type guard struct {
	policies *policylog.Store
	jobs     func(ctx context.Context, read func(jobdb.Queries) error) error
	order    func(ctx context.Context, r *pb.OrderRequest, author string) ([]*pb.OrderedJob, error) // nil: it cannot order
	log      *slog.Logger
	now      func() time.Time
	metrics  *guardMetrics

	window     protection.Window
	seen       int64 // the latest end that was read, in Unix nanoseconds
	seenStart  int64 // the latest start
	generation uint64
	issued     []protection.Suspicion // of the last day, by that generation
	noted      []protection.Suspicion // in shadow

	breakers      protection.Breakers
	opened        []protection.Opening // of the last day, by that generation
	heldUntil     int64                // when the last breaker ended or ends, whoever opened it, in Unix nanoseconds
	notedOpenings []protection.Opening // in shadow
}

const (
	// guardAgain is how late a run's start or end may come to the job database, after one of a later time, and still be read.
	guardAgain = 30 * time.Second
	// guardReads limits the run ends that one look reads, and the starts: the latest.
	guardReads = 10_000
	// guardTimeout limits one look.
	guardTimeout = 30 * time.Second
)

// run looks at run ends until ctx ends. An error is counted, and the next look tries again.
func (g *guard) run(ctx context.Context) error {
	failing := false
	for range every(ctx, protection.Every) {
		err := g.look(ctx)
		if err != nil && ctx.Err() == nil {
			g.metrics.failures.Inc()
			if !failing {
				g.log.Warn("the guard cannot look at run ends; it tries again", slog.Any("error", err))
			}
		}
		failing = err != nil
	}
	return nil
}

// look judges nodes and causes once, by the settings of the newest generation.
func (g *guard) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	newest, err := g.policies.Newest(ctx)
	if err != nil {
		return err
	}
	now := g.now().UnixNano()
	nodes, causes := newest.Base.Protection(), newest.Base.Breakers()
	longest := time.Duration(0)
	if nodes == nil {
		g.noted = nil
		g.metrics.suspects.Set(0)
	} else {
		longest = protection.Keep(nodes.Window)
	}
	if causes == nil {
		g.breakers, g.notedOpenings = protection.Breakers{}, nil
		g.metrics.breakers.Set(0)
	} else {
		longest = max(longest, protection.KeepStarts(causes.Window))
	}
	if nodes == nil && causes == nil {
		g.window, g.seen, g.seenStart = protection.Window{}, 0, 0
		return nil
	}
	if err := g.read(ctx, longest, causes != nil, now); err != nil {
		return err
	}
	if g.issued == nil || g.generation != newest.Generation() {
		history, err := g.policies.History(ctx)
		if err != nil {
			return err
		}
		g.issued = suspicionsIn(history, now)
		g.opened, g.heldUntil = openingsIn(history, now)
		g.generation = newest.Generation()
	}
	if nodes != nil {
		err = g.judgeNodes(ctx, nodes, &newest, now)
	}
	if causes != nil {
		err = errors.Join(err, g.judgeCauses(ctx, causes, &newest, now))
	}
	return err
}

var errRead = errors.New("all that matters is read")

// read adds the run ends that are new in the job database, and the starts of runs that go on, if they are wanted; the first time,
// those since so long before.
func (g *guard) read(ctx context.Context, keep time.Duration, starts bool, now int64) error {
	from := max(now-int64(keep), g.seen-int64(guardAgain))
	return g.jobs(ctx, func(q jobdb.Queries) error {
		var ends []protection.End
		_, err := q.RunList(&jobdb.Criteria{}, jobdb.Page{Sort: "ended", Descending: true, Limit: guardReads}, func(r *jobdb.Run) error {
			if r.Times.Ended <= from {
				return errRead
			}
			if !tells(r) {
				g.window.Forget(r.RunID)
			} else if !g.window.Has(r.RunID) {
				ends = append(ends, protection.End{
					Run: r.RunID, Job: r.JobID, Node: r.Node,
					Started: cmp.Or(r.Times.Leased, r.Times.Ended), Time: r.Times.Ended, Succeeded: r.State == jobdb.RunSucceeded,
					Category: r.Error.Category, Pending: r.Times.Running == 0,
				})
			}
			return nil
		})
		if err != nil && !errors.Is(err, errRead) {
			return err
		}
		if from := max(now-int64(keep), g.seenStart-int64(guardAgain)); starts {
			_, err := q.RunList(&jobdb.Criteria{}, jobdb.Page{Sort: "leased", Descending: true, Limit: guardReads}, func(r *jobdb.Run) error {
				if r.Times.Leased <= from {
					return errRead
				}
				if !r.State.Ended() && !g.window.HasStart(r.RunID) {
					ends = append(ends, protection.End{Run: r.RunID, Job: r.JobID, Node: r.Node, Started: r.Times.Leased})
				}
				return nil
			})
			if err != nil && !errors.Is(err, errRead) {
				return err
			}
		}
		for i := range ends {
			e := &ends[i]
			if _, err := q.JobList(&jobdb.Criteria{JobID: e.Job}, jobdb.Page{Limit: 1}, func(j *jobdb.Job) error {
				e.Queue, e.Set = j.Queue, j.JobSet
				if j.Member.Group != "" { // its members fail together
					e.Job = j.Queue + "/" + j.Member.Group
				}
				return nil
			}); err != nil {
				return err
			}
			g.window.Add(e)
			if e.Time <= now {
				g.seen = max(g.seen, e.Time)
			}
			if e.Time == 0 && e.Started <= now {
				g.seenStart = max(g.seenStart, e.Started)
			}
		}
		return nil
	})
}

// tells says whether the end of a run says something about its node.
func tells(r *jobdb.Run) bool {
	switch {
	case !r.State.Ended() || r.Flags.Preempted || r.Flags.Cancelled:
		return false
	case r.Flags.Returned && !r.Flags.Attempted:
		return protection.Tells(policy.Unschedulable)
	case r.Error.Reason == "LeaseExpired":
		return protection.Tells(policy.LeaseExpired)
	}
	return true
}
