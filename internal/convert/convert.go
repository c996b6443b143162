package convert

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/suggest"
)

// Options are what manifests do not say.
type Options struct {
	Queue  string // of Armada, for all; "": that of each manifest, else "default"
	JobSet string // "": the name of the first group
	// MaxRetries is what the settings of the deployment permit; nil: they are not known.
	MaxRetries *MaxRetries
}

// MaxRetries is how many retries settings permit a job in total, over all of its rules and restarts.
type MaxRetries struct {
	Global uint32 // globalMaxRetries
	Policy uint32 // to which the maxRetries of a policy may raise it
}

// Result is what manifests became.
type Result struct {
	Submits  []Submit // one for each queue, in the order in which manifests name them
	Policies []PolicyFile
	Set      *policyfile.Set // of Policies; nil if there was an Error
	Notes    []Note          // by position
}

// Failed reports whether there is an Error among the notes. Nothing else of the Result is of use then.
func (r *Result) Failed() bool {
	return slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Kind == Error })
}

// A system is one kind of manifest.
type system struct {
	apiVersion string
	kind       string
	table      []Field
	new        func() any // a pointer to its type
	// workload returns what a manifest means; nil after an Error. A system without it is used by others.
	workload func(d *document) *Workload
}

// systems returns all systems.
func systems() []*system {
	return []*system{jobSystem(), jobSetSystem(), jobFlowSystem(), jobTemplateSystem(), volcanoSystem()}
}

// conversion is one call of Convert.
type conversion struct {
	systems []*system
	notes   []Note
	docs    []*document
}

// Convert converts manifests. It never fails as a whole: an Error among the notes says what could not be converted.
func Convert(files []File, o Options) *Result {
	c := &conversion{systems: systems()}
	for _, f := range files {
		for _, root := range c.roots(f) {
			c.document(f.Name, root, 0)
		}
	}
	var workloads []*Workload
	for _, d := range c.docs {
		if d.system.workload == nil || d.failed || d.madeByAnother() {
			continue
		}
		w := d.system.workload(d)
		if w == nil || d.failed {
			continue
		}
		if len(w.Parts) == 0 {
			d.noteRow(rowNothing, "", "")
			continue
		}
		w.doc = d
		workloads = append(workloads, w)
	}
	c.names(workloads, o)
	c.size(workloads)
	r := &Result{}
	if !slices.ContainsFunc(c.notes, func(n Note) bool { return n.Kind == Error }) {
		if len(c.docs) == 0 {
			c.notes = append(c.notes, Note{Kind: Error, Why: "no manifest to convert", Fix: "pass a " + c.kinds()})
		}
		c.maxRetries(workloads, o.MaxRetries)
		r.Policies, r.Set = c.policies(workloads)
		r.Submits = submits(workloads, o)
	}
	sortNotes(c.notes, files)
	r.Notes = withoutDoubts(c.notes)
	if r.Failed() {
		r.Submits, r.Policies, r.Set = nil, nil, nil
	}
	return r
}

func (c *conversion) kinds() string {
	var kinds []string
	for _, s := range c.systems {
		kinds = append(kinds, s.kind+" of "+s.apiVersion)
	}
	return strings.Join(kinds, ", ")
}

// document reads one manifest, or those of a list.
func (c *conversion) document(file string, root *yaml.Node, depth int) {
	d := &document{conversion: c, file: file, root: root, at: map[string]*yaml.Node{}, extra: map[string]*yaml.Node{}, system: &system{}}
	if root.Kind != yaml.MappingNode {
		d.fail("", "not a manifest", "pass a "+c.kinds())
		return
	}
	apiVersion := d.text(root, "apiVersion")
	d.kind = d.text(root, "kind")
	if metadata := find(root, "metadata"); metadata != nil && metadata.Kind == yaml.MappingNode {
		d.name = cmp.Or(d.text(metadata, "name"), d.text(metadata, "generateName"))
	}
	if items := find(root, "items"); items != nil && strings.HasSuffix(d.kind, "List") && depth == 0 {
		if d.is(items, "items", yaml.SequenceNode, "a list of manifests") {
			for _, item := range items.Content {
				c.document(file, item, depth+1)
			}
		}
		return
	}
	var versions []string
	for _, s := range c.systems {
		if s.kind == d.kind && s.apiVersion == apiVersion {
			d.system = s
			d.value = s.new()
			c.docs = append(c.docs, d)
			d.decode(root, "", "", reflect.ValueOf(d.value).Elem())
			d.review()
			return
		}
		if s.kind == d.kind {
			versions = append(versions, s.apiVersion)
		}
	}
	d.at["kind"], d.at["apiVersion"] = find(root, "kind"), find(root, "apiVersion")
	switch {
	case d.kind == "":
		d.fail("kind", "missing", "write the kind of the manifest: "+c.kinds())
	case versions != nil:
		d.fail("apiVersion", "not a version that is converted", suggest.Fix(apiVersion, versions, "use "+strings.Join(versions, " or ")))
	default:
		d.report(Note{
			Kind: Lost, Path: "kind", Was: shown(d.kind),
			Why: "only these are converted: " + c.kinds() + "; what their pods need, such as a ConfigMap, must exist in the cluster of each of Armada's executors",
		})
	}
}

// text returns a field of a mapping that is a word; "" if it has none.
func (d *document) text(n *yaml.Node, field string) string {
	if v := find(n, field); v != nil && v.Kind == yaml.ScalarNode && v.ShortTag() == "!!str" {
		return v.Value
	}
	return ""
}

// find returns a field of a mapping.
func find(n *yaml.Node, field string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == field {
			return n.Content[i+1]
		}
	}
	return nil
}

// maxJobs limits how many jobs one call makes: they are all in memory.
const maxJobs = 100_000

func (c *conversion) size(workloads []*Workload) {
	total := 0
	for _, w := range workloads {
		for i := range w.Parts {
			total += w.Parts[i].Replicas * w.Parts[i].Members()
			w.podSizes(&w.Parts[i])
		}
		if total > maxJobs {
			w.doc.fail("", fmt.Sprintf("more than %d jobs, with those before it", maxJobs), "convert fewer manifests at a time")
			return
		}
	}
}

// podSizes checks pods with all that is added to the template.
func (w *Workload) podSizes(p *Part) {
	last := -1
	for i := range p.Tasks {
		last += p.Tasks[i].Count
		pod := p.Tasks[i].Pod
		if p.Identity != nil {
			pod = withIdentity(pod, p.Identity(p.Replicas-1, last))
		}
		if n := pod.Size(); n > maxPodSpec {
			w.doc.fail(p.path, fmt.Sprintf("a pod of %d bytes, with what tells it apart, and Armada accepts at most %d", n, maxPodSpec), "move texts to a ConfigMap or into the image")
			return
		}
	}
}

// names checks that no two groups of a queue have the same name.
func (c *conversion) names(workloads []*Workload, o Options) {
	first := map[[2]string]*Workload{}
	for _, w := range workloads {
		key := [2]string{w.queue(o), w.Name}
		if e := first[key]; e != nil {
			at := e.doc.root
			w.doc.fail("metadata.name", fmt.Sprintf("the name of the group that %s at %s:%d:%d becomes, in one job set", e.doc.kind, e.doc.file, at.Line, at.Column),
				"rename one, or convert them one by one, with another --job-set each")
			continue
		}
		first[key] = w
	}
}
