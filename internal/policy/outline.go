package policy

import (
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"
)

// What tools see of files and of a Set: lint, tests, differences. Nothing here
// decides.

// Document is one resource of the files, with the places of its fields.
type Document struct {
	File string
	Kind string // RetryPolicy, Queue or RetrySettings
	Name string // of the policy or the queue
	Spec string // the path of what it holds: "spec", or "" for the document itself

	fields map[string]*yaml.Node
}

// Documents lists the resources of files, in their order. Its error is that of Parse.
func Documents(files []File) ([]Document, error) {
	docs, problems := parse(files)
	if len(problems) > 0 {
		return nil, problems
	}
	out := make([]Document, len(docs))
	for i := range docs {
		d := &docs[i]
		out[i] = Document{File: d.file, Spec: d.spec, fields: d.at}
		switch {
		case d.policy != nil:
			out[i].Kind, out[i].Name = "RetryPolicy", string(d.policy.Name)
		case d.queue != nil:
			out[i].Kind, out[i].Name = "Queue", string(d.queue.Name)
		default:
			out[i].Kind = "RetrySettings"
		}
	}
	return out, nil
}

// Path is the path of a field below what the document holds.
func (d *Document) Path(field string) string { return join(d.Spec, field) }

// States says whether the document has the field below what it holds.
func (d *Document) States(field string) bool { return d.fields[d.Path(field)] != nil }

// Problem returns a problem of the field below what the document holds, at the
// field's place or at the nearest one above it.
func (d *Document) Problem(field string, p Problem) Problem {
	p.File, p.Path = d.File, d.Path(field)
	at := (&decoder{at: d.fields}).nearest(p.Path)
	p.Line, p.Column = at.Line, at.Column
	if at.Kind == yaml.ScalarNode && d.fields[p.Path] == at {
		p.Value = at.Value
	}
	return p
}

// Outline is a policy as it acts.
type Outline struct {
	Name    string
	Default Rule // the default action; without one its Action is ""
	Rules   []Rule
}

// Rule is a rule with all that it inherits.
type Rule struct {
	Key       RuleKey // what it counts under
	Shown     string  // its name, "#place" or "default"
	Action    string  // Retry, Fail or Ignore
	Limit     uint32
	LimitFrom LimitFrom
	MaxDelay  time.Duration
	Avoid     AvoidMode
	// WhenTerminated: retries always wait until the old pod is gone.
	WhenTerminated bool

	Conditions            Conditions
	ExitCodes             ExitCodes
	Pattern               string
	Categories            []string // sorted
	Subcategories         []string // sorted
	ContainerName         string
	IncludeInitContainers bool

	backoff backoff
}

// ExitCodes is onExitCodes of a rule. The zero value: not asked.
type ExitCodes struct {
	Asked bool
	NotIn bool
	Codes []int32 // sorted
}

// Delay is the delay of the rule's n-th retry, n ≥ 1, without jitter and grace.
func (r *Rule) Delay(n uint64) time.Duration { return r.backoff.delay(n) }

// Outlines lists the policies by name. Its slices are shared: do not change them.
func (s *Set) Outlines() []Outline {
	var all []Outline
	for _, name := range slices.Sorted(maps.Keys(s.policies)) {
		p := s.policies[name]
		o := Outline{Name: name, Default: s.outlineOf(&rule{target: p.byDefault})}
		for i := range p.rules {
			o.Rules = append(o.Rules, s.outlineOf(&p.rules[i]))
		}
		all = append(all, o)
	}
	return all
}

func (s *Set) outlineOf(r *rule) Rule {
	g := s.grantOf(&r.target)
	out := Rule{
		Key: r.key, Shown: r.shown, Action: r.action.words()[r.action],
		Limit: g.limit, LimitFrom: g.limitFrom, MaxDelay: toDuration(g.backoff.max), backoff: g.backoff,
		Avoid: g.avoid, WhenTerminated: g.whenTerminated,
		Conditions: r.conditions, ExitCodes: ExitCodes{Asked: r.operator != noOperator, NotIn: r.operator == notIn},
		ContainerName: r.containerName, IncludeInitContainers: r.includeInitContainers,
	}
	for _, code := range r.codes {
		out.ExitCodes.Codes = append(out.ExitCodes.Codes, int32(code))
	}
	for _, c := range r.categories {
		out.Categories = append(out.Categories, string(c))
	}
	for _, c := range r.subcategories {
		out.Subcategories = append(out.Subcategories, string(c))
	}
	if r.pattern != nil {
		out.Pattern = r.pattern.String()
	}
	return out
}

// GlobalMaxRetries is the settings' cap of all retries of a job.
func (s *Set) GlobalMaxRetries() uint32 { return s.globalMax }

// Queues lists the queues that the files mention, by name.
func (s *Set) Queues() []string { return slices.Sorted(maps.Keys(s.queues)) }

// Applying names the policies that apply to a job of the queue with that
// annotation, in order.
func (s *Set) Applying(queue, annotation string) []string {
	list, _ := s.applying(s.queue(queue), annotation, nil)
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = string(p.Name)
	}
	return names
}

// Nearest returns the word that s may have been meant to be, or "".
func Nearest(s string, words []string) string { return nearest(s, words) }

// Nodes loads the YAML documents of a file under the limits of Parse: its size,
// its depth, and nothing fancy. Its error is a Problems.
func Nodes(file File) ([]*yaml.Node, error) {
	var problems Problems
	var all []*yaml.Node
	for root := range roots(file, &problems) {
		all = append(all, root)
		newDecoder(file.Name, &problems, nil).plainOnly(root)
	}
	if len(problems) > 0 {
		problems.sort()
		return nil, problems
	}
	return all, nil
}

// plainOnly reports what YAML can and our files do not need.
func (d *decoder) plainOnly(n *yaml.Node) {
	if f := fancy(n); f != (fault{}) {
		d.report(n, "", f)
		return
	}
	if n.Tag == "!!merge" {
		d.report(n, "", fault{codeFancy, "a merge key", "write the fields out"})
	}
	for _, child := range n.Content {
		d.plainOnly(child)
	}
}
