package model

// OpenBreaker is an entry of openBreakers (semantics.md 15).
type OpenBreaker struct {
	Category, Subcategory, Queue string
	Until                        int64 // Unix nanoseconds
}

func (b OpenBreaker) yaml() string {
	var f flow
	addText(&f, "category", b.Category)
	addText(&f, "subcategory", b.Subcategory)
	addText(&f, "queue", b.Queue)
	addTime(&f, "until", b.Until)
	return f.String()
}

// breakers are open for categories and queues of the history, each once.
func (g *generator) breakers() (list []OpenBreaker) {
	if !g.chance(0.4) {
		return nil
	}
	seen := map[[3]string]bool{}
	for range 1 + g.IntN(4) {
		b := OpenBreaker{Category: pick(g, categories), Until: g.pause()}
		if g.chance(0.3) {
			b.Subcategory = pick(g, subcategories)
		}
		if g.chance(0.3) {
			b.Queue = pick(g, queueNames)
		}
		both := []OpenBreaker{b}
		if g.chance(0.5) { // another one that matches the same
			both = append(both, OpenBreaker{Category: b.Category, Until: g.pause()})
		}
		for _, b := range both {
			if cause := [3]string{b.Category, b.Subcategory, b.Queue}; !seen[cause] {
				seen[cause], list = true, append(list, b)
			}
		}
	}
	return list
}

// held: semantics.md 15, of a retry that a policy grants.
func (m *Model) held(r *run, v verdict) verdict {
	if m.version < BreakersVersion || !v.granted && !v.ignored {
		return v
	}
	e := r.failure.err
	for _, b := range m.policies.settings().OpenBreakers {
		switch {
		case b.Category != e.GetFailureCategory():
		case b.Subcategory != "" && b.Subcategory != e.GetFailureSubcategory():
			m.Seen["breaker: another subcategory"]++
		case b.Queue != "" && b.Queue != r.job.queue:
			m.Seen["breaker: another queue"]++
		case r.failure.t >= b.Until:
			m.Seen["breaker: over"]++
		default:
			if v.heldUntil != 0 {
				m.Seen["breaker: another holds it too"]++
			}
			v.heldUntil = max(v.heldUntil, b.Until)
		}
	}
	if v.heldUntil != 0 {
		// "its n is that of the retry that it would have been"
		v.nth = 1 + r.job.grantedBy(v.identity)
		if v.ignored {
			m.Seen["breaker: held a retry that does not count"]++
			v.nth = 1 + r.job.ignoredBy(v.identity)
		}
		v.code, v.granted, v.ignored = BreakerHeld, false, false
	}
	return v
}
