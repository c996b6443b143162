package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ladder collects the rungs of Explain. A nil ladder collects nothing, so that Evaluate uses the same code.
type ladder struct {
	rungs []Rung
	delay Arithmetic
}

// Arithmetic shows how the delay of a retry was computed (semantics.md 6): the smaller of Initial × Multiplier^(N−1)
// and Max, plus Jitter, but at least Grace + Slack while the old pod may still be alive, and not before
// PausedUntil.
type Arithmetic struct {
	N           uint64 // this retry's number on its rule
	Initial     time.Duration
	Max         time.Duration
	Multiplier  float64 // for display; the engine uses exact fractions
	Plain       time.Duration
	Jitter      time.Duration // the amount that it added
	Grace       time.Duration // 0: the old pod is gone, or the retry need not wait for it
	Slack       time.Duration
	PausedUntil int64 // Unix nanoseconds; 0: not paused
}

// Arithmetic returns how the delay of Evaluate's verdict was computed. It is not ok if the verdict has no delay by
// a policy.
func (s *Set) Arithmetic(f *Failure, c *Counts) (a Arithmetic, ok bool) {
	l := &ladder{}
	s.decide(f, c, l)
	return l.delay, l.delay.N > 0
}

func (l *ladder) reckoned(s *Set, q *queue, g *grant, f *Failure, n uint64) {
	if l == nil {
		return
	}
	b := g.backoff
	a := Arithmetic{
		N: n, Initial: toDuration(b.initial), Max: toDuration(b.max),
		Multiplier: float64(b.num) / float64(b.den), Plain: b.delay(n),
	}
	a.Jitter = toDuration(b.jitterOf(a.Plain, f.RunID))
	if g.waitsForEnd(f) {
		a.Grace, a.Slack = f.grace(), s.terminationSlack
	}
	if q.pausedUntil > f.Time {
		a.PausedUntil = q.pausedUntil
	}
	l.delay = a
}

func (l *ladder) tried(r *rule, f *Failure, failed Matcher) {
	if l == nil {
		return
	}
	l.rungs = append(l.rungs, Rung{
		Policy: r.key.Policy, Rule: r.shown, Tried: true,
		Matched: failed == NoMatcher, Failed: failed, Why: r.why(f, failed),
	})
}

func (l *ladder) untried(r *rule) {
	l.rungs = append(l.rungs, Rung{Policy: r.key.Policy, Rule: r.shown})
}

// why explains why the matcher did not hold; "" for NoMatcher.
func (m *matchers) why(f *Failure, failed Matcher) string {
	switch failed {
	case OnConditions:
		return m.whyConditions(f)
	case OnExitCodes:
		return m.whyExitCodes(f)
	case OnTerminationMessage:
		if !slices.ContainsFunc(f.Containers, func(c Container) bool { return c.Message != "" && m.sees(&c) }) {
			return m.noContainer("has a message")
		}
		return fmt.Sprintf("no message matches %q", m.Pattern.re)
	case OnFailureCategory:
		return whyLabel("category", f.Category, m.Categories)
	case OnFailureSubcategory:
		return whyLabel("subcategory", f.Subcategory, m.Subcategories)
	case NoMatcher:
	}
	return ""
}

func (m *matchers) whyConditions(f *Failure) string {
	have := m.podConditions(f)
	if oom, _ := m.oomKilled(f); oom {
		have = have.With(OOMKilled)
	}
	asked := "[" + strings.Join(m.Conditions.names(), " ") + "]"
	switch names := have.names(); {
	case m.ContainerName != "" && m.Conditions.Has(OOMKilled):
		return fmt.Sprintf("container %q was not OOMKilled", m.ContainerName)
	case m.ContainerName != "":
		return asked + " never holds for a container, and the rule names one"
	case len(names) == 0:
		return "no condition, so none of " + asked
	case len(names) == 1:
		return fmt.Sprintf("condition %s not among %s", names[0], asked)
	default:
		return fmt.Sprintf("conditions %s not among %s", strings.Join(names, ", "), asked)
	}
}

func (m *matchers) whyExitCodes(f *Failure) string {
	t := m.targeted(f)
	if t == nil {
		return m.noContainer("failed")
	}
	verb := "is not in"
	if m.ExitCodes.NotIn {
		verb = "is in"
	}
	return fmt.Sprintf("exit code %d of container %q %s %v", t.ExitCode, t.Name, verb, m.ExitCodes.Codes)
}

// noContainer reports that none of the containers that the rule considers did something.
func (m *matchers) noContainer(did string) string {
	if m.ContainerName != "" {
		return fmt.Sprintf("no container %q %s", m.ContainerName, did)
	}
	return "no container " + did
}

func whyLabel(what, have string, asked []string) string {
	if have == "" {
		return fmt.Sprintf("no %s, so none of %v", what, asked)
	}
	return fmt.Sprintf("%s %q not among %v", what, have, asked)
}

// names returns the names of the conditions in the set.
func (s Conditions) names() []string {
	var names []string
	for c := OOMKilled; c <= LeaseExpired; c++ {
		if s.Has(c) {
			names = append(names, c.String())
		}
	}
	return names
}
