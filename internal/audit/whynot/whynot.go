// Package whynot finds the smallest changes under which a failed run would have been decided otherwise: changes of
// the failure, of what the job had used, and of the policies. It proposes changes and evaluates each with the same
// function that decides; what does not give the asked outcome is not reported.
package whynot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/projection"
)

// Outcome is what becomes of a failed run.
type Outcome string

// The outcomes.
const (
	Retry  Outcome = "Retry"  // the job runs again, and that counts (but a returned lease without a policy)
	Ignore Outcome = "Ignore" // the job runs again, and that does not count
	Fail   Outcome = "Fail"   // the job fails for good
)

// Outcomes lists them.
func Outcomes() []string { return []string{string(Retry), string(Fail), string(Ignore)} }

// OutcomeOf returns the outcome of a verdict.
func OutcomeOf(v *policy.Verdict) Outcome {
	switch {
	case v.Code == policy.RuleIgnore, v.Code == policy.BreakerHeld, v.Code == policy.GangRetry && v.LimitFrom == policy.FromNowhere:
		return Ignore
	case v.Requeue:
		return Retry
	}
	return Fail
}

// Size orders changes: a smaller one comes first. A change of two things is larger than every change of one.
type Size uint8

// The sizes, ascending. Changes of the same size are ordered by how far their numbers move, then by their text.
const (
	Number  Size = iota + 1 // a count or a limit, by how far it moves
	Fact                    // one fact of the failure or the job
	Matcher                 // one value more or less in a matcher of a rule
	Action                  // an action of a rule or a default action
	Setup                   // which policies apply, or whether retries take place at all
)

// Kind is what a change is about.
type Kind string

// The kinds.
const (
	Failure  Kind = "failure"
	Job      Kind = "job"
	Counts   Kind = "counts"
	Policies Kind = "policies"
	Override Kind = "override"
)

// Change is a change after which the engine gave the asked outcome.
type Change struct {
	Edits   []Edit // one or two, made in this order
	Verdict policy.Verdict
	Group   *chain.GroupVerdict // nil: the job is in no group, or its unit would have gone on
	Input   Input               // with the changes made
}

// Edit is a change of one thing.
type Edit struct {
	Kind Kind
	Text string // of policies: what `whatif --set` and Assign of the set read
	Now  string // what it is instead; "": nothing
	Size Size
	Far  uint64 // how far a number moves

	apply    func(*Input) error
	ofBudget bool
}

// Input is everything that a verdict follows from.
type Input struct {
	Base      *policyfile.Set // without overrides
	Overrides []policyfile.Override
	Failure   policy.Failure
	Counts    policy.Counts
	Budget    *Budget                   // nil: none was asked
	Member    *projection.MemberFailure // with its unit and group as they were; nil: the job is in none
}

// Evaluate decides the input; of a member, also what its group does about its unit, nil if that goes on.
func (in *Input) Evaluate() (policy.Verdict, *chain.GroupVerdict, error) {
	set := in.Base
	if len(in.Overrides) > 0 { // which builds another set
		var err error
		if set, err = set.WithOverrides(in.Overrides...); err != nil {
			return policy.Verdict{}, nil, err
		}
	}
	if in.Member != nil {
		v, unit := evaluator.JudgeMember(set.Set, &in.Failure, &in.Counts, in.Member, in.Budget.refuses(set.Set, in.Failure.Queue))
		return v, unit, nil
	}
	v := set.Evaluate(&in.Failure, &in.Counts)
	if evaluator.HeldByBreaker(set.Set, &in.Failure, &v) {
		return v, nil, nil // no budget is asked
	}
	return in.withBudget(set.Set, v), nil, nil
}

// ErrSame reports that the outcome is already the asked one.
var ErrSame = errors.New("the outcome is already that")

const (
	maxPolicyEdits = 400 // to bound the time that large policies take
	maxPairs       = 20_000
)

// Find returns the changes that give an outcome, the smallest first: of one thing, or if there is none, of two. It is
// partial if the policies are so large that not all their rules were tried.
func Find(in *Input, want Outcome) (changes []Change, partial bool, err error) {
	v, unit, err := in.Evaluate()
	if err != nil {
		return nil, false, err
	}
	if OutcomeOf(&v) == want {
		return nil, false, ErrSame
	}
	p := proposer{in: in, v: &v, unit: unit, want: want, sets: map[string]*policyfile.Set{}}
	edits := p.propose()
	try := func(edits ...Edit) bool {
		next, ok := in.with(edits)
		if !ok {
			return false
		}
		v, unit, err := next.Evaluate()
		if err != nil || OutcomeOf(&v) != want {
			return false
		}
		changes = append(changes, Change{edits, v, unit, next})
		return true
	}
	for _, e := range edits {
		try(e)
	}
	if len(changes) == 0 {
		left := maxPairs
		for i := range edits {
			for j := i + 1; j < len(edits) && left > 0; j++ {
				left--
				try(edits[i], edits[j])
			}
		}
	}
	slices.SortStableFunc(changes, compare)
	changes = slices.CompactFunc(changes, func(a, b Change) bool { return a.String() == b.String() })
	return changes, p.partial, nil
}

// with returns the input with edits made; not ok if they cannot be made.
func (in *Input) with(edits []Edit) (next Input, ok bool) {
	next = *in
	next.Failure.Containers = slices.Clone(in.Failure.Containers)
	next.Counts.Rules = slices.Clone(in.Counts.Rules)
	for _, e := range edits {
		if e.apply(&next) != nil {
			return next, false
		}
	}
	return next, true
}

func compare(a, b Change) int {
	n := cmp.Compare(len(a.Edits), len(b.Edits))
	var x, y, far [2]uint64
	for i, c := range [2]*Change{&a, &b} {
		for _, e := range c.Edits {
			x[i] = max(x[i], uint64(e.Size))
			y[i] += uint64(e.Size)
			far[i] += e.Far
		}
	}
	return cmp.Or(n, cmp.Compare(x[0], x[1]), cmp.Compare(y[0], y[1]), cmp.Compare(far[0], far[1]), strings.Compare(a.String(), b.String()))
}

// String names the change.
func (c *Change) String() string {
	var parts []string
	for _, e := range c.Edits {
		text := e.Text
		if e.Now != "" {
			text += fmt.Sprintf(" (is %s)", e.Now)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", and ")
}
