package diff

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
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

	// Of a failed run that failed the unit of its group.
	UnitReason  string `json:"unitReason,omitempty"`
	GroupAction string `json:"groupAction,omitempty"`
	GroupRule   string `json:"groupRule,omitempty"`
	Restarts    string `json:"restarts,omitempty"` // counted ones, used
}

// Effect is one failed run that two policy sets decide differently, or one group that ends differently: then the
// verdicts have its state as outcome ("Active": it has not ended), and the reason of its end as code.
type Effect struct {
	Partition int     `json:"partition"`
	Queue     string  `json:"queue"`
	JobSet    string  `json:"jobSet"`
	JobID     string  `json:"jobId,omitempty"`
	RunID     string  `json:"runId,omitempty"`
	Group     string  `json:"group,omitempty"` // of a group that ends
	Old       Verdict `json:"old"`
	New       Verdict `json:"new"`
}

// run identifies a failed run by the message that reported it.
type run struct {
	at       eventlog.Position
	job, run string
}

// ended identifies a group.
type ended struct{ queue, set, group string }

// Effects decides one partition of a history by both sets and a version of the semantics. It calls visit for each failed
// run that they decide differently, in log order, and then for each group that they end differently. It returns the
// number of failed runs. Memory grows with them.
func Effects(ctx context.Context, events eventlog.Topic, partition int, semantics uint32, before, after *policyfile.Set, visit func(Effect) error) (failures int, err error) {
	old, oldEnds := map[run]Verdict{}, map[ended]Verdict{}
	_, err = audit.ReplayBy(ctx, events, partition, audit.Rules{Set: before.Set, Semantics: semantics}, func(_ *eventlog.Message, out *evaluator.Output) error {
		for _, r := range out.Records {
			if key, e, ok := seen(r); ok {
				old[key] = e.New
			}
			note(oldEnds, r)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	newEnds := map[ended]Verdict{}
	_, err = audit.ReplayBy(ctx, events, partition, audit.Rules{Set: after.Set, Semantics: semantics}, func(_ *eventlog.Message, out *evaluator.Output) error {
		for _, r := range out.Records {
			note(newEnds, r)
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
	if err != nil {
		return failures, err
	}
	return failures, endings(partition, oldEnds, newEnds, visit)
}

// note remembers how a group ended; of a name that is used again, the last one counts.
func note(ends map[ended]Verdict, r chain.Record) {
	if g, ok := r.(*chain.GroupEnded); ok {
		v := Verdict{Outcome: g.State.String(), Code: g.Reason.String(), GroupRule: strings.Clone(g.Rule)}
		ends[ended{strings.Clone(g.Queue), strings.Clone(g.JobSet), strings.Clone(g.Group)}] = v
	}
}

// endings visits the groups that end differently, by queue, job set and name.
func endings(partition int, old, now map[ended]Verdict, visit func(Effect) error) error {
	all := slices.Collect(maps.Keys(old))
	for g := range now {
		if _, ok := old[g]; !ok {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b ended) int {
		return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.set, b.set), cmp.Compare(a.group, b.group))
	})
	how := func(ends map[ended]Verdict, g ended) Verdict {
		if v, ok := ends[g]; ok {
			return v
		}
		return Verdict{Outcome: policy.GroupActive.String()}
	}
	for _, g := range all {
		e := Effect{Partition: partition, Queue: g.queue, JobSet: g.set, Group: g.group, Old: how(old, g), New: how(now, g)}
		if !same(&e.Old, &e.New) {
			if err := visit(e); err != nil {
				return err
			}
		}
	}
	return nil
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
		if g := r.Group; g != nil {
			v.UnitReason, v.GroupAction, v.GroupRule = g.Reason.String(), g.Action.String(), strings.Clone(g.Rule)
			v.Restarts = strconv.FormatUint(uint64(g.RestartsUsed), 10)
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
		a.RetryAfter == b.RetryAfter && a.Shadow == b.Shadow && slices.Equal(a.AvoidNodes, b.AvoidNodes) &&
		a.UnitReason == b.UnitReason && a.GroupAction == b.GroupAction && a.GroupRule == b.GroupRule && a.Restarts == b.Restarts
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
	s := strings.TrimSpace(v.Outcome + " " + v.Code)
	for _, more := range []string{v.Rule, v.GroupAction, v.GroupRule} {
		if more != "" {
			s += " " + more
		}
	}
	if v.GroupAction != other.GroupAction || v.GroupRule != other.GroupRule {
		return s
	}
	if v.Outcome != other.Outcome || v.Code != other.Code || v.Rule != other.Rule {
		return s
	}
	switch {
	case v.UnitReason != other.UnitReason:
		s += " as " + v.UnitReason
	case v.Shadow != other.Shadow && v.Shadow:
		s += " in shadow"
	case v.Restarts != other.Restarts:
		s += " as restart " + v.Restarts
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
