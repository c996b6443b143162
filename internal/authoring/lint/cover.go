package lint

import (
	"slices"

	"github.com/refloat/refloat/internal/policy"
)

// The proofs follow from semantics.md 2 and 4 alone. What is not proven is not reported: two regular expressions are
// compared only by their text, and rules about different containers hardly at all.

// covers reports whether it is proven that a matches whenever b does.
func covers(a, b *policy.Rule) bool {
	return coversConditions(a, b) && coversCodes(a, b) && coversPattern(a, b) &&
		coversLabels(a.Categories, b.Categories) && coversLabels(a.Subcategories, b.Subcategories)
}

// sameView reports whether both rules consider the same containers.
func sameView(a, b *policy.Rule) bool {
	return a.ContainerName == b.ContainerName && a.IncludeInitContainers == b.IncludeInitContainers
}

// seesAll reports whether a considers every container that b considers.
func seesAll(a, b *policy.Rule) bool {
	return (a.ContainerName == "" || a.ContainerName == b.ContainerName) && (a.IncludeInitContainers || !b.IncludeInitContainers)
}

func coversConditions(a, b *policy.Rule) bool {
	if a.Conditions == 0 {
		return true
	}
	if b.Conditions == 0 {
		return false
	}
	for c := policy.OOMKilled; c <= policy.LeaseExpired; c++ {
		switch {
		case !b.Conditions.Has(c), c != policy.OOMKilled && b.ContainerName != "": // it cannot hold in b
		case !a.Conditions.Has(c), c == policy.OOMKilled && !sameView(a, b), c != policy.OOMKilled && a.ContainerName != "":
			return false
		}
	}
	return true
}

// coversCodes compares exit codes: rules with the same view have the same targeted container.
func coversCodes(a, b *policy.Rule) bool {
	switch {
	case !a.ExitCodes.Asked:
		return true
	case !b.ExitCodes.Asked:
		return false
	case anyCode(a.ExitCodes) && seesAll(a, b):
		return true // b has a failed container, and a considers it
	case !sameView(a, b):
		return false
	}
	return coversCodeSet(a.ExitCodes, b.ExitCodes)
}

// anyCode matches every code except 0, which never occurs.
func anyCode(e policy.ExitCodes) bool {
	return e.NotIn && !slices.ContainsFunc(e.Codes, func(c int32) bool { return c != 0 })
}

func coversCodeSet(a, b policy.ExitCodes) bool {
	inA := func(c int32) bool { return c != 0 && slices.Contains(a.Codes, c) }
	inB := func(c int32) bool { return c == 0 || slices.Contains(b.Codes, c) }
	switch {
	case !a.NotIn && !b.NotIn:
		return !slices.ContainsFunc(b.Codes, func(c int32) bool { return !inA(c) })
	case a.NotIn && !b.NotIn:
		return !slices.ContainsFunc(b.Codes, inA)
	case a.NotIn && b.NotIn:
		return !slices.ContainsFunc(a.Codes, func(c int32) bool { return !inB(c) })
	}
	return false
}

func coversPattern(a, b *policy.Rule) bool {
	switch {
	case a.Pattern == "":
		return true
	case b.Pattern == "":
		return false
	}
	return seesAll(a, b) && (a.Pattern == b.Pattern || matchesAll(a.Pattern) == everyMessage)
}

func coversLabels(a, b []string) bool {
	if a == nil {
		return true
	}
	return b != nil && !slices.ContainsFunc(b, func(s string) bool { return !slices.Contains(a, s) })
}

// Disjoint reports whether it is proven that no failure matches both rules.
func Disjoint(a, b *policy.Rule) bool {
	apart := func(x, y []string) bool {
		return x != nil && y != nil && !slices.ContainsFunc(x, func(s string) bool { return slices.Contains(y, s) })
	}
	switch {
	case neverMatches(a) != "" || neverMatches(b) != "":
		return true
	case apart(a.Categories, b.Categories), apart(a.Subcategories, b.Subcategories):
		return true
	case a.ExitCodes.Asked && b.ExitCodes.Asked && sameView(a, b) && apartCodes(a.ExitCodes, b.ExitCodes):
		return true
	}
	return onlyLease(a) && onlyPod(b) || onlyLease(b) && onlyPod(a) || apartLease(a, b)
}

func apartCodes(a, b policy.ExitCodes) bool {
	if a.NotIn {
		a, b = b, a
	}
	if a.NotIn {
		return false
	}
	return !slices.ContainsFunc(a.Codes, func(c int32) bool { return slices.Contains(b.Codes, c) != b.NotIn })
}

// lease holds the conditions of a run whose lease was returned or expired. The error of such a run is not the
// pod's, so it reports no container; and a run has only one error.
const lease = policy.Conditions(1<<policy.Unschedulable | 1<<policy.LeaseReturned | 1<<policy.LeaseExpired)

// onlyLease reports whether the rule matches only runs whose error is about the lease.
func onlyLease(r *policy.Rule) bool { return r.Conditions != 0 && r.Conditions&^lease == 0 }

// onlyPod reports whether the rule matches only runs whose error comes from the pod.
func onlyPod(r *policy.Rule) bool {
	const pod = policy.Conditions(1<<policy.OOMKilled | 1<<policy.Evicted)
	return r.ExitCodes.Asked || r.Pattern != "" || r.Conditions != 0 && r.Conditions&^pod == 0
}

// apartLease reports whether both rules match by lease conditions, and have none in common.
func apartLease(a, b *policy.Rule) bool {
	return onlyLease(a) && onlyLease(b) && a.Conditions&b.Conditions == 0
}

// neverMatches explains why no failure matches the rule; "" if that is not proven.
func neverMatches(r *policy.Rule) string {
	const oom = policy.Conditions(1 << policy.OOMKilled)
	switch {
	case r.ContainerName != "" && r.Conditions != 0 && r.Conditions&oom == 0:
		return "conditions of the pod never hold for a single container, and the rule names one"
	case onlyLease(r) && (r.ExitCodes.Asked || r.Pattern != ""):
		return "a run whose lease was returned or expired reports no container, so no exit code and no message"
	case r.Pattern != "" && matchesAll(r.Pattern) == noMessage:
		return "the pattern matches no text"
	}
	return ""
}

// maxParts limits into how many parts a rule is split.
const maxParts = 4096

// parts splits a rule: whenever it matches, one of its parts matches.
func parts(r *policy.Rule) []policy.Rule {
	all := []policy.Rule{*r}
	split := func(n int, with func(r *policy.Rule, i int)) {
		if n < 2 || len(all)*n > maxParts {
			return
		}
		var finer []policy.Rule
		for _, r := range all {
			for i := range n {
				part := r
				with(&part, i)
				finer = append(finer, part)
			}
		}
		all = finer
	}
	var conditions []policy.Condition
	for c := policy.OOMKilled; c <= policy.LeaseExpired; c++ {
		if r.Conditions.Has(c) {
			conditions = append(conditions, c)
		}
	}
	split(len(conditions), func(p *policy.Rule, i int) { p.Conditions = policy.Conditions(0).With(conditions[i]) })
	if r.ExitCodes.Asked && !r.ExitCodes.NotIn {
		split(len(r.ExitCodes.Codes), func(p *policy.Rule, i int) { p.ExitCodes.Codes = r.ExitCodes.Codes[i : i+1] })
	}
	split(len(r.Categories), func(p *policy.Rule, i int) { p.Categories = r.Categories[i : i+1] })
	split(len(r.Subcategories), func(p *policy.Rule, i int) { p.Subcategories = r.Subcategories[i : i+1] })
	return all
}

// coveredBy returns the indices of earlier rules that together match whenever r does; nil if that is not proven.
func coveredBy(earlier []policy.Rule, r *policy.Rule) []int {
	var by []int
	for i := range earlier {
		if covers(&earlier[i], r) {
			return []int{i}
		}
	}
	for _, part := range parts(r) {
		if neverMatches(&part) != "" {
			continue
		}
		i := slices.IndexFunc(earlier, func(e policy.Rule) bool { return covers(&e, &part) })
		if i < 0 {
			return nil
		}
		if !slices.Contains(by, i) {
			by = append(by, i)
		}
	}
	slices.Sort(by)
	return by
}
