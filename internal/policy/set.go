package policy

import (
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
	fallback          []*policy // defaultPolicyName, where it exists

	policies map[string]*policy
	queues   map[string]*queue
	other    *queue // any queue that no file mentions

	content   *content // what it was built of; never changed
	canonical []byte
	digest    [sha256.Size]byte
}

// policy is one RetryPolicy with all that it inherits.
type policy struct {
	name       string
	selectable bool // by a job's annotation
	byDefault  target
	rules      []rule
}

// rule is one rule with all that it inherits.
type rule struct {
	matchers
	target
}

// target is what a rule or a default action does, and what it counts under.
type target struct {
	key       RuleKey
	shown     string // what Verdict.Rule says
	isDefault bool
	action    action // noAction: a policy without defaultAction
	grant
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
// independent of files, comments and their order. The bytes are shared: do not
// change them.
func (s *Set) Canonical() []byte { return s.canonical }

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
		case p != nil && p.selectable:
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
	c.settle()
	g := &c.Settings
	s := &Set{
		enabled:           or(g.Enabled, true),
		globalMax:         uint32(or(g.GlobalMaxRetries, 20)),
		legacyMaxAttempts: uint32(or(g.LegacyMaxAttempts, 4)),
		terminationSlack:  or(g.TerminationSlack, 0).duration(),
		horizon:           or(g.Horizon, duration(24*time.Hour/time.Millisecond)).duration(),
		policies:          make(map[string]*policy, len(c.Policies)),
		queues:            make(map[string]*queue, len(c.Queues)),
		content:           c,
		canonical:         encode(c),
	}
	s.digest = sha256.Sum256(s.canonical)
	for i := range c.Policies {
		p := s.compile(&c.Policies[i], g)
		s.policies[p.name] = p
	}
	if p := s.policies[string(g.DefaultPolicyName)]; p != nil {
		s.fallback = []*policy{p}
	}
	s.other = s.bind(&queueSpec{}, g)
	for i := range c.Queues {
		s.queues[string(c.Queues[i].Name)] = s.bind(&c.Queues[i], g)
	}
	return s
}

// bind compiles what is bound to one queue.
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
