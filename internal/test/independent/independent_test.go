package independent

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var firstSeed = flag.Uint64("seed", 1, "seed of the first random history")

// histories is how many are compared: HISTORIES, or a few.
func histories(t *testing.T) uint64 {
	t.Helper()
	if s := os.Getenv("HISTORIES"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("HISTORIES: %v", err)
		}
		return n
	}
	return 500
}

// TestIndependently holds the engine against this package's model.
func TestIndependently(t *testing.T) {
	t.Parallel()
	shards, n := uint64(runtime.GOMAXPROCS(0)), histories(t)
	for shard := range shards {
		t.Run(fmt.Sprintf("shard=%d", shard), func(t *testing.T) {
			t.Parallel()
			for seed := *firstSeed + shard; seed < *firstSeed+n; seed += shards {
				h := generate(seed)
				if differs(t, h) == "" {
					continue
				}
				h = shrink(t, h)
				t.Fatalf("seed %d, %s\nhistory, of %d partitions:\n%s", seed, differs(t, h), h.Partitions, h)
			}
		})
	}
}

// TestStartIsNeverLater: once proof has brought a retry forward, a start that names a later time leaves it there, because no order makes
// a job wait longer. (The engine had forgotten the earlier time.)
func TestStartIsNeverLater(t *testing.T) {
	c := &config{
		GlobalMax: 20, LegacyMax: 4, Horizon: 24 * hour, Queues: []queue{{Name: "a", Policies: []string{"p"}}},
		Policies: []policy{{Name: "p", Limit: -1, Default: "Retry", Max: hour, Mult: 1000, Initial: minute}},
	}
	at := func(t int64, e event) message {
		e.T, e.Job = start+t, "j"
		return message{Queue: "a", Set: "s", Publish: e.T, Events: []event{e}}
	}
	h := history{Partitions: 1, Messages: []message{
		{Config: c},
		at(0, event{Kind: "SubmitJob", Grace: 90}),
		at(0, event{Kind: "JobRunPreempted", Run: "r"}),
		at(10*second, event{Kind: "JobRunTerminated", Run: "r"}),
		at(20*second, event{Kind: "JobOrder", Run: "r", Order: order{ID: "o", Action: "Start", NotBefore: start + 80*second}}),
	}}
	if diff := differs(t, h); diff != "" {
		t.Fatal(diff)
	}
	m := newModel(1)
	var last []record
	for _, msg := range h.Messages {
		last = m.process(msg)
	}
	if got := last[0].RetryAfter - start; got != minute {
		t.Fatalf("starts after %d s, want 60", got/second)
	}
}

// TestSometimes: the histories have every case that the two are compared in.
func TestSometimes(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := uint64(1); seed <= 500; seed++ {
		h := generate(seed)
		m := newModel(h.Partitions)
		for _, msg := range h.Messages {
			for _, r := range m.process(msg) {
				seen[r.Kind+" "+r.Code]++
				seen[r.Effect]++
				if r.Effect != "" {
					seen[fmt.Sprintf("%s shadow=%v queue in shadow=%v", r.Effect, r.BudgetShadow, r.Shadow)]++
				}
				if r.Code == "BreakerHeld" && r.RuleLimit < 0 {
					seen["an ignored failure is held"]++
				}
				if r.RetryGranted {
					seen["carried out "+r.Action]++
				}
			}
		}
	}
	want := []string{
		"RetryReady ", "an ignored failure is held", "carried out Retry", "carried out Start",
		"BudgetGranted", "BudgetDelayed shadow=false queue in shadow=false", "BudgetDelayed shadow=true queue in shadow=false",
		"BudgetDelayed shadow=false queue in shadow=true", "BudgetExhausted shadow=false queue in shadow=false", "BudgetExhausted shadow=true queue in shadow=false",
	}
	for kind, codes := range map[string]string{
		"Requeued":      "RuleRetry RuleIgnore DefaultRetry LeaseReturned BreakerHeld",
		"Failed":        "RuleFail DefaultFail RuleLimit PolicyLimit GlobalLimit KillSwitch FailFast NoPolicy LegacyLimit BudgetRefused",
		"NotDecided":    "StaleRun Cancelled Ended UnknownJob",
		"OrderAnswered": "UnknownAction UnknownJob Cancelled StaleRun Running Succeeded NotDecided Ended Retrying Failed Shadow KillSwitch",
	} {
		for code := range strings.FieldsSeq(codes) {
			want = append(want, kind+" "+code)
		}
	}
	for _, what := range want {
		if seen[what] == 0 {
			t.Errorf("never: %s", what)
		}
	}
	t.Logf("seen: %v", seen)
}

// differs says where model and engine first differ; "": nowhere.
func differs(t *testing.T, h history) string {
	t.Helper()
	m := newModel(h.Partitions)
	e, err := newEngine(h.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	for i, msg := range h.Messages {
		want := m.process(msg)
		got, err := e.process(msg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Sprintf("message %d (-model +engine):\n%s", i, diff)
		}
	}
	return ""
}

// shrink leaves out what is not needed for model and engine to differ.
func shrink(t *testing.T, h history) history {
	t.Helper()
	for again := true; again; {
		again = false
		for i := len(h.Messages) - 1; i >= 0; i-- {
			if i > 0 {
				less := h
				less.Messages = append(append([]message(nil), h.Messages[:i]...), h.Messages[i+1:]...)
				if differs(t, less) != "" {
					h, again = less, true
					continue
				}
			}
			for k := len(h.Messages[i].Events) - 1; k >= 0 && len(h.Messages[i].Events) > 1; k-- {
				less := h
				less.Messages = append([]message(nil), h.Messages...)
				less.Messages[i].Events = append(append([]event(nil), h.Messages[i].Events[:k]...), h.Messages[i].Events[k+1:]...)
				if differs(t, less) != "" {
					h, again = less, true
				}
			}
		}
	}
	return h
}

func (h history) String() string {
	out := ""
	for i, m := range h.Messages {
		if m.Config != nil {
			out += fmt.Sprintf("%d:\n%s", i, m.Config.yaml())
			continue
		}
		out += fmt.Sprintf("%d: %s/%s at %d\n", i, m.Queue, m.Set, m.Publish-start)
		for _, e := range m.Events {
			out += fmt.Sprintf("   %s %s/%s at %d", e.Kind, e.Job, e.Run, e.T-start)
			switch e.Kind {
			case "JobRunErrors", "JobErrors":
				out += fmt.Sprintf(" %+v", e.Error)
			case "JobOrder":
				out += fmt.Sprintf(" %+v", e.Order)
			case "SubmitJob":
				out += fmt.Sprintf(" grace %d", e.Grace)
			}
			out += "\n"
		}
	}
	return out
}
