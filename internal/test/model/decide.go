package model

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
)

const (
	annotationPolicies    = "armadaproject.io/retry-policy"
	annotationFailFast    = "armadaproject.io/failFast"
	annotationGang        = "armadaproject.io/gangId"
	annotationCardinality = "armadaproject.io/gangCardinality"
)

// decide decides a failure (§3) and completes its record.
func (m *Model) decide(r *run, rec Record) Record {
	j := r.job
	v := m.budgeted(r, m.held(r, m.verdict(r)))
	j.count(r, v)
	rec = m.describe(r, v, rec)
	if !v.retry {
		// §1: a job ends "by our own JobFailed (not by one in shadow)".
		r.denied = true
		if !rec.Shadow {
			m.end(j)
		}
		return rec
	}
	return m.requeue(r, v, rec)
}

// count keeps a decision for the counting of later ones.
func (j *job) count(r *run, v verdict) {
	j.decisions = append(j.decisions, decision{
		code:            v.code,
		rule:            v.identity,
		granted:         v.granted,
		ignored:         v.ignored,
		attemptedReturn: r.failure.returnedLease() && r.failure.attempted() && !v.absorbed,
	})
}

// describe puts a verdict that was counted into its record, as a JobFailed.
func (m *Model) describe(r *run, v verdict, rec Record) Record {
	j, p := r.job, m.policies
	rec.Kind = JobFailed
	rec.RunIndex = r.index
	rec.Code, rec.Policy, rec.Rule = v.code, v.policy, v.rule
	rec.SkippedPolicies = v.skipped
	rec.Shadow = p.shadow(j.queue)
	m.spend(v, &rec)
	// §11: "used/limit of the job's global count always and of the rule where
	// its limit was checked, both after the decision".
	rec.GlobalUsed, rec.GlobalLimit = j.granted(), p.globalMaxRetries()
	if v.limitFrom != "" {
		rec.RuleUsed, rec.RuleLimit, rec.LimitFrom, rec.GlobalLimit = j.grantedBy(v.identity), v.limit, v.limitFrom, v.most
	}

	m.Seen["code: "+v.code]++
	if rec.Shadow {
		m.Seen["shadow: "+v.code]++
	}
	if v.seen != "" {
		m.Seen[v.seen]++
	}
	if len(v.skipped) > 0 {
		m.Seen["policies skipped"]++
	}
	return rec
}

// requeue makes the record of a retry from that of its verdict.
func (m *Model) requeue(r *run, v verdict, rec Record) Record {
	rec.Kind = JobRequeued
	m.when(r, v, &rec)
	own := m.avoid(r, v)
	rec.AvoidNodes, rec.NodesLeftOut = m.newest(own)
	m.avoidAlso(&rec, own, r.failure.t)
	rec.PodName = podName(r.job.id, m.nextIndex(r), m.policies.enabled())
	r.requeued, r.retryAfter = true, rec.RetryAfter
	return rec
}

// verdict is what §3 to §5 and §9 say of a failure.
type verdict struct {
	code      string
	retry     bool
	policy    string // name
	rule      string // as the record names it
	identity  string // what it is counted under
	limit     int    // of the rule, when
	limitFrom string // this is not empty
	most      int    // retries of the job, then
	skipped   []string
	backoff   []Backoff // most specific first
	ofPolicy  bool      // a retry that a policy grants, not Armada's own rule
	granted   bool      // a retry that counts
	ignored   bool      // a retry by Ignore
	failUnit  string    // the reason, by the action FailUnit (semantics.md 12.2)
	heldUntil int64     // by a breaker; 0: not
	nth       int       // of a held retry
	asked     *asked    // of the budgets; nil: they were not
	absorbed  bool      // of a member that was told to stop, or whose group has ended (semantics.md 12.4.1 and 12.4.2): R28

	antiAffinity, replacement string // effective
	seen                      string // for Model.Seen
}

// verdict: §3, "In this order; the first that applies decides".
func (m *Model) verdict(r *run) verdict {
	j, p := r.job, m.policies
	// 1.
	gang := isGang(j.annotations)
	if gang && j.member == nil {
		return verdict{code: GangFail}
	}
	// 2. semantics.md 12.4.3: "failFast is ignored for members of gangs".
	if j.annotations[annotationFailFast] == "true" && !gang {
		return verdict{code: FailFast}
	}
	// 3. READING: policies that were never looked for are not skipped ones: with
	// enabled: false, FailFast or GangFail no skipped policies are named.
	// (Otherwise: always named.)
	if !p.enabled() {
		m.Seen["disabled"]++
		return m.legacy(r, nil)
	}
	policies, skipped := m.applying(j)
	if len(policies) == 0 {
		m.Seen["no policy applies"]++
		return m.legacy(r, skipped)
	}
	// 4. §4: "Rules are concatenated in policy order. First match wins."
	for _, policy := range policies {
		for i := range policy.Rules {
			if rule := &policy.Rules[i]; matches(rule, r) {
				m.seenMatch(rule, r)
				return m.ruleVerdict(r, policy, rule, i, skipped)
			}
		}
	}
	if r.failure.returnedLease() {
		m.Seen["returned lease without a rule"]++
		return m.legacy(r, skipped)
	}
	return m.defaultVerdict(r, policies, skipped)
}

// ruleVerdict implements §5: the action of a rule that matches.
func (m *Model) ruleVerdict(r *run, policy *Policy, rule *Rule, place int, skipped []string) verdict {
	v := verdict{
		policy: policy.Name, rule: rule.label(place), identity: identity(policy, rule), skipped: skipped, ofPolicy: true,
		backoff: []Backoff{rule.Backoff, policy.Backoff, m.policies.settings().DefaultBackoff},
		// §7: "antiAffinity.mode: rule, then policy, then none". §8: the same order for podReplacementPolicy.
		antiAffinity: firstStated(rule.AntiAffinity, policy.AntiAffinity, "none"),
		replacement:  firstStated(rule.Replacement, policy.Replacement, "WhenFailed"),
	}
	switch rule.Action {
	case "Fail", "FailUnit": // semantics.md 12.2: "For a job in no group it is Fail."
		v.code = RuleFail
		if rule.Action == "FailUnit" {
			v.failUnit = firstStated(rule.UnitReason, PodFailurePolicy)
		}
		return v
	case "Ignore":
		// "retried without counting, against nothing but the kill switch".
		v.code, v.retry, v.ignored = RuleIgnore, true, true
		if m.killed(r.job.queue) {
			v.code, v.retry, v.ignored = KillSwitch, false, false
		}
		return v
	}
	return m.limited(r.job, v, RuleRetry, policy, rule.RetryLimit)
}

// defaultVerdict: §3, "defaultAction (Retry or Fail): that of the first policy
// in the list that states one; if none states one, Fail with an empty policy
// and rule".
// READING: a Fail by a defaultAction that is stated names that policy and the
// rule default, as a Retry does. (Otherwise: an empty rule.)
func (m *Model) defaultVerdict(r *run, policies []*Policy, skipped []string) verdict {
	for _, policy := range policies {
		if policy.DefaultAction == "" {
			continue
		}
		// §5: "A retry by defaultAction counts for a pseudo-rule default of the
		// policy that stated it; no rule may take that name."
		v := verdict{
			policy: policy.Name, rule: "default", identity: policy.Name + "\x00name\x00default", skipped: skipped, ofPolicy: true,
			backoff:      []Backoff{policy.Backoff, m.policies.settings().DefaultBackoff},
			antiAffinity: firstStated(policy.AntiAffinity, "none"),
			replacement:  firstStated(policy.Replacement, "WhenFailed"),
		}
		if policy.DefaultAction == "Fail" {
			v.code, v.seen = DefaultFail, "default fail stated"
			return v
		}
		return m.limited(r.job, v, DefaultRetry, policy, nil)
	}
	return verdict{code: DefaultFail, skipped: skipped, seen: "default fail, none stated"}
}

// killed: §5, "globalMaxRetries is 0, or the job's queue says killed: true".
func (m *Model) killed(queue string) bool {
	if m.policies.globalMaxRetries() == 0 {
		m.Seen["kill switch: globalMaxRetries"]++
		return true
	}
	if m.policies.queue(queue).Killed {
		m.Seen["kill switch: queue"]++
		return true
	}
	return false
}

// limited: §5, "Checks, the first that refuses names the code". code is that of
// the retry when none refuses.
// READING: KillSwitch names the policy and rule that would have retried, and the
// rule's limit is not checked then. (Otherwise: an empty policy and rule.)
// READING: when all retries of the job refuse, the rule's limit was checked and
// is in the record, used as it stands. (Otherwise: only the job's.)
func (m *Model) limited(j *job, v verdict, code string, policy *Policy, ruleLimit *int) verdict {
	if m.killed(j.queue) {
		v.code = KillSwitch
		return v
	}
	// "limit = rule.retryLimit ?? policy.retryLimit ?? globalMaxRetries. Unset
	// inherits; 0 means never, at every level."
	refused, policyLimit := "", policy.retryLimit()
	if v.most = m.policies.maxRetries(policy); v.most != m.policies.globalMaxRetries() {
		m.Seen[fmt.Sprintf("maxRetries of the policy, above globalMaxRetries %t", v.most > m.policies.globalMaxRetries())]++
	}
	switch {
	case ruleLimit != nil:
		v.limit, v.limitFrom, refused = *ruleLimit, "rule", RuleLimit
	case policyLimit != nil:
		v.limit, v.limitFrom, refused = *policyLimit, "policy", PolicyLimit
	default:
		v.limit, v.limitFrom, refused = v.most, "global", GlobalLimit
	}
	switch {
	case j.grantedBy(v.identity) >= v.limit:
		v.code, v.seen = refused, fmt.Sprintf("%s by the limit of its rule, zero %t", refused, v.limit == 0)
	case j.granted() >= v.most:
		v.code, v.seen = GlobalLimit, "GlobalLimit by all retries of the job"
	default:
		v.code, v.retry, v.granted = code, true, true
	}
	return v
}

// granted counts the retries of a job: "Neither Ignore nor section 9 counts.".
func (j *job) granted() int {
	n := 0
	for _, d := range j.decisions {
		if d.granted {
			n++
		}
	}
	return n
}

// grantedBy counts the retries that one rule granted: "Each rule counts by itself".
func (j *job) grantedBy(identity string) int {
	n := 0
	for _, d := range j.decisions[j.anew:] {
		if d.granted && d.rule == identity {
			n++
		}
	}
	return n
}

// ignoredBy counts the failures that one rule ignored (§6).
func (j *job) ignoredBy(identity string) int {
	n := 0
	for _, d := range j.decisions[j.anew:] {
		if d.ignored && d.rule == identity {
			n++
		}
	}
	return n
}

// identity of a rule: §5, "its policy and its name; without a name, a digest of
// its matchers (…; lists sorted, false same as absent)". The matchers in full
// serve as their digest.
func identity(policy *Policy, rule *Rule) string {
	if rule.Name != "" {
		return policy.Name + "\x00name\x00" + rule.Name
	}
	codes := ""
	if rule.OnExitCodes != nil {
		codes = fmt.Sprintf("%s %v", rule.OnExitCodes.Operator, sorted(rule.OnExitCodes.Values))
	}
	duration := ""
	if d := rule.OnRunDuration; d != nil {
		duration = fmt.Sprint(or(d.LessThanMs, -1), or(d.AtLeastMs, -1))
	}
	return policy.Name + "\x00matchers\x00" + fmt.Sprintf("%q %q %q %q %q %q %q %t",
		sorted(rule.OnConditions), codes, rule.OnTerminationMessage, sorted(rule.OnFailureCategory),
		sorted(rule.OnFailureSubcategory), duration, rule.ContainerName, rule.IncludeInitContainers)
}

func sorted[T int32 | string](list []T) []T {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

func firstStated(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// isGang: §3, "annotation gangId, and gangCardinality is a decimal integer ≥ 2,
// digits only".
// READING: an empty gangId is no gang. (Otherwise: it is one.) Leading zeros are
// digits: "02" is 2. (Otherwise: not an integer.)
func isGang(annotations map[string]string) bool {
	cardinality := annotations[annotationCardinality]
	if annotations[annotationGang] == "" || cardinality == "" {
		return false
	}
	for _, c := range []byte(cardinality) {
		if c < '0' || c > '9' {
			return false
		}
	}
	n, _ := new(big.Int).SetString(cardinality, 10)
	return n.Cmp(big.NewInt(2)) >= 0
}

// applying: §3, which policies apply to a job, and the names skipped.
func (m *Model) applying(j *job) (policies []*Policy, skipped []string) {
	p := m.policies
	var names []string // "a name seen twice counts once, at its first place"
	skip := func(name string) {
		if !slices.Contains(skipped, name) {
			skipped = append(skipped, name)
		}
	}
	// "The queue's policies in order,"
	for _, name := range p.queue(j.queue).RetryPolicies {
		if slices.Contains(names, name) {
			continue
		}
		names = append(names, name)
		policy := p.policy(name)
		if policy == nil {
			skip(name) // "A name that does not exist is skipped and named in the decision."
			continue
		}
		policies = append(policies, policy)
	}
	// "then those named by the job's annotation (comma separated, spaces
	// trimmed) in order".
	// READING: spaces are U+0020. (Otherwise: all white space.) An empty name is
	// nothing. (Otherwise: a name that does not exist.)
	for name := range strings.SplitSeq(j.annotations[annotationPolicies], ",") {
		name = strings.Trim(name, " ")
		if name == "" || slices.Contains(names, name) {
			continue
		}
		names = append(names, name)
		policy := p.policy(name)
		// §13: "selectableByJobs: unset: the settings' jobsMaySelect; a policy
		// that is not is skipped in annotations".
		// READING: skipped and named, like one that does not exist. (Otherwise:
		// skipped in silence.)
		if policy == nil || !or(policy.SelectableByJobs, p.jobsMaySelect()) {
			if policy != nil {
				m.Seen["policy not selectable"]++
			}
			skip(name)
			continue
		}
		m.Seen["policy by annotation"]++
		policies = append(policies, policy)
	}
	// "If nothing is left: defaultPolicyName, if it exists."
	if len(policies) == 0 {
		if policy := p.policy(p.settings().DefaultPolicyName); policy != nil {
			m.Seen["default policy"]++
			policies = append(policies, policy)
		}
	}
	return policies, skipped
}

// legacy: §9, Armada's own rule.
// READING: such a decision has an empty policy and rule, also when policies
// apply and none of their rules matches. (Otherwise: the first policy.)
func (m *Model) legacy(r *run, skipped []string) verdict {
	requeue := verdict{code: LeaseReturned, retry: true, skipped: skipped, antiAffinity: "allNodes"}
	switch {
	case !r.failure.returnedLease():
		return verdict{code: NoPolicy, skipped: skipped}
	case !r.failure.attempted():
		// "a returned lease that was never attempted is requeued;"
		requeue.seen = "legacy requeue, not attempted"
		return requeue
	}
	// "one that was attempted is requeued while fewer than legacyMaxAttempts (4)
	// such returns, this one included, whoever decided them, were decided for
	// the job".
	returns := 1
	for _, d := range r.job.decisions[r.job.anew:] {
		if d.attemptedReturn {
			returns++
		}
	}
	if returns < m.policies.legacyMaxAttempts() {
		requeue.seen = "legacy requeue, attempted"
		return requeue
	}
	return verdict{code: LegacyLimit, skipped: skipped}
}

// nextIndex: §Words, "Run index: the number of run ids of that job seen before it".
// The next run comes after all that are known.
// READING: version 1 takes the failed run's own index plus one. That is the same
// but where runs were imported, whose indexes count backwards (ADR 11).
func (m *Model) nextIndex(r *run) int {
	next := r.index + 1
	if len(r.job.runs) == next {
		return next
	}
	m.Seen[fmt.Sprintf("version %d names the pod after imported runs", m.version)]++
	if m.version >= 2 {
		next = len(r.job.runs)
	}
	return next
}

// podName: §10. "Run 0: armada-<jobId>-0. Run i > 0: armada-<jobId>-0-<i>. With
// enabled: false: always the first form."
func podName(jobID string, index int, enabled bool) string {
	if index == 0 || !enabled {
		return "armada-" + jobID + "-0"
	}
	return fmt.Sprintf("armada-%s-0-%d", jobID, index)
}
