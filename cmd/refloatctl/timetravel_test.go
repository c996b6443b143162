package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/query"
)

// TestTimeTravel: a job as of the position of one of its decisions has that decision, and nothing of what came after;
// as of now it is what the job database has.
func TestTimeTravel(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	number := map[string][]object{}
	var busiest string // the job with the most decisions
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out) {
		d := jsonLine(t, line)
		id := d.text("jobId")
		if number[id] = append(number[id], d); len(number[id]) > len(number[busiest]) {
			busiest = id
		}
	}
	decisions := number[busiest]
	if len(decisions) < 2 {
		t.Fatal("no job was decided twice")
	}
	at := func(moment string) query.Job {
		t.Helper()
		var j query.Job
		if err := json.Unmarshal([]byte(ctl(t, "get", "job", busiest[:len(busiest)-1], "--data", data, "-o", "json", "--at", moment).exits(t, exitFine).out), &j); err != nil {
			t.Fatal(err)
		}
		return j
	}
	for i, d := range decisions {
		var shown struct {
			Position struct{ Ledger, Entry, Batch int }
		}
		text, err := json.Marshal(d)
		if err == nil {
			err = json.Unmarshal(text, &shown)
		}
		if err != nil {
			t.Fatal(err)
		}
		p := shown.Position
		j := at(fmt.Sprintf("%d:%d:%d", p.Ledger, p.Entry, p.Batch))
		decided := 0
		for _, r := range j.Attempts {
			if r.Decision != 0 {
				decided++
			}
		}
		if last := j.Attempts[len(j.Attempts)-1]; decided != i+1 || last.RunID != d.text("runId") {
			t.Errorf("at decision %d: %d runs are decided, the last run is %s, want %s", i, decided, last.RunID, d.text("runId"))
		}
	}
	now := ctl(t, "get", "job", busiest, "--data", data).exits(t, exitFine).out
	ctl(t, "get", "job", busiest, "--data", data, "--at", "2100-01-01T00:00:00Z").exits(t, exitUsage).prints(t, "lies in the future")
	ctl(t, "get", "job", busiest, "--data", data, "--at", "2000-01-01T00:00:00Z").exits(t, exitFinding).prints(t, "there was no job")
	ctl(t, "get", "job", busiest, "--data", data, "--at", "1h").exits(t, exitFine).prints(t, now)
	ctl(t, "get", "job", busiest, "--data", data, "--at", "20000d").exits(t, exitFinding).prints(t, "there was no job")
	ctl(t, "get", "job", busiest, "--data", data, "--at", "1970-01-01T00:00:00Z").exits(t, exitFinding).prints(t, "there was no job")
	ctl(t, "get", "job", busiest, "--data", data, "--at", "yesterday").exits(t, exitUsage).prints(t, "want a duration such as 24h", "or a position such as 12:345:6")
	ctl(t, "get", "job", busiest, "--data", data, "--at", "").exits(t, exitUsage).prints(t, "--at is empty")

	newest := ctl(t, "get", "policies", "--data", data, "--generation", "1").exits(t, exitFine).out
	ctl(t, "get", "policies", "--data", data, "--at", "1").exits(t, exitFine).prints(t, newest)
	ctl(t, "get", "policies", "--data", data, "--at", "2100-01-01T00:00:00Z").exits(t, exitUsage).prints(t, "lies in the future")
	ctl(t, "get", "policies", "--data", data, "--at", "2000-01-01T00:00:00Z").exits(t, exitUsage).prints(t, "--at 2000-01-01T00:00:00Z: the policies log begins later, with generation 1 at ")
	ctl(t, "get", "policies", "--data", data, "--at", "24h").exits(t, exitUsage).prints(t, "the policies log begins later")
	ctl(t, "get", "policies", "--data", data, "--at", "0s").exits(t, exitFine).prints(t, newest)
	ctl(t, "get", "policies", "--data", data, "--at", "x").exits(t, exitUsage).prints(t, "want a duration such as 24h", "or a generation such as 7")
	ctl(t, "get", "policies", "--data", data, "--at", "9").exits(t, exitUsage).prints(t, "there is no generation 9")
	ctl(t, "get", "policies", "--data", data, "--at", "0").exits(t, exitUsage).prints(t, "no policies before generation 1")
}
