package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/suggest"
)

// CostQuestion asks what failed runs and retries cost.
type CostQuestion struct {
	By  string  // one of jobdb.CostKeys
	Key *string // only of this one, of a rule POLICY/RULE; nil: of each
	// Since and Until are times in Unix nanoseconds, of the end of runs; 0: no limit. The days, in UTC, that they are in count
	// as a whole.
	Since, Until int64
	Limit        int // rows; 0: all
}

// Cost is what the runs of one key held. A failed run counts for what decided on it, and for its node and Armada's category
// of its error; a retry for the failure that it was granted for. In shadow, no retry is ours.
type Cost struct {
	By               string      `json:"by"`
	Key              string      `json:"key"` // "": none
	Failed           audit.Spent `json:"failed"`
	RetriesSucceeded audit.Spent `json:"retriesSucceeded"`
	RetriesLost      audit.Spent `json:"retriesLost"` // failed, of which Failed has its part too, or cancelled
}

// UnknownNote says of how many runs in a list the hours are unknown; "": of none.
func UnknownNote(costs []Cost) string {
	var n, of uint64
	for i := range costs {
		for _, s := range costs[i].parts() {
			n, of = n+s.Unknown, of+s.Runs
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("the hours of %d of %d runs are unknown and not in the sums: their jobs name no requests that can be read, were submitted before this database kept them, or a lease or an end is missing", n, of)
}

func (c *Cost) parts() [3]*audit.Spent {
	return [3]*audit.Spent{&c.Failed, &c.RetriesSucceeded, &c.RetriesLost}
}

// TopCost lists what failed runs and retries held, from kept sums. First come the most hours of GPUs of failed runs, then of
// cores, then of memory, then the most runs.
func (s *Source) TopCost(ctx context.Context, asked CostQuestion) (rows []Cost, err error) {
	if !slices.Contains(jobdb.CostKeys, asked.By) {
		return nil, &Invalid{"by", suggest.Unknown("key", asked.By, jobdb.CostKeys...)}
	}
	f := jobdb.CostFilter{By: asked.By, Key: asked.Key}
	if asked.Since != 0 {
		f.From = jobdb.DayOf(asked.Since)
	}
	if asked.Until != 0 {
		f.To = jobdb.DayOf(asked.Until-1) + 1
	}
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		sums, err := q.Costs(f)
		for i := range sums {
			sum := &sums[i]
			if n := len(rows); n == 0 || rows[n-1].Key != sum.Key {
				rows = append(rows, Cost{By: asked.By, Key: sum.Key})
			}
			*rows[len(rows)-1].parts()[sum.Kind] = audit.SpentOf(&sum.Spent)
		}
		return err
	})
	slices.SortStableFunc(rows, func(a, b Cost) int {
		return cmp.Or(cmp.Compare(b.Failed.GPUHours, a.Failed.GPUHours), cmp.Compare(b.Failed.CPUHours, a.Failed.CPUHours),
			cmp.Compare(b.Failed.MemoryHours, a.Failed.MemoryHours), cmp.Compare(b.Failed.Runs, a.Failed.Runs))
	})
	if asked.Limit > 0 {
		rows = rows[:min(len(rows), asked.Limit)]
	}
	return rows, err
}
