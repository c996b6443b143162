package convert

import (
	"slices"

	"go.yaml.in/yaml/v4"
)

const ownersPath = "metadata.ownerReferences"

// madeByAnother reports whether a manifest is left out because it was made by another one that is converted, such as a Job of
// a JobSet in the output of kubectl get jobset,job. Of one whose controller is not there, it makes a note.
func (d *document) madeByAnother() bool {
	owner := d.controller()
	if owner == nil {
		return false
	}
	d.at[ownersPath] = owner
	if n := find(owner, "name"); n != nil {
		d.at[ownersPath] = n // what a note shows
	}
	kind, name := d.text(owner, "kind"), d.text(owner, "name")
	if slices.ContainsFunc(d.docs, func(o *document) bool {
		return o.system.workload != nil && o.system.apiVersion == d.text(owner, "apiVersion") && o.kind == kind && o.name == name && o.namespace() == d.namespace()
	}) {
		d.noteRow(d.system.caseOf(ownersPath, "the controller that makes it is converted too"), ownersPath, "")
		return true
	}
	d.noteRow(d.system.caseOf(ownersPath, "another controller makes it"), ownersPath, "a group of its own")
	return false
}

// controller returns the owner reference of the controller that made the object; nil if none did.
func (d *document) controller() *yaml.Node {
	owners := d.metadata("ownerReferences")
	if owners == nil || owners.Kind != yaml.SequenceNode {
		return nil
	}
	for _, o := range owners.Content {
		if is := find(o, "controller"); is != nil && is.ShortTag() == "!!bool" && is.Value == "true" {
			return o
		}
	}
	return nil
}

func (d *document) namespace() string {
	if n := d.metadata("namespace"); n != nil {
		return n.Value
	}
	return ""
}

// metadata returns a field of the object's metadata.
func (d *document) metadata(field string) *yaml.Node {
	if m := find(d.root, "metadata"); m != nil {
		return find(m, field)
	}
	return nil
}
