package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/protection"
)

// guard has retries avoid nodes that fail the jobs of several queues (ADR 23). Several may run: a suspicion that another one
// has made is not made again.
type guard struct {
	policies *policylog.Store
	jobs     func(ctx context.Context, read func(jobdb.Queries) error) error
	log      *slog.Logger
	now      func() time.Time
	metrics  *guardMetrics

	window     protection.Window
	seen       int64 // the latest end that was read, in Unix nanoseconds
	generation uint64
	issued     []protection.Suspicion // of the last day, by that generation
	noted      []protection.Suspicion // in shadow
}

const (
	// guardAgain is how late a run end may come to the job database, after one of a later time, and still be read.
	guardAgain = 30 * time.Second
	// guardReads limits the run ends that one look reads: the latest.
	guardReads = 10_000
	// guardTimeout limits one look.
	guardTimeout = 30 * time.Second
)

// run looks at the nodes until ctx ends. An error is counted, and the next look tries again.
func (g *guard) run(ctx context.Context) error {
	ticker := time.NewTicker(protection.Every)
	defer ticker.Stop()
	failing := false
	for {
		err := g.look(ctx)
		if err != nil && ctx.Err() == nil {
			g.metrics.failures.Inc()
			if !failing {
				g.log.Warn("the guard cannot look at the nodes; it tries again", slog.Any("error", err))
			}
		}
		failing = err != nil
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look judges the nodes once, by the settings of the newest generation.
func (g *guard) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	newest, err := g.policies.Newest(ctx)
	if err != nil {
		return err
	}
	now := g.now().UnixNano()
	p := newest.Base.Protection()
	if p == nil {
		g.window, g.seen, g.noted = protection.Window{}, 0, nil
		g.metrics.suspects.Set(0)
		return nil
	}
	if err := g.read(ctx, p, now); err != nil {
		return err
	}
	if g.issued == nil || g.generation != newest.Generation() {
		if err := g.recall(ctx, now); err != nil {
			return err
		}
		g.generation = newest.Generation()
	}
	settled := func(node string) bool {
		return slices.ContainsFunc(newest.ActiveOverrides(), func(o policylog.Override) bool { return o.Node == node && o.Author != policylog.Guard && !o.Over(now) })
	}
	fresh := g.window.Judge(p, slices.Concat(g.issued, g.noted), settled, now)
	for i := range fresh {
		s := &fresh[i]
		g.log.Warn("a node is a suspect", slog.String("node", s.Node), slog.Time("until", time.Unix(0, s.Until).UTC()), slog.Bool("certain", s.Certain),
			slog.String("reason", s.Reason), slog.Bool("shadow", p.Shadow))
	}
	if len(fresh) > 0 && !p.Shadow {
		if err := g.issue(ctx, fresh, now); err != nil {
			return err
		}
	}
	g.count(p, fresh, now)
	return nil
}

// count counts suspicions, and keeps those in shadow, which no generation has.
func (g *guard) count(p *policy.Protection, fresh []protection.Suspicion, now int64) {
	mode := "Enforce"
	if p.Shadow {
		mode = "Shadow"
		for _, s := range fresh {
			g.noted = append(slices.DeleteFunc(g.noted, func(was protection.Suspicion) bool { return was.Node == s.Node && was.Since == s.Since }), s)
		}
	}
	g.metrics.suspicions.WithLabelValues(mode).Add(float64(len(fresh)))
	suspects := map[string]bool{}
	for _, s := range slices.Concat(g.issued, g.noted, fresh) {
		if s.Until > now {
			suspects[s.Node] = true
		}
	}
	g.metrics.suspects.Set(float64(len(suspects)))
}

var errRead = errors.New("all that matters is read")

// read adds the run ends that are new in the job database; the first time, those that still matter.
func (g *guard) read(ctx context.Context, p *policy.Protection, now int64) error {
	from := max(now-int64(protection.Keep(p.Window)), g.seen-int64(guardAgain))
	return g.jobs(ctx, func(q jobdb.Queries) error {
		var ends []protection.End
		_, err := q.RunList(&jobdb.Criteria{}, jobdb.Page{Sort: "ended", Descending: true, Limit: guardReads}, func(r *jobdb.Run) error {
			if r.Times.Ended <= from {
				return errRead
			}
			if tells(r) && !g.window.Has(r.RunID) {
				ends = append(ends, protection.End{
					Run: r.RunID, Job: r.JobID, Node: r.Node,
					Started: cmp.Or(r.Times.Leased, r.Times.Ended), Time: r.Times.Ended, Succeeded: r.State == jobdb.RunSucceeded,
				})
			}
			return nil
		})
		if err != nil && !errors.Is(err, errRead) {
			return err
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

// recall finds the suspicions of the last day in the generations.
func (g *guard) recall(ctx context.Context, now int64) error {
	history, err := g.policies.History(ctx)
	if err != nil {
		return err
	}
	g.issued = []protection.Suspicion{}
	known := map[protection.Suspicion]bool{} // with node and time only
	for _, v := range history {              // newest first
		for _, o := range v.Overrides {
			key := protection.Suspicion{Node: o.Node, Since: o.Time}
			if o.Author == policylog.Guard && o.Node != "" && !known[key] {
				known[key] = true
				g.issued = append(g.issued, protection.Suspicion{Node: o.Node, Since: o.Time, Until: o.AvoidedUntil})
			}
		}
		if v.Time < now-int64(24*time.Hour) {
			break
		}
	}
	return nil
}

// issue makes the overrides of suspicions, except for nodes of which somebody has decided meanwhile. It removes those of the
// guard that are over.
func (g *guard) issue(ctx context.Context, fresh []protection.Suspicion, now int64) error {
	reasons := make([]string, len(fresh))
	for i := range fresh {
		reasons[i] = "node " + fresh[i].Node + ": " + fresh[i].Reason
	}
	_, err := g.policies.Do(ctx, policylog.Edit{
		Author: policylog.Guard, Reason: strings.Join(reasons, "\n"), Urgent: true,
		Make: func(s policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
			on := slices.Clone(s.ActiveOverrides())
			made := false
			for i := range fresh {
				if with, ok := overriding(on, &fresh[i], now); ok {
					on, made = with, true
				}
			}
			if !made {
				return s.Base, s.ActiveOverrides(), nil
			}
			return s.Base, slices.DeleteFunc(on, func(o policylog.Override) bool { return o.Author == policylog.Guard && o.Over(now) }), nil
		},
	})
	return err
}

// overriding adds the override of a suspicion to others, or makes the guard's own one longer. It is not ok if the node has another
// one that is not over.
func overriding(on []policylog.Override, s *protection.Suspicion, now int64) (_ []policylog.Override, ok bool) {
	fresh := policylog.Override{
		Override: policyfile.Override{Node: s.Node, AvoidedUntil: s.Until}, Author: policylog.Guard, Reason: s.Reason, Time: s.Since,
	}
	for i := range on {
		switch o := &on[i]; {
		case o.Node != s.Node || o.Over(now):
		case o.Author != policylog.Guard || o.Time != s.Since || o.AvoidedUntil >= s.Until:
			return on, false
		default:
			*o = fresh
			return on, true
		}
	}
	return append(on, fresh), true
}
