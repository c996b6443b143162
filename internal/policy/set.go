package policy

import (
	"cmp"
	"crypto/sha256"
	"math"
	"slices"
	"strings"
	"time"
)

// Set is a whole set of policies, queues and settings, ready to decide.
// It is immutable and safe for concurrent use.
type Set struct {
	enabled           bool
	globalMax         uint32
	legacyMaxAttempts uint32
	terminationSlack  time.Duration
	horizon           time.Duration
	jobsMaySelect     bool
	inherited         overrides // what policies inherit
	fallback          []*policy // defaultPolicyName, where it exists

	policies map[string]*policy
	queues   map[string]*queue
	other    *queue // any queue that no file mentions

	content *content // what it was built of; never changed
	digest  [sha256.Size]byte
}

// content is what a Set is built of: all that decides.
type content struct {
	settings settingsSpec
	policies []*policy  // by name
	bindings []*binding // by name
}

// policy is one RetryPolicy. It depends on nothing but its text, so sets share
// the policies that are the same in them, and it is never changed.
type policy struct {
	namedPolicy        // settled
	text        string // canonical
	byDefault   target
	rules       []rule
	index       index
}

// binding is what the files say of a queue. Sets share it as they share policies.
type binding struct {
	queueSpec
	text string // canonical
}

// rule is one rule of a policy.
type rule struct {
	matchers
	target
}

// target is what a rule or a default action does, and what it counts under.
type target struct {
	key          RuleKey
	shown        string // what Verdict.Rule says
	isDefault    bool
	action       action     // noAction: a policy without defaultAction
	policy, rule *overrides // what they say of retries; no rule: a default action
}

// grant is how retries are granted: each field from the most specific level
// that sets it.
type grant struct {
	limit          uint32
	limitFrom      LimitFrom
	backoff        backoff
	avoid          AvoidMode
	whenTerminated bool
}

// queue is what is bound to a queue.
type queue struct {
	policies    []*policy // its own, each once
	skipped     []string  // names of its own that do not exist, each once
	shadow      bool
	killed      bool
	pausedUntil int64 // Unix nanoseconds; that of the settings where it is later
}

// Empty returns the set of no files: all defaults, no policy.
func Empty() *Set { return build(&content{}) }

// Enabled is the settings' enabled (SEMANTICS 3 and 10).
func (s *Set) Enabled() bool { return s.enabled }

// Horizon is how long the settings keep ended jobs (SEMANTICS 1).
func (s *Set) Horizon() time.Duration { return s.horizon }

// Canonical returns the one encoding of this set: all that was set explicitly,
// independent of files, comments and their order.
func (s *Set) Canonical() []byte { return s.content.canonical() }

// Digest is the SHA-256 of Canonical.
func (s *Set) Digest() [32]byte { return s.digest }

// queue returns what is bound to the queue of that name.
func (s *Set) queue(name string) *queue {
	if q, ok := s.queues[name]; ok {
		return q
	}
	return s.other
}

// applying appends the policies that apply to a job of q with that annotation
// to room, and names those that were skipped (SEMANTICS 3).
func (s *Set) applying(q *queue, annotation string, room []*policy) ([]*policy, []string) {
	list, skipped := q.policies, q.skipped
	if annotation != "" {
		list, skipped = s.selecting(q, annotation, room)
	}
	if len(list) == 0 {
		list = s.fallback
	}
	return list, skipped
}

// selecting is applying for a job that names policies of its own.
func (s *Set) selecting(q *queue, annotation string, room []*policy) ([]*policy, []string) {
	list, skipped := append(room, q.policies...), slices.Clip(q.skipped)
	var missing map[string]bool
	for name := range strings.SplitSeq(annotation, ",") {
		name = strings.Trim(name, " \t\r\n")
		p := s.policies[name]
		switch {
		case name == "" || p != nil && slices.Contains(list, p):
		case p != nil && or(p.Spec.SelectableByJobs, s.jobsMaySelect):
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

// build makes a Set of content that holds no faults.
func build(c *content) *Set {
	slices.SortFunc(c.policies, func(a, b *policy) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.bindings, func(a, b *binding) int { return cmp.Compare(a.Name, b.Name) })
	c.settings.DefaultBackoff.settle()
	g := &c.settings
	s := &Set{
		enabled:           or(g.Enabled, true),
		globalMax:         uint32(or(g.GlobalMaxRetries, 20)),
		legacyMaxAttempts: uint32(or(g.LegacyMaxAttempts, 4)),
		terminationSlack:  or(g.TerminationSlack, 0).duration(),
		horizon:           or(g.Horizon, duration(24*time.Hour/time.Millisecond)).duration(),
		jobsMaySelect:     or(g.JobsMaySelect, true),
		policies:          make(map[string]*policy, len(c.policies)),
		queues:            make(map[string]*queue, len(c.bindings)),
		content:           c,
		digest:            sha256.Sum256(c.canonical()),
	}
	limit := limit(s.globalMax)
	s.inherited = overrides{RetryLimit: &limit, Backoff: g.DefaultBackoff}
	for _, p := range c.policies {
		s.policies[string(p.Name)] = p
	}
	if p := s.policies[string(g.DefaultPolicyName)]; p != nil {
		s.fallback = []*policy{p}
	}
	s.other = s.bind(&queueSpec{}, g)
	for _, b := range c.bindings {
		s.queues[string(b.Name)] = s.bind(&b.queueSpec, g)
	}
	return s
}

// bind finds what is bound to one queue.
func (s *Set) bind(spec *queueSpec, g *settingsSpec) *queue {
	unset := instant(math.MinInt64)
	q := &queue{
		shadow:      g.Mode == shadow,
		killed:      spec.Killed,
		pausedUntil: int64(max(or(spec.PausedUntil, unset), or(g.PausedUntil, unset))),
	}
	if spec.Mode != noMode {
		q.shadow = spec.Mode == shadow
	}
	for _, name := range spec.RetryPolicies {
		p := s.policies[string(name)]
		switch {
		case p == nil && !slices.Contains(q.skipped, string(name)):
			q.skipped = append(q.skipped, string(name))
		case p != nil && !slices.Contains(q.policies, p):
			q.policies = append(q.policies, p)
		}
	}
	return q
}

// or returns what p points to, or the default where p is nil.
func or[T any](p *T, unset T) T {
	if p == nil {
		return unset
	}
	return *p
}
