package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// TestTopCost: what runs held is the same by every key, and follows from the runs and what their jobs request.
func TestTopCost(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	failed := strings.Count(ctl(t, "get", "runs", "--data", data, "--state", "Failed", "-o", "json").exits(t, exitFine).out, "\n")
	cost := func(args ...string) (rows []query.Cost) {
		t.Helper()
		for line := range strings.Lines(ctl(t, append([]string{"top", "cost", "--data", data, "-o", "json", "--limit", "0"}, args...)...).exits(t, exitFine).out) {
			var row query.Cost
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			rows = append(rows, row)
		}
		return rows
	}
	var first query.Spent
	for _, by := range jobdb.CostKeys {
		var sum query.Spent
		for _, row := range cost("--by", by) {
			if row.By != by {
				t.Errorf("%+v is not by %s", row, by)
			}
			sum.Runs, sum.Unknown, sum.CPUHours = sum.Runs+row.Failed.Runs, sum.Unknown+row.Failed.Unknown, sum.CPUHours+row.Failed.CPUHours
		}
		if by == jobdb.CostKeys[0] {
			first = sum
		}
		if int(sum.Runs) != failed || sum.Unknown != first.Unknown || sum.CPUHours == 0 || math.Abs(sum.CPUHours-first.CPUHours) > 1e-9 {
			t.Errorf("by %s: %+v, want %d runs as %+v", by, sum, failed, first)
		}
	}
	node := cost("--by", "node")[0].Key
	if one := cost("--by", "node", "--key", node); len(one) != 1 || one[0].Key != node {
		t.Errorf("--key %s lists %+v", node, one)
	}
	if none := cost("--key", node); len(none) != 0 {
		t.Errorf("a queue that there is not: %+v", none)
	}
	ctl(t, "top", "cost", "--data", data, "--by", "node", "--limit", "1").exits(t, exitFine).prints(t, "NODE", "GPU H", "there are more: --limit 0 lists all")
	ctl(t, "top", "cost", "--data", data, "--since", "2200-01-01").exits(t, exitFine).prints(t, "no run ended in this time")
	ctl(t, "top", "cost", "--data", data, "--by", "set").exits(t, exitUsage).prints(t, `--by: key "set"`)
}
