package whynot

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// proposer proposes edits of one input. Most do not give the asked outcome: Find evaluates them.
type proposer struct {
	in      *Input
	v       *policy.Verdict
	unit    *chain.GroupVerdict // nil: the unit went on
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
	Name       string  `json:"name"`
	Action     string  `json:"action"`
	RetryLimit *uint32 `json:"retryLimit"`

	fields map[string]any // all
}

func (r *ruleSpec) UnmarshalJSON(b []byte) error {
	type plain ruleSpec
	return errors.Join(json.Unmarshal(b, (*plain)(r)), json.Unmarshal(b, &r.fields))
}

// at returns a field; nil: it is not set.
func (r *ruleSpec) at(path []string) (v any) {
	in := r.fields
	for _, name := range path {
		v = in[name]
		in, _ = v.(map[string]any)
	}
	return v
}

func (p *proposer) propose() []Edit {
	applying := p.applying()
	p.counts()
	p.job(applying)
	p.failure(applying)
	for i := range applying {
		p.policy(&applying[i])
	}
	p.group()
	p.budget()
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
	if p.v.Code == policy.DefaultFail || p.v.Rule == "default" {
		p.unlisted(path)
	}
	for i := range s.Rules {
		r := &s.Rules[i]
		at := path + r.path(i)
		p.limit(at+"retryLimit", r.RetryLimit)
		if r.Action != string(p.want) {
			p.set(Action, 0, at+"action="+string(p.want), r.Action)
		}
		p.matchers(at, r)
	}
}

// group proposes other limits and actions of the group policy of a member.
func (p *proposer) group() {
	if p.in.Member == nil {
		return
	}
	g, u := p.in.Member.Group, p.in.Member.Unit
	b, err := p.in.Base.JSON(policyfile.ID{Kind: policyfile.KindGroup, Name: g.Policy})
	var file struct {
		Spec struct {
			MaxRestarts *uint32
			Rules       []ruleSpec
			Parts       []struct {
				Name       string
				RetryLimit *uint32
			}
		} `json:"spec"`
	}
	if err != nil || json.Unmarshal(b, &file) != nil {
		return // a gang without one
	}
	path, action, to := "groups."+g.Policy+".", policy.RestartGroup, g.Counted+1
	if p.want == Fail {
		action, to = policy.FailGroup, g.Counted
	}
	p.number(path+"maxRestarts", file.Spec.MaxRestarts, to)
	for _, part := range file.Spec.Parts {
		if part.Name == u.Part.Name && part.RetryLimit != nil {
			p.number(fmt.Sprintf("%sparts[%s].retryLimit", path, part.Name), part.RetryLimit, u.Retries+to-g.Counted)
		}
	}
	for i := range file.Spec.Rules {
		r := &file.Spec.Rules[i]
		p.set(Action, 0, path+r.path(i)+"action="+action.String(), r.Action)
	}
}

// number proposes another limit.
func (p *proposer) number(field string, now *uint32, to uint32) {
	have := uint32(0)
	text := ""
	if now != nil {
		have, text = *now, strconv.FormatUint(uint64(*now), 10)
	}
	p.set(Number, uint64(max(have, to)-min(have, to)), fmt.Sprintf("%s=%d", field, to), text)
}

// path names a rule, by its place if its name cannot be in a path.
func (r *ruleSpec) path(i int) string {
	if r.Name != "" && !strings.ContainsAny(r.Name, ".[]=") {
		return fmt.Sprintf("rules[%s].", r.Name)
	}
	return fmt.Sprintf("rules[%d].", i)
}

// unlisted proposes a rule for what no rule matches: for each fact of the failure that a matcher can list.
func (p *proposer) unlisted(path string) {
	for _, f := range policyfile.MatcherFields() {
		listed := factsOf(&f).listed
		if listed == nil {
			continue
		}
		for _, v := range listed(&p.in.Failure) {
			rule := map[string]any{"name": "added", "action": string(p.want)}
			at := rule
			for _, name := range f.Path[:len(f.Path)-1] { // as onExitCodes, which has an operator too
				at[name] = map[string]any{"operator": "In"}
				at, _ = at[name].(map[string]any)
			}
			at[f.Path[len(f.Path)-1]] = []any{v}
			if text, err := json.Marshal(rule); err == nil {
				p.set(Matcher, 1, path+"rules[+]="+string(text), "")
			}
		}
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
	for _, f := range policyfile.MatcherFields() {
		list, _ := r.at(f.Path).([]any)
		listed := factsOf(&f).listed
		if list == nil || listed == nil {
			continue
		}
		for _, v := range listed(&p.in.Failure) {
			p.value(at+f.String(), list, v)
		}
	}
}

// value proposes a list with a value added, or removed if it has it.
func (p *proposer) value(field string, list []any, v any) {
	to := slices.DeleteFunc(slices.Clone(list), func(have any) bool { return have == v })
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
	if n := len(p.in.Base.OpenBreakers()); n > 0 && p.want != Fail {
		p.set(Setup, 0, "settings.openBreakers=[]", plural.Of(n, "breaker"))
	}
	for _, o := range p.in.Overrides {
		switch {
		case o.Kill && (o.Queue == "" || o.Queue == p.in.Failure.Queue):
			p.end("retries were not killed by an operator", func(o policyfile.Override) bool { return o.Kill })
		case o.Category != "" && o.Category == p.in.Failure.Category:
			p.end("no breaker was open for its category by an override", func(o policyfile.Override) bool { return o.Category == p.in.Failure.Category })
		}
	}
}

// end proposes that some overrides were not there. Find removes a proposal that is made twice.
func (p *proposer) end(text string, of func(policyfile.Override) bool) {
	p.add(Edit{Kind: Override, Size: Setup, Text: text, apply: func(in *Input) error {
		in.Overrides = slices.DeleteFunc(slices.Clone(in.Overrides), of)
		return nil
	}})
}
