package policy

import (
	"fmt"
	"slices"
)

// ExitCodes is onExitCodes of a rule: that of the targeted container must be among the codes, or not.
type ExitCodes struct {
	NotIn bool
	Codes []int32 // sorted
}

// Matcher returns OnExitCodes.
func (e ExitCodes) Matcher() Matcher { return OnExitCodes }

func (e ExitCodes) holds(s *Scope, f *Failure) (by *Container, ok bool) {
	t := s.targeted(f)
	return t, t != nil && e.lists(t.ExitCode) != e.NotIn
}

// lists reports whether a code is in the rule's list.
func (e ExitCodes) lists(code int32) bool {
	_, found := slices.BinarySearch(e.Codes, code)
	return found
}

func (e ExitCodes) why(s *Scope, f *Failure) string {
	t := s.targeted(f)
	if t == nil {
		return s.none("failed")
	}
	verb := "is not in"
	if e.NotIn {
		verb = "is in"
	}
	return fmt.Sprintf("exit code %d of container %q %s %v", t.ExitCode, t.Name, verb, e.Codes)
}

// covers compares exit codes: rules of the same scope have the same targeted container.
func (e ExitCodes) covers(s *Scope, other Requirement, t *Scope) bool {
	switch o := other.(ExitCodes); {
	case e.any() && s.contains(t):
		return true // the other has a failed container, and this one considers it
	case *s != *t, !e.NotIn && o.NotIn:
		return false
	case e.NotIn && o.NotIn:
		return !slices.ContainsFunc(e.Codes, func(c int32) bool { return c != 0 && !o.lists(c) })
	default:
		return !slices.ContainsFunc(o.Codes, func(c int32) bool { return (c != 0 && e.lists(c)) == e.NotIn })
	}
}

// any reports whether it lists every code except 0, which never occurs.
func (e ExitCodes) any() bool {
	return e.NotIn && !slices.ContainsFunc(e.Codes, func(c int32) bool { return c != 0 })
}

func (e ExitCodes) disjoint(s *Scope, other Requirement, t *Scope) bool {
	a, b := e, other.(ExitCodes)
	if a.NotIn {
		a, b = b, a
	}
	if a.NotIn || *s != *t {
		return false
	}
	return !slices.ContainsFunc(a.Codes, func(c int32) bool { return b.lists(c) != b.NotIn })
}

func (e ExitCodes) never(*Scope) string { return "" }

func (e ExitCodes) origins() origins { return fromPod }

func (e ExitCodes) split() []Requirement {
	if e.NotIn {
		return nil
	}
	var parts []Requirement
	for i := range e.Codes {
		parts = append(parts, ExitCodes{Codes: e.Codes[i : i+1]})
	}
	return parts
}
