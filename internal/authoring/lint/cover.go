package lint

import (
	"slices"

	"github.com/refloat/refloat/internal/policy"
)

// maxParts limits into how many parts a rule is split.
const maxParts = 4096

// coveredBy returns the indices of earlier rules that together match whenever r does; nil if that is not proven.
func coveredBy(earlier []policy.Rule, r *policy.Rule) []int {
	var by []int
	for i := range earlier {
		if earlier[i].Covers(&r.Matchers) {
			return []int{i}
		}
	}
	for _, part := range r.Split(maxParts) {
		if part.Never() != "" {
			continue
		}
		i := slices.IndexFunc(earlier, func(e policy.Rule) bool { return e.Covers(&part) })
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
