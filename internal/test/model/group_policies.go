package model

import (
	"fmt"
	"strings"
)

// GroupPolicy is a document GroupPolicy (semantics.md 12.2). A nil or empty field is one
// that the file does not state, but see Rules.
type GroupPolicy struct {
	Name        string
	MaxRestarts *int
	Backoff     Backoff
	Completed   string      // "", Rerun or Keep
	Rules       []GroupRule // nil: absent; empty: present
	Restarts    *Restarts   // of spec.unit
	Parts       []GroupPart // nil: the group's size is open

	RestartStrategy string // "", Recreate or BlockingRecreate
	Success         *Success
}

// GroupRule is a rule of a group policy.
type GroupRule struct {
	Name            string
	Action          string // FailGroup, RestartGroup, RestartPart, RestartUnit, Leave or Halt
	CountsTowardMax *bool
	Limit           *int
	OnReasons       []string
	OnMessage       string // a pattern; "": any
	Parts           []string
}

// Restarts is the restarts of units: JobFlow's retryPolicy.
type Restarts struct {
	Limit   *int
	On      string // "", OnFailure, Always or Never
	Backoff Backoff
}

// GroupPart is a part of a group policy.
type GroupPart struct {
	Name             string
	Replicas         *int
	Members          *int
	MinMembers       *int
	After            []string
	Parallelism      *int
	RetryLimit       *int
	CountFailed      bool
	OnMemberFailure  string // "", FailUnit or Continue
	MaxFailedMembers *int
	Restarts         *Restarts
	AfterReady       []string
	SuccessRules     []SuccessRule
}

func (p Policies) groupPolicy(name string) *GroupPolicy {
	for i := range p.Groups {
		if p.Groups[i].Name == name {
			return &p.Groups[i]
		}
	}
	return nil
}

// label is the name of the rule in a record: its name, or #index.
func (r *GroupRule) label(place int) string {
	if r.Name != "" {
		return r.Name
	}
	return fmt.Sprintf("#%d", place)
}

func (g GroupPolicy) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: %s}\n", g.Name)
	var spec flow
	addInt(&spec, "maxRestarts", g.MaxRestarts)
	addBackoff(&spec, "backoff", g.Backoff)
	addText(&spec, "completed", g.Completed)
	addText(&spec, "restartStrategy", g.RestartStrategy)
	if g.Restarts != nil {
		spec.add("unit", flow{"restarts: " + g.Restarts.yaml()}.String())
	}
	if s := g.Success; s != nil {
		var f flow
		if s.Any {
			f.add("operator", "Any")
		}
		addList(&f, "parts", s.Parts)
		spec.add("success", f.String())
	}
	if g.Rules != nil && len(g.Rules) == 0 {
		spec.add("rules", "[]")
	}
	if len(spec) == 0 && g.Rules == nil && g.Parts == nil {
		b.WriteString("spec: {}\n")
		return b.String()
	}
	b.WriteString("spec:\n")
	for _, member := range spec {
		fmt.Fprintf(&b, "  %s\n", member)
	}
	if len(g.Rules) > 0 {
		b.WriteString("  rules:\n")
		for _, r := range g.Rules {
			fmt.Fprintf(&b, "  - %s\n", r.yaml())
		}
	}
	if len(g.Parts) > 0 {
		b.WriteString("  parts:\n")
		for _, p := range g.Parts {
			fmt.Fprintf(&b, "  - %s\n", p.yaml())
		}
	}
	return b.String()
}

func (r GroupRule) yaml() string {
	var f flow
	addText(&f, "name", r.Name)
	f.add("action", r.Action)
	addBool(&f, "countsTowardsMax", r.CountsTowardMax)
	addInt(&f, "limit", r.Limit)
	addList(&f, "onReasons", r.OnReasons)
	if r.OnMessage != "" {
		f.add("onMessage", flow{"pattern: " + quote(r.OnMessage)}.String())
	}
	addList(&f, "parts", r.Parts)
	return f.String()
}

func (r Restarts) yaml() string {
	var f flow
	addInt(&f, "limit", r.Limit)
	addText(&f, "on", r.On)
	addBackoff(&f, "backoff", r.Backoff)
	return f.String()
}

func (p GroupPart) yaml() string {
	var f flow
	addText(&f, "name", p.Name)
	addInt(&f, "replicas", p.Replicas)
	addInt(&f, "members", p.Members)
	addInt(&f, "minMembers", p.MinMembers)
	addList(&f, "after", p.After)
	addInt(&f, "parallelism", p.Parallelism)
	addInt(&f, "retryLimit", p.RetryLimit)
	if p.CountFailed {
		f.add("countFailed", "true")
	}
	addText(&f, "onMemberFailure", p.OnMemberFailure)
	addInt(&f, "maxFailedMembers", p.MaxFailedMembers)
	if p.Restarts != nil {
		f.add("restarts", p.Restarts.yaml())
	}
	addList(&f, "afterReady", p.AfterReady)
	var rules []string
	for _, r := range p.SuccessRules {
		var rule flow
		rule.add("indexes", strings.ReplaceAll(fmt.Sprintf("'%v'", fmt.Sprint(r.Indexes)), " ", ","))
		addInt(&rule, "count", r.Count)
		rules = append(rules, strings.NewReplacer("[", "", "]", "").Replace(rule.String()))
	}
	if rules != nil {
		f.add("successRules", "["+strings.Join(rules, ", ")+"]")
	}
	return f.String()
}
