package policy

import "time"

// Protection is how nodes become suspects, which retries avoid for a while (ADR 23). It changes no decision by itself.
type Protection struct {
	Shadow       bool   // suspicions are logged and counted, and nothing avoids the node
	SuspectAfter uint32 // jobs that fail on a node one after the other
	Queues       uint32 // at least so many queues have them
	Window       time.Duration
	Rest         time.Duration // of a suspect
	CertainRest  time.Duration // of one whose jobs succeed elsewhere
	LongestRest  time.Duration
	Share        uint32 // of the nodes that may be suspects at once, in thousandths; at least one may
}

// DefaultProtection returns the values of fields that are not set.
func DefaultProtection() Protection {
	return Protection{
		SuspectAfter: 4, Queues: 2, Window: 10 * time.Minute, Rest: 5 * time.Minute, CertainRest: 30 * time.Minute, LongestRest: 24 * time.Hour, Share: 100,
	}
}

// RestAfter returns how long retries avoid a suspect that was one so many times within a day: each time twice as long.
func (p *Protection) RestAfter(times int, certain bool) time.Duration {
	rest := p.Rest
	if certain {
		rest = p.CertainRest
	}
	for ; times > 0 && rest < p.LongestRest; times-- {
		rest *= 2
	}
	return min(rest, p.LongestRest)
}
