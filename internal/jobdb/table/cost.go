package table

import (
	"cmp"
	"slices"

	"github.com/refloat/refloat/internal/jobdb"
)

// DayRow is a kept sum of costs. Writers add to it what Changes have, in the same transaction.
type DayRow struct {
	of        uint8  // index in jobdb.CostKeys
	about     string // the key
	day       int64
	partition int
	kind      jobdb.CostKind
	jobdb.Spent
}

// Days are kept sums of costs, of each queue, policy, rule, node and category.
var Days = Of[DayRow]{
	Name:    "cost_days",
	Key:     []string{"of", "about", "kind", "day", "partition"}, // in the order in which Costs groups them
	Columns: columns("of about day partition kind runs unknown cpu memory gpu"),
	Adds:    5,
	Fields: func(d *DayRow, v []any) []any {
		s := &d.Spent
		return append(v, &d.of, &d.about, &d.day, &d.partition, (*uint8)(&d.kind), &s.Runs, &s.Unknown, &s.CPU, &s.Memory, &s.GPU)
	},
}

// DaysOf sums costs. The rows are in the order of their keys.
func DaysOf(costs []*jobdb.Cost) (rows []*DayRow) {
	sums := map[DayRow]*DayRow{}
	for _, c := range costs {
		for of, about := range []string{c.Queue, c.Policy, ruleOf(&c.Cause), c.Node, c.Category} { // as jobdb.CostKeys
			key := DayRow{of: uint8(of), about: about, day: jobdb.DayOf(c.Ended), partition: c.Partition, kind: c.Kind}
			if sums[key] == nil {
				sums[key] = &key
				rows = append(rows, &key)
			}
			sums[key].Add(c.Spent)
		}
	}
	slices.SortFunc(rows, func(a, b *DayRow) int {
		return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.about, b.about), cmp.Compare(a.kind, b.kind), cmp.Compare(a.day, b.day), cmp.Compare(a.partition, b.partition))
	})
	return rows
}

func ruleOf(c *jobdb.Cause) string {
	if c.Rule == "" {
		return ""
	}
	return c.Policy + "/" + c.Rule
}

// Costs implements [jobdb.Queries].
func (q Queries) Costs(f jobdb.CostFilter) (sums []jobdb.CostSum, err error) {
	s := Query{From: Days.Name, Rest: " GROUP BY 1, 2 ORDER BY 1, 2", Columns: []string{"about", "kind"}}
	for _, c := range Days.Columns[len(Days.Columns)-Days.Adds:] {
		s.Columns = append(s.Columns, "CAST(sum("+c+") AS BIGINT)")
	}
	s.where("of = ?", int64(slices.Index(jobdb.CostKeys, f.By)))
	if f.Key != nil {
		s.where("about = ?", *f.Key)
	}
	if f.From != 0 {
		s.where("day >= ?", f.From)
	}
	if f.To != 0 {
		s.where("day < ?", f.To)
	}
	var c jobdb.CostSum
	err = q.Source.Find(s, func() []any {
		return []any{&c.Key, (*uint8)(&c.Kind), &c.Runs, &c.Unknown, &c.CPU, &c.Memory, &c.GPU}
	}, func() error {
		sums = append(sums, c)
		return nil
	})
	return sums, err
}
