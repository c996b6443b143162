package jobdbtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
)

// testHours checks the kept counts against the decisions that were written, in several transactions, partitions and hours.
func testHours(t *testing.T, db Database) {
	const hour = 3600e9
	var all []*jobdb.Decision
	for step := range 3 {
		for partition := range 2 {
			c := &jobdb.Changes{}
			for i := range 12 {
				d := &jobdb.Decision{Acted: i%4 != 3}
				d.Partition, d.Number, d.JobID = partition, uint64(100*step+i), fmt.Sprint(step, partition, i)
				d.Time = int64(500_000+i/3)*hour + int64(step)
				d.Requeue, d.Shadow, d.Queue, d.Policy = i%2 == 0, i%5 == 0 && i%3 != 1, []string{"", "q", "r"}[i%3], []string{"", "p"}[i%2]
				d.Rule = []string{"", "r"}[i/3%2]
				c.Decisions = append(c.Decisions, d)
			}
			all = append(all, c.Decisions...)
			commit(t, db.Writer, partition, at(step), at(step+1), c)
		}
	}
	view(t, db.Reader, func(q jobdb.Queries) error {
		queues, err := q.QueuesInShadow()
		equal(t, "queues in shadow", []string{"", "r"}, queues)
		queues, _ = jobdb.Within(q, []string{"r"}).QueuesInShadow()
		equal(t, "queues in shadow of those who see one", []string{"r"}, queues)
		return err
	})
	for _, f := range []jobdb.HourFilter{{}, {Queue: "q"}, {Policy: "p"}, {Queue: "none"}, {From: 500_001, To: 500_003}, {Queue: "r", From: 500_002}, {Policy: "p", To: 500_001}, {Policy: "p", Rule: "r"}, {Policy: "p", Rule: "none"}} {
		counts := map[jobdb.HourCount]uint64{}
		for _, d := range all {
			h := jobdb.HourCount{Hour: jobdb.HourOf(d.Time), Requeue: d.Requeue, Shadow: d.Shadow, Acted: d.Acted}
			if (f.Queue == "" || d.Queue == f.Queue) && (f.Policy == "" || d.Policy == f.Policy) && (f.Rule == "" || d.Rule == f.Rule) && (f.From == 0 || h.Hour >= f.From) && (f.To == 0 || h.Hour < f.To) {
				counts[h]++
			}
		}
		view(t, db.Reader, func(q jobdb.Queries) error {
			got, err := q.Hours(f)
			if !slices.IsSortedFunc(got, func(a, b jobdb.HourCount) int { return int(a.Hour - b.Hour) }) || len(got) != len(counts) {
				t.Errorf("%+v: %d counts, want %d: %+v", f, len(got), len(counts), got)
			}
			for _, h := range got {
				n := h.Count
				h.Count = 0
				if counts[h] != n {
					t.Errorf("%+v: %+v: %d, want %d", f, h, n, counts[h])
				}
			}
			return err
		})
	}
}
