package policy

import "strconv"

// Matcher is a matcher of a rule, in the order in which it is tried.
type Matcher uint8

// The matchers of semantics.md 4. Their numbers are in decision logs: only append.
const (
	NoMatcher Matcher = iota
	OnConditions
	OnExitCodes
	OnTerminationMessage
	OnFailureCategory
	OnFailureSubcategory
	OnRunDuration

	// LastMatcher is the one with the highest number.
	LastMatcher = iota - 1
)

var matcherNames = [...]string{"", "onConditions", "onExitCodes", "onTerminationMessage", "onFailureCategory", "onFailureSubcategory", "onRunDuration"}

// String returns the matcher's field in a policy file, and "" for NoMatcher.
func (m Matcher) String() string { return NameAt(matcherNames[:], uint8(m), "Matcher") }

// ParseMatcher returns the matcher that String names s.
func ParseMatcher(s string) (Matcher, bool) { return parseName(s, NoMatcher, LastMatcher) }

// A Requirement is a matcher with what a rule requires by it. Each type is one matcher: all that the engine and the
// proofs about rules (proof.go) know of it. The proofs follow from semantics.md 2 and 4 alone; what is not proven is false.
type Requirement interface {
	// Matcher returns which matcher it is.
	Matcher() Matcher
	// holds reports whether a failure meets the requirement, and by which container, if one decided that.
	holds(s *Scope, f *Failure) (by *Container, ok bool)
	// why explains why a failure does not meet it.
	why(s *Scope, f *Failure) string

	// covers reports whether it holds in scope s whenever other, of the same type, holds in scope t.
	covers(s *Scope, other Requirement, t *Scope) bool
	// disjoint reports whether no failure meets both it and other, of the same type.
	disjoint(s *Scope, other Requirement, t *Scope) bool
	// never explains why no failure meets it; "": one may.
	never(s *Scope) string
	// origins returns which errors a failure that meets it may have.
	origins() origins
	// split returns requirements of which one holds whenever it holds.
	split() []Requirement
}

// Matchers say which failures a rule matches (semantics.md 4): those that meet all requirements.
type Matchers struct {
	Scope
	Requirements []Requirement // at least one; each type once, in the order of Matcher
}

// Scope says which containers a rule considers.
type Scope struct {
	ContainerName         string // "": any
	IncludeInitContainers bool
}

// Find returns what a rule requires by one matcher; not ok: nothing.
func Find[R Requirement](m *Matchers) (required R, ok bool) {
	for _, r := range m.Requirements {
		if required, ok = r.(R); ok {
			break
		}
	}
	return required, ok
}

// match returns the first matcher that does not hold, or NoMatcher if all hold, and then the container that
// decided: the one whose message matched, else the targeted one if its exit code or reason was evaluated, else "".
func (m *Matchers) match(f *Failure) (failed Matcher, container string) {
	for _, r := range m.Requirements {
		by, ok := r.holds(&m.Scope, f)
		if !ok {
			return r.Matcher(), ""
		}
		if by != nil {
			container = by.Name
		}
	}
	return NoMatcher, container
}

// last returns the last matcher that must hold.
func (m *Matchers) last() Matcher {
	if n := len(m.Requirements); n > 0 {
		return m.Requirements[n-1].Matcher()
	}
	return NoMatcher
}

// why explains why the matcher did not hold; "" for NoMatcher.
func (m *Matchers) why(f *Failure, failed Matcher) string {
	if r := m.by(failed); r != nil {
		return r.why(&m.Scope, f)
	}
	return ""
}

// by returns what is required by a matcher; nil: nothing.
func (m *Matchers) by(matcher Matcher) Requirement {
	for _, r := range m.Requirements {
		if r.Matcher() == matcher {
			return r
		}
	}
	return nil
}

// sees reports whether the rule considers this container.
func (s *Scope) sees(c *Container) bool {
	return (s.IncludeInitContainers || !c.Init) && (s.ContainerName == "" || s.ContainerName == c.Name)
}

// contains reports whether the rule considers every container that a rule of the other scope considers.
func (s *Scope) contains(t *Scope) bool {
	return (s.ContainerName == "" || s.ContainerName == t.ContainerName) && (s.IncludeInitContainers || !t.IncludeInitContainers)
}

// targeted returns the first container that the rule considers and that failed.
func (s *Scope) targeted(f *Failure) *Container {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.ExitCode != 0 && s.sees(c) {
			return c
		}
	}
	return nil
}

// none reports that none of the containers that the rule considers did something.
func (s *Scope) none(did string) string {
	if s.ContainerName != "" {
		return "no container " + strconv.Quote(s.ContainerName) + " " + did
	}
	return "no container " + did
}
