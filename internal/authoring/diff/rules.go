package diff

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/policy/policyfile"

	"github.com/refloat/refloat/internal/policy"
)

// Change is one difference between two policy sets.
type Change struct {
	What  string `json:"what"`            // added, removed, changed or moved
	Kind  string `json:"kind"`            // Policy, Rule, Queue, Budget, group policy, group rule, part or settings
	Name  string `json:"name"`            // POLICY, POLICY/RULE, POLICY/PART or QUEUE; "" for the settings
	Field string `json:"field,omitempty"` // the changed field, such as backoff.maxDelay
	Old   string `json:"old,omitempty"`   // as JSON; "" if unset
	New   string `json:"new,omitempty"`
}

// Kinds of what changes.
const (
	Policy = "policy"
	Rule   = "rule"
	Queue  = "queue"
	Budget = "retry budget"
)

// String formats the change in one line.
func (c Change) String() string {
	subject := strings.TrimSpace(c.Kind + " " + c.Name)
	switch c.What {
	case "changed":
		return fmt.Sprintf("changed  %s: %s: %s → %s", subject, c.Field, unset(c.Old), unset(c.New))
	case "moved":
		return fmt.Sprintf("moved    %s: position %s → %s", subject, c.Old, c.New)
	}
	return fmt.Sprintf("%-8s %s", c.What, subject)
}

func unset(s string) string {
	if s == "" {
		return "(unset)"
	}
	return s
}

// Rules compares the content of two sets.
func Rules(before, after *policyfile.Set) ([]Change, error) {
	a, err := thingsOf(before)
	if err != nil {
		return nil, err
	}
	b, err := thingsOf(after)
	if err != nil {
		return nil, err
	}
	var all []Change
	for _, key := range slices.SortedFunc(maps.Keys(merged(a, b)), compareKeys) {
		x, y := a[key], b[key]
		switch {
		case x == nil && key.kind != settings:
			all = append(all, Change{What: "added", Kind: key.kind, Name: key.name})
		case y == nil && key.kind != settings:
			all = append(all, Change{What: "removed", Kind: key.kind, Name: key.name})
		default:
			all = append(all, fields(key, x, y)...)
		}
	}
	return append(all, moved(before, after)...), nil
}

// settings always exist: unset fields have their defaults.
const settings = "settings"

type key struct{ kind, name string }

func compareKeys(a, b key) int {
	order := []string{settings, Budget, Queue, Policy, Rule, "group policy", "part", "group rule"}
	return cmp.Or(cmp.Compare(slices.Index(order, a.kind), slices.Index(order, b.kind)), cmp.Compare(a.name, b.name))
}

func merged(a, b map[key]map[string]string) map[key]bool {
	all := map[key]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return all
}

func fields(k key, a, b map[string]string) []Change {
	names := map[string]bool{}
	for f := range a {
		names[f] = true
	}
	for f := range b {
		names[f] = true
	}
	var all []Change
	for _, f := range slices.Sorted(maps.Keys(names)) {
		if a[f] != b[f] {
			all = append(all, Change{What: "changed", Kind: k.kind, Name: k.name, Field: f, Old: a[f], New: b[f]})
		}
	}
	return all
}

// thingsOf lists policies, group policies, their rules and parts, queues and settings with their fields, flattened.
func thingsOf(set *policyfile.Set) (map[key]map[string]string, error) {
	all := map[key]map[string]string{}
	for _, id := range set.Resources() {
		text, err := set.JSON(id)
		if err != nil {
			return nil, err
		}
		var document map[string]any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&document); err != nil {
			return nil, fmt.Errorf("read %s: %w", id, err)
		}
		spec, _ := document["spec"].(map[string]any)
		// below makes items of a list things of their own.
		below := func(kind, list string, name func(int, map[string]any) string) {
			items, _ := spec[list].([]any)
			if len(items) > 0 { // an empty list of rules is not the same as none
				delete(spec, list)
			}
			for i, item := range items {
				fields, _ := item.(map[string]any)
				named := name(i, fields)
				delete(fields, "name")
				all[key{kind, named}] = flat(fields)
			}
		}
		inGroup := func(_ int, fields map[string]any) string { return fmt.Sprintf("%s/%v", id.Name, fields["name"]) }
		switch id.Kind {
		case policyfile.KindQueue:
			all[key{Queue, id.Name}] = flat(document)
		case policyfile.KindPolicy:
			outline := set.Outline(id.Name)
			below(Rule, "rules", func(i int, _ map[string]any) string { return RuleName(id.Name, &outline.Rules[i]) })
			all[key{Policy, id.Name}] = flat(spec)
		case policyfile.KindGroup:
			below("group rule", "rules", inGroup)
			below("part", "parts", inGroup)
			all[key{"group policy", id.Name}] = flat(spec)
		case policyfile.KindBudget:
			all[key{Budget, id.Name}] = flat(spec)
		default:
			all[key{settings, ""}] = flat(spec)
		}
	}
	return all, nil
}

// RuleName is what a Change calls a rule of a policy.
func RuleName(policyName string, r *policy.Rule) string { return policyName + "/" + ruleName(r) }

// ruleName identifies a rule across versions: its name, or what it is counted under.
func ruleName(r *policy.Rule) string {
	if len(r.Key.Rule) > 9 && strings.HasPrefix(r.Key.Rule, "#") {
		return r.Key.Rule[:9]
	}
	return r.Key.Rule
}

// flat lists the scalars and lists below a mapping by path.
func flat(fields map[string]any) map[string]string {
	all := map[string]string{}
	for name, v := range fields {
		if below, ok := v.(map[string]any); ok {
			for path, value := range flat(below) {
				all[name+"."+path] = value
			}
			continue
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(v) // what was parsed from JSON can be encoded again
		all[name] = strings.TrimSpace(b.String())
	}
	return all
}

// moved finds rules and parts that were moved ahead of one that they used to follow.
func moved(before, after *policyfile.Set) []Change {
	old := map[string][]string{}
	for _, o := range before.Outlines() {
		old[o.Name] = namesOf(o)
	}
	var all []Change
	for _, o := range after.Outlines() {
		all = append(all, movedOf(Rule, o.Name, old[o.Name], namesOf(o))...)
	}
	for _, id := range after.Resources() {
		if id.Kind != policyfile.KindGroup {
			continue
		}
		was, is := before.GroupPolicy(id.Name), after.GroupPolicy(id.Name)
		if was == nil {
			continue
		}
		part := func(p policy.PartDefinition) string { return p.Name }
		rule := func(r policy.GroupRule) string { return r.Name }
		all = append(all, movedOf("part", id.Name, each(was.Parts, part), each(is.Parts, part))...)
		all = append(all, movedOf("group rule", id.Name, each(was.Rules, rule), each(is.Rules, rule))...)
	}
	return all
}

// movedOf compares the order of the names that both lists have.
func movedOf(kind, policyName string, before, after []string) (all []Change) {
	then := slices.DeleteFunc(slices.Clone(before), func(r string) bool { return !slices.Contains(after, r) })
	both := slices.DeleteFunc(slices.Clone(after), func(r string) bool { return !slices.Contains(then, r) })
	for i, r := range both {
		if was := slices.Index(then, r); was != i {
			all = append(all, Change{What: "moved", Kind: kind, Name: policyName + "/" + r, Old: fmt.Sprint(slices.Index(before, r)), New: fmt.Sprint(slices.Index(after, r))})
		}
	}
	return all
}

func each[T any](list []T, name func(T) string) []string {
	var names []string
	for _, item := range list {
		names = append(names, name(item))
	}
	return names
}

func namesOf(o policy.Outline) []string {
	var names []string
	for i := range o.Rules {
		names = append(names, ruleName(&o.Rules[i]))
	}
	return names
}
