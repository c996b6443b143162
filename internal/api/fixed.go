package api

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// Fixed says what cannot be changed here, because it comes from another source. Overrides can always be changed.
type Fixed struct {
	Why string // for people; "": everything can be changed here
	// PoliciesOnly means that only policies, and the queues' choice of them, come from the other source. Settings
	// and the other fields of queues can be changed here.
	PoliciesOnly bool
	// Refused is the set that the files say and that is refused until somebody confirms it; nil: there is none.
	Refused func() *policyfile.Set
}

// keep preserves what comes from the other source. A queue that omits its policies, or is deleted, keeps the
// policies that it has; any other value is refused.
func (f *Fixed) keep(now, wanted *policyfile.Set) (*policyfile.Set, error) {
	is, wants := map[string][]string{}, map[string][]string{}
	for _, b := range now.Bindings() {
		is[b.Queue] = b.Policies
	}
	for _, b := range wanted.Bindings() {
		wants[b.Queue] = b.Policies
	}
	var wrong []string
	for _, c := range policylog.Differences(now, wanted) {
		switch list := wants[c.Name]; {
		case c.Kind == policyfile.KindPolicy:
			wrong = append(wrong, fmt.Sprintf("%s would be %s", c.ID, c.Op))
		case c.Kind == policyfile.KindQueue && len(list) > 0 && !slices.Equal(list, is[c.Name]):
			wrong = append(wrong, fmt.Sprintf("%s would name %q instead of %q: leave retryPolicies out", c.ID, list, is[c.Name]))
		}
	}
	if len(wrong) > 0 {
		if more := len(wrong) - shownProblems; more > 0 {
			wrong = append(wrong[:shownProblems], fmt.Sprintf("and %d more", more))
		}
		return nil, status.Errorf(codes.FailedPrecondition, "%s; %s", f.Why, strings.Join(wrong, "; "))
	}
	set, _ := wanted.Bound(now.Bindings()) // every content of a set is valid
	return set, nil
}

// ours returns the changes that are responsible for the policies which a resource names. A queue whose policies
// come from another source is not.
func (f *Fixed) ours(changes []policylog.Change) []policylog.Change {
	if !f.PoliciesOnly {
		return changes
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c policylog.Change) bool { return c.Kind == policyfile.KindQueue })
}

// pruned returns the set without everything that can be changed here.
func (f *Fixed) pruned(now *policyfile.Set) *policyfile.Set {
	if !f.PoliciesOnly {
		return policyfile.Empty()
	}
	ids := slices.DeleteFunc(now.Resources(), func(id policyfile.ID) bool { return id.Kind == policyfile.KindPolicy })
	return now.Without(ids...)
}
