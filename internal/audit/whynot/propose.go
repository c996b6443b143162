package whynot

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// proposer proposes edits of one input. Most do not give the asked outcome: Find evaluates them.
type proposer struct {
	in      *Input
	v       *policy.Verdict
	want    Outcome
	edits   []Edit
	sets    map[string]*policyfile.Set // by the texts of the edits that made them
	ofRules int
	partial bool
}

// spec is what of a policy can be changed.
type spec struct {
	Name          string
	RetryLimit    *uint32    `json:"retryLimit"`
	DefaultAction string     `json:"defaultAction"`
	Rules         []ruleSpec `json:"rules"`
}

type ruleSpec struct {
	Name         string   `json:"name"`
	Action       string   `json:"action"`
	RetryLimit   *uint32  `json:"retryLimit"`
	OnConditions []string `json:"onConditions"`
	OnExitCodes  *struct {
		Operator string  `json:"operator"`
		Values   []int32 `json:"values"`
	} `json:"onExitCodes"`
	OnTerminationMessage *struct {
		Pattern string `json:"pattern"`
	} `json:"onTerminationMessage"`
	OnFailureCategory    []string                           `json:"onFailureCategory"`
	OnFailureSubcategory []string                           `json:"onFailureSubcategory"`
	OnRunDuration        struct{ LessThan, AtLeast string } `json:"onRunDuration"`
	ContainerName        string                             `json:"containerName"`
}

func (p *proposer) propose() []Edit {
	applying := p.applying()
	p.counts()
	p.job(applying)
	p.failure(applying)
	for i := range applying {
		p.policy(&applying[i])
	}
	p.settings()
	return p.edits
}

// applying reads the policies that apply to the job.
func (p *proposer) applying() (specs []spec) {
	for _, name := range p.in.Base.Applying(p.in.Failure.Queue, p.in.Failure.JobPolicies) {
		b, err := p.in.Base.JSON(policyfile.ID{Kind: policyfile.KindPolicy, Name: name})
		var file struct {
			Spec spec `json:"spec"`
		}
		if err == nil && json.Unmarshal(b, &file) == nil {
			file.Spec.Name = name
			specs = append(specs, file.Spec)
		}
	}
	return specs
}

func (p *proposer) add(e Edit) { p.edits = append(p.edits, e) }

// counts proposes that the job had used fewer retries, or more: of a rule, which are retries of the job too, or of
// others.
func (p *proposer) counts() {
	c := &p.in.Counts
	move := func(what string, now, to uint32, apply func(*policy.Counts)) {
		if now == to {
			return
		}
		far := uint64(max(now, to) - min(now, to))
		p.add(Edit{Kind: Counts, Size: Number, Far: far, Text: fmt.Sprintf("%s: %d", what, to), Now: strconv.FormatUint(uint64(now), 10), apply: func(in *Input) error {
			apply(&in.Counts)
			return nil
		}})
	}
	for _, key := range p.keys() {
		var now uint32
		for _, r := range c.Rules {
			if r.Key == key {
				now = r.Granted
			}
		}
		for _, to := range p.near(now, p.v.RuleLimit, p.v.LimitFrom != policy.FromNowhere && p.v.Policy == key.Policy) {
			move(fmt.Sprintf("retries used of rule %s of policy %s", key.Rule, key.Policy), now, to, func(c *policy.Counts) {
				at := slices.IndexFunc(c.Rules, func(r policy.RuleCount) bool { return r.Key == key })
				if at < 0 {
					at = len(c.Rules)
					c.Rules = append(c.Rules, policy.RuleCount{Key: key})
				}
				c.Rules[at].Granted = to
				c.Granted = uint32(max(0, int64(c.Granted)+int64(to)-int64(now)))
			})
		}
	}
	for _, to := range p.near(c.Granted, p.v.GlobalLimit, true) {
		move("retries used in total", c.Granted, to, func(c *policy.Counts) { c.Granted = to })
	}
	switch {
	case p.v.Code == policy.LegacyLimit && c.LegacyReturns > 0:
		for to := range c.LegacyReturns {
			move("returned leases", c.LegacyReturns, to, func(c *policy.Counts) { c.LegacyReturns = to })
		}
	case p.v.Code == policy.LegacyReturn:
		for more := range uint32(20) {
			to := c.LegacyReturns + 1 + more
			move("returned leases", c.LegacyReturns, to, func(c *policy.Counts) { c.LegacyReturns = to })
		}
	}
}

// near returns what a count must be for a limit to hold, or to be used up.
func (p *proposer) near(now, limit uint32, known bool) (to []uint32) {
	switch {
	case !known:
	case p.want == Fail && now < limit:
		to = append(to, limit)
	case p.want != Fail && now >= limit && limit > 0:
		to = append(to, limit-1)
	}
	return to
}

// keys returns what retries are counted under: the rules that have granted some, and the deciding one.
func (p *proposer) keys() (keys []policy.RuleKey) {
	for _, r := range p.in.Counts.Rules {
		keys = append(keys, r.Key)
	}
	if key := p.v.Key; key != (policy.RuleKey{}) && !slices.Contains(keys, key) {
		keys = append(keys, key)
	}
	return keys
}

// fact proposes another fact of the failure or the job.
func (p *proposer) fact(kind Kind, text, now string, apply func(*policy.Failure)) {
	p.add(Edit{Kind: kind, Size: Fact, Text: text, Now: now, apply: func(in *Input) error {
		apply(&in.Failure)
		return nil
	}})
}

// job proposes other facts of the job.
func (p *proposer) job(applying []spec) {
	f := &p.in.Failure
	if f.Gang {
		p.fact(Job, "the job belonged to no gang", "", func(f *policy.Failure) { f.Gang = false })
	}
	if f.FailFast {
		p.fact(Job, "the job did not ask to fail at its first failure (annotation armadaproject.io/failFast)", "", func(f *policy.Failure) { f.FailFast = false })
	} else {
		p.fact(Job, "the job asked to fail at its first failure (annotation armadaproject.io/failFast)", "", func(f *policy.Failure) { f.FailFast = true })
	}
	for _, id := range p.in.Base.Resources() {
		if id.Kind != policyfile.KindPolicy || slices.ContainsFunc(applying, func(s spec) bool { return s.Name == id.Name }) {
			continue
		}
		p.add(Edit{Kind: Job, Size: Setup, Text: fmt.Sprintf("the job named policy %s (annotation armadaproject.io/retry-policy)", id.Name), Now: f.JobPolicies, apply: func(in *Input) error {
			in.Failure.JobPolicies = strings.Trim(in.Failure.JobPolicies+","+id.Name, ",")
			return nil
		}})
	}
}

// exclusive are the conditions of which a failure has one.
var exclusive = policy.Conditions(0).With(policy.Evicted).With(policy.DeadlineExceeded).With(policy.Unschedulable).With(policy.LeaseReturned).With(policy.LeaseExpired)

// failure proposes other conditions, exit codes, messages and categories.
func (p *proposer) failure(applying []spec) {
	f := &p.in.Failure
	have := conditionText(f)
	for c := policy.OOMKilled; c <= policy.LeaseExpired; c++ {
		switch {
		case c == policy.OOMKilled:
			p.fact(Failure, "condition OOMKilled", have, func(f *policy.Failure) {
				f.Conditions &^= exclusive
				if at := failed(f); at >= 0 {
					f.Containers[at].Reason, f.Containers[at].ExitCode = "OOMKilled", 137
				} else {
					f.PodOOM, f.Containers = true, nil
				}
			})
		case f.Conditions.Has(c):
			p.fact(Failure, "without condition "+c.String(), "", func(f *policy.Failure) { f.Conditions &^= policy.Conditions(0).With(c) })
		case c == policy.Preempted:
			p.fact(Failure, "condition Preempted", have, func(f *policy.Failure) { f.Conditions = f.Conditions.With(c) })
		default:
			p.fact(Failure, "condition "+c.String(), have, func(f *policy.Failure) {
				f.Conditions, f.PodOOM = (f.Conditions &^ exclusive).With(c), false
				if c == policy.Unschedulable || c == policy.LeaseReturned || c == policy.LeaseExpired {
					f.Containers = nil // no pod reported anything
				}
			})
		}
	}
	p.containers(applying)
	var categories, subcategories []string
	for _, s := range applying {
		for _, r := range s.Rules {
			categories, subcategories = append(categories, r.OnFailureCategory...), append(subcategories, r.OnFailureSubcategory...)
		}
	}
	p.labels("category", categories, f.Category, func(f *policy.Failure, to string) { f.Category = to })
	p.labels("subcategory", subcategories, f.Subcategory, func(f *policy.Failure, to string) { f.Subcategory = to })
	p.durations(applying)
}

func (p *proposer) labels(what string, all []string, have string, set func(*policy.Failure, string)) {
	slices.Sort(all)
	for _, to := range slices.Compact(all) {
		if to != have {
			p.fact(Failure, what+" "+to, have, func(f *policy.Failure) { set(f, to) })
		}
	}
	if have != "" {
		p.fact(Failure, "no "+what, have, func(f *policy.Failure) { set(f, "") })
	}
}

// containers proposes other exit codes and messages of the first container that failed, or of one that is reported.
func (p *proposer) containers(applying []spec) {
	f := &p.in.Failure
	name, have := "main", ""
	if at := failed(f); at >= 0 {
		name, have = f.Containers[at].Name, strconv.Itoa(int(f.Containers[at].ExitCode))
	}
	names, codes := []string{name}, []int32{1}
	type message struct{ name, text string }
	var messages []message
	for _, s := range applying {
		for _, r := range s.Rules {
			if r.ContainerName != "" {
				names = append(names, r.ContainerName)
			}
			if r.OnExitCodes != nil {
				codes = append(codes, r.OnExitCodes.Values...)
			}
			if m := r.OnTerminationMessage; m != nil {
				if re, err := syntax.Parse(m.Pattern, syntax.Perl); err == nil {
					if text := example(re.Simplify()); text != "" {
						messages = append(messages, message{orText(r.ContainerName, name), text})
					}
				}
			}
		}
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	for unlisted := int32(2); ; unlisted++ {
		if !slices.Contains(codes, unlisted) {
			codes = append(codes, unlisted)
			break
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		for _, code := range codes {
			if strconv.Itoa(int(code)) != have {
				p.fact(Failure, fmt.Sprintf("exit code %d of container %s", code, name), have, func(f *policy.Failure) { exit(f, name, code) })
			}
		}
	}
	for _, m := range messages {
		p.fact(Failure, fmt.Sprintf("termination message %q of container %s", m.text, m.name), "", func(f *policy.Failure) {
			if failed(f) < 0 || !slices.ContainsFunc(f.Containers, func(c policy.Container) bool { return c.Name == m.name }) {
				exit(f, m.name, 1)
			}
			for i := range f.Containers {
				if f.Containers[i].Name == m.name {
					f.Containers[i].Message = m.text
				}
			}
		})
	}
}

func orText(s, unset string) string {
	if s == "" {
		return unset
	}
	return s
}

// exit makes a container the one that failed.
func exit(f *policy.Failure, name string, code int32) {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.Name == name {
			c.ExitCode, c.Reason = code, "Error"
			return
		}
	}
	f.PodOOM = false
	f.Conditions &^= exclusive
	f.Containers = append(f.Containers, policy.Container{Name: name, ExitCode: code, Reason: "Error"})
}

// failed returns the index of the first container that failed, -1 if there is none.
func failed(f *policy.Failure) int {
	return slices.IndexFunc(f.Containers, func(c policy.Container) bool { return c.ExitCode != 0 })
}

func conditionText(f *policy.Failure) string {
	var names []string
	for c := policy.Evicted; c <= policy.LeaseExpired; c++ {
		if f.Conditions.Has(c) {
			names = append(names, c.String())
		}
	}
	if at := failed(f); f.PodOOM || at >= 0 && f.Containers[at].Reason == "OOMKilled" {
		names = append(names, policy.OOMKilled.String())
	}
	return strings.Join(names, ", ")
}

// example returns a text that a pattern probably matches.
func example(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		if len(re.Rune) > 0 {
			return string(re.Rune[0])
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "x"
	case syntax.OpCapture, syntax.OpPlus, syntax.OpAlternate:
		return example(re.Sub[0])
	case syntax.OpConcat:
		var b strings.Builder
		for _, sub := range re.Sub {
			b.WriteString(example(sub))
		}
		return b.String()
	default: // Simplify leaves no repetitions with counts; the rest matches the empty text
	}
	return ""
}

// set proposes one field of the policies.
func (p *proposer) set(size Size, far uint64, text, now string) {
	if p.ofRules++; p.ofRules > maxPolicyEdits {
		p.partial = true
		return
	}
	p.add(Edit{Kind: Policies, Size: size, Far: far, Text: text, Now: now, apply: func(in *Input) (err error) {
		if in.Base != p.in.Base {
			in.Base, err = in.Base.Assign(text)
			return err
		}
		if p.sets[text] == nil {
			if p.sets[text], err = in.Base.Assign(text); err != nil {
				return err
			}
		}
		in.Base = p.sets[text]
		return nil
	}})
}

// policy proposes other limits, matchers and actions of a policy that applies.
func (p *proposer) policy(s *spec) {
	path := "policies." + s.Name + "."
	p.limit(path+"retryLimit", s.RetryLimit)
	if p.want != Ignore && s.DefaultAction != string(p.want) {
		p.set(Action, 0, path+"defaultAction="+string(p.want), s.DefaultAction)
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		at := fmt.Sprintf("%srules[%d].", path, i)
		if named := fmt.Sprintf("%srules[%s].", path, r.Name); r.Name != "" && !strings.ContainsAny(r.Name, ".[]=") {
			at = named
		}
		p.limit(at+"retryLimit", r.RetryLimit)
		if r.Action != string(p.want) {
			p.set(Action, 0, at+"action="+string(p.want), r.Action)
		}
		p.matchers(at, r)
	}
}

// limit proposes a limit under which one retry more is granted, or none.
func (p *proposer) limit(field string, now *uint32) {
	used := []uint32{p.in.Counts.Granted}
	for _, r := range p.in.Counts.Rules {
		used = append(used, r.Granted)
	}
	slices.Sort(used)
	for _, n := range slices.Compact(append([]uint32{0}, used...)) {
		to := n
		if p.want != Fail {
			to++
		}
		far, text := uint64(to), ""
		if now != nil {
			far, text = uint64(max(*now, to)-min(*now, to)), strconv.FormatUint(uint64(*now), 10)
		} else if p.v.LimitFrom != policy.FromNowhere { // it was inherited
			far = uint64(max(p.v.RuleLimit, to) - min(p.v.RuleLimit, to))
		}
		if now == nil || *now != to {
			p.set(Number, far, fmt.Sprintf("%s=%d", field, to), text)
		}
	}
}

// matchers proposes that a rule matches what the failure has, or no longer matches it.
func (p *proposer) matchers(at string, r *ruleSpec) {
	f := &p.in.Failure
	for c := policy.OOMKilled; c <= policy.LeaseExpired; c++ {
		oom := c == policy.OOMKilled && strings.Contains(conditionText(f), policy.OOMKilled.String())
		if r.OnConditions != nil && (f.Conditions.Has(c) || oom) {
			value(p, at+"onConditions", r.OnConditions, c.String())
		}
	}
	if e := r.OnExitCodes; e != nil {
		for _, c := range f.Containers {
			if c.ExitCode != 0 {
				value(p, at+"onExitCodes.values", e.Values, c.ExitCode)
			}
		}
	}
	if r.OnFailureCategory != nil && f.Category != "" {
		value(p, at+"onFailureCategory", r.OnFailureCategory, f.Category)
	}
	if r.OnFailureSubcategory != nil && f.Subcategory != "" {
		value(p, at+"onFailureSubcategory", r.OnFailureSubcategory, f.Subcategory)
	}
}

// value proposes a list with a value added, or removed if it has it.
func value[T comparable](p *proposer, field string, list []T, v T) {
	to := slices.DeleteFunc(slices.Clone(list), func(have T) bool { return have == v })
	if len(to) == len(list) {
		to = append(to, v)
	}
	if len(to) == 0 {
		return // a matcher has at least one value
	}
	text, err := json.Marshal(to)
	now, err2 := json.Marshal(list)
	if errors.Join(err, err2) == nil {
		p.set(Matcher, 0, field+"="+string(text), string(now))
	}
}

// settings proposes other settings, another binding of the queue, and the end of overrides.
func (p *proposer) settings() {
	granted, now := p.in.Counts.Granted, p.in.Base.GlobalMaxRetries()
	to := granted
	if p.want != Fail {
		to++
	}
	if to != now {
		p.set(Number, uint64(max(to, now)-min(to, now)), fmt.Sprintf("settings.globalMaxRetries=%d", to), strconv.FormatUint(uint64(now), 10))
	}
	if p.want == Fail {
		p.set(Setup, 0, "queues."+p.in.Failure.Queue+".killed=true", "")
		p.set(Number, 1, fmt.Sprintf("settings.legacyMaxAttempts=%d", p.in.Counts.LegacyReturns+1), "")
	} else {
		p.set(Setup, 0, "queues."+p.in.Failure.Queue+".killed=false", "")
		p.set(Number, 1, fmt.Sprintf("settings.legacyMaxAttempts=%d", p.in.Counts.LegacyReturns+2), "")
		if !p.in.Base.Enabled() {
			p.set(Setup, 0, "settings.enabled=true", "false")
		}
	}
	for _, id := range p.in.Base.Resources() {
		if id.Kind == policyfile.KindPolicy {
			p.set(Setup, 0, "settings.defaultPolicyName="+id.Name, "")
		}
	}
	for _, o := range p.in.Overrides {
		if o.Kill && (o.Queue == "" || o.Queue == p.in.Failure.Queue) {
			p.add(Edit{Kind: Override, Size: Setup, Text: "retries were not killed by an operator", apply: func(in *Input) error {
				in.Overrides = slices.DeleteFunc(slices.Clone(in.Overrides), func(o policyfile.Override) bool { return o.Kill })
				return nil
			}})
			break
		}
	}
}
