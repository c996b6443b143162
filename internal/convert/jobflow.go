package convert

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

// jobFlow is a JobFlow of flow.volcano.sh/v1alpha1, as in volcano.sh/apis at 536f121, with the retryPolicy and queueName
// of the proposal (seeds/004).
type jobFlow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              jobFlowSpec `json:"spec"`
	Status            unread      `json:"status,omitzero"`
}

type jobFlowSpec struct {
	Flows           []flowStep       `json:"flows,omitempty"`
	JobRetainPolicy string           `json:"jobRetainPolicy,omitempty"`
	RetryPolicy     *flowRetryPolicy `json:"retryPolicy,omitempty"`
}

type flowStep struct {
	Name        string           `json:"name"`
	DependsOn   *flowDependsOn   `json:"dependsOn,omitempty"`
	Patch       *unread          `json:"patch,omitempty"` // of a JobTemplate's spec: read with the template
	RetryPolicy *flowRetryPolicy `json:"retryPolicy,omitempty"`
	QueueName   string           `json:"queueName,omitempty"`
}

type flowDependsOn struct {
	Targets []string   `json:"targets,omitempty"`
	Probe   *flowProbe `json:"probe,omitempty"`
}

type flowProbe struct {
	HTTPGetList    []flowHTTPGet    `json:"httpGetList,omitempty"`
	TCPSocketList  []flowTCPSocket  `json:"tcpSocketList,omitempty"`
	TaskStatusList []flowTaskStatus `json:"taskStatusList,omitempty"`
}

type flowHTTPGet struct {
	TaskName   string          `json:"taskName,omitempty"`
	Path       string          `json:"path,omitempty"`
	Port       int             `json:"port,omitempty"`
	HTTPHeader *flowHTTPHeader `json:"httpHeader,omitempty"`
}

type flowHTTPHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type flowTCPSocket struct {
	TaskName string `json:"taskName,omitempty"`
	Port     int    `json:"port"`
}

type flowTaskStatus struct {
	TaskName string `json:"taskName,omitempty"`
	Phase    string `json:"phase,omitempty"`
}

const (
	flowVersion      = "flow.volcano.sh/v1alpha1"
	kindJobTemplate  = "JobTemplate"
	kindJobFlow      = "JobFlow"
	defaultNamespace = "default"
)

func jobFlowSystem() *system {
	return &system{
		apiVersion: flowVersion, kind: kindJobFlow, table: jobFlowFields(),
		new: func() any { return new(jobFlow) }, workload: flowWorkload,
	}
}

// jobTemplateSystem reads JobTemplates, which flows use.
func jobTemplateSystem() *system {
	return &system{
		apiVersion: flowVersion, kind: kindJobTemplate, table: jobTemplateFields(),
		new: func() any { return new(volcanoJob) }, workload: unusedTemplate,
	}
}

// unusedTemplate notes that no flow uses a template. It is no workload by itself.
func unusedTemplate(d *document) *Workload {
	used, flows := false, false
	for _, o := range d.docs {
		if flow, ok := o.value.(*jobFlow); ok {
			flows = true
			used = used || slices.ContainsFunc(flow.Spec.Flows, func(s flowStep) bool { return d == o.template(s.Name) })
		}
	}
	switch first := d.template(d.name); {
	case first != d && first != nil:
		d.fail("metadata.name", fmt.Sprintf("the name of the JobTemplate at %s:%d:%d too", first.file, first.root.Line, first.root.Column), "remove one of them")
	case !flows:
		d.fail("kind", "no JobFlow is given with it", "pass the JobFlow that names it too")
	case !used:
		d.note("metadata", "no flow uses it", "")
	}
	return nil
}

// template finds the JobTemplate of that name in the namespace of the flow; nil if it is not given.
func (d *document) template(name string) *document {
	in := namespaceOf(d)
	for _, o := range d.docs {
		if o.system.kind == kindJobTemplate && o.name == name && namespaceOf(o) == in {
			return o
		}
	}
	return nil
}

func namespaceOf(d *document) string {
	namespace := ""
	switch v := d.value.(type) {
	case *jobFlow:
		namespace = v.Namespace
	case *volcanoJob:
		namespace = v.Namespace
	}
	return cmp.Or(namespace, defaultNamespace)
}

// flowWorkload is what a JobFlow means: a group whose parts are its steps.
func flowWorkload(d *document) *Workload {
	flow := d.value.(*jobFlow)
	d.checkFlow(flow)
	w := &Workload{Name: d.groupName(flow.Name, flow.GenerateName), Namespace: namespaceOf(d)}
	if d.failed {
		return nil
	}
	w.Group.HasRules = true
	w.Group.Rules = []GroupRule{{Name: "exhausted", Action: "Halt"}}
	w.Group.Restarts = d.restarts(flow.Spec.RetryPolicy, "spec.retryPolicy")
	w.Group.About = "A step that has failed, and has no restart left, halts the flow: steps that wait are not started any more."
	for i := range flow.Spec.Flows {
		if p := d.flowPart(w, flow, i); p != nil {
			w.Parts = append(w.Parts, *p)
		}
	}
	annotations := d.ownAnnotations("metadata.annotations", flow.Annotations)
	for i := range w.Parts {
		w.Parts[i].withMeta(flow.Labels, annotations)
	}
	return w
}

// flowPart is one step; nil after an Error, in its template too.
func (d *document) flowPart(w *Workload, flow *jobFlow, i int) *Part {
	s, path := &flow.Spec.Flows[i], stepPath(i)
	t := d.template(s.Name)
	if t == nil {
		d.fail(join(path, "name"), "no JobTemplate of this name in namespace "+shown(namespaceOf(d))+" is given: there is "+d.templates(),
			suggest.Fix(s.Name, d.templateNames(), "pass its JobTemplate too"))
		return nil
	}
	if t.failed {
		d.failed = true // said there
		return nil
	}
	st := d.step(t, i)
	defer st.handOver(d)
	if st.doc.failed {
		return nil
	}
	job := st.doc.value.(*volcanoJob)
	job.Spec.Queue = cmp.Or(s.QueueName, job.Spec.Queue)
	v := newVolcano(st.doc, job, w.Name+"-"+s.Name, true)
	if v == nil {
		return nil
	}
	p := v.step()
	p.Name, p.path = s.Name, path
	if s.DependsOn != nil {
		p.After = slices.Clone(s.DependsOn.Targets)
		slices.Sort(p.After)
		p.After = slices.Compact(p.After)
	}
	p.Restarts = d.restarts(s.RetryPolicy, join(path, "retryPolicy"))
	queue := cmp.Or(job.Spec.Queue, defaultQueue)
	w.Queue = cmp.Or(w.Queue, queue)
	if queue != w.Queue {
		if s.QueueName != "" {
			d.note(join(path, "queueName"), caseOtherQueue, w.Queue)
		} else {
			st.doc.note("spec.queue", caseOtherQueue, w.Queue)
		}
	}
	return &p
}

func stepPath(i int) string { return fmt.Sprintf("spec.flows[%d]", i) }

func (d *document) templateNames() (names []string) {
	for _, o := range d.docs {
		if o.system.kind == kindJobTemplate && namespaceOf(o) == namespaceOf(d) && len(names) < maxNamed {
			names = append(names, o.name)
		}
	}
	return names
}

// maxNamed is how many names an error lists.
const maxNamed = 10

func (d *document) templates() string {
	names := d.templateNames()
	for i := range names {
		names[i] = shown(names[i])
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// checkFlow reports what a JobFlow's webhook refuses, and what has no meaning.
func (d *document) checkFlow(flow *jobFlow) {
	steps := map[string]int{}
	var names []string
	if n := len(flow.Spec.Flows); n == 0 || n > policy.MaxGroupParts {
		d.fail("spec.flows", fmt.Sprintf("%d steps", n), fmt.Sprintf("write 1 to %d", policy.MaxGroupParts))
		return
	}
	for i, s := range flow.Spec.Flows {
		if _, twice := steps[s.Name]; twice || s.Name == "" {
			d.fail(join(stepPath(i), "name"), "not the name of one step", "name each JobTemplate once: copy it under another name to run it twice")
			continue
		}
		steps[s.Name] = i
		names = append(names, s.Name)
	}
	after := make([][]int, len(flow.Spec.Flows))
	for i, s := range flow.Spec.Flows {
		if s.DependsOn == nil {
			continue
		}
		for k, target := range s.DependsOn.Targets {
			at, ok := steps[target]
			if !ok {
				d.fail(fmt.Sprintf("%s.dependsOn.targets[%d]", stepPath(i), k), "no step of this name", suggest.Fix(target, names, "name one of "+strings.Join(names[:min(len(names), maxNamed)], ", ")))
				continue
			}
			after[i] = append(after[i], at)
		}
	}
	if cycle := findCycle(after); cycle != nil {
		var words []string
		for _, i := range cycle {
			words = append(words, shown(flow.Spec.Flows[i].Name))
		}
		d.fail(stepPath(cycle[0])+".dependsOn.targets", "steps wait for each other: "+strings.Join(words, " after "), "remove one of these targets")
	}
}

// findCycle returns steps of which each is after the next, and the first again at the end; nil if there are none.
func findCycle(after [][]int) []int {
	const (
		open = 1
		done = 2
	)
	state := make([]int, len(after))
	var path, cycle []int
	var visit func(i int) bool
	visit = func(i int) bool {
		state[i] = open
		path = append(path, i)
		for _, k := range after[i] {
			if state[k] == open {
				cycle = append(slices.Clone(path[slices.Index(path, k):]), k)
				return true
			}
			if state[k] != done && visit(k) {
				return true
			}
		}
		path = path[:len(path)-1]
		state[i] = done
		return false
	}
	for i := range after {
		if state[i] == 0 && visit(i) {
			return cycle
		}
	}
	return nil
}

// restarts is what a retryPolicy means; nil if there is none.
func (d *document) restarts(p *flowRetryPolicy, path string) *Restarts {
	if p == nil {
		return nil
	}
	r := &Restarts{On: cmp.Or(p.Policy, flowPolicy), Limit: flowMaxRetries, Backoff: Backoff{Constant: true}}
	if n := p.MaxRetries; n != nil {
		if *n < 0 || *n > maxLimit {
			d.fail(join(path, "maxRetries"), "out of range", fmt.Sprintf("write 0 to %d", maxLimit))
			return nil
		}
		r.Limit = uint32(*n)
	}
	if r.On == "Never" || r.Limit == 0 { // lint asks for both
		r.On, r.Limit = "Never", 0
	}
	if b := p.Backoff; b != nil {
		at := join(path, "backoff")
		r.Backoff = Backoff{Constant: b.Type == "Constant", InitialDelay: flowBaseDelay, MaxDelay: flowMaxDelay}
		if b.BaseDelay != nil {
			r.Backoff.InitialDelay = b.BaseDelay.Duration
			d.days(join(at, "baseDelay"), b.BaseDelay)
		}
		if b.MaxDelay != nil {
			r.Backoff.MaxDelay = b.MaxDelay.Duration
			d.days(join(at, "maxDelay"), b.MaxDelay)
			if r.Backoff.Constant {
				d.note(join(at, "maxDelay"), caseConstant, "")
			}
		}
		if !r.Backoff.Constant && r.Backoff.InitialDelay > r.Backoff.MaxDelay {
			d.note(join(at, "baseDelay"), caseCapped, r.Backoff.MaxDelay.String())
			r.Backoff.InitialDelay = r.Backoff.MaxDelay
		}
	}
	return r
}

func (d *document) days(path string, f *flowDuration) {
	if f.days {
		d.note(path, caseDays, f.String())
	}
}

// step is a JobTemplate as one step of a flow uses it, with the step's patch.
type step struct {
	doc     *document
	of      *document // the flow
	path    string    // of the patch, in the flow
	patched map[*yaml.Node]bool
}

// step reads the template of a step again, with its patch. What it reports waits for handOver.
func (d *document) step(t *document, i int) *step {
	s := &step{of: d, path: join(stepPath(i), "patch"), patched: map[*yaml.Node]bool{}}
	root := t.root
	if n, wrapper := patchOf(d.at[s.path], 0); n != nil {
		s.path = join(s.path, wrapper)
		patch := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: "spec"}, n}}
		s.mark(n, 0)
		root = s.merged(root, patch, "", 0)
	}
	c := &conversion{systems: d.systems}
	s.doc = &document{
		conversion: c, system: t.system, file: t.file, root: root, kind: t.kind, name: t.name,
		value: t.system.new(), at: map[string]*yaml.Node{}, extra: map[string]*yaml.Node{},
	}
	s.doc.nodes = d.nodes // many steps may use a large template
	s.doc.decode(root, "", "", reflect.ValueOf(s.doc.value).Elem())
	d.nodes = s.doc.nodes
	s.doc.review()
	return s
}

// patchOf returns the spec that a patch is, in whichever form it is written: a mapping of fields, the same under spec or
// jobSpec, or a list of one such mapping; and the path of the spec in the patch.
func patchOf(n *yaml.Node, depth int) (spec *yaml.Node, path string) {
	if n == nil {
		return nil, ""
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.SequenceNode && len(n.Content) == 1 && depth < maxDepth {
		return patchOf(n.Content[0], depth+1)
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 && (n.Content[0].Value == "spec" || n.Content[0].Value == "jobSpec") {
		return n.Content[1], n.Content[0].Value
	}
	return n, ""
}

// mark notes the nodes that are of the patch.
func (s *step) mark(n *yaml.Node, depth int) {
	if s.patched[n] || depth > maxDepth {
		return
	}
	s.patched[n] = true
	for _, c := range n.Content {
		s.mark(c, depth+1)
	}
	if n.Alias != nil {
		s.mark(n.Alias, depth+1)
	}
}

// handOver gives what was reported to the flow's conversion, each note once: several steps may use one template.
func (s *step) handOver(d *document) {
	for _, n := range s.doc.notes {
		if s.patched[s.doc.nearest(n.Path)] {
			n.File, n.Object = d.file, d.kind+" "+shown(d.name)
			n.Path = join(s.path, strings.TrimPrefix(n.Path, "spec."))
		}
		if !slices.Contains(d.notes, n) {
			d.notes = append(d.notes, n)
		}
	}
	d.failed = d.failed || s.doc.failed
}

// mergeKeys are the fields by which the items of lists are the same item.
func mergeKeys() map[string]string {
	return map[string]string{
		"tasks": "name", "containers": "name", "initContainers": "name", "volumes": "name", "env": "name", "imagePullSecrets": "name",
		"volumeMounts": "mountPath", "ports": "containerPort", "tolerations": "key", "hostAliases": "ip",
	}
}

// merged returns base with what patch says: mappings field by field, lists with a key item by item, and all else as a
// whole. It shares nodes with both.
func (s *step) merged(base, patch *yaml.Node, field string, depth int) *yaml.Node {
	if base.Kind == yaml.AliasNode {
		base = base.Alias
	}
	if patch.Kind == yaml.AliasNode {
		patch = patch.Alias
	}
	s.of.nodes++ // aliases may repeat a small text very often
	if depth > maxDepth || s.of.nodes > maxNodes || base.Kind != patch.Kind {
		return patch
	}
	out := *base
	out.Content = slices.Clone(base.Content)
	switch base.Kind { //nolint:exhaustive // the rest is replaced
	case yaml.MappingNode:
		for i := 0; i+1 < len(patch.Content); i += 2 {
			key, value := patch.Content[i], patch.Content[i+1]
			at := -1
			for k := 0; k+1 < len(out.Content); k += 2 {
				if out.Content[k].Value == key.Value {
					at = k
				}
			}
			if at < 0 {
				out.Content = append(out.Content, key, value)
				continue
			}
			out.Content[at+1] = s.merged(out.Content[at+1], value, key.Value, depth+1)
		}
		return &out
	case yaml.SequenceNode:
		key := mergeKeys()[field]
		if key == "" {
			return patch
		}
		for _, item := range patch.Content {
			if at := sameItem(out.Content, item, key); at >= 0 {
				out.Content[at] = s.merged(out.Content[at], item, "", depth+1)
				continue
			}
			out.Content = append(out.Content, item)
		}
		return &out
	}
	return patch
}

// sameItem finds the item of a list that has the same key. An item without one is the only item there is.
func sameItem(list []*yaml.Node, item *yaml.Node, key string) int {
	keyOf := func(n *yaml.Node) string {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if v := find(n, key); n.Kind == yaml.MappingNode && v != nil {
			return v.Value
		}
		return ""
	}
	k := keyOf(item)
	if k == "" {
		if len(list) == 1 && item.Kind == yaml.MappingNode {
			return 0
		}
		return -1
	}
	return slices.IndexFunc(list, func(n *yaml.Node) bool { return keyOf(n) == k })
}
