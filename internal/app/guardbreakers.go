package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/protection"
)

const (
	// heldFor is for how long before now held retries were decided that the guard starts: longer than a breaker of its is open.
	heldFor = 48 * time.Hour
	// heldAfter is how long after the end of the last breaker the guard looks for what it held: longer than a ramp.
	heldAfter = 2 * time.Hour
)

// judgeCauses opens and closes breakers, and starts what they held.
func (g *guard) judgeCauses(ctx context.Context, p *policy.Breakers, newest *policylog.Snapshot, now int64) error {
	if !p.Shadow {
		g.notedOpenings = nil
	}
	others := breakersOfOthers(newest, now)
	room := policy.MaxOpenBreakers - len(newest.Set.OpenBreakers())
	for _, o := range newest.ActiveOverrides() {
		if o.Category != "" && o.Author == policylog.Guard && o.Over(now) {
			room++ // it is removed when another one opens
		}
	}
	issued := slices.Concat(g.opened, g.notedOpenings)
	var v protection.Verdict
	look := func(held []protection.Held, running func(job string) int64) {
		v = g.breakers.Look(&g.window, p, issued, held, running, room, now)
	}
	if p.Shadow || g.order == nil || g.heldUntil < now-int64(heldAfter) {
		look(nil, nil) // nothing was held lately: there is nothing to read
	} else if err := g.jobs(ctx, func(q jobdb.Queries) error {
		held, err := heldRetries(q, others, now)
		if err != nil {
			return err
		}
		look(held, func(job string) int64 {
			since, failed := runningSince(q, job)
			err = errors.Join(err, failed)
			return since
		})
		return err
	}); err != nil {
		return err
	}
	v.Open = slices.DeleteFunc(v.Open, func(o protection.Opening) bool { return holdsAny(others, o.Cause) })
	g.note(p, &v, issued, now)
	if p.Shadow {
		return nil
	}
	if len(v.Open)+len(v.Close) > 0 {
		if err := g.turn(ctx, &v, now); err != nil {
			return err
		}
	}
	return g.start(ctx, v.Start)
}

// note logs and counts what opens and closes, and keeps what opens in shadow, which no generation has.
func (g *guard) note(p *policy.Breakers, v *protection.Verdict, issued []protection.Opening, now int64) {
	mode, open := "Enforce", len(v.Open)-len(v.Close)
	if p.Shadow {
		mode, g.notedOpenings = "Shadow", append(g.notedOpenings, v.Open...)
	}
	for _, o := range issued {
		if o.Until > now {
			open++
		}
	}
	told := func(o *protection.Opening) []any {
		return []any{slog.String("category", o.Category), slog.String("queue", o.Queue), slog.Time("until", time.Unix(0, o.Until).UTC()), slog.String("reason", o.Reason), slog.Bool("shadow", p.Shadow)}
	}
	for i := range v.Open {
		g.log.Warn("a breaker opens", told(&v.Open[i])...)
	}
	for i := range v.Close {
		g.log.Warn("a breaker closes", told(&v.Close[i])...)
	}
	if p.Shadow {
		open = 0 // nothing is held
	}
	g.metrics.breakers.Set(float64(open))
	g.metrics.openings.WithLabelValues(mode).Add(float64(len(v.Open)))
	g.metrics.closings.Add(float64(len(v.Close)))
	g.metrics.canaries.WithLabelValues("passed").Add(float64(v.Passed))
	g.metrics.canaries.WithLabelValues("failed").Add(float64(v.Failed))
}

// turn makes the overrides of breakers that open, unless others have opened them meanwhile, and removes those of the guard that
// close or are over.
func (g *guard) turn(ctx context.Context, v *protection.Verdict, now int64) error {
	var reasons []string
	for _, o := range v.Open {
		reasons = append(reasons, fmt.Sprintf("category %s of queue %s: %s", o.Category, o.Queue, o.Reason))
	}
	for _, o := range v.Close {
		reasons = append(reasons, fmt.Sprintf("category %s of queue %s closes: %s", o.Category, o.Queue, o.Reason))
	}
	_, err := g.policies.Do(ctx, policylog.Edit{
		Author: policylog.Guard, Reason: strings.Join(reasons, "\n"), Urgent: true,
		Make: func(s policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
			others := breakersOfOthers(&s, now)
			on := slices.DeleteFunc(slices.Clone(s.ActiveOverrides()), func(o policylog.Override) bool {
				return o.Author == policylog.Guard && (o.Over(now) || slices.ContainsFunc(v.Close, func(c protection.Opening) bool {
					return openingOf(&o) == protection.Opening{Cause: c.Cause, Since: c.Since}
				}))
			})
			for _, o := range v.Open {
				mine := slices.ContainsFunc(on, func(was policylog.Override) bool {
					return was.Author == policylog.Guard && was.Category == o.Category && was.Queue == o.Queue
				})
				if !mine && !holdsAny(others, o.Cause) {
					on = append(on, policylog.Override{
						Override: policyfile.Override{Category: o.Category, Queue: o.Queue, HeldUntil: o.Until}, Author: policylog.Guard, Reason: o.Reason, Time: o.Since,
					})
				}
			}
			return s.Base, on, nil
		},
	})
	return err
}

// openingOf returns the cause and the time of an override of the guard, which identify an opening.
func openingOf(o *policylog.Override) protection.Opening {
	return protection.Opening{Cause: protection.Cause{Category: o.Category, Queue: o.Queue}, Since: o.Time}
}

// start orders retries to start. The id of an order follows from the job's runs and from what it is for, so it is one, whoever repeats it.
func (g *guard) start(ctx context.Context, starts []protection.Start) error {
	orders := map[string]*pb.OrderRequest{}
	var ids []string
	for i := range starts {
		s := &starts[i]
		what, reason, over := "start", "its breaker is closed", durationpb.New(protection.Every)
		if s.Canary {
			what, reason, over = "canary", "a canary of its breaker", nil
		}
		id := fmt.Sprintf("guard-%s-%d", what, s.Runs)
		if orders[id] == nil {
			orders[id] = &pb.OrderRequest{Action: policy.OrderStart.String(), Reason: reason, RequestId: id, Over: over}
			ids = append(ids, id)
		}
		orders[id].Jobs = append(orders[id].Jobs, s.Job)
	}
	for _, id := range ids {
		r := orders[id]
		for jobs := range slices.Chunk(r.Jobs, api.MaxOrdered) {
			r.Jobs, r.Max = jobs, uint32(len(jobs))
			done, err := g.order(ctx, r, policylog.Guard)
			if err != nil {
				g.breakers = protection.Breakers{} // as after a restart, all are ordered again
				return fmt.Errorf("start retries that a breaker holds: %w", err)
			}
			for _, j := range done {
				if j.Refusal == "" {
					g.metrics.starts.WithLabelValues(r.Reason).Inc()
				}
			}
		}
	}
	return nil
}

// openingsIn finds the breakers that the guard opened within the last day in the generations, newest first, and when the last one of
// anybody ended or ends. One that a later generation has no more was closed then.
func openingsIn(history []*policylog.Version, now int64) (opened []protection.Opening, last int64) {
	known := map[protection.Opening]bool{}
	next := int64(math.MaxInt64)
	for _, v := range history {
		for i := range v.Overrides {
			o := &v.Overrides[i]
			if o.Category == "" {
				continue
			}
			until := min(o.HeldUntil, next)
			last = max(last, until)
			if key := openingOf(o); o.Author == policylog.Guard && !known[key] {
				known[key] = true
				key.Until = until
				opened = append(opened, key)
			}
		}
		if next = v.Time; next < now-int64(24*time.Hour) {
			break
		}
	}
	return opened, last
}

// breakersOfOthers returns the breakers that are open and not the guard's.
func breakersOfOthers(s *policylog.Snapshot, now int64) []policy.Breaker {
	all := slices.Clone(s.Base.OpenBreakers())
	for _, o := range s.ActiveOverrides() {
		if o.Category != "" && o.Author != policylog.Guard {
			all = append(all, policy.Breaker{Category: o.Category, Queue: o.Queue, Until: o.HeldUntil})
		}
	}
	return slices.DeleteFunc(all, func(b policy.Breaker) bool { return b.Until <= now })
}

// holdsAny says whether breakers hold anything of a cause, if only one of its subcategories: that is then left to whoever opened them.
func holdsAny(all []policy.Breaker, c protection.Cause) bool {
	return slices.ContainsFunc(all, func(b policy.Breaker) bool { return b.Category == c.Category && (b.Queue == "" || b.Queue == c.Queue) })
}

// heldRetries returns what waits although no breaker of others holds it: the jobs whose latest decision held their retry.
func heldRetries(q jobdb.Queries, others []policy.Breaker, now int64) (held []protection.Held, err error) {
	type key struct {
		partition int
		number    uint64
	}
	decisions := map[key]bool{}
	codes := []policy.Code{policy.BreakerHeld}
	_, err = q.DecisionList(&jobdb.Criteria{Codes: codes, Since: now - int64(heldFor)}, jobdb.Page{Sort: "time", Descending: true, Limit: guardReads}, func(d *jobdb.Decision) error {
		if d.Acted {
			decisions[key{d.Partition, d.Number}] = true
		}
		return nil
	})
	if err != nil || len(decisions) == 0 {
		return nil, err
	}
	_, err = q.JobList(&jobdb.Criteria{Waiting: true, Codes: codes}, jobdb.Page{Sort: "retry-after", Limit: guardReads}, func(j *jobdb.Job) error {
		if j.Retry == nil || j.Queueing.RetryAfter <= now || !decisions[key{j.Partition, j.Queueing.Decision}] {
			return nil
		}
		if c := (protection.Cause{Category: j.Retry.Category, Queue: j.Queue}); !holdsAny(others, c) {
			held = append(held, protection.Held{Cause: c, Job: j.JobID, Runs: j.Queueing.Runs})
		}
		return nil
	})
	return held, err
}

// runningSince returns since when a run of a job has been running, in Unix nanoseconds; 0: none is.
func runningSince(q jobdb.Queries, job string) (since int64, err error) {
	_, err = q.RunList(&jobdb.Criteria{JobID: job, States: []uint8{uint8(jobdb.RunRunning)}}, jobdb.Page{Limit: 1}, func(r *jobdb.Run) error {
		since = r.Times.Running
		return nil
	})
	return since, err
}
