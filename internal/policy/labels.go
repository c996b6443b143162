package policy

import (
	"fmt"
	"slices"
)

// Categories is onFailureCategory of a rule, sorted: that of the failure must be among them.
type Categories []string

// Subcategories is onFailureSubcategory of a rule, sorted: that of the failure must be among them.
type Subcategories []string

// Matcher returns OnFailureCategory.
func (l Categories) Matcher() Matcher { return OnFailureCategory }

func (l Categories) holds(_ *Scope, f *Failure) (by *Container, ok bool) {
	return nil, slices.Contains(l, f.Category)
}

func (l Categories) why(_ *Scope, f *Failure) string { return whyLabel("category", f.Category, l) }

func (l Categories) covers(_ *Scope, other Requirement, _ *Scope) bool {
	return containsAll(l, other.(Categories))
}

func (l Categories) disjoint(_ *Scope, other Requirement, _ *Scope) bool {
	return !containsAny(l, other.(Categories))
}

func (l Categories) never(*Scope) string { return "" }

func (l Categories) origins() origins { return fromAnywhere }

func (l Categories) split() []Requirement {
	var parts []Requirement
	for i := range l {
		parts = append(parts, l[i:i+1])
	}
	return parts
}

// Matcher returns OnFailureSubcategory.
func (l Subcategories) Matcher() Matcher { return OnFailureSubcategory }

func (l Subcategories) holds(_ *Scope, f *Failure) (by *Container, ok bool) {
	return nil, slices.Contains(l, f.Subcategory)
}

func (l Subcategories) why(_ *Scope, f *Failure) string {
	return whyLabel("subcategory", f.Subcategory, l)
}

func (l Subcategories) covers(_ *Scope, other Requirement, _ *Scope) bool {
	return containsAll(l, other.(Subcategories))
}

func (l Subcategories) disjoint(_ *Scope, other Requirement, _ *Scope) bool {
	return !containsAny(l, other.(Subcategories))
}

func (l Subcategories) never(*Scope) string { return "" }

func (l Subcategories) origins() origins { return fromAnywhere }

func (l Subcategories) split() []Requirement {
	var parts []Requirement
	for i := range l {
		parts = append(parts, l[i:i+1])
	}
	return parts
}

func whyLabel(what, have string, asked []string) string {
	if have == "" {
		return fmt.Sprintf("no %s, so none of %v", what, asked)
	}
	return fmt.Sprintf("%s %q not among %v", what, have, asked)
}

func containsAll(list, of []string) bool {
	return !slices.ContainsFunc(of, func(s string) bool { return !slices.Contains(list, s) })
}

func containsAny(list, of []string) bool {
	return slices.ContainsFunc(of, func(s string) bool { return slices.Contains(list, s) })
}
