package whynot

import (
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/policy"
)

// durations proposes that the run was running for as long as a rule requires, and for just less.
func (p *proposer) durations(applying []spec) {
	var all []time.Duration
	for _, s := range applying {
		for _, r := range s.Rules {
			for _, bound := range []string{r.OnRunDuration.LessThan, r.OnRunDuration.AtLeast} {
				if d, err := time.ParseDuration(bound); err == nil {
					all = append(all, d, max(0, d-time.Millisecond))
				}
			}
		}
	}
	have := ""
	if f := &p.in.Failure; f.Ran {
		have = f.RunDuration.String()
	}
	slices.Sort(all)
	for _, d := range slices.Compact(all) {
		if d.String() != have {
			p.fact(Failure, fmt.Sprintf("running for %v", d), have, func(f *policy.Failure) { f.Ran, f.RunDuration = true, d })
		}
	}
}
