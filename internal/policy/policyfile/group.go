package policyfile

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

// The format of group policies (semantics.md 12.2), in the manner of spec.go.

const apiVersionGroup = "refloat.github.io/v1"

// namedGroup is a group policy in the canonical encoding.
type namedGroup struct {
	Name policyName `file:"name" must:"required"`
	Spec groupSpec  `file:"spec"`
}

type groupFile struct {
	header
	Metadata struct {
		Name policyName `file:"name" must:"required"`
	} `file:"metadata" must:"required"`
	Spec groupSpec `file:"spec" must:"required"`
}

type groupSpec struct {
	MaxRestarts     *limit           `file:"maxRestarts"`
	RestartStrategy restartStrategy  `file:"restartStrategy"`
	Backoff         backoffSpec      `file:"backoff"`
	Completed       completed        `file:"completed"`
	Rules           *[]groupRuleSpec `file:"rules"` // an empty list is not the same as none
	Unit            unitSpec         `file:"unit"`
	Success         *successSpec     `file:"success"`
	Parts           []partSpec       `file:"parts" must:"nonempty"`
}

type groupRuleSpec struct {
	Name             groupRuleName `file:"name" must:"required"`
	Action           groupAction   `file:"action" must:"required"`
	CountsTowardsMax *bool         `file:"countsTowardsMax"`
	Limit            *limit        `file:"limit"`
	OnReasons        []unitReason  `file:"onReasons" must:"nonempty unique"`
	OnMessage        message       `file:"onMessage"`
	Parts            []partName    `file:"parts" must:"nonempty unique"`
}

type successSpec struct {
	Operator successOperator `file:"operator"`
	Parts    []partName      `file:"parts" must:"nonempty unique"`
}

type unitSpec struct {
	Restarts *restartsSpec `file:"restarts"`
}

type restartsSpec struct {
	On      restartOn   `file:"on"`
	Limit   *limit      `file:"limit"`
	Backoff backoffSpec `file:"backoff"`
}

type partSpec struct {
	Name             partName      `file:"name" must:"required"`
	Replicas         *size         `file:"replicas"`
	Members          *size         `file:"members"`
	MinMembers       *size         `file:"minMembers"`
	After            []partName    `file:"after" must:"nonempty unique"`
	Parallelism      *size         `file:"parallelism"`
	RetryLimit       *limit        `file:"retryLimit"`
	CountFailed      bool          `file:"countFailed"`
	OnMemberFailure  memberFailure `file:"onMemberFailure"`
	MaxFailedMembers *limit        `file:"maxFailedMembers"`
	Restarts         *restartsSpec `file:"restarts"`

	AfterReady   []partName        `file:"afterReady" must:"nonempty unique"`
	SuccessRules []successRuleSpec `file:"successRules" must:"nonempty"`
}

type successRuleSpec struct {
	Indexes indexes `file:"indexes" must:"required"`
	Count   *size   `file:"count"`
}

// groupTexts document the fields (fields.go).
var groupTexts = [...]fieldText{
	{"GroupPolicy:spec.maxRestarts", "0", "0 to 1000000", "How many restarts by rules a group gets in total. A rule that would restart more fails the group instead. Restarts by rules with countsTowardsMax: false, by restarts and by members' own policies do not count."},
	{"restartStrategy", "Recreate", "Recreate or BlockingRecreate", "When the members of one restart start again. Recreate: each as soon as it can, so that one whose run has ended does not wait for those that must stop first. BlockingRecreate: all at the time of the last one. Effective from version 4 of the semantics on."},
	{"GroupPolicy:spec.backoff", "0s, 10m, 2, 0", "", "The delay of restarts by rules: the smaller of initialDelay × multiplier^(n−1) and maxDelay for the n-th restart, plus jitter."},
	{"completed", "Rerun", "Rerun or Keep", "Whether a restart by rules runs members again that succeeded. Keep leaves them out: a gang that succeeded stays as it is, and one that did not runs again as a whole."},
	{"GroupPolicy:spec.rules", "FailGroup if maxRestarts is unset too, else RestartGroup", "at most 1000", "The rules that decide when a unit has failed and its own restarts are used up; the first match decides. If no rule matches, also in an empty list, the action is RestartGroup."},
	{"GroupPolicy:spec.rules.name", "", "1 to 63 of a-z, 0-9 and -, not restarts", "The name of the rule, which decisions show and under which its limit is counted."},
	{"GroupPolicy:spec.rules.action", "", "FailGroup, RestartGroup, RestartPart, RestartUnit, Leave or Halt", "What happens when the rule matches. FailGroup: the group ends as failed. RestartGroup, RestartPart, RestartUnit: all members of the group, of the part or of the unit run again. Leave: the unit stays failed and its members are stopped; the rest goes on. Halt: as Leave, and nothing that is held is started any more."},
	{"countsTowardsMax", "true", "", "Whether a restart by the rule counts towards maxRestarts. If not, maxRestarts does not stop it either."},
	{"GroupPolicy:spec.rules.limit", "no limit of its own", "0 to 1000000", "How many restarts the rule grants to one group. A restart beyond it fails the group instead, with reason ReachedMaxRestarts."},
	{"onReasons", "any", "no value twice", "Matches if the unit failed for one of these reasons: PodFailurePolicy (a member's policy said FailUnit, without another unitReason), DeadlineExceeded, BackoffLimitExceeded (a member failed for good, or retryLimit is used up), MaxFailedIndexesExceeded and FailedIndexes (with onMemberFailure: Continue), MemberCancelled."},
	{"onMessage", "any", "", "Matches by the message of the failure that failed the unit: a container's termination message, else the pod's error. It never matches a unit that ended without a failed run."},
	{"onMessage.pattern", "", "RE2; at most 4096 bytes, 5000 nodes with repetitions expanded, and 50000 nodes in one policy", "The regular expression. It matches anywhere in the message, unless it is anchored by ^ or $. Write it in single quotes."},
	{"GroupPolicy:spec.rules.parts", "any", "declared parts, no name twice", "Matches if the unit belongs to one of these parts."},
	{"unit", "no restarts", "", "The defaults of units in all parts."},
	{"unit.restarts", "none", "", "How a unit of any part restarts by itself, before rules are asked; a part's own restarts take its place as a whole."},
	{"parts.restarts", "unit.restarts", "", "How a unit of the part restarts by itself, before rules are asked, in place of unit.restarts."},
	{"restarts.on", "OnFailure", "OnFailure, Always or Never", "After which ends the unit restarts: OnFailure when it failed, Always also when it succeeded (all its members run again), Never not at all."},
	{"restarts.limit", "0", "0 to 1000000", "How many times each unit restarts by itself. Nothing starts this count anew."},
	{"restarts.backoff", "0s, 10m, 2, 0", "", "The delay of restarts of the unit by itself: the smaller of initialDelay × multiplier^(n−1) and maxDelay for its n-th one, plus jitter."},
	{"parts", "one part, main, of any size", "at most 1000, with at most 50000 members in total", "The parts of the group. Without parts, the group ends when all its known members are over and the horizon has passed."},
	{"parts.name", "", "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends; no name twice", "The name of the part, which jobs give in their annotation refloat.github.io/part (default main)."},
	{"replicas", "1", "1 to 50000", "How many units the part has. Jobs give the number of theirs, from 0, in their annotation refloat.github.io/replica."},
	{"members", "1", "1 to 50000", "How many members each unit has. Jobs give their index, from 0, in their annotation refloat.github.io/index."},
	{"minMembers", "members", "1 to members", "How many members must succeed for a unit to succeed. Its other members are then stopped."},
	{"afterReady", "held for no part", "declared parts, no name twice, no cycle", "The parts that run first: members are held until every unit of these parts is ready. A unit is ready when all of its members run or have succeeded (as many as parallelism lets run at once), and when it has succeeded. A member runs when its pod is reported as running; probes are not known here. Effective from version 4 of the semantics on."},
	{"successRules", "minMembers decides", "", "When a unit succeeds before minMembers have: the first rule that holds is enough, and its other members are then stopped (successPolicy of a Kubernetes Job). Effective from version 4 of the semantics on."},
	{"successRules.indexes", "", "below members; ascending, such as 0,3-7", "The members that the rule is about, by index."},
	{"successRules.count", "all of indexes", "1 to the number of indexes", "How many of these members must succeed."},
	{"success", "when all units of all parts have succeeded", "not without parts", "When the group succeeds. The members that are not over are then stopped (successPolicy of a JobSet). Effective from version 4 of the semantics on."},
	{"success.operator", "All", "All or Any", "All: when every unit of the parts has succeeded. Any: when one unit of them has."},
	{"success.parts", "all parts", "declared parts, no name twice", "The parts that count."},
	{"after", "held for no part", "declared parts, no name twice, no cycle", "The parts that come first: members are held until every unit of these parts has succeeded."},
	{"parallelism", "all members", "1 to 50000", "How many members of a unit may be started and not over at the same time; the others are held. It must not be below the size of a gang."},
	{"parts.retryLimit", "no limit", "0 to 1000000", "How many retries all members of a unit get together, beside the limits of their own policies (backoffLimit of a Kubernetes Job). When it is used up, the next failure fails the unit."},
	{"countFailed", "false", "only with retryLimit", "Whether members that failed for good count against retryLimit too, as all failed pods do against backoffLimit of a Kubernetes Job. It makes a difference with onMemberFailure: Continue."},
	{"onMemberFailure", "FailUnit", "FailUnit or Continue", "What happens to a unit when one of its members failed for good. FailUnit: it fails. Continue: it goes on (backoffLimitPerIndex of a Kubernetes Job)."},
	{"maxFailedMembers", "no limit", "0 to 1000000; only with onMemberFailure: Continue", "How many members of a unit may fail for good. With one more, the unit fails."},
}

// indexes is a set of indexes of members.
type indexes struct{ set policy.Indexes }

func (n *indexes) form() (string, string) { return "indexes in quotes", "!!str" }
func (n *indexes) text() string           { return n.set.String() }
func (n *indexes) parse(s string) fault {
	set, all := policy.ReadIndexes(s)
	if n.set = set; !all || len(set) == 0 || strings.Trim(s, "0123456789,-") != "" {
		return fault{codeBadText, "not indexes of members", `write numbers and ranges in ascending order, such as "0,3-7"`}
	}
	return fault{}
}

// size is a number of units or members.
type size uint32

func (n *size) form() (string, string) { return "a whole number", "!!int" }
func (n *size) text() string           { return strconv.FormatUint(uint64(*n), 10) }
func (n *size) parse(s string) fault {
	v, f := parseInt(s, 1, policy.MaxGroupMembers)
	*n = size(v)
	return f
}

type (
	partName      string
	groupRuleName string
)

func (n *partName) form() (string, string) { return "a name in quotes", "!!str" }
func (n *partName) text() string           { return string(*n) }
func (n *partName) parse(s string) fault   { *n = partName(s); return goodName(s) }

// restartsName is the rule that records name for a restart by restarts (semantics.md 12.13.5).
const restartsName = "restarts"

func (n *groupRuleName) form() (string, string) { return "a name in quotes", "!!str" }
func (n *groupRuleName) text() string           { return string(*n) }
func (n *groupRuleName) parse(s string) fault {
	*n = groupRuleName(s)
	if s == restartsName {
		return fault{codeReservedName, `"restarts" is reserved: restarts of a unit by its own restarts are recorded under it`, "choose another name"}
	}
	return goodName(s)
}

func (g *groupSpec) rules() []groupRuleSpec { return or(g.Rules, nil) }

func (g *groupSpec) check(i *inspection) {
	g.checkRules(i)
	parts := g.checkParts(i)
	g.checkOrder(i, parts)
	if g.Success != nil {
		for k, name := range g.Success.Parts {
			g.declared(i, parts, fmt.Sprintf("success.parts[%d]", k), name)
		}
		if len(g.Parts) == 0 {
			i.fault("success", fault{codeConflict, "without parts, a group succeeds when all of its known members have", "declare parts, or remove it"})
		}
	}
	for n := range g.rules() {
		for k, name := range (*g.Rules)[n].Parts {
			g.declared(i, parts, fmt.Sprintf("rules[%d].parts[%d]", n, k), name)
		}
	}
}

func (g *groupSpec) checkRules(i *inspection) {
	rules := g.rules()
	if len(rules) > policy.MaxRules {
		i.fault("rules", fault{codeTooMuch, fmt.Sprintf("%d rules, at most %d", len(rules), policy.MaxRules), "remove some"})
	}
	nodes := 0
	first := make(map[groupRuleName]int, len(rules))
	for n := range rules {
		r := &rules[n]
		nodes += r.OnMessage.Pattern.size()
		if earlier, twice := first[r.Name]; twice && r.Name != "" {
			i.fault(fmt.Sprintf("rules[%d].name", n), fault{
				codeDuplicateName, fmt.Sprintf("duplicate rule name %s (first: rules[%d])", shown(string(r.Name)), earlier), "rename one of them: restarts are counted under the rule's name",
			})
			continue
		}
		first[r.Name] = n
	}
	if nodes > maxPatternSizes {
		i.fault("rules", fault{codeTooMuch, fmt.Sprintf("patterns of %d nodes in total with repetitions expanded, at most %d", nodes, maxPatternSizes), "use fewer repetitions"})
	}
}

// checkParts checks each part and their sum, and returns the index of each by its name.
func (g *groupSpec) checkParts(i *inspection) map[partName]int {
	first := make(map[partName]int, len(g.Parts))
	total := uint64(0)
	for n := range g.Parts {
		p := &g.Parts[n]
		if earlier, twice := first[p.Name]; twice && p.Name != "" {
			i.fault(fmt.Sprintf("parts[%d].name", n), fault{codeDuplicateName, fmt.Sprintf("duplicate part name %s (first: parts[%d])", shown(string(p.Name)), earlier), "rename one of them"})
		} else {
			first[p.Name] = n
		}
		total += uint64(or(p.Replicas, 1)) * uint64(or(p.Members, 1))
	}
	if total > policy.MaxGroupMembers {
		i.fault("parts", fault{codeTooMuch, fmt.Sprintf("%d members in all parts, at most %d", total, policy.MaxGroupMembers), "use fewer replicas or members, or several groups"})
	}
	if len(g.Parts) > policy.MaxGroupParts {
		i.fault("parts", fault{codeTooMuch, fmt.Sprintf("%d parts, at most %d", len(g.Parts), policy.MaxGroupParts), "use replicas, or several groups"})
	}
	return first
}

// declared reports a name of a part that the policy does not declare.
func (g *groupSpec) declared(i *inspection, parts map[partName]int, field string, name partName) {
	_, ok := parts[name]
	if ok || len(*i.problems) > maxProblems || !i.clean(field) || len(g.Parts) == 0 && name == policy.MainPart {
		return
	}
	names := make([]string, 0, len(g.Parts))
	for n := range g.Parts {
		names = append(names, string(g.Parts[n].Name))
	}
	if len(names) == 0 {
		i.fault(field, fault{codeUnknownValue, "no part " + shown(string(name)) + ": without parts, there is one part, main", "declare parts, or use main"})
		return
	}
	i.fault(field, fault{codeUnknownValue, "no part " + shown(string(name)), suggest.Fix(string(name), names, "use the name of one of the parts")})
}

// checkOrder checks after and afterReady: parts that exist, and no cycle.
func (g *groupSpec) checkOrder(i *inspection, parts map[partName]int) {
	if len(g.Parts) > policy.MaxGroupParts {
		return
	}
	const (
		unseen = iota
		open   // on the way from the part where the search began
		done
	)
	state := make([]uint8, len(g.Parts))
	var way []int
	var visit func(n int)
	visit = func(n int) {
		state[n] = open
		way = append(way, n)
		for k, name := range slices.Concat(g.Parts[n].After, g.Parts[n].AfterReady) {
			from, field := "after", fmt.Sprintf("parts[%d].after[%d]", n, k)
			if first := len(g.Parts[n].After); k >= first {
				from, field = "afterReady", fmt.Sprintf("parts[%d].afterReady[%d]", n, k-first)
			}
			g.declared(i, parts, field, name)
			next, ok := parts[name]
			switch {
			case !ok:
			case state[next] == unseen:
				visit(next)
			case state[next] == open:
				i.fault(field, fault{codeCycle, "the parts wait for each other: " + g.cycle(way[slices.Index(way, next):]), "remove one of these parts from " + from})
			}
		}
		way = way[:len(way)-1]
		state[n] = done
	}
	for n := range g.Parts {
		if state[n] == unseen {
			visit(n)
		}
	}
}

// cycle names the parts that wait for each other: "a after b after a".
func (g *groupSpec) cycle(way []int) string {
	const most = 10
	var names []string
	for _, n := range way {
		if len(names) == most {
			names = append(names, "…")
			break
		}
		names = append(names, string(g.Parts[n].Name))
	}
	return strings.Join(append(names, string(g.Parts[way[0]].Name)), " after ")
}

func (p *partSpec) check(i *inspection) {
	if members := or(p.Members, 1); p.MinMembers != nil && *p.MinMembers > members && i.clean("minMembers") && i.clean("members") {
		i.fault("minMembers", fault{codeOutOfRange, fmt.Sprintf("%d of %d members cannot succeed", *p.MinMembers, members), fmt.Sprintf("choose a number from 1 to %d, or raise members", members)})
	}
	if p.MaxFailedMembers != nil && p.OnMemberFailure != continueUnit && i.clean("onMemberFailure") {
		i.fault("maxFailedMembers", fault{codeConflict, "a unit fails when its first member does, unless onMemberFailure is Continue", "add onMemberFailure: Continue, or remove it"})
	}
	if p.CountFailed && p.RetryLimit == nil && i.clean("retryLimit") {
		i.fault("countFailed", fault{codeConflict, "without retryLimit there is nothing to count against", "add retryLimit, or remove it"})
	}
	for n := range p.SuccessRules {
		p.checkSuccess(i, n)
	}
}

// checkSuccess checks that a success rule can hold.
func (p *partSpec) checkSuccess(i *inspection, n int) {
	r, field := &p.SuccessRules[n], fmt.Sprintf("successRules[%d].", n)
	if len(r.Indexes.set) == 0 {
		return // a fault of its own
	}
	if members := or(p.Members, 1); r.Indexes.set.Last() >= uint32(members) && i.clean("members") {
		i.fault(field+"indexes", fault{codeOutOfRange, fmt.Sprintf("the unit has no member %d", r.Indexes.set.Last()), fmt.Sprintf("choose indexes from 0 to %d, or raise members", members-1)})
		return
	}
	if of := r.Indexes.set.Len(); r.Count != nil && uint64(*r.Count) > of && i.clean(field+"count") {
		i.fault(field+"count", fault{codeOutOfRange, fmt.Sprintf("%d of %d members cannot succeed", *r.Count, of), fmt.Sprintf("choose a number from 1 to %d, or more indexes", of)})
	}
}

// settle normalises a group policy, so that equal ones have the same form.
func (g *groupSpec) settle() {
	g.Backoff.settle()
	g.Unit.Restarts.settle()
	if g.Success != nil {
		slices.Sort(g.Success.Parts)
	}
	for n := range g.Parts {
		slices.Sort(g.Parts[n].After)
		slices.Sort(g.Parts[n].AfterReady)
		g.Parts[n].Restarts.settle()
	}
	for n := range g.rules() {
		r := &(*g.Rules)[n]
		slices.SortFunc(r.OnReasons, func(a, b unitReason) int { return cmp.Compare(a.text(), b.text()) })
		slices.Sort(r.Parts)
	}
}

func (r *restartsSpec) settle() {
	if r != nil {
		r.Backoff.settle()
	}
}

// compiledGroup is one GroupPolicy. It depends only on its text, so sets share equal ones. It is immutable.
type compiledGroup struct {
	namedGroup
	text   string // canonical
	engine *policy.GroupPolicy
}

// newGroup compiles a group policy without faults.
func newGroup(named *namedGroup, known schema) *compiledGroup {
	named.Spec.settle()
	text := string(known.encode(named))
	d := named.definition()
	d.Digest = sha256.Sum256([]byte(text))
	return &compiledGroup{*named, text, policy.CompileGroup(d)}
}

// definition converts a group policy for the engine, but for its digest.
func (g *namedGroup) definition() *policy.GroupDefinition {
	s := &g.Spec
	d := &policy.GroupDefinition{
		Name:        string(g.Name),
		MaxRestarts: (*uint32)(s.MaxRestarts),
		Backoff:     s.Backoff.definition(),
		Keep:        s.Completed == keep,
		Blocking:    s.RestartStrategy == blockingRecreate,
		HasRules:    s.Rules != nil,
		Restarts:    s.Unit.Restarts.definition(),
	}
	for n := range s.rules() {
		d.Rules = append(d.Rules, (*s.Rules)[n].definition())
	}
	index := make(map[partName]uint32, len(s.Parts))
	for n := range s.Parts {
		index[s.Parts[n].Name] = uint32(n)
	}
	for n := range s.Parts {
		p := s.Parts[n].definition(index)
		if s.Parts[n].Restarts == nil {
			p.Restarts = d.Restarts
		}
		d.Parts = append(d.Parts, p)
	}
	if s.Success != nil {
		d.Success = policy.Success{Any: s.Success.Operator == anyOf, Parts: indexesOf(s.Success.Parts, index)}
	}
	return d
}

// indexesOf returns the indexes of parts, ascending.
func indexesOf(parts []partName, index map[partName]uint32) (list []uint32) {
	for _, name := range parts {
		list = append(list, index[name])
	}
	slices.Sort(list)
	return list
}

func (r *groupRuleSpec) definition() policy.GroupRule {
	out := policy.GroupRule{
		Name:      string(r.Name),
		Action:    policy.GroupAction(r.Action),
		Uncounted: !or(r.CountsTowardsMax, true),
		Limit:     (*uint32)(r.Limit),
		OnMessage: r.OnMessage.Pattern.compiled,
		Parts:     textsOf(r.Parts),
	}
	for _, reason := range r.OnReasons {
		out.OnReasons = append(out.OnReasons, policy.UnitReason(reason))
	}
	return out
}

func (p *partSpec) definition(index map[partName]uint32) policy.PartDefinition {
	members := or(p.Members, 1)
	out := policy.PartDefinition{
		ShapePart: policy.ShapePart{
			Name:        string(p.Name),
			Replicas:    uint32(or(p.Replicas, 1)),
			Members:     uint32(members),
			MinMembers:  uint32(or(p.MinMembers, members)),
			Parallelism: uint32(or(p.Parallelism, 0)),
		},
		RetryLimit:       (*uint32)(p.RetryLimit),
		CountFailed:      p.CountFailed,
		Continue:         p.OnMemberFailure == continueUnit,
		MaxFailedMembers: (*uint32)(p.MaxFailedMembers),
		Restarts:         p.Restarts.definition(),
	}
	out.After, out.AfterReady = indexesOf(p.After, index), indexesOf(p.AfterReady, index)
	for _, r := range p.SuccessRules {
		out.SuccessRules = append(out.SuccessRules, policy.SuccessRule{Indexes: r.Indexes.set, Count: uint32(or(r.Count, size(r.Indexes.set.Len())))})
	}
	return out
}

func (r *restartsSpec) definition() policy.UnitRestarts {
	if r == nil {
		return policy.UnitRestarts{}
	}
	out := policy.UnitRestarts{On: policy.RestartOnFailure, Limit: uint32(or(r.Limit, 0)), Backoff: r.Backoff.definition()}
	switch r.On {
	case always:
		out.On = policy.RestartAlways
	case never:
		out.On = policy.RestartNever
	case noRestartOn, onFailure:
	}
	return out
}
