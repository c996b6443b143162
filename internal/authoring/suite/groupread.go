package suite

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/policy"
)

// group reads the group of a test.
func (r *reader) group(n *yaml.Node, path string) *Group {
	o := r.object(n, path, "policy", "gangs", "jobs")
	g := &Group{Policy: o.text("policy"), Gangs: o.texts("gangs"), Jobs: r.memberJobs(o)}
	if g.Policy == "" && o.fields["policy"] == nil && n.Kind == yaml.MappingNode && (len(g.Gangs) != 1 || g.Gangs[0] != policy.MainPart) {
		r.report(n, o.at("policy"), codeRequired, "missing", "add the name of a group policy, or write gangs: [main] for a gang that is in no group")
	}
	return g
}

// memberJobs reads a mapping from members to what their jobs are like.
func (r *reader) memberJobs(o object) (all []MemberJob) {
	n := o.fields["jobs"]
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		r.report(n, o.at("jobs"), codeWrongType, kindOf(n), "write a mapping, such as {workers: {retryPolicies: [p]}}")
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, path := n.Content[i], o.at("jobs")+"."+shown(n.Content[i].Value)
		members := r.members(key, path)
		if slices.ContainsFunc(all, func(of MemberJob) bool { return of.Members[0].text == key.Value }) {
			r.report(key, path, codeDuplicateKey, "duplicate key", "remove one of them")
		}
		if len(members) == 1 {
			all = append(all, MemberJob{members, r.job(n.Content[i+1], path, jobKeys[:]...)})
		}
	}
	return all
}

// subject reads to which member or run an event happens.
func (r *reader) subject(o object, e *Event) {
	misplaced := func(field, fix string) {
		if n := o.fields[field]; n != nil {
			r.report(n, o.at(field), codeUnknownField, "without effect here", fix)
		}
	}
	if e.Do == FailRun {
		o.need("member")
		if n := o.fields["member"]; n != nil {
			e.Members = r.members(n, o.at("member"))
			if _, one := e.Members.one(); !one && len(e.Members) > 0 {
				r.report(n, o.at("member"), codeUnknownValue, "not one member", "write PART/REPLICA/INDEX, such as workers/0/3, and one event for each member")
			}
		}
	} else {
		misplaced("member", "it belongs to fail; write submit: MEMBERS, start: MEMBERS, …")
	}
	if e.Do != FailRun && e.Do != SucceedRuns {
		misplaced("late", "it belongs to fail and succeed")
	}
	if e.Do != StartRuns {
		misplaced("run", "it belongs to start; in fail, it is fail.run")
	} else if _, one := e.Members.one(); !one && e.Run != "" {
		r.report(o.fields["run"], o.at("run"), codeUnknownValue, "several runs cannot have one id", "start one member")
	}
}

// members reads one item or a list.
func (r *reader) members(n *yaml.Node, path string) Members {
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = n.Content
	}
	var all Members
	for _, item := range nodes {
		text := r.scalar(item, path, "members, such as workers/0/0-7", "!!str")
		s, ok := parseSelection(text)
		if !ok && text != "" {
			r.report(item, path, codeUnknownValue, "not members", "write PART, PART/REPLICA or PART/REPLICA/INDEX, with ranges as workers/0/0-7, or all")
		}
		all = append(all, s)
	}
	return all
}

// groupExpectable are the fields of what happens to a group, in display order.
var groupExpectable = [...]string{
	"unitReason", "groupAction", "groupRule", "restarts", "restarted", "held", "released", "stopped", "group", "groupReason",
}

// groupWants reads what is expected of a group.
func (r *reader) groupWants(o object) []Want {
	var all []Want
	for _, field := range groupExpectable {
		n := o.fields[field]
		switch {
		case n == nil:
		case isMembers(field):
			items := r.members(n, o.at(field))
			all = append(all, Want{Field: field, Value: list(items.texts()), Members: items, node: n, accepts: acceptsMembers(field, items)})
		default:
			w := Want{Field: field, node: n, Value: o.scalar(field, "a plain value", "!!str")}
			all = append(all, r.accepted(w, o))
		}
	}
	for _, field := range []string{"units", "generations"} {
		all = append(all, r.unitWants(o, field)...)
	}
	return all
}

// unitWants reads a mapping from units to what is expected of them.
func (r *reader) unitWants(o object, field string) []Want {
	n := o.fields[field]
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		r.report(n, o.at(field), codeWrongType, kindOf(n), "write a mapping, such as {workers/0: Failed}")
		return nil
	}
	var all []Want
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		path := o.at(field)
		s, ok := parseSelection(key.Value)
		switch {
		case !ok || !s.indexes.whole:
			r.report(key, path, codeUnknownValue, "not units", "write PART or PART/REPLICA, such as workers/0")
			continue
		case slices.ContainsFunc(all, func(w Want) bool { return w.Field == field+"."+key.Value }):
			r.report(key, path+"."+shown(key.Value), codeDuplicateKey, "duplicate key", "remove one of them")
		}
		w := Want{Field: field + "." + key.Value, node: value, Members: Members{s}}
		w.Value = r.scalar(value, fmt.Sprintf("%s.%s", path, key.Value), "a plain value", "!!str", "!!int")
		if message, fix := checkUnit(field, w.Value); message != "" && w.Value != "" {
			r.report(value, path+"."+shown(key.Value), codeUnknownValue, message, fix)
		}
		w.accepts = func(o *Outcome, start int64) bool { return o.value(w.Field, start) == w.Value }
		all = append(all, w)
	}
	return all
}

func (m Members) texts() []string {
	var all []string
	for _, s := range m {
		all = append(all, s.text)
	}
	return all
}
