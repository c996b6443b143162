package policy

import (
	"fmt"
	"slices"
)

// Labels is a matcher on one label of the failure, which must be among these. They are sorted.
type Labels[L label] []string

// Categories is onFailureCategory of a rule.
type Categories = Labels[category]

// Subcategories is onFailureSubcategory of a rule.
type Subcategories = Labels[subcategory]

type (
	category    struct{}
	subcategory struct{}
)

// label is one label of a failure, and the matcher on it.
type label interface {
	matcher() Matcher
	of(f *Failure) (what, is string)
}

func (category) matcher() Matcher             { return OnFailureCategory }
func (category) of(f *Failure) (_, is string) { return "category", f.Category }

func (subcategory) matcher() Matcher             { return OnFailureSubcategory }
func (subcategory) of(f *Failure) (_, is string) { return "subcategory", f.Subcategory }

// Matcher returns OnFailureCategory or OnFailureSubcategory.
func (l Labels[L]) Matcher() Matcher { return (*new(L)).matcher() }

func (l Labels[L]) holds(_ *Scope, f *Failure) (by *Container, ok bool) {
	_, is := (*new(L)).of(f)
	return nil, slices.Contains(l, is)
}

func (l Labels[L]) why(_ *Scope, f *Failure) string {
	what, is := (*new(L)).of(f)
	if is == "" {
		return fmt.Sprintf("no %s, so none of %v", what, l)
	}
	return fmt.Sprintf("%s %q not among %v", what, is, l)
}

func (l Labels[L]) covers(_ *Scope, other Requirement, _ *Scope) bool {
	return !slices.ContainsFunc(other.(Labels[L]), func(s string) bool { return !slices.Contains(l, s) })
}

func (l Labels[L]) disjoint(_ *Scope, other Requirement, _ *Scope) bool {
	return !slices.ContainsFunc(other.(Labels[L]), func(s string) bool { return slices.Contains(l, s) })
}

func (l Labels[L]) never(*Scope) string { return "" }

func (l Labels[L]) origins() origins { return fromAnywhere }

func (l Labels[L]) split() []Requirement {
	var parts []Requirement
	for i := range l {
		parts = append(parts, l[i:i+1])
	}
	return parts
}
