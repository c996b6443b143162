package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

// budgeted decides first runs of jobs that fail one after the other, a second apart, by policies with a budget of queue q.
func budgeted(t *testing.T, partitions, jobs int, budget string) (data string) {
	t.Helper()
	return budgetedGangs(t, partitions, jobs, 1, budget)
}

// budgetedGangs does so with each job the first member of a gang of so many.
func budgetedGangs(t *testing.T, partitions, jobs, members int, budget string) (data string) {
	t.Helper()
	dir := t.TempDir()
	file, data := filepath.Join(dir, "events.jsonl.gz"), filepath.Join(dir, "data")
	writeFile(t, dir, "policies/p.yaml", `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: p}
spec: {defaultAction: Retry, retryLimit: 3}
---
{kind: Queue, name: q, retryPolicies: [p]}
---
apiVersion: refloat.github.io/v1
kind: RetryBudget
metadata: {name: b}
spec: `+budget+"\n")
	var entries []recording.Entry
	for i := range jobs {
		id, at := fmt.Sprintf("01job%02d", i), int64(1_800_000_000+i)
		failed := exitedRun(id, fmt.Sprintf("run%02d", i), 1)
		failed.Created = &pb.Timestamp{Seconds: at}
		gang := &pb.ObjectMeta{Annotations: map[string]string{events.AnnotationGangID: id, events.AnnotationGangCardinality: fmt.Sprint(members)}}
		all := []*pb.Event{{Created: failed.Created, Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: id, ObjectMeta: gang}}}}
		for m := 1; m < members; m++ {
			all = append(all, &pb.Event{Created: failed.Created, Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: fmt.Sprint(id, "-", m), ObjectMeta: gang}}})
		}
		payload, err := proto.Marshal(&pb.EventSequence{Queue: "q", JobSetName: "s", Events: append(all, failed)})
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, recording.Entry{Producer: "test", Message: eventlog.Message{
			Position: eventlog.Position{Ledger: 1, Entry: int64(i), Batch: -1}, Publish: at * 1e9, Key: "s", Payload: payload,
		}})
	}
	writeRecording(t, file, entries)
	ctl(t, "up", "--data", data, "--partitions", fmt.Sprint(partitions), "--policies", filepath.Join(dir, "policies"), "--feed", file, "--quiet", "--exit-when-drained").exits(t, exitFine)
	return data
}

// TestWhyNotBudget: of a retry that a budget refused or delayed, what of the budget would have given the other outcome; whatif,
// which decides everything again, agrees.
func TestWhyNotBudget(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		partitions, jobs int
		budget           string
		want             string // of the last job
		gives            []string
		others           []string // changes that must not be proposed
	}{
		"refused": {
			1, 3, "{queue: q, ratio: 0.3, floor: 2, whenExhausted: Refuse}", "Retry",
			[]string{"budgets.b.floor=3 (is 2)", "budgets.b.ratio=0.334 (is 0.3)", "budgets.b.whenExhausted=Delay (is Refuse)", "budgets.b.mode=Shadow (is Enforce)"},
			nil,
		},
		"refused, of three partitions": {
			3, 3, "{queue: q, ratio: 0, floor: 4, whenExhausted: Refuse}", "Retry",
			[]string{"budgets.b.floor=7 (is 4)", "budgets.b.ratio=0.334 (is 0)", "budgets.b.mode=Shadow (is Enforce)"},
			[]string{"budgets.b.floor=5", "budgets.b.floor=6"},
		},
		"refused, no floor": {
			1, 1, "{ratio: 0.5, floor: 0, whenExhausted: Refuse}", "Retry",
			[]string{"budgets.b.floor=1 (is 0)", "budgets.b.ratio=1 (is 0.5)", "budgets.b.mode=Shadow (is Enforce)"},
			[]string{"whenExhausted"},
		},
		"delayed":   {1, 2, "{queue: q, ratio: 0, floor: 1}", "Fail", []string{"budgets.b.whenExhausted=Refuse (is Delay)"}, []string{"budgets.b.floor", "budgets.b.ratio"}},
		"in shadow": {1, 2, "{queue: q, ratio: 0, floor: 1, whenExhausted: Refuse, mode: Shadow}", "Fail", []string{"budgets.b.mode=Enforce (is Shadow)"}, nil},
		"granted":   {1, 1, "{queue: q, ratio: 0, floor: 1, whenExhausted: Refuse}", "Fail", nil, []string{"budgets."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, job := budgeted(t, tt.partitions, tt.jobs, tt.budget), fmt.Sprintf("01job%02d", tt.jobs-1)
			is := map[string]string{"Retry": "Fail", "Fail": "Retry"}[tt.want]
			ctl(t, "explain", job, "--data", data, "--why-not", is).exits(t, exitFinding).prints(t, "is "+is)
			out := ctl(t, "explain", job, "--data", data, "--why-not", tt.want).exits(t, exitFine).prints(t, tt.gives...).out
			for _, not := range tt.others {
				if strings.Contains(out, not) {
					t.Errorf("%s is proposed:\n%s", not, out)
				}
			}
			if of := len(tt.gives) > 0; strings.Contains(out, "a ratio is the least that may do") != of {
				t.Errorf("the note on budgets is wrong:\n%s", out)
			}
			gives := fmt.Sprintf(`"candidate":{"outcome":%q,"code":%q`, tt.want, map[string]string{"Retry": "DefaultRetry", "Fail": "BudgetRefused"}[tt.want])
			for _, change := range tt.gives[:min(2, len(tt.gives))] {
				set, _, _ := strings.Cut(change, " ")
				r := ctl(t, "whatif", "--data", data, "--set", set, "-o", "json")
				if !strings.Contains(r.out, gives) || !strings.Contains(r.out, `"jobId":"`+job+`"`) {
					t.Errorf("whatif --set %s does not give %s:\n%s%s", set, gives, r.out, r.err)
				}
			}
		})
	}
}

// TestWhyNotBudgetOfGang: the command that get group prints about a gang whose retry a budget refused names the budget, as of a
// single job; of a gang that it granted a retry, what would have failed it.
func TestWhyNotBudgetOfGang(t *testing.T) {
	t.Parallel()
	data := budgetedGangs(t, 1, 3, 2, "{queue: q, ratio: 0.3, floor: 2, whenExhausted: Refuse}")
	group := ctl(t, "get", "group", "gang/01job02", "--data", data).prints(t, "reason BackoffLimitExceeded (retry budget b refused the retry)\n")
	hint := regexp.MustCompile(`refloatctl (explain .* --data \S+)`).FindStringSubmatch(group.out)
	if hint == nil {
		t.Fatal("get group prints no command")
	}
	ctl(t, strings.Fields(hint[1])...).exits(t, exitFine).prints(t, "Fail BudgetRefused, not Retry",
		"GangRetry p/default", "budgets.b.floor=3 (is 2)", "budgets.b.ratio=0.334 (is 0.3)", "budgets.b.whenExhausted=Delay (is Refuse)")
	ctl(t, "explain", "01job00", "--data", data, "--why-not", "Fail").exits(t, exitFine).prints(t, "retries used in total: 20 (is 0)")
}

// TestRecordBeside: a retry that a budget granted is recorded without the budget; of one that it held back, no test is written.
func TestRecordBeside(t *testing.T) {
	t.Parallel()
	data, out := budgeted(t, 1, 2, "{queue: q, ratio: 0, floor: 1, whenExhausted: Refuse}"), t.TempDir()
	ctl(t, "test", "record", "--job", "01job00", "--data", data, "--out", out).exits(t, exitFine).prints(t, "1 test in 1 file, 0 failed")
	if b, err := os.ReadFile(filepath.Join(out, "policies", "generation-1.yaml")); err != nil || strings.Contains(string(b), "RetryBudget") {
		t.Errorf("the recorded policies have the budget: %v\n%s", err, b)
	}
	ctl(t, "test", "record", "--job", "01job01", "--data", data, "--out", out).exits(t, exitEnvironment).prints(t, "retry budget b held back the retry after run run01")
	if _, err := os.Stat(filepath.Join(out, "01job01_test.yaml")); err == nil {
		t.Error("a test was written")
	}
}

// TestGetBudgets: the list says without JSON what a budget permits, and what each partition that asked it has left.
func TestGetBudgets(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		partitions, jobs    int
		budget              string
		permits             string
		used, allowed, left int64 // 0: nothing was asked
	}{
		"used up":       {1, 3, "{queue: q, ratio: 0.3, floor: 2, whenExhausted: Refuse}", "q 0.3 2 10m refused 1", 2, 2, 0},
		"of partitions": {3, 3, "{queue: q, ratio: 0, floor: 4, whenExhausted: Refuse}", "q 0 4 10m refused 1", 2, 2, 0},
		"by first runs": {1, 4, "{ratio: 1, floor: 1, window: 1h, mode: Shadow}", "all queues together 1 1 1h delayed (in shadow: only counted) 1", 4, 5, 1},
		"delayed":       {1, 2, "{queue: q, ratio: 0, floor: 1}", "q 0 1 10m delayed 1", 1, 1, 0},
		"not asked":     {1, 1, "{queue: other, ratio: 0.5, floor: 3}", "other 0.5 3 10m delayed 1", 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := budgeted(t, tt.partitions, tt.jobs, tt.budget)
			get := func(args ...string) string {
				t.Helper()
				return ctl(t, append([]string{"get", "budgets", "--data", data}, args...)...).exits(t, exitFine).out
			}
			out, line := get(), jsonLine(t, get("-o", "json"))
			row := strings.Join(strings.Fields(strings.Split(out, "\n")[1]), " ")
			if strings.Contains(out, "{") || line["document"] == nil {
				t.Errorf("the table has JSON, or the JSON no document:\n%s%v", out, line)
			}
			unknown := "b " + tt.permits + " - - - - -"
			states, _ := line["state"].([]any)
			if tt.allowed == 0 {
				if row != unknown || len(states) != 0 {
					t.Errorf("%q, %v", row, states)
				}
				return
			}
			if len(states) != 1 {
				t.Fatalf("%v", line)
			}
			s := object(states[0].(map[string]any))
			if s.number("used") != tt.used || s.number("allowed") != tt.allowed || s.number("left") != tt.left {
				t.Errorf("%v, want %d used of %d, %d left", s, tt.used, tt.allowed, tt.left)
			}
			if want := fmt.Sprintf("b %s %d %d %d %d %s", tt.permits, s.number("partition"), tt.used, tt.allowed, tt.left, s.text("asOf")); row != want {
				t.Errorf("got  %q\nwant %q", row, want)
			}
			told := ctl(t, "explain", "budget", "b", "--data", data).exits(t, exitFine).prints(t, fmt.Sprintf("%d used of %d, %d left", tt.used, tt.allowed, tt.left), "it permits ", "for each first run; what is beyond that is ").out
			if refuses := strings.Contains(tt.budget, "Refuse"); strings.Contains(told, "{") || strings.Contains(told, "start a retry that it delayed") == refuses {
				t.Errorf("of a budget %s:\n%s", tt.budget, told)
			}
			ctl(t, "get", "budgets", "nope", "--data", data).prints(t, "RetryBudget nope does not exist: there is b")
			if old := get("b", "--at", "1"); strings.Contains(old, s.text("asOf")) {
				t.Errorf("of a generation, what is left now:\n%s", old)
			}
			if err := os.Remove(app.Dir(data).JobDB()); err != nil {
				t.Fatal(err)
			}
			r := ctl(t, "get", "budgets", "--data", data).exits(t, exitFine).prints(t, "What is left of budgets is not known:")
			if row := strings.Join(strings.Fields(strings.Split(r.out, "\n")[1]), " "); row != unknown {
				t.Errorf("without a job database: %q", row)
			}
		})
	}
}
