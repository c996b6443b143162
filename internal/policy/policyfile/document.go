package policyfile

import "go.yaml.in/yaml/v4"

// What tools need to know about files and about a Set: lint, tests, diff. Nothing here affects a decision.

// Document is one resource of the files, with the positions of its fields.
type Document struct {
	File string
	Kind string // RetryPolicy, GroupPolicy, Queue, RetryBudget or RetrySettings
	Name string // of the policy, group policy, queue or retry budget
	Spec string // path of its content: "spec", or "" for the document itself

	fields map[string]*yaml.Node
}

// Documents lists the resources of files, in order. Its error is that of Parse.
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
		case d.group != nil:
			out[i].Kind, out[i].Name = KindGroup, string(d.group.Name)
		case d.queue != nil:
			out[i].Kind, out[i].Name = "Queue", string(d.queue.Name)
		case d.budget != nil:
			out[i].Kind, out[i].Name = KindBudget, string(d.budget.Name)
		default:
			out[i].Kind = "RetrySettings"
		}
	}
	return out, nil
}

// Path returns the path of a field below the document's content.
func (d *Document) Path(field string) string { return join(d.Spec, field) }

// States reports whether the document sets the field below its content.
func (d *Document) States(field string) bool { return d.fields[d.Path(field)] != nil }

// Problem returns a problem of the field below the document's content, at the position of the field or of the
// nearest one above it.
func (d *Document) Problem(field string, p Problem) Problem {
	p.File, p.Path = d.File, d.Path(field)
	at := (&decoder{at: d.fields}).nearest(p.Path)
	p.Line, p.Column = at.Line, at.Column
	if at.Kind == yaml.ScalarNode && d.fields[p.Path] == at {
		p.Value = at.Value
	}
	return p
}

// Nodes loads the YAML documents of a file under the limits of Parse: size, depth, and plain YAML only. Its error
// is a Problems.
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

// plainOnly reports YAML features that our files do not need.
func (d *decoder) plainOnly(n *yaml.Node) {
	if f := fancy(n); f != (fault{}) {
		d.report(n, "", f)
		return
	}
	if n.Tag == "!!merge" {
		d.report(n, "", fault{codeFancy, "a merge key", "write out the fields"})
	}
	for _, child := range n.Content {
		d.plainOnly(child)
	}
}
