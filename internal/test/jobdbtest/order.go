package jobdbtest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// SameInEveryOrder checks that what one field of criteria selects of these rows is the same in every order: a list reads no more of an order
// than what writers can have there. The rows must be those that an ingester wrote. It returns how many lists had any.
func SameInEveryOrder(t *testing.T, db jobdb.Reader, rows *jobdb.Changes) (lists int) {
	t.Helper()
	var all []jobdb.Criteria
	for s := range uint8(10) {
		all = append(all, jobdb.Criteria{States: []uint8{s}})
	}
	for _, r := range rows.Runs {
		all = append(all, jobdb.Criteria{Category: r.Error.Category}, jobdb.Criteria{Node: cmp.Or(r.Error.Node, r.Node)})
	}
	for _, d := range rows.Decisions {
		all = append(all, jobdb.Criteria{Rule: d.Rule}, jobdb.Criteria{Policy: d.Policy}, jobdb.Criteria{Codes: []policy.Code{d.Code}})
	}
	slices.SortFunc(all, func(a, b jobdb.Criteria) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	all = slices.CompactFunc(all, func(a, b jobdb.Criteria) bool { return reflect.DeepEqual(a, b) })
	view(t, db, func(q jobdb.Queries) error {
		for list, sorts := range Lists {
			for _, c := range all {
				var want []string
				for i, sort := range sorts {
					for _, limit := range []int{0, 1 << 20} { // sorted, and read in order
						got, _, err := idsOf(q, list, &c, jobdb.Page{Sort: sort, Limit: limit}, -1)
						if err != nil {
							return err
						}
						if slices.Sort(got); i == 0 && limit == 0 {
							want = got
						}
						equal(t, fmt.Sprintf("%s by %+v in the order %s", list, c, sort), want, got)
					}
				}
				if len(want) > 0 {
					lists++
				}
			}
		}
		return nil
	})
	return lists
}
