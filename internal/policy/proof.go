package policy

import "slices"

// What is proven of matchers, for checks of policies and for mutation tests. Two regular expressions are compared only
// by their text, and rules about different containers hardly at all.

// origins is a set of errors by which a run fails: it has only one.
type origins uint8

const (
	fromPod   origins = 1 << iota // the only one that reports containers
	fromLease                     // which was returned, or expired
	fromElsewhere

	fromAnywhere = fromPod | fromLease | fromElsewhere
)

// Covers reports whether it is proven that m matches whenever other does.
func (m *Matchers) Covers(other *Matchers) bool {
	for _, r := range m.Requirements {
		o := other.by(r.Matcher())
		if o == nil || !r.covers(&m.Scope, o, &other.Scope) {
			return false
		}
	}
	return true
}

// Disjoint reports whether it is proven that no failure matches both.
func (m *Matchers) Disjoint(other *Matchers) bool {
	if m.Never() != "" || other.Never() != "" || m.origins()&other.origins() == 0 {
		return true
	}
	for _, r := range m.Requirements {
		if o := other.by(r.Matcher()); o != nil && r.disjoint(&m.Scope, o, &other.Scope) {
			return true
		}
	}
	return false
}

// Never explains why no failure matches; "" if that is not proven.
func (m *Matchers) Never() string {
	possible := fromAnywhere
	for _, r := range m.Requirements {
		if possible &= r.origins(); possible == 0 {
			return "a run whose lease was returned or expired reports no container, so no exit code and no message"
		}
		if why := r.never(&m.Scope); why != "" {
			return why
		}
	}
	return ""
}

func (m *Matchers) origins() origins {
	possible := fromAnywhere
	for _, r := range m.Requirements {
		possible &= r.origins()
	}
	return possible
}

// Split returns matchers of which one matches whenever m does, as fine as it can, but not more than most.
func (m *Matchers) Split(most int) []Matchers {
	all := []Matchers{*m}
	for i, r := range m.Requirements {
		parts := r.split()
		if len(parts) < 2 || len(all)*len(parts) > most {
			continue
		}
		var finer []Matchers
		for _, whole := range all {
			for _, part := range parts {
				whole.Requirements = slices.Clone(whole.Requirements)
				whole.Requirements[i] = part
				finer = append(finer, whole)
			}
		}
		all = finer
	}
	return all
}
