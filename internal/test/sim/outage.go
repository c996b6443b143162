package sim

// down reports whether the log is unavailable: all reads and writes fail.
func (t *topic) down() bool { return t.w.has(Outages) && t.w.now < t.until }

func (w *world) anyDown() bool { return w.events.down() || w.decisions.down() || w.policies.down() }

// longDown reports whether an outage is on that has lasted longer than owners wait.
func (w *world) longDown() bool {
	for _, t := range []*topic{w.events, w.decisions, w.policies} {
		if t.down() && w.now-t.since > readBackTimeout {
			return true
		}
	}
	return false
}

// beginOutage makes a log unreachable, often for longer than owners wait.
func (w *world) beginOutage() {
	t := []*topic{w.events, w.decisions, w.policies}[w.rng.IntN(3)]
	t.since, t.until = w.now, w.now+w.rng.Int64N(4*readBackTimeout)
	w.logf("%s cannot be reached for %.3fs", t.name, float64(t.until-w.now)/1e9)
}

// outageSend is what becomes of a send while the decision log cannot be reached: the
// client keeps it until the outage ends, and may have given up waiting by then.
func (s *sender) outageSend(raw []byte) error {
	w := s.m.w
	if w.one(2) {
		s.put(raw, false)
		return nil
	}
	s.broken = w.one(2)
	s.put(raw, true)
	w.logf("%v's send fails in an outage", s.m)
	return errSend
}

// waited notes whether an outage kept a send from landing.
func (w *world) waited(x *send) {
	if w.decisions.until > x.at && w.faults&Outages != 0 {
		w.saw(SawOutageSend)
	}
}
