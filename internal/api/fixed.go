package api

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policy/policylog"
)

// Fixed says what is not to be changed here, since it comes from somewhere else.
// Brakes are always ours.
type Fixed struct {
	Why string // for people; "": everything is changed here
	// PoliciesOnly: only policies come from there, and which of them queues name.
	// Settings, and what else a queue says, are changed here.
	PoliciesOnly bool
}

// keep leaves what comes from elsewhere as it is. A queue that leaves out its
// policies, or goes, keeps those that it has; whoever says otherwise is refused.
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
	set, _ := wanted.Bound(now.Bindings()) // what a set says can be said
	return set, nil
}

// ours are the changes that answer for the policies which a resource names: a queue
// whose policies come from elsewhere does not.
func (f *Fixed) ours(changes []policylog.Change) []policylog.Change {
	if !f.PoliciesOnly {
		return changes
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c policylog.Change) bool { return c.Kind == policyfile.KindQueue })
}

// pruned is the set without all that is changed here.
func (f *Fixed) pruned(now *policyfile.Set) *policyfile.Set {
	if !f.PoliciesOnly {
		return policyfile.Empty()
	}
	ids := slices.DeleteFunc(now.Resources(), func(id policyfile.ID) bool { return id.Kind == policyfile.KindPolicy })
	return now.Without(ids...)
}
