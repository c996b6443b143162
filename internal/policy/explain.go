package policy

import "time"

// ladder collects the traces of Explain. A nil ladder collects nothing, so that Evaluate uses the same code.
type ladder struct {
	traces []RuleTrace
	delay  Arithmetic
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
	l.traces = append(l.traces, RuleTrace{
		Policy: r.key.Policy, Rule: r.shown, Tried: true,
		Matched: failed == NoMatcher, Failed: failed, Why: r.why(f, failed),
	})
}

func (l *ladder) untried(r *rule) {
	l.traces = append(l.traces, RuleTrace{Policy: r.key.Policy, Rule: r.shown})
}
