package query

import (
	"context"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
)

// Summary counts what a job database holds.
type Summary struct {
	Jobs       []StateCount    `json:"jobs"`
	Decisions  []DecisionCount `json:"decisions"`
	NotDecided []ReasonCount   `json:"notDecided"` // failed runs
	Parked     []ReasonCount   `json:"parked"`
	Releases   []ReleaseCount  `json:"releases"` // without those of cut-overs
	Runs       uint64          `json:"runs"`
	Effects                    // of the decisions
}

// StateCount counts the jobs of one state.
type StateCount struct {
	State string `json:"state"`
	Count uint64 `json:"count"`
}

// DecisionCount counts the decisions of one kind, effect, code, policy and rule.
type DecisionCount struct {
	Decision   string `json:"decision"` // JobRequeued or JobFailed
	Shadow     bool   `json:"shadow"`
	Superseded bool   `json:"superseded"`
	Code       string `json:"code"`
	Policy     string `json:"policy"`
	Rule       string `json:"rule"`
	Count      uint64 `json:"count"`
}

// Effect returns the effect of these decisions.
func (c *DecisionCount) Effect() Effect {
	return effectOf(c.Decision == chain.JobRequeued, c.Shadow, !c.Superseded)
}

// ReasonCount counts what has one reason.
type ReasonCount struct {
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// ReleaseCount counts what went to the job database without a decision in one partition.
type ReleaseCount struct {
	Partition int    `json:"partition"`
	Times     int    `json:"times"`
	Messages  uint64 `json:"messages"`
	Last      string `json:"last"`
}

// Summary counts jobs, decisions and what was not decided.
func (s *Source) Summary(ctx context.Context) (*Summary, error) {
	out := &Summary{Jobs: []StateCount{}, Decisions: []DecisionCount{}, NotDecided: []ReasonCount{}, Parked: []ReasonCount{}, Releases: []ReleaseCount{}}
	err := s.Jobs(ctx, func(q jobdb.Queries) error {
		counts, err := q.Summary()
		if err != nil {
			return err
		}
		out.Runs, out.Effects = counts.Runs, CountEffects(counts.Decisions)
		for _, c := range counts.Jobs {
			out.Jobs = append(out.Jobs, StateCount{c.State.String(), c.Count})
		}
		for i := range counts.Decisions {
			c := &counts.Decisions[i]
			out.Decisions = append(out.Decisions, DecisionCount{chain.DecisionKind(c.Requeue), c.Shadow, EffectOfCount(c) == Superseded, c.Code.String(), c.Policy, c.Rule, c.Count})
		}
		for _, c := range counts.NotDecided {
			out.NotDecided = append(out.NotDecided, ReasonCount{c.Reason.String(), c.Count})
		}
		for _, c := range counts.Parked {
			out.Parked = append(out.Parked, ReasonCount{c.Reason.String(), c.Count})
		}
		last := int64(0)
		return q.Releases(jobdb.RecordFilter{}, func(r *jobdb.Release) error {
			if ReleaseOf(r).ByCutover() {
				return nil
			}
			if n := len(out.Releases); n == 0 || out.Releases[n-1].Partition != r.Partition {
				out.Releases, last = append(out.Releases, ReleaseCount{Partition: r.Partition}), 0
			}
			p := &out.Releases[len(out.Releases)-1]
			last = max(last, r.When)
			p.Times, p.Messages, p.Last = p.Times+1, p.Messages+r.Messages, TimeText(last)
			return nil
		})
	})
	return out, err
}

// Example finds a decision with much to explain: one late in its job's budget. "": there is no decision.
func (s *Source) Example(ctx context.Context) (job string, err error) {
	used := uint32(0)
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		return q.Decisions(jobdb.RecordFilter{}, func(d *jobdb.Decision) error {
			if job == "" || d.RuleUsed > used {
				job, used = d.JobID, d.RuleUsed
			}
			return nil
		})
	})
	return job, err
}
