package policy

// Evaluate returns the verdict on one failure (semantics.md 3 to 9). c holds what was granted to the job before; nil
// means nothing. The Skipped names of the verdict are shared: do not change them.
func (s *Set) Evaluate(f *Failure, c *Counts) Verdict { return s.decide(f, c, nil) }

// Explain returns the verdict of Evaluate and every rule that applies to the job, in order, with its first matcher
// that did not hold. There are no traces if no rule is evaluated: for gangs, failFast, or with retries disabled.
func (s *Set) Explain(f *Failure, c *Counts) (Verdict, []RuleTrace) {
	l := &ladder{}
	v := s.decide(f, c, l)
	return v, l.traces
}

// decide implements semantics.md 3: its first step that applies decides.
func (s *Set) decide(f *Failure, c *Counts, l *ladder) Verdict {
	var none Counts
	if c == nil {
		c = &none
	}
	q := s.queue(f.Queue)
	v := Verdict{GlobalUsed: c.Granted, GlobalLimit: s.globalMax, Shadow: q.shadow}
	switch {
	case f.Gang:
		v.Code = GangFail
		return v
	case f.FailFast:
		v.Code = FailFast
		return v
	case !s.enabled:
		s.withoutPolicy(&v, f, c)
		return v
	}
	var room [16]*Policy
	var applying []*Policy
	applying, v.Skipped = s.applying(q, f.JobPolicies, room[:0])
	rule, container := firstMatch(applying, f, l)
	switch {
	case rule != nil:
		v.Matcher, v.Container = rule.last(), container
		s.act(&v, q, &rule.target, f, c, l)
	case len(applying) == 0 || f.leaseReturned():
		s.withoutPolicy(&v, f, c)
	default:
		s.act(&v, q, defaultOf(applying), f, c, l)
	}
	return v
}

// firstMatch returns the first rule that matches, and the container that made it match.
func firstMatch(applying []*Policy, f *Failure, l *ladder) (match *rule, container string) {
	if l != nil {
		return l.firstMatch(applying, f)
	}
	var room mask
	for _, p := range applying {
		may := p.index.find(f, len(p.rules), &room)
		for i := may.next(0); i >= 0; i = may.next(i + 1) {
			if failed, name := p.rules[i].match(f); failed == NoMatcher {
				return &p.rules[i], name
			}
		}
	}
	return nil, ""
}

// firstMatch tries every rule in order, and records each.
func (l *ladder) firstMatch(applying []*Policy, f *Failure) (match *rule, container string) {
	for _, p := range applying {
		for i := range p.rules {
			r := &p.rules[i]
			if match != nil {
				l.untried(r)
				continue
			}
			failed, name := r.match(f)
			l.tried(r, f, failed)
			if failed == NoMatcher {
				match, container = r, name
			}
		}
	}
	return match, container
}

// defaultOf returns the default action of the first policy that has one, nil if none has.
func defaultOf(applying []*Policy) *target {
	for _, p := range applying {
		if p.byDefault.action != NoAction {
			return &p.byDefault
		}
	}
	return nil
}

// act implements semantics.md 5: it checks the action of a rule or a default action against the limits. A nil target
// is a default action Fail.
func (s *Set) act(v *Verdict, q *queue, t *target, f *Failure, c *Counts, l *ladder) {
	if t == nil {
		v.Code = DefaultFail
		return
	}
	v.Policy, v.Rule = t.key.Policy, t.shown
	if t.action == Fail || t.action == FailUnit {
		v.FailUnit = t.unitReason()
		v.Code = t.code(RuleFail, DefaultFail)
		return
	}
	if s.globalMax == 0 || q.killed {
		v.Code = KillSwitch
		return
	}
	g, count := s.grantOf(t), c.of(t.key)
	n := uint64(count.Ignored) + 1
	if t.action == Ignore {
		v.Code = RuleIgnore
	} else {
		v.LimitFrom, v.RuleUsed, v.RuleLimit, v.GlobalLimit = g.limitFrom, count.Granted, g.limit, s.maxRetries(t)
		if count.Granted >= g.limit {
			v.Code = g.limitFrom.refusal()
			return
		}
		if c.Granted >= v.GlobalLimit {
			v.Code = GlobalLimit
			return
		}
		n = uint64(count.Granted) + 1
		v.Code = t.code(RuleRetry, DefaultRetry)
		v.RuleUsed++
		v.GlobalUsed++
	}
	v.Requeue, v.Key, v.Avoid = true, t.key, g.avoid
	s.schedule(v, q, &g, f, n)
	l.reckoned(s, q, &g, f, n)
}

// unitReason returns for what the target fails a unit; NoUnitReason: it fails none.
func (t *target) unitReason() UnitReason {
	switch {
	case t.action != FailUnit:
		return NoUnitReason
	case t.reason == NoUnitReason:
		return PodFailurePolicy
	}
	return t.reason
}

// code returns ofRule for a rule and ofDefault for a default action.
func (t *target) code(ofRule, ofDefault Code) Code {
	if t.isDefault {
		return ofDefault
	}
	return ofRule
}

// refusal returns the code of a retry that the limit of this level refused.
func (l LimitFrom) refusal() Code {
	switch l {
	case FromRule:
		return RuleLimit
	case FromPolicy:
		return PolicyLimit
	case FromGlobal, FromNowhere:
	}
	return GlobalLimit
}

// withoutPolicy implements semantics.md 9: Armada's own rule, which decides if no policy applies.
func (s *Set) withoutPolicy(v *Verdict, f *Failure, c *Counts) {
	switch {
	case !f.leaseReturned():
		v.Code = NoPolicy
		return
	case !f.Conditions.Has(Unschedulable) && uint64(c.LegacyReturns)+1 >= uint64(s.legacyMaxAttempts):
		v.Code = LegacyLimit
		return
	}
	v.Requeue, v.Code, v.Avoid = true, LegacyReturn, AvoidAllNodes
	v.RetryAfter, v.ReadyAfter = f.Time, f.Time
}

// leaseReturned reports whether the executor returned the lease.
func (f *Failure) leaseReturned() bool {
	return f.Conditions.Has(Unschedulable) || f.Conditions.Has(LeaseReturned)
}

// of returns what the rule has granted so far.
func (c *Counts) of(key RuleKey) RuleCount {
	for i := range c.Rules {
		if c.Rules[i].Key == key {
			return c.Rules[i]
		}
	}
	return RuleCount{Key: key}
}
