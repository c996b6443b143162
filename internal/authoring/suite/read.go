package suite

import (
	"cmp"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/policy"
)

// Parse reads a test file. Its error is a policyfile.Problems with all problems.
func Parse(file policyfile.File) (*Suite, error) {
	roots, err := policyfile.Nodes(file)
	if err != nil {
		return nil, err
	}
	r := &reader{file: file.Name}
	s := &Suite{File: file.Name, data: file.Data}
	switch {
	case len(roots) == 0:
		r.problems = append(r.problems, policyfile.Problem{File: file.Name, Line: 1, Column: 1, Code: codeEmpty, Message: "the file contains no test", Fix: "write kind: " + Kind + " and tests"})
	case len(roots) > 1:
		r.report(roots[1], "", codeWrongType, "a second document", "a file is one list of tests: append to it")
	default:
		r.suite(roots[0], s)
	}
	if len(r.problems) > 0 {
		r.problems.Sort()
		return nil, r.problems
	}
	return s, nil
}

func (r *reader) suite(root *yaml.Node, s *Suite) {
	o := r.object(root, "", "apiVersion", "kind", "policies", "tests")
	o.need("kind", "tests")
	if v := o.text("apiVersion"); v != "" && v != "armadaproject.io/v1" {
		r.report(o.fields["apiVersion"], "apiVersion", "RP004", "unsupported apiVersion "+shown(v), "use armadaproject.io/v1, or omit it")
	}
	if k := o.text("kind"); k != "" && k != Kind {
		r.report(o.fields["kind"], "kind", "RP005", "unknown kind "+shown(k), "use "+Kind)
	}
	s.Policies = o.texts("policies")
	named := map[string]bool{}
	for i, n := range o.list("tests") {
		t := r.test(n, fmt.Sprintf("tests[%d]", i))
		if t.Name != "" && named[t.Name] {
			r.report(n, fmt.Sprintf("tests[%d].name", i), codeDuplicateName, "duplicate test name "+shown(t.Name), "rename one of them")
		}
		named[t.Name] = true
		s.Tests = append(s.Tests, t)
	}
	if n := o.fields["tests"]; n != nil && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		r.report(n, "tests", codeEmpty, "an empty list", "write a test")
	}
}

// defaultStart is when the jobs of tests are submitted by default.
var defaultStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

func (r *reader) test(n *yaml.Node, path string) Test {
	o := r.object(n, path, "name", "start", "job", "group", "events")
	o.need("name", "events")
	t := Test{Name: o.text("name"), Line: n.Line, Column: n.Column, Start: defaultStart}
	if at, ok := o.time("start"); ok {
		t.Start = at.UnixNano()
	}
	if job := o.fields["job"]; job != nil {
		t.Job = r.job(job, o.at("job"), append([]string{"queue", "gangCardinality"}, jobKeys[:]...)...)
	}
	if group := o.fields["group"]; group != nil {
		t.Group = r.group(group, o.at("group"))
		if t.Job.Gang > 0 {
			r.report(o.fields["job"], o.at("job.gangCardinality"), codeConflict, "the units of a group are its gangs", "write gangs: [PART] in group")
		}
	}
	for i, e := range o.list("events") {
		t.Events = append(t.Events, r.event(e, fmt.Sprintf("%s.events[%d]", path, i), t.Group != nil))
	}
	if e := o.fields["events"]; e != nil && e.Kind == yaml.SequenceNode && len(e.Content) == 0 {
		r.report(e, o.at("events"), codeEmpty, "an empty list", "add a failure: - {fail: {exitCode: 1}, expect: {decision: Fail}}")
	}
	return t
}

// jobKeys are what the job of each member of a group can be like.
var jobKeys = [...]string{"retryPolicies", "failFast", "initContainers", "terminationGracePeriodSeconds"}

func (r *reader) job(n *yaml.Node, path string, known ...string) Job {
	o := r.object(n, path, known...)
	j := Job{Queue: o.text("queue"), RetryPolicies: o.texts("retryPolicies"), FailFast: o.bool("failFast"), InitContainers: o.texts("initContainers")}
	j.GraceSeconds, _ = o.int("terminationGracePeriodSeconds", 0, 1<<31-1)
	gang, _ := o.int("gangCardinality", 2, 1<<31-1)
	j.Gang = int(gang)
	return j
}

// event reads an event of a test of a job, or of a group.
func (r *reader) event(n *yaml.Node, path string, ofGroup bool) Event {
	known := []string{"at", "fail", "firstRuns", "policies", "expect"}
	if ofGroup {
		known = []string{"at", "submit", "start", "run", "member", "fail", "late", "succeed", "cancel", "firstRuns", "policies", "expect"}
	}
	o := r.object(n, path, known...)
	e := Event{Line: n.Line, At: o.duration("at"), Do: PassTime, Policies: o.texts("policies"), Run: o.text("run"), Late: o.bool("late"), node: n}
	stated := 0
	for verb, field := range verbs {
		f := o.fields[field]
		if f == nil {
			continue
		}
		stated++
		switch e.Do = Verb(verb); e.Do {
		case FailRun:
			e.Fail = r.failure(f, o.at("fail"))
		case SubmitMembers, StartRuns, SucceedRuns, CancelMembers:
			e.Members = r.members(f, o.at(field))
		case FirstRuns:
			n, _ := o.int(field, 1, 10_000)
			e.Runs = int(n)
		case UsePolicies, PassTime:
		}
	}
	switch {
	case n.Kind != yaml.MappingNode:
	case !ofGroup && stated != 1:
		r.report(n, path, codeRequired, "none or several of fail, firstRuns and policies", "write fail (how the job's next run fails), firstRuns (how many other jobs of the queue start their first run), or policies (the paths in force from here on)")
	case stated > 1:
		r.report(n, path, codeConflict, "more than one thing happens", "write one event for each of submit, start, fail, succeed, cancel, firstRuns and policies")
	case stated == 0 && o.fields["at"] == nil:
		r.report(n, path, codeRequired, "nothing happens", "write submit, start, fail, succeed, cancel or policies; or at, if only time passes")
	}
	if ofGroup {
		r.subject(o, &e)
	}
	expect := o.fields["expect"]
	if expect == nil {
		return e
	}
	if (e.Do == UsePolicies || e.Do == FirstRuns) && stated == 1 {
		r.report(expect, o.at("expect"), codeUnknownField, "nothing is decided here", "move expect to the next event")
	}
	e.expect, e.Expect = expect, r.wants(expect, o.at("expect"), &e, ofGroup)
	return e
}

func (r *reader) failure(n *yaml.Node, path string) *Failure {
	o := r.object(n, path, "run", "condition", "podOOM", "preempted", "exitCode", "container", "reason", "message", "containers", "podMessage", "category", "subcategory", "node", "runDuration")
	f := &Failure{Run: o.text("run"), PodOOM: o.bool("podOOM"), PodMessage: o.text("podMessage"), Category: o.text("category"), Sub: o.text("subcategory"), Node: o.text("node"), RunDuration: o.duration("runDuration")}
	conditions := []*yaml.Node{o.fields["condition"]}
	if c := o.fields["condition"]; c != nil && c.Kind == yaml.SequenceNode {
		conditions = c.Content
	}
	for _, c := range conditions {
		if c != nil {
			f.Conditions = append(f.Conditions, r.condition(c, o.at("condition")))
		}
	}
	if o.bool("preempted") && !f.has(policy.Preempted) {
		f.Conditions = append(f.Conditions, policy.Preempted)
	}
	if f.Sub != "" && f.Category == "" {
		r.report(n, path, "RP041", "a subcategory without a category", "give the category that it belongs to")
	}
	f.Containers = r.containers(o)
	if err := f.Check(); err != nil {
		r.report(n, path, codeImpossible, "no executor reports this", err.Error())
	}
	return f
}

func (r *reader) condition(n *yaml.Node, path string) policy.Condition {
	name := r.scalar(n, path, "a condition", "!!str")
	c, ok := policy.ParseCondition(name)
	if !ok && name != "" {
		r.report(n, path, codeUnknownValue, oneOf(name, policy.Names(policy.OOMKilled, policy.LeaseExpired)...), "use OOMKilled, Evicted, DeadlineExceeded, Preempted, Unschedulable, LeaseReturned or LeaseExpired")
	}
	return c
}

// containers reads the list, or the single container of the short form.
func (r *reader) containers(o object) []policy.Container {
	short := o.fields["exitCode"] != nil || o.fields["container"] != nil || o.fields["reason"] != nil || o.fields["message"] != nil
	items := o.list("containers")
	if short && o.fields["containers"] != nil {
		r.report(o.fields["containers"], o.at("containers"), codeConflict, "both containers and exitCode, container, reason or message", "put everything into containers")
	}
	if short {
		c := policy.Container{Name: cmp.Or(o.text("container"), MainContainer), Reason: o.text("reason"), Message: o.text("message")}
		code, ok := o.int("exitCode", -1<<31, 1<<31-1)
		if !ok {
			code = 1
		}
		c.ExitCode = int32(code)
		return []policy.Container{c}
	}
	var all []policy.Container
	for i, n := range items {
		path := fmt.Sprintf("%s[%d]", o.at("containers"), i)
		item := r.object(n, path, "name", "exitCode", "reason", "message")
		item.need("name", "exitCode")
		code, _ := item.int("exitCode", -1<<31, 1<<31-1)
		name := ""
		if given := item.fields["name"]; given != nil && (given.Tag != "!!str" || given.Value != "") { // "" is one that reported none
			name = item.text("name")
		}
		all = append(all, policy.Container{Name: name, ExitCode: int32(code), Reason: item.text("reason"), Message: item.text("message")})
	}
	return all
}

// decisionWants reads what is expected of a decision.
func (r *reader) decisionWants(o object) []Want {
	if n := o.fields["left"]; n != nil {
		left := r.object(n, o.at("left"), "rule", "global")
		o.fields["left.rule"], o.fields["left.global"] = left.fields["rule"], left.fields["global"]
	}
	var all []Want
	for _, field := range expectable {
		n := o.fields[field]
		if n == nil {
			continue
		}
		w := Want{Field: field, node: n}
		if field == "avoidNodes" || field == "skippedPolicies" {
			w.Value = list(o.texts(field))
		} else {
			w.Value = o.scalar(field, "a plain value", "!!str", "!!int", "!!bool", "!!timestamp")
		}
		all = append(all, r.accepted(w, o))
	}
	return all
}

// wants reads what is expected of an event: of what it does to a group, and of the decision, if a run fails.
func (r *reader) wants(n *yaml.Node, path string, e *Event, ofGroup bool) []Want {
	var known []string
	if ofGroup {
		known = append(append(known, groupExpectable[:]...), "units", "generations")
	}
	if e.Do == FailRun || !ofGroup {
		known = append(known, "decision", "code", "rule", "delay", "retryAfter", "left", "budget", "avoidNodes", "container", "matcher", "skippedPolicies", "shadow")
	}
	o := r.object(n, path, append(known, "why")...)
	return append(r.decisionWants(o), r.groupWants(o)...)
}

// accepted says how a written value is compared, and reports one that cannot be.
func (r *reader) accepted(w Want, o object) Want {
	var message, fix string
	if w.accepts, message, fix = accepts(w.Field, w.Value); message != "" && (w.Value != "" || w.node.Kind != yaml.ScalarNode) {
		r.report(w.node, o.at(w.Field), codeUnknownValue, message, fix)
	}
	return w
}
