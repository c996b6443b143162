package policy

import (
	"fmt"
	"time"
)

// RunDuration is onRunDuration of a rule: how long the run was running. A run that never was matches neither bound.
type RunDuration struct {
	AtLeast  time.Duration
	LessThan time.Duration // 0: no upper bound; else above AtLeast
}

// Matcher returns OnRunDuration.
func (d RunDuration) Matcher() Matcher { return OnRunDuration }

func (d RunDuration) holds(_ *Scope, f *Failure) (by *Container, ok bool) {
	return nil, f.Ran && f.RunDuration >= d.AtLeast && (d.LessThan == 0 || f.RunDuration < d.LessThan)
}

func (d RunDuration) why(_ *Scope, f *Failure) string {
	switch {
	case !f.Ran:
		return "it is not known that the run was ever running"
	case f.RunDuration < d.AtLeast:
		return fmt.Sprintf("the run was running for %v, not for at least %v", f.RunDuration, d.AtLeast)
	default:
		return fmt.Sprintf("the run was running for %v, not for less than %v", f.RunDuration, d.LessThan)
	}
}

func (d RunDuration) covers(_ *Scope, other Requirement, _ *Scope) bool {
	o := other.(RunDuration)
	return d.AtLeast <= o.AtLeast && (d.LessThan == 0 || o.LessThan != 0 && o.LessThan <= d.LessThan)
}

func (d RunDuration) disjoint(_ *Scope, other Requirement, _ *Scope) bool {
	o := other.(RunDuration)
	return d.LessThan != 0 && d.LessThan <= o.AtLeast || o.LessThan != 0 && o.LessThan <= d.AtLeast
}

func (d RunDuration) never(*Scope) string { return "" }

func (d RunDuration) origins() origins { return fromAnywhere }

func (d RunDuration) split() []Requirement { return nil }
