package main

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// exported are the rows of an export, by the names of their columns.
func exported(t *testing.T, list, data string, args ...string) (rows []map[string]string) {
	t.Helper()
	lines, err := csv.NewReader(strings.NewReader(ctl(t, append([]string{"export", list, "--data", data}, args...)...).exits(t, exitFine).out)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

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
	var first audit.Spent
	for _, by := range jobdb.CostKeys {
		var sum audit.Spent
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
	var held float64
	for _, row := range exported(t, "runs", data, "--state", "Failed") {
		if row["cpu_hours"] != "" {
			hours, err := strconv.ParseFloat(row["cpu_hours"], 64)
			if err != nil {
				t.Fatal(err)
			}
			held += hours
		}
	}
	if math.Abs(held-first.CPUHours) > 1e-9 {
		t.Errorf("the exported runs held %v core hours, want %v", held, first.CPUHours)
	}
	if job := exported(t, "jobs", data)[0]; job["cpu"] == "" || job["memory_gib"] == "" || job["gpu"] == "" {
		t.Errorf("a job as exported: %v", job)
	}
	// What whatif derives from the logs is what the job database keeps of retries.
	var retries audit.Spent
	for _, row := range cost() {
		for _, part := range []audit.Spent{row.RetriesSucceeded, row.RetriesLost} {
			retries.Runs, retries.Unknown, retries.CPUHours = retries.Runs+part.Runs, retries.Unknown+part.Unknown, retries.CPUHours+part.CPUHours
		}
	}
	var answer query.WhatIfResult
	if err := json.Unmarshal([]byte(ctl(t, "whatif", "--data", data, "--set", "settings.globalMaxRetries=1", "-o", "json").exits(t, exitFinding).out), &answer); err != nil {
		t.Fatal(err)
	}
	candidate, happened := answer.Sides[0].Held, answer.Sides[1].Held
	if happened.Runs != retries.Runs || happened.Unknown != retries.Unknown || math.Abs(happened.CPUHours-retries.CPUHours) > 1e-9 || candidate.CPUHours == 0 || candidate.CPUHours >= happened.CPUHours {
		t.Errorf("by whatif, retries held %+v, and %+v with fewer; by the job database %+v", happened, candidate, retries)
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
