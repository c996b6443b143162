package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/query"
)

// TestLists: each form of a list has the same rows, criteria select by the rows' own
// fields, and pages are the list in pieces.
func TestLists(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	of := func(args ...string) string {
		return ctl(t, append(append([]string{"get"}, args...), "--data", data)...).exits(t, exitFine).out
	}
	for list, id := range map[string]string{"jobs": "jobId", "runs": "runId", "decisions": "number"} {
		all := slices.Collect(strings.Lines(of(list, "-o", "json")))
		if len(all) < 50 {
			t.Fatalf("%s: only %d", list, len(all))
		}
		if names := strings.Count(of(list, "-o", "name"), "\n"); names != len(all) {
			t.Errorf("%s: %d names of %d rows", list, names, len(all))
		}
		if lines := strings.Count(of(list, "-o", "wide"), "\n"); lines != len(all)+1 {
			t.Errorf("%s: %d lines for %d rows and a heading", list, lines, len(all))
		}
		var documents []map[string]any
		for d := yaml.NewDecoder(strings.NewReader(of(list, "-o", "yaml"))); ; {
			var one map[string]any
			if d.Decode(&one) != nil {
				break
			}
			documents = append(documents, one)
		}
		ids := strings.Fields(of(list, "-o", "custom-columns=ID:."+id))[1:]
		if len(documents) != len(all) || len(ids) != len(all) {
			t.Fatalf("%s: %d documents and %d ids of %d rows", list, len(documents), len(ids), len(all))
		}
		for i, line := range all {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprint(fields[id]); ids[i] != want || fmt.Sprint(documents[i][id]) != want {
				t.Errorf("%s: row %d is %v as YAML and %s in a column, want %s", list, i, documents[i][id], ids[i], want)
			}
		}
		paged, token := "", ""
		for pages := 1; ; pages++ {
			args := []string{"get", list, "--data", data, "-o", "json", "--limit", "40"}
			if token != "" {
				args = append(args, "--continue", token)
			}
			page := ctl(t, args...).exits(t, exitFine)
			paged += page.out
			var more bool
			if _, token, more = strings.Cut(page.err, "--continue "); !more {
				if pages < 2 {
					t.Errorf("%s: only one page", list)
				}
				break
			}
			token = strings.TrimSpace(token)
		}
		if paged != strings.Join(all, "") {
			t.Errorf("%s in pages differs: %s", list, firstDifference(strings.Join(all, ""), paged))
		}
	}
	var retried, rows int
	for line := range strings.Lines(of("decisions", "-o", "json", "--code", "RuleRetry", "--queue", "genomics")) {
		var d struct{ Code, Queue, JobID string }
		if err := json.Unmarshal([]byte(line), &d); err != nil || d.Code != "RuleRetry" || d.Queue != "genomics" {
			t.Errorf("%s: %v", line, err)
		}
		retried++
	}
	for line := range strings.Lines(of("runs", "-o", "json", "--code", "RuleRetry", "--queue", "genomics")) {
		if !strings.Contains(line, `"state":"Failed"`) {
			t.Error(line)
		}
		rows++
	}
	if retried == 0 || rows != retried {
		t.Errorf("%d retries of %d runs", retried, rows)
	}
	last := of("decisions", "-o", "json", "--last", "3")
	if newest := slices.Collect(strings.Lines(of("decisions", "-o", "json", "--sort", "time"))); last != strings.Join(newest[len(newest)-3:], "") {
		t.Errorf("--last: %s", last)
	}
}

// TestTopRetries: the counts by each key add up to the decisions that had an effect.
func TestTopRetries(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	decided := strings.Count(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out, `"shadow":false`)
	for _, by := range []string{"queue", "policy", "rule", "node", "category"} {
		var sum int
		for line := range strings.Lines(ctl(t, "top", "retries", "--jobs", "--data", data, "--by", by, "--limit", "0", "-o", "json").exits(t, exitFine).out) {
			var row query.Top
			if err := json.Unmarshal([]byte(line), &row); err != nil || row.By != by || row.Jobs == 0 {
				t.Errorf("%s: %v", line, err)
			}
			sum += int(row.Retries + row.Failures)
		}
		if sum != decided || sum == 0 {
			t.Errorf("by %s: %d decisions, want %d", by, sum, decided)
		}
	}
	if text := ctl(t, "top", "retries", "--data", data).exits(t, exitFine).out; strings.Contains(text, "JOBS") {
		t.Errorf("without --jobs, jobs are counted: %s", text)
	}
	all := ctl(t, "top", "retries", "--data", data, "--by", "rule", "--limit", "0", "-o", "json").exits(t, exitFine)
	rules := strings.Count(all.out, "\n")
	for limit, want := range map[int]string{rules: "", rules - 1: "there are more: --limit 0 lists all\n"} {
		r := ctl(t, "top", "retries", "--data", data, "--by", "rule", "--limit", fmt.Sprint(limit), "-o", "json").exits(t, exitFine)
		if r.err != want || strings.Count(r.out, "\n") != limit {
			t.Errorf("--limit %d of %d: %d rows, %q", limit, rules, strings.Count(r.out, "\n"), r.err)
		}
	}
	ctl(t, "top", "retries", "--data", data, "--by", "nod").exits(t, exitUsage)
	ctl(t, "top", "retries", "--data", data, "--since", "2200-01-01T00:00:00Z").exits(t, exitFine).prints(t, "the newest decision is about a failure at 20", "try --since 20")
}

// TestNothingFound: an empty list says what was probably meant, or since when there is something; with -o json too, and only
// on stderr.
func TestNothingFound(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	last := jsonLine(t, ctl(t, "get", "decisions", "--data", data, "--last", "1", "-o", "json").exits(t, exitFine).out)
	queue, set := last.text("queue"), last.text("jobSet")
	for _, c := range []struct{ args, want string }{
		{"get jobs --queue " + queue + "x", "--queue: no queue is called \"" + queue + "x\": did you mean " + queue + "?"},
		{"get decisions --queue nosuchqueue", "no queue is called \"nosuchqueue\": use one such as "},
		{"get runs --node cluster-a-node-0", "did you mean cluster-a-node-0"},
		{"get decisions --since 1h -o json", "the newest decision is about a failure at 20"},
		{"top --queue nosuchqueue", "no queue is called"},
		{"explain queue " + queue + " --since 1h -o json", "the newest decision is about a failure at 20"},
		{"top retries --since 0d", "before --since: try --since 20"},
	} {
		r := ctl(t, append(strings.Fields(c.args), "--data", data)...).exits(t, exitFine)
		if !strings.Contains(r.err, c.want) || strings.Count(r.out, "\n") > 1 {
			t.Errorf("%s prints %q, and %q, want %s", c.args, r.out, r.err, c.want)
		}
	}
	// What verifies, writes a file, or explains one thing does not pass with nothing.
	empty := filepath.Join(t.TempDir(), "runs.csv")
	log := app.Dir(data).Events()
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"whatif --data " + data + " --policies " + examplesDir + " --queue " + queue + "x", "--queue: no queue is called \"" + queue + "x\": did you mean " + queue + "?", exitUsage},
		{"whatif --log " + log + " --policies " + examplesDir + " --against " + testPolicies + " --queue " + queue + "x", "this history has no failed run of such a queue", exitUsage},
		{"export runs --out " + empty + " --data " + data + " --queue " + queue + "x", "did you mean " + queue + "?", exitUsage},
		{"shadow report --data " + data + " --queue " + queue + "x", "did you mean " + queue + "?", exitUsage},
		{"explain queue --data " + data + " " + queue + "x", "did you mean " + queue + "?", exitFinding},
		{"explain job-set --data " + data + " " + queue + "/" + set[:len(set)-2], "did you mean " + set + "?", exitFinding},
	} {
		ctl(t, strings.Fields(c.args)...).exits(t, c.code).prints(t, c.want)
	}
	if _, err := os.Stat(empty); err == nil {
		t.Error("an export of nothing leaves a file")
	}
	if r := ctl(t, "get", "decisions", "--data", data, "--queue", queue, "--limit", "1").exits(t, exitFine); strings.Contains(r.err, "matches") {
		t.Errorf("a list that is not empty: %s", r.err)
	}
}

// TestExplainNothingFailed: of a job without a failed run, explain says that there is nothing to decide.
func TestExplainNothingFailed(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("plain"), "--exit-when-drained").exits(t, exitFine)
	for line := range strings.Lines(ctl(t, "get", "jobs", "--data", data, "--state", "Succeeded", "-o", "json").exits(t, exitFine).out) {
		if j := jsonLine(t, line); strings.Contains(line, `"runs":1,`) {
			ctl(t, "explain", j.text("jobId"), "--data", data).exits(t, exitFinding).prints(t, "none of its runs failed; the job is Succeeded")
			return
		}
	}
	t.Error("no job succeeded with its first run")
}

// TestRuleAsShown: a rule can be selected as lists show it.
func TestRuleAsShown(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	d := jsonLine(t, ctl(t, "get", "decisions", "--data", data, "--code", "RuleRetry", "--last", "1", "-o", "json").exits(t, exitFine).out)
	both := []string{"get", "decisions", "--data", data, "-o", "json", "--rule"}
	want := ctl(t, append(both, d.text("rule"), "--policy", d.text("policy"))...).exits(t, exitFine).out
	if got := ctl(t, append(both, d.text("policy")+"/"+d.text("rule"))...).exits(t, exitFine).out; got != want || got == "" {
		t.Error(firstDifference(want, got))
	}
	if got := ctl(t, append(both, "nosuchpolicy/"+d.text("rule"))...).exits(t, exitFine).out; got != "" {
		t.Errorf("the rule of another policy: %s", got)
	}
}

// TestJobByPrefix: the beginning of an id is enough if only one job's begins so.
func TestJobByPrefix(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	id := strings.Fields(ctl(t, "get", "decisions", "--data", data, "-o", "custom-columns=ID:.jobId").out)[1]
	for _, command := range [][]string{{"get", "job"}, {"explain"}} {
		whole := ctl(t, append(command, id, "--data", data)...).exits(t, exitFine).out
		short := ctl(t, append(command, id[:len(id)-1], "--data", data)...).exits(t, exitFine).out
		if whole != short {
			t.Errorf("%v: %s", command, firstDifference(whole, short))
		}
		if r := ctl(t, append(command, id[:3], "--data", data)...).exits(t, exitUsage); !strings.Contains(r.err, "give more of it") {
			t.Errorf("%v: %s", command, r.err)
		}
	}
	if got := ctl(t, "__complete", "get", "job", "--data", data, id[:len(id)-1]).out; !strings.HasPrefix(got, id) {
		t.Errorf("completed to %q", got)
	}
}

// TestWatch: a list that is watched shows each row once, and again when it changes.
func TestWatch(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("plain"), "--exit-when-drained").exits(t, exitFine)
	watched := start(t, "get", "jobs", "--data", data, "--watch", "--every", "20ms", "-o", "json")
	before := ctl(t, "get", "jobs", "--data", data, "-o", "json").out
	until(t, "what is there is shown", func() bool { return watched.out.text() == before })
	ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("plain"), "--feed", recordingFile("preempted"), "--exit-when-drained").exits(t, exitFine)
	after := ctl(t, "get", "jobs", "--data", data, "-o", "json").out
	if after == before {
		t.Fatal("nothing changed")
	}
	until(t, "what comes is shown", func() bool {
		shown := map[string]bool{}
		for line := range strings.Lines(watched.out.text()) {
			shown[line] = true
		}
		for line := range strings.Lines(after) {
			if !shown[line] {
				return false
			}
		}
		return true
	})
	watched.signal(t, syscall.SIGINT)
	watched.exits(t, exitFine)
	ctl(t, "get", "jobs", "--data", data, "--watch", "--limit", "3").exits(t, exitUsage)
}

// TestWatchedRows: rows that are watched are told apart, however their names begin and end.
func TestWatchedRows(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]any{
		{jobID(&query.Job{Partition: 1, JobID: "0a"}), jobID(&query.Job{Partition: 10, JobID: "a"})},
		{runID(&query.Run{Partition: 1, JobID: "a", Attempt: query.Attempt{RunID: "bc"}}), runID(&query.Run{Partition: 1, JobID: "ab", Attempt: query.Attempt{RunID: "c"}})},
		{decisionID(&audit.Decision{Partition: 1, Number: 23}), decisionID(&audit.Decision{Partition: 12, Number: 3})},
		{groupID(&query.Group{Queue: "q", JobSet: "a/b", Group: "c"}), groupID(&query.Group{Queue: "q", JobSet: "a", Group: "b/c"})},
		{groupID(&query.Group{Partition: 1, Queue: "0"}), groupID(&query.Group{Partition: 10})},
	} {
		if pair[0] == pair[1] {
			t.Errorf("two rows are both %v", pair[0])
		}
	}
}

// TestFiltersEverywhere: a list has the same filters as flags and in the API.
func TestFiltersEverywhere(t *testing.T) {
	t.Parallel()
	for list, request := range map[string]proto.Message{
		"jobs": &pb.ListJobsRequest{}, "runs": &pb.ListRunsRequest{}, "decisions": &pb.ListDecisionsRequest{}, "groups": &pb.ListGroupsRequest{},
	} {
		cmd, _, err := newRoot().Find([]string{"get", list})
		if err != nil {
			t.Fatal(err)
		}
		var flags, fields []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.HasPrefix(f.Usage, "only ") && f.Name != "last" {
				flags = append(flags, f.Name)
			}
		})
		all := request.ProtoReflect().Descriptor().Fields()
		for i := range all.Len() {
			switch name := string(all.Get(i).Name()); name {
			case "sort", "page_size", "page_token", "job_prefix": // the last is for completions
			default:
				fields = append(fields, strings.ReplaceAll(strings.TrimSuffix(name, "_id"), "_", "-"))
			}
		}
		slices.Sort(fields)
		if !slices.Equal(flags, fields) {
			t.Errorf("%s: flags %v, fields of the API %v", list, flags, fields)
		}
	}
}
