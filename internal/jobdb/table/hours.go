package table

import (
	"cmp"
	"slices"

	"github.com/refloat/refloat/internal/jobdb"
)

// HourRow is a kept count. Writers add to it what they insert into Decisions, in the same transaction.
type HourRow struct {
	partition int
	of        uint8 // which of the next two is a key
	queue     string
	policy    string
	jobdb.HourCount
}

const (
	ofAll uint8 = iota
	ofQueue
	ofPolicy
)

// Hours are kept counts of decisions: of all, of each queue, and of each policy.
var Hours = Of[HourRow]{
	Name:    "decision_hours",
	Key:     []string{"of", "queue", "policy", "hour", "partition", "requeue", "shadow", "acted"},
	Columns: columns("of queue policy hour partition requeue shadow acted decisions"),
	Adds:    1,
	Fields: func(h *HourRow, v []any) []any {
		return append(v, &h.of, &h.queue, &h.policy, &h.Hour, &h.partition, &h.Requeue, &h.Shadow, &h.Acted, &h.Count)
	},
}

// HoursOf counts decisions. The rows are in the order of their keys.
func HoursOf(decisions []*jobdb.Decision) []*HourRow {
	counts := map[HourRow]uint64{}
	for _, d := range decisions {
		h := HourRow{partition: d.Partition, HourCount: jobdb.HourCount{Hour: jobdb.HourOf(d.Time), Requeue: d.Requeue, Shadow: d.Shadow, Acted: d.Acted}}
		counts[h]++
		h.of, h.queue = ofQueue, d.Queue
		counts[h]++
		h.of, h.queue, h.policy = ofPolicy, "", d.Policy
		counts[h]++
	}
	rows := make([]*HourRow, 0, len(counts))
	for h, n := range counts {
		h.Count = n
		rows = append(rows, &h)
	}
	slices.SortFunc(rows, func(a, b *HourRow) int {
		return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.queue, b.queue), cmp.Compare(a.policy, b.policy), cmp.Compare(a.Hour, b.Hour),
			cmp.Compare(a.partition, b.partition), cmp.Compare(a.effect(), b.effect()))
	})
	return rows
}

func (h *HourRow) effect() (n int) {
	for i, set := range []bool{h.Requeue, h.Shadow, h.Acted} {
		if set {
			n += 1 << i
		}
	}
	return n
}

// Hours implements [jobdb.Queries].
func (q Queries) Hours(f jobdb.HourFilter) (counts []jobdb.HourCount, err error) {
	s := Query{Columns: []string{"hour", "requeue", "shadow", "acted", "CAST(sum(decisions) AS BIGINT)"}, From: Hours.Name, Rest: " GROUP BY 1, 2, 3, 4 ORDER BY 1, 2 DESC, 3, 4 DESC"}
	switch {
	case f.Queue != "":
		s.where("of = ? AND queue = ? AND policy = ''", int64(ofQueue), f.Queue)
	case f.Policy != "":
		s.where("of = ? AND queue = '' AND policy = ?", int64(ofPolicy), f.Policy)
	default:
		s.where("of = ? AND queue = '' AND policy = ''", int64(ofAll))
	}
	if f.From != 0 {
		s.where("hour >= ?", f.From)
	}
	if f.To != 0 {
		s.where("hour < ?", f.To)
	}
	var h jobdb.HourCount
	err = q.Source.Find(s, func() []any { return []any{&h.Hour, &h.Requeue, &h.Shadow, &h.Acted, &h.Count} }, func() error {
		counts = append(counts, h)
		return nil
	})
	return counts, err
}
