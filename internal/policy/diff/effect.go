package diff

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Verdict is the outcome for a failed run, as far as anything acts on it.
type Verdict struct {
	Outcome    string   `json:"outcome"` // Retry, Fail or NotDecided
	Code       string   `json:"code"`    // or why it was not decided
	Rule       string   `json:"rule,omitempty"`
	Delay      string   `json:"delay,omitempty"`
	RetryAfter int64    `json:"-"`
	AvoidNodes []string `json:"avoidNodes,omitempty"`
	Shadow     bool     `json:"shadow,omitempty"`
}

// Effect is one failed run that two policy sets decide differently.
type Effect struct {
	Partition int     `json:"partition"`
	Queue     string  `json:"queue"`
	JobSet    string  `json:"jobSet"`
	JobID     string  `json:"jobId"`
	RunID     string  `json:"runId"`
	Old       Verdict `json:"old"`
	New       Verdict `json:"new"`
}

// run identifies a failed run by the message that reported it.
type run struct {
	at       eventlog.Position
	job, run string
}

// Effects decides one partition of a history by both sets, and calls visit for each failed run that they decide
// differently, in log order. It returns the number of failed runs. Memory grows with them.
func Effects(ctx context.Context, events eventlog.Topic, partition int, before, after *policyfile.Set, visit func(Effect) error) (failures int, err error) {
	old := map[run]Verdict{}
	_, err = audit.Replay(ctx, events, partition, before.Set, func(_ *eventlog.Message, out *evaluator.Output) error {
		for _, r := range out.Records {
			if key, e, ok := seen(r); ok {
				old[key] = e.New
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	_, err = audit.Replay(ctx, events, partition, after.Set, func(_ *eventlog.Message, out *evaluator.Output) error {
		for _, r := range out.Records {
			key, e, ok := seen(r)
			if !ok {
				continue
			}
			failures++
			e.Partition, e.Old = partition, old[key]
			if !same(&e.Old, &e.New) {
				if err := visit(e); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return failures, err
}

// seen extracts the failed run from a record.
func seen(r chain.Record) (run, Effect, bool) {
	switch r := r.(type) {
	case *chain.Decision:
		v := Verdict{Outcome: "Fail", Code: r.Code.String(), Shadow: r.Shadow}
		if r.Policy != "" {
			v.Rule = r.Policy + "/" + strings.Clone(r.Rule)
		}
		if r.Requeue {
			v.Outcome, v.Delay, v.RetryAfter = "Retry", (time.Duration(r.DelayMS) * time.Millisecond).String(), r.RetryAfter
			v.AvoidNodes = slices.Clone(r.AvoidNodes)
		}
		return run{r.Position, r.JobID, r.RunID}, Effect{Queue: r.Queue, JobSet: r.JobSet, JobID: r.JobID, RunID: r.RunID, New: v}, true
	case *chain.NotDecided:
		v := Verdict{Outcome: "NotDecided", Code: r.Reason.String()}
		return run{r.Position, r.JobID, r.RunID}, Effect{Queue: r.Queue, JobSet: r.JobSet, JobID: r.JobID, RunID: r.RunID, New: v}, true
	}
	return run{}, Effect{}, false
}

func same(a, b *Verdict) bool {
	return a.Outcome == b.Outcome && a.Code == b.Code && a.Rule == b.Rule && a.Delay == b.Delay &&
		a.RetryAfter == b.RetryAfter && a.Shadow == b.Shadow && slices.Equal(a.AvoidNodes, b.AvoidNodes)
}

// Group counts effects of one kind.
type Group struct {
	Queue string
	From  string
	To    string
	Count int
}

// Tally groups effects by queue and by kind of change.
type Tally struct{ groups map[Group]int }

// Add counts an effect.
func (t *Tally) Add(e *Effect) {
	if t.groups == nil {
		t.groups = map[Group]int{}
	}
	t.groups[Group{Queue: e.Queue, From: sort(&e.Old, &e.New), To: sort(&e.New, &e.Old)}]++
}

// sort names a verdict, with what distinguishes it from the other one.
func sort(v, other *Verdict) string {
	s := v.Outcome + " " + v.Code
	if v.Rule != "" {
		s += " " + v.Rule
	}
	if v.Outcome != other.Outcome || v.Code != other.Code || v.Rule != other.Rule {
		return s
	}
	switch {
	case v.Shadow != other.Shadow && v.Shadow:
		s += " in shadow"
	case v.Delay != other.Delay:
		s += " after " + v.Delay
	case v.RetryAfter != other.RetryAfter:
		s += " with a different retryAfter"
	case !slices.Equal(v.AvoidNodes, other.AvoidNodes):
		s += " on other nodes"
	}
	return s
}

// Groups lists the groups, largest first.
func (t *Tally) Groups() []Group {
	var all []Group
	for g, n := range t.groups {
		g.Count = n
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return all
}
