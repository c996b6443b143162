package policy

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Set is a complete set of policies, queues and settings, ready to decide. It is immutable and safe for concurrent
// use.
type Set struct {
	enabled           bool
	globalMax         uint32
	policyMax         uint32 // at least globalMax
	legacyMaxAttempts uint32
	terminationSlack  time.Duration
	horizon           time.Duration
	jobsMaySelect     bool
	avoidNodes        []AvoidedNode
	openBreakers      []Breaker
	protection        *Protection
	breakers          *Breakers
	budgets           []Budget  // by name
	inherited         Overrides // what policies inherit
	fallback          []*Policy // the settings' default policy, if it exists

	policies map[string]*Policy
	groups   map[string]*GroupPolicy
	queues   map[string]*queue
	other    *queue // any queue without a definition
	digest   [32]byte
}

// rule is one rule of a policy.
type rule struct {
	Matchers
	target
}

// target is what a rule or a default action does, and what it is counted under.
type target struct {
	key          RuleKey
	shown        string // value of Verdict.Rule
	isDefault    bool
	action       Action     // NoAction: a policy without a default action
	policy, rule *Overrides // their overrides; no rule: a default action
	maxRetries   *uint32    // of the policy
	reason       UnitReason // of FailUnit; NoUnitReason: PodFailurePolicy
}

// grant is how retries are granted: each field from the most specific level that sets it.
type grant struct {
	limit          uint32
	limitFrom      LimitFrom
	backoff        backoff
	avoid          AvoidMode
	whenTerminated bool
}

// queue is the binding of a queue.
type queue struct {
	policies    []*Policy // its own, each once
	skipped     []string  // names of its own that do not exist, each once
	shadow      bool
	killed      bool
	pausedUntil int64 // Unix nanoseconds; the later of its own and the settings'
}

// New makes a set. The digest identifies everything that affects decisions: sets with equal digests decide
// equally. Names of policies, group policies and queues are unique.
func New(settings *Settings, policies []*Policy, groups []*GroupPolicy, queues []Queue, digest [32]byte) *Set {
	s := &Set{
		enabled:           settings.Enabled,
		globalMax:         settings.GlobalMaxRetries,
		policyMax:         max(settings.GlobalMaxRetries, settings.PolicyMaxRetries),
		legacyMaxAttempts: settings.LegacyMaxAttempts,
		terminationSlack:  settings.TerminationSlack,
		horizon:           settings.Horizon,
		jobsMaySelect:     settings.JobsMaySelect,
		avoidNodes:        settings.AvoidNodes,
		openBreakers:      settings.OpenBreakers,
		protection:        settings.Protection,
		breakers:          settings.Breakers,
		budgets:           settings.Budgets,
		inherited:         Overrides{RetryLimit: &settings.GlobalMaxRetries, Backoff: settings.DefaultBackoff},
		policies:          make(map[string]*Policy, len(policies)),
		groups:            make(map[string]*GroupPolicy, len(groups)),
		queues:            make(map[string]*queue, len(queues)),
		digest:            digest,
	}
	for _, p := range policies {
		s.policies[p.name] = p
	}
	for _, g := range groups {
		s.groups[g.Name] = g
	}
	if p := s.policies[settings.DefaultPolicy]; p != nil {
		s.fallback = []*Policy{p}
	}
	s.other = s.bind(&Queue{}, settings)
	for i := range queues {
		s.queues[queues[i].Name] = s.bind(&queues[i], settings)
	}
	return s
}

// bind resolves the binding of one queue.
func (s *Set) bind(d *Queue, settings *Settings) *queue {
	const never = math.MinInt64
	q := &queue{
		shadow:      or(d.Shadow, settings.Shadow),
		killed:      d.Killed,
		pausedUntil: max(or(d.PausedUntil, never), or(settings.PausedUntil, never)),
	}
	for _, name := range d.Policies {
		p := s.policies[name]
		switch {
		case p == nil && !slices.Contains(q.skipped, name):
			q.skipped = append(q.skipped, name)
		case p != nil && !slices.Contains(q.policies, p):
			q.policies = append(q.policies, p)
		}
	}
	return q
}

// Enabled returns the settings' enabled (semantics.md 3 and 10).
func (s *Set) Enabled() bool { return s.enabled }

// AvoidNodes returns the nodes that the settings have retries avoid, by name. Do not change them.
func (s *Set) AvoidNodes() []AvoidedNode { return s.avoidNodes }

// Protection returns how nodes become suspects; nil: they do not. Do not change it.
func (s *Set) Protection() *Protection { return s.protection }

// Breakers returns how breakers open and close by themselves; nil: they do not. Do not change it.
func (s *Set) Breakers() *Breakers { return s.breakers }

// OpenBreakers returns the breakers that are open or were. Do not change them.
func (s *Set) OpenBreakers() []Breaker { return s.openBreakers }

// Budgets returns the retry budgets, by name. Do not change them.
func (s *Set) Budgets() []Budget { return s.budgets }

// Horizon returns how long ended jobs are kept (semantics.md 1).
func (s *Set) Horizon() time.Duration { return s.horizon }

// GlobalMaxRetries returns the settings' limit on all retries of a job.
func (s *Set) GlobalMaxRetries() uint32 { return s.globalMax }

// PolicyMaxRetries returns to how many retries of a job a policy may raise that limit.
func (s *Set) PolicyMaxRetries() uint32 { return s.policyMax }

// Digest returns the SHA-256 of the set's canonical encoding.
func (s *Set) Digest() [32]byte { return s.digest }

// Queues lists the queues that have a definition, by name.
func (s *Set) Queues() []string { return slices.Sorted(maps.Keys(s.queues)) }

// Has reports whether the set has a policy of that name.
func (s *Set) Has(name string) bool { return s.policies[name] != nil }

// InShadow reports whether a queue is in shadow.
func (s *Set) InShadow(queue string) bool { return s.queue(queue).shadow }

// GroupPolicy returns the group policy of that name, nil if there is none.
func (s *Set) GroupPolicy(name string) *GroupPolicy { return s.groups[name] }

// Applying names the policies that apply to a job of the queue with that annotation, in order.
func (s *Set) Applying(queue, annotation string) []string {
	list, _ := s.applying(s.queue(queue), annotation, nil)
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.name
	}
	return names
}

// queue returns the binding of the queue of that name.
func (s *Set) queue(name string) *queue {
	if q, ok := s.queues[name]; ok {
		return q
	}
	return s.other
}

// applying appends the policies that apply to a job of q with that annotation to room, and names those that were
// skipped (semantics.md 3).
func (s *Set) applying(q *queue, annotation string, room []*Policy) ([]*Policy, []string) {
	list, skipped := q.policies, q.skipped
	if annotation != "" {
		list, skipped = s.selecting(q, annotation, room)
	}
	if len(list) == 0 {
		list = s.fallback
	}
	return list, skipped
}

// selecting is applying for a job that names policies in its annotation.
func (s *Set) selecting(q *queue, annotation string, room []*Policy) ([]*Policy, []string) {
	list, skipped := append(room, q.policies...), slices.Clip(q.skipped)
	var missing map[string]bool
	for name := range strings.SplitSeq(annotation, ",") {
		name = strings.Trim(name, " \t\r\n")
		p := s.policies[name]
		switch {
		case name == "" || p != nil && slices.Contains(list, p):
		case p != nil && or(p.selectable, s.jobsMaySelect):
			list = append(list, p)
		case !missing[name] && !slices.Contains(q.skipped, name):
			if missing == nil {
				missing = make(map[string]bool)
			}
			missing[name] = true
			skipped = append(skipped, name)
		}
	}
	return list, skipped
}

// level is one of the levels that set how retries are granted.
type level struct {
	*Overrides
	from LimitFrom
}

// grantOf returns how the target grants retries, with everything that it inherits.
func (s *Set) grantOf(t *target) grant {
	levels := [...]level{{&s.inherited, FromGlobal}, {t.policy, FromPolicy}, {t.rule, FromRule}}
	used := levels[:]
	if t.rule == nil {
		used = levels[:2]
	}
	g := inherit(used...)
	if g.limitFrom == FromGlobal {
		g.limit = s.maxRetries(t)
	}
	return g
}

// maxRetries returns the limit on all retries of a job, where the target grants one (semantics.md 5).
func (s *Set) maxRetries(t *target) uint32 {
	return min(or(t.maxRetries, s.globalMax), s.policyMax)
}

// inherit goes from the most general level to the most specific.
func inherit(levels ...level) grant {
	initial, longest, growth, jitter := time.Duration(0), 10*time.Minute, uint32(2000), uint32(0)
	var g grant
	for _, l := range levels {
		if l.RetryLimit != nil {
			g.limit, g.limitFrom = *l.RetryLimit, l.from
		}
		initial = or(l.Backoff.InitialDelay, initial)
		longest = or(l.Backoff.MaxDelay, longest)
		growth = or(l.Backoff.Multiplier, growth)
		jitter = or(l.Backoff.Jitter, jitter)
		g.avoid = or(l.Avoid, g.avoid)
		if l.Replacement != NoReplacement {
			g.whenTerminated = l.Replacement == WhenTerminated
		}
	}
	common := commonDivisor(uint64(growth), 1000)
	g.backoff = backoff{
		initial: uint64(initial / time.Millisecond), max: uint64(longest / time.Millisecond),
		num: uint64(growth) / common, den: 1000 / common,
		jitter: uint64(jitter),
	}
	return g
}

func commonDivisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// or returns what p points to, or the default if p is nil.
func or[T any](p *T, unset T) T {
	if p == nil {
		return unset
	}
	return *p
}
