package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/model"
)

// shadowPolicies are the test policies with all queues in shadow.
func shadowPolicies(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "policies")
	if err := os.CopyFS(dir, os.DirFS(testPolicies)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "queues.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "mode: Shadow\n", "", 1)
	text = strings.Replace(text, "spec: {globalMaxRetries: 3", "spec: {mode: Shadow, globalMaxRetries: 3", 1)
	if strings.Count(text, "Shadow") != 1 {
		t.Fatalf("the test policies changed:\n%s", text)
	}
	writeFile(t, dir, "queues.yaml", text)
	return dir
}

// armadaJob is what Armada's own database says of a job at the end of a recording.
type armadaJob struct {
	state jobdb.JobState
	runs  uint32
}

// armadaRows reads Armada's rows of a recording.
func armadaRows(t *testing.T, name string) map[string]armadaJob {
	t.Helper()
	f, err := os.Open(strings.Replace(recordingFile(name), ".jsonl.gz", ".rows.jsonl.gz", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]armadaJob{}
	in := bufio.NewReader(z)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var row struct {
			Table                        string
			Job                          string `json:"job_id"`
			Succeeded, Failed, Cancelled bool
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		j := all[row.Job]
		switch {
		case row.Table == "runs":
			j.runs++
		case row.Table != "jobs":
			continue
		case row.Succeeded:
			j.state = jobdb.JobSucceeded
		case row.Cancelled:
			j.state = jobdb.JobCancelled
		case row.Failed:
			j.state = jobdb.JobFailed
		}
		all[row.Job] = j
	}
}

// TestShadowActsOnNothing: with all queues in shadow, every decision is marked,
// and of every job of the recordings our rows say what Armada's own rows say. The
// report is what counting in the events gives, and the same of the log alone.
func TestShadowActsOnNothing(t *testing.T) {
	t.Parallel()
	data, policies := filepath.Join(t.TempDir(), "data"), shadowPolicies(t)
	args := []string{"up", "--data", data, "--policies", policies, "--exit-when-drained"}
	want := map[string]armadaJob{}
	for _, name := range recordings {
		args = append(args, "--feed", recordingFile(name))
		maps.Copy(want, armadaRows(t, name))
	}
	up := ctl(t, args...).exits(t, exitFine).prints(t, "JobRequeued (shadow)", "JobFailed (shadow)", "bin/refloatctl shadow report --data "+data)
	if n := strings.Count(up.out, "JobRequeued ") + strings.Count(up.out, "JobFailed "); n != strings.Count(up.out, "(shadow)") {
		t.Errorf("%d sorts of decisions, not all in shadow:\n%s", n, up.out)
	}
	seen := 0
	for p := range partitions {
		rows := contents(t, data, p)
		for _, d := range rows.Decisions {
			if !d.Shadow || d.Acted {
				t.Fatalf("decision %d of partition %d: shadow %v, acted %v", d.Number, p, d.Shadow, d.Acted)
			}
		}
		for _, r := range rows.Ready {
			if r.Acted {
				t.Errorf("a RetryReady acted on run %s of job %s", r.RunID, r.JobID)
			}
		}
		for _, j := range rows.Jobs {
			if !j.Known { // someone asked to cancel what is no job
				continue
			}
			seen++
			if got := (armadaJob{j.State, j.Queueing.Runs}); got != want[j.JobID] {
				t.Errorf("job %s: %s after %d runs, in Armada's database %s after %d", j.JobID, got.state, got.runs, want[j.JobID].state, want[j.JobID].runs)
			}
			if j.Queueing.Decision != 0 || j.Queueing.RetryAfter != 0 || len(j.Queueing.AvoidNodes) > 0 {
				t.Errorf("job %s was touched: %+v", j.JobID, j.Queueing)
			}
		}
	}
	if seen != len(want) || seen == 0 {
		t.Errorf("%d jobs, in Armada's database %d", seen, len(want))
	}

	printed := ctl(t, "shadow", "report", "--data", data, "-o", "json").exits(t, exitFine).out
	checkReport(t, data, printed)
	alone := ctl(t, "shadow", "report", "--log", app.Dir(data).Events(), "--policies", policies, "-o", "json").exits(t, exitFine)
	if alone.out != printed {
		t.Errorf("of the log alone: %s", firstDifference(printed, alone.out))
	}
	enforced := ctl(t, "shadow", "report", "--log", app.Dir(data).Events(), "--policies", testPolicies, "--jobs", "0").exits(t, exitFine)
	text := ctl(t, "shadow", "report", "--data", data, "--jobs", "0").exits(t, exitFine)
	if got := strings.ReplaceAll(enforced.out, "by the policies in "+testPolicies, "decided in shadow since generation 1"); got != text.out {
		t.Errorf("by policies that enforce: %s", firstDifference(text.out, got))
	}
	golden(t, "shadow.golden.txt", ctl(t, "shadow", "report", "--data", data).exits(t, exitFine).out+"\n=== as JSON\n"+firstOfEach(t, printed))

	// --since takes the runs that failed then or later.
	runs := reportRuns(t, printed)
	times := make([]string, len(runs))
	for i, r := range runs {
		times[i] = r.decision.text("eventTime")
	}
	slices.SortFunc(times, func(a, b string) int { return parseTime(t, a).Compare(parseTime(t, b)) })
	middle := times[len(times)/2]
	later := 0
	for _, at := range times {
		if !parseTime(t, at).Before(parseTime(t, middle)) {
			later++
		}
	}
	since := reportRuns(t, ctl(t, "shadow", "report", "--data", data, "-o", "json", "--since", middle).exits(t, exitFine).out)
	if len(since) != later || later == len(runs) {
		t.Errorf("%d of %d runs since %s, want %d", len(since), len(runs), middle, later)
	}
	one := reportRuns(t, ctl(t, "shadow", "report", "--data", data, "-o", "json", "--queue", "genomics").exits(t, exitFine).out)
	if len(one) == 0 || len(one) == len(runs) || slices.ContainsFunc(one, func(r reportedRun) bool { return r.decision.text("queue") != "genomics" }) {
		t.Errorf("%d runs of queue genomics", len(one))
	}
}

// TestNoPolicyIsArmada: where no policy applies, we decide as Armada does by
// itself, and the report finds no difference.
func TestNoPolicyIsArmada(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none.yaml")
	writeFile(t, filepath.Dir(none), "none.yaml", "kind: RetrySettings\nspec: {}\n")
	for _, name := range []string{"plain", "chaos", "preempted"} { // `retried` is under Armada's own retry engine
		log := imported(t, recordingFile(name))
		r := ctl(t, "shadow", "report", "--log", log, "--policies", none, "-o", "json").exits(t, exitFine)
		for _, run := range reportRuns(t, r.out) {
			if run.differs {
				t.Errorf("%s: %s of run %s of job %s, Armada: %s", name, run.decision.text("code"), run.decision.text("runId"), run.decision.text("jobId"), run.armada)
			}
		}
		if len(reportRuns(t, r.out)) < 50 {
			t.Errorf("%s: %d runs", name, len(reportRuns(t, r.out)))
		}
		ctl(t, "shadow", "report", "--log", log, "--policies", none).exits(t, exitFine).
			prints(t, " that it failed, Refloat would have retried none.\nArmada reran no job that Refloat would have failed.\n")
	}
}

// firstOfEach is the first line of each sort.
func firstOfEach(t *testing.T, printed string) string {
	t.Helper()
	var out strings.Builder
	seen := map[string]bool{}
	for line := range strings.Lines(printed) {
		o := jsonLine(t, line)
		if len(o) != 1 {
			t.Fatalf("%d fields: %s", len(o), line)
		}
		for sort := range o {
			if !seen[sort] {
				seen[sort] = true
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// reportedRun is a failed run as a report's JSON has it.
type reportedRun struct {
	decision      object
	armada, state string
	differs, lost bool
	wait          string
}

func reportRuns(t *testing.T, printed string) (all []reportedRun) {
	t.Helper()
	for line := range strings.Lines(printed) {
		run, ok := jsonLine(t, line)["run"].(map[string]any)
		if !ok {
			continue
		}
		o := object(run)
		r := reportedRun{decision: object(run["decision"].(map[string]any)), armada: o.text("armada"), state: o.text("jobState"), wait: o.text("wait")}
		r.differs, r.lost = run["differs"].(bool), run["lost"].(bool)
		all = append(all, r)
	}
	return all
}

// life is what the events say of a job, read by protobuf-go.
type life struct {
	runs  []string // as they became known
	state string   // Succeeded, Cancelled, Failed (Armada's last word) or Open
	final bool
}

func lives(t *testing.T, messages []eventlog.Message) map[string]*life {
	t.Helper()
	all := map[string]*life{}
	of := func(id string) *life {
		if all[id] == nil {
			all[id] = &life{state: "Open"}
		}
		return all[id]
	}
	known := func(job, run string) {
		if l := of(job); !slices.Contains(l.runs, run) {
			l.runs = append(l.runs, run)
			if !l.final {
				l.state = "Open"
			}
		}
	}
	end := func(job, state string, final bool) {
		if l := of(job); !l.final {
			l.state, l.final = state, final
		}
	}
	for _, m := range messages {
		var seq pb.EventSequence
		if err := proto.Unmarshal(m.Payload, &seq); err != nil {
			t.Fatal(err)
		}
		for _, ev := range seq.Events {
			switch e := ev.Event.(type) {
			case *pb.Event_JobRunLeased:
				known(e.JobRunLeased.JobId, e.JobRunLeased.RunId)
			case *pb.Event_JobRunAssigned:
				known(e.JobRunAssigned.JobId, e.JobRunAssigned.RunId)
			case *pb.Event_JobRunRunning:
				known(e.JobRunRunning.JobId, e.JobRunRunning.RunId)
			case *pb.Event_JobRunSucceeded:
				known(e.JobRunSucceeded.JobId, e.JobRunSucceeded.RunId)
			case *pb.Event_JobRunErrors:
				known(e.JobRunErrors.JobId, e.JobRunErrors.RunId)
			case *pb.Event_JobRunPreempted:
				known(e.JobRunPreempted.PreemptedJobId, e.JobRunPreempted.PreemptedRunId)
			case *pb.Event_JobSucceeded:
				end(e.JobSucceeded.JobId, "Succeeded", true)
			case *pb.Event_CancelledJob:
				end(e.CancelledJob.JobId, "Cancelled", true)
			case *pb.Event_JobErrors:
				if slices.ContainsFunc(e.JobErrors.Errors, func(x *pb.Error) bool { return x.Terminal }) {
					end(e.JobErrors.JobId, "Failed", false)
				}
			}
		}
	}
	return all
}

// checkReport compares a report's runs with the decisions and the events, and its
// counts with its runs.
func checkReport(t *testing.T, data, printed string) {
	t.Helper()
	logs, err := app.Dir(data).OpenLogs(0, app.Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	truth := map[string]*life{}
	for p := range logs.Events.Partitions() {
		maps.Copy(truth, lives(t, readAll(t, logs.Events, p)))
	}
	var want, got []string
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out) {
		d := jsonLine(t, line)
		l := truth[d.text("jobId")]
		armada, retry := l.state, requeued(d)
		if l.runs[len(l.runs)-1] != d.text("runId") {
			armada = "RanAgain"
		}
		wait := ""
		if retry {
			wait = parseTime(t, d.text("retryAfter")).Sub(parseTime(t, d.text("eventTime"))).String()
		}
		differs := retry && armada == "Failed" || !retry && armada == "RanAgain"
		want = append(want, fmt.Sprintf("%d/%d %s %s differs=%v lost=%v wait=%s", d.number("partition"), d.number("number"), armada, l.state,
			differs, !retry && armada == "RanAgain" && l.state == "Succeeded", wait))
	}
	type tally struct{ runs, failed, again, succeeded, cancelled int64 }
	byRule, byQueue := map[string]tally{}, map[string]map[string][]reportedRun{}
	lostRuns := int64(0)
	for _, r := range reportRuns(t, printed) {
		d := r.decision
		got = append(got, fmt.Sprintf("%d/%d %s %s differs=%v lost=%v wait=%s", d.number("partition"), d.number("number"), r.armada, r.state, r.differs, r.lost, r.wait))
		key := strings.Join([]string{d.text("queue"), d.text("policy"), d.text("rule"), d.text("decision")}, "|")
		n := byRule[key]
		n.runs++
		switch r.armada {
		case "Failed":
			n.failed++
		case "Cancelled":
			n.cancelled++
		case "RanAgain":
			n.again++
			if r.state == "Succeeded" {
				n.succeeded++
			}
		}
		byRule[key] = n
		if r.lost {
			lostRuns++
		}
		if byQueue[d.text("queue")] == nil {
			byQueue[d.text("queue")] = map[string][]reportedRun{}
		}
		byQueue[d.text("queue")][d.text("jobId")] = append(byQueue[d.text("queue")][d.text("jobId")], r)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("runs of the report (-decisions and events +report):\n%s", diff)
	}
	queues, rules := 0, 0
	for line := range strings.Lines(printed) {
		o := jsonLine(t, line)
		if sum, ok := o["summary"].(map[string]any); ok {
			if s := object(sum); s.number("failedRuns") != int64(len(got)) || s.number("lost") != lostRuns || s.number("queues") != int64(len(byQueue)) {
				t.Errorf("%s, want %d runs, %d lost", line, len(got), lostRuns)
			}
		}
		q, ok := o["queue"].(map[string]any)
		if !ok {
			continue
		}
		queues++
		name := object(q).text("queue")
		for _, x := range q["rules"].([]any) {
			r := object(x.(map[string]any))
			for kind, field := range map[string]string{"JobRequeued": "wouldRetry", "JobFailed": "wouldFail"} {
				n := object(r[field].(map[string]any))
				key := strings.Join([]string{name, r.text("policy"), r.text("rule"), kind}, "|")
				if got := (tally{n.number("runs"), n.number("armadaFailed"), n.number("ranAgain"), n.number("thenSucceeded"), n.number("cancelled")}); got != byRule[key] {
					t.Errorf("%s: %+v, its runs give %+v", key, got, byRule[key])
				} else if got.runs > 0 {
					rules++
				}
			}
		}
		var all, failed, retry, again, succeeded int64
		for _, runs := range byQueue[name] {
			all++
			rerun := false
			for _, r := range runs {
				rerun = rerun || !requeued(r.decision) && r.armada == "RanAgain"
				if r.armada == "Failed" {
					failed++
					if requeued(r.decision) {
						retry++
					}
				}
			}
			if rerun {
				again++
				if runs[0].state == "Succeeded" {
					succeeded++
				}
			}
		}
		n := object(q["jobs"].(map[string]any))
		if got, want := [5]int64{n.number("all"), n.number("armadaFailed"), n.number("armadaFailedWouldRetry"), n.number("wouldFailRanAgain"), n.number("wouldFailThenSucceeded")}, [5]int64{all, failed, retry, again, succeeded}; got != want {
			t.Errorf("jobs of queue %s: %v, its runs give %v", name, got, want)
		}
	}
	if queues != len(byQueue) || rules != len(byRule) {
		t.Errorf("%d queues and %d rules, its runs have %d and %d", queues, rules, len(byQueue), len(byRule))
	}
}

// TestShadowThenEnforce checks that decisions of a queue in shadow mode are marked and have no effect; that after
// its mode is changed while up runs, the next failures take effect, and retries granted in shadow count.
func TestShadowThenEnforce(t *testing.T) {
	t.Parallel()
	const queue = "vision-train"
	dir := t.TempDir()
	data, policies := filepath.Join(dir, "data"), filepath.Join(dir, "policies")
	sets := map[string]model.Policies{}
	set := func(mode string) {
		p := model.Policies{
			Policies: []model.Policy{{Name: "twice", RetryLimit: new(2), DefaultAction: "Retry", Backoff: model.Backoff{InitialDelayMs: new(int64(5000)), Constant: true}}},
			Queues:   []model.Queue{{Name: queue, RetryPolicies: []string{"twice"}, Mode: mode}},
		}
		d := writePolicies(t, policies, p).Digest()
		sets[string(d[:])] = p
	}
	// The mode changes between two parts of a recording.
	whole, messages := recordingFile("retried"), messagesOf(t, recordingFile("retried"))
	entries, err := recording.ReadFile(whole)
	must(t, err)
	begun := filepath.Join(dir, filepath.Base(whole))
	writeRecording(t, begun, entries[:len(entries)/2])
	set("Shadow")
	up := []string{"up", "--data", data, "--policies", policies, "--allow-empty"}
	ctl(t, append(up, "--feed", begun, "--exit-when-drained")...).exits(t, exitFine)
	p := start(t, up...)
	p.err.await(t, "policies read")
	set("Enforce")
	for i := range partitions {
		until(t, "the second generation is in force", func() bool {
			acts := contents(t, data, i).Activations
			return len(acts) > 0 && acts[len(acts)-1].Generation == 2
		})
	}
	ctl(t, "feed", whole, "--data", data).exits(t, exitFine)
	answered(t, data)
	p.ends(t)
	var granted object // a retry in shadow
	for line := range strings.Lines(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out) {
		if d := jsonLine(t, line); d.text("queue") == queue && d.number("generation") == 1 && d.text("code") == "DefaultRetry" {
			granted = d
		}
	}
	id := granted.text("jobId")
	ctl(t, "get", "job", id, "--data", data).exits(t, exitFine).prints(t, "(shadow)")
	ctl(t, "get", "decisions", "--job", id, "--data", data).exits(t, exitFine).prints(t, "JobRequeued (shadow)", "shadow: this decision has no effect")
	ctl(t, "explain", id, "--run", granted["runIndex"].(json.Number).String(), "--data", data).exits(t, exitFine).
		prints(t, "JobRequeued (shadow), DefaultRetry", "shadow: this decision has no effect", "the next run would have been: pod armada-"+id)
	ctl(t, append(up, "--exit-when-drained")...).exits(t, exitFine).
		prints(t, "JobRequeued (shadow)  DefaultRetry", "JobRequeued           DefaultRetry", "bin/refloatctl shadow report --data "+data)

	// All of it is what the model says, under the generations as they came.
	followed(t, data, messages, sets, func(string) bool { return true })
	ctl(t, "verify", "--data", data).exits(t, exitFine)

	armada := armadaRows(t, "retried")
	acted, carried, only := 0, 0, 0
	for p := range partitions {
		rows := contents(t, data, p)
		before, enforced := map[string]int{}, map[string]*jobdb.Decision{}
		for _, d := range rows.Decisions {
			switch {
			case d.Queue != queue:
			case d.Generation == 1:
				if !d.Shadow || d.Acted {
					t.Errorf("decision %d by generation 1: shadow %v, acted %v", d.Number, d.Shadow, d.Acted)
				}
				if d.Code == policy.DefaultRetry {
					before[d.JobID]++
				}
			default:
				if d.Shadow {
					t.Errorf("decision %d by generation %d is in shadow", d.Number, d.Generation)
				}
				if enforced[d.JobID] == nil && before[d.JobID] > 0 && d.Acted {
					used := before[d.JobID]
					if d.Code == policy.DefaultRetry {
						used++
					}
					carried++
					if int(d.GlobalUsed) != used {
						t.Errorf("decision %d: %d retries used, %d granted in shadow before", d.Number, d.GlobalUsed, before[d.JobID])
					}
				}
				enforced[d.JobID] = d
			}
		}
		for _, j := range rows.Jobs {
			d := enforced[j.JobID]
			if j.Queue != queue {
				continue
			}
			if d == nil {
				only++
				if got := (armadaJob{j.State, j.Queueing.Runs}); got != armada[j.JobID] {
					t.Errorf("job %s, never decided in Enforce: %+v, in Armada's database %+v", j.JobID, got, armada[j.JobID])
				}
				continue
			}
			if !d.Acted {
				continue
			}
			acted++
			switch latest := j.Queueing.LatestRun == d.RunID; {
			case !d.Requeue && (j.State != jobdb.JobFailed || !j.Final):
				t.Errorf("job %s was failed by decision %d and is %s", j.JobID, d.Number, j.State)
			case d.Requeue && latest && (j.State != jobdb.JobQueued || j.Queueing.RetryAfter > d.RetryAfter || j.Queueing.Decision != d.Number):
				t.Errorf("job %s was requeued by decision %d and is %s, not before %d", j.JobID, d.Number, j.State, j.Queueing.RetryAfter)
			}
		}
	}
	if acted == 0 || carried == 0 || only == 0 {
		t.Errorf("%d jobs acted on, %d of them with retries granted in shadow before, %d never decided in Enforce: the switch came too early or too late", acted, carried, only)
	}
	t.Logf("%d jobs acted on, %d of them with retries granted in shadow before, %d never decided in Enforce", acted, carried, only)
	ctl(t, "shadow", "report", "--data", data, "--queue", queue).exits(t, exitFine).
		prints(t, "In queue "+queue+", decided in shadow by generation 1, enforced since generation 2: Armada failed ")
}
