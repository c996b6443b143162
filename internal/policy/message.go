package policy

import (
	"fmt"
	"slices"
)

// TerminationMessage is onTerminationMessage of a rule: a message of a container must match.
type TerminationMessage struct{ *Pattern }

// Matcher returns OnTerminationMessage.
func (m TerminationMessage) Matcher() Matcher { return OnTerminationMessage }

// An empty message never matches.
func (m TerminationMessage) holds(s *Scope, f *Failure) (by *Container, ok bool) {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.Message != "" && s.sees(c) && m.re.MatchString(c.Message) {
			return c, true
		}
	}
	return nil, false
}

func (m TerminationMessage) why(s *Scope, f *Failure) string {
	if !slices.ContainsFunc(f.Containers, func(c Container) bool { return c.Message != "" && s.sees(&c) }) {
		return s.none("has a message")
	}
	return fmt.Sprintf("no message matches %q", m.re)
}

func (m TerminationMessage) covers(s *Scope, other Requirement, t *Scope) bool {
	return s.contains(t) && m.Covers(other.(TerminationMessage).Pattern)
}

func (m TerminationMessage) disjoint(*Scope, Requirement, *Scope) bool { return false }

func (m TerminationMessage) never(*Scope) string {
	if m.Reach() == NoMessage {
		return "the pattern matches no text"
	}
	return ""
}

func (m TerminationMessage) origins() origins { return fromPod }

func (m TerminationMessage) split() []Requirement { return nil }
