package model

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

// must is what a few thousand histories reach at least once each.
var must = []string{
	"code: RuleRetry", "code: RuleIgnore", "code: RuleFail", "code: DefaultRetry", "code: DefaultFail",
	"code: RuleLimit", "code: PolicyLimit", "code: GlobalLimit", "code: KillSwitch", "code: FailFast",
	"code: NoPolicy", "code: LeaseReturned", "code: LegacyLimit", "code: GangFail",
	"shadow: RuleRetry", "shadow: RuleIgnore", "shadow: RuleFail", "shadow: DefaultRetry", "shadow: DefaultFail",
	"shadow: RuleLimit", "shadow: PolicyLimit", "shadow: GlobalLimit", "shadow: KillSwitch", "shadow: FailFast",
	"shadow: NoPolicy", "shadow: LeaseReturned", "shadow: LegacyLimit", "shadow: GangFail",
	"not decided: StaleRun", "not decided: Cancelled", "not decided: Ended", "not decided: UnknownJob",
	"parked: message unreadable", "parked: no queue", "parked: no job set", "parked: no events",
	"parked: event without job", "parked: event without run",
	"retry ready", "retry ready in the message of the decision",
	"forgotten: ended", "forgotten: unknown", "forgotten: verdict", "forgotten: verdict without run",
	"paused", "pod may be alive", "delay raised to the grace",
	"kill switch: globalMaxRetries", "kill switch: queue", "disabled", "no policy applies", "default policy",
	"policy by annotation", "policy not selectable", "policies skipped",
	"default fail stated", "default fail, none stated", "returned lease without a rule",
	"legacy requeue, attempted", "legacy requeue, not attempted",
	"RuleLimit by the limit of its rule, zero true", "RuleLimit by the limit of its rule, zero false",
	"PolicyLimit by the limit of its rule, zero true", "PolicyLimit by the limit of its rule, zero false",
	"GlobalLimit by the limit of its rule, zero false", "GlobalLimit by all retries of the job",
	"maxRetries of the policy, above globalMaxRetries true", "maxRetries of the policy, above globalMaxRetries false",
	"anti-affinity: none", "anti-affinity: node", "anti-affinity: allNodes", "several nodes avoided",
	"avoided node", "avoided node: over", "avoided node: the job's own", "avoided node: left out",
	"code: BreakerHeld", "shadow: BreakerHeld", "breaker: over", "breaker: another holds it too", "breaker: another queue", "breaker: another subcategory", "breaker: held a retry that does not count",
	"preemption after its error in one message", "error after its preemption in one message",
	"re-report in a later message", "non-terminal run errors", "non-terminal job errors", "verdict",
	"cancel job", "cancel job set", "cancelled job", "job rejected",
	"submit of a known job", "submit after a run", "job told again", "told of a run", "told of a known run", "unknown kind of event",
	"matched: condition OOMKilled", "matched: condition OOMKilled of the pod", "matched: condition Evicted", "matched: condition DeadlineExceeded",
	"matched: condition Preempted", "matched: condition Unschedulable", "matched: condition LeaseReturned",
	"matched: condition LeaseExpired", "matched: exit codes In", "matched: exit codes NotIn", "matched: message",
	"matched: category", "matched: subcategory", "matched: run duration", "matched: container name", "matched: init containers",
}

// TestSometimes runs many histories and asks that everything happens in some.
func TestSometimes(t *testing.T) {
	t.Parallel()
	const seeds = 3000
	seen := map[string]int{}
	messages, records := 0, 0
	start := time.Now()
	for seed := range uint64(seeds) {
		h := Generate(seed, Options{Republished: seed%4 == 0, Versions: seed%2 == 0})
		all, m := h.Run()
		messages += len(h.Messages)
		for _, rs := range all {
			records += len(rs)
		}
		for name, n := range m.Seen {
			seen[name] += n
		}
	}
	t.Logf("%d histories, %d messages, %d records, %.0f histories/s", seeds, messages, records, seeds/time.Since(start).Seconds())
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%7d %s", seen[name], name)
	}
	for _, name := range must {
		if seen[name] == 0 {
			t.Errorf("never seen: %s", name)
		}
	}
}

// TestSameSeed asks that a seed gives the same history and the same records.
func TestSameSeed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		o := Options{Republished: seed%7 == 0, Changes: seed%2 == 0, Lint: seed%3 == 0, Extremes: seed%5 == 0}
		a, b := Generate(seed, o), Generate(seed, o)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d: histories differ:\n%s", seed, cmp.Diff(a, b, cmp.AllowUnexported(History{})))
		}
		if !reflect.DeepEqual(a.YAML(), b.YAML()) {
			t.Fatalf("seed %d: files differ:\n%s", seed, cmp.Diff(a.YAML(), b.YAML()))
		}
		first, _ := a.Run()
		again, _ := b.Run()
		if !reflect.DeepEqual(first, again) {
			t.Fatalf("seed %d: records differ:\n%s", seed, cmp.Diff(first, again))
		}
	}
}

// TestShape asks of many histories what holds for every one.
func TestShape(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		h := Generate(seed, Options{Republished: seed%7 == 0, Changes: seed%2 == 0, Lint: seed%3 == 0, Extremes: seed%5 == 0})
		records, _ := h.Run()
		number := int64(0)
		order := map[Kind]int{Parked: 0, JobRequeued: 1, JobFailed: 1, NotDecided: 1, RetryReady: 2}
		decided := map[string]bool{}
		for i, rs := range records {
			msg := h.Messages[i]
			if i > 0 && !before(h.Messages[i-1], msg) {
				t.Fatalf("seed %d: message %d does not follow the one before", seed, i)
			}
			last := 0
			for _, r := range rs {
				at := fmt.Sprintf("seed %d, message %d: %+v", seed, i, r)
				if order[r.Kind] < last {
					t.Errorf("%s: out of order", at)
				}
				last = order[r.Kind]
				if r.Ledger != msg.Ledger || r.Entry != msg.Entry || r.Batch != msg.Batch {
					t.Errorf("%s: another position", at)
				}
				if r.Kind == JobRequeued || r.Kind == JobFailed {
					number++
					if r.Number != number {
						t.Errorf("%s: number is not %d", at, number)
					}
				}
				if r.Kind == JobRequeued && (r.RetryAfter < r.T || r.PodName == "") {
					t.Errorf("%s: no retryAfter or pod", at)
				}
				if r.Kind == JobFailed && (r.RetryAfter != 0 || r.DelayMs != 0 || r.PodName != "" || r.AvoidNodes != nil) {
					t.Errorf("%s: a failed job has no next run", at)
				}
				if r.Kind == RetryReady && !decided[r.JobID+" "+r.RunID] {
					t.Errorf("%s: no JobRequeued before", at)
				}
				if r.Kind == JobRequeued {
					decided[r.JobID+" "+r.RunID] = true
				}
			}
		}
	}
}

func before(a, b Message) bool {
	switch {
	case a.Ledger != b.Ledger:
		return a.Ledger < b.Ledger
	case a.Entry != b.Entry:
		return a.Entry < b.Entry
	}
	return a.Batch < b.Batch
}

// TestYAML asks that the files are YAML and state what the structs do.
func TestYAML(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		h := Generate(seed, Options{Lint: true, Extremes: true})
		for _, file := range h.YAML() {
			var doc map[string]any
			if h.split {
				if err := yaml.Unmarshal(file.Data, &doc); err != nil {
					t.Fatalf("seed %d: %s: %v\n%s", seed, file.Name, err, file.Data)
				}
				if doc["kind"] == nil {
					t.Fatalf("seed %d: %s: no kind\n%s", seed, file.Name, file.Data)
				}
			}
		}
	}
}

// TestYAMLText shows one policy set as it is written.
func TestYAMLText(t *testing.T) {
	t.Parallel()
	p := Policies{
		Settings: &Settings{Enabled: new(true), GlobalMaxRetries: new(3), HorizonMs: new(int64(5001)), PausedUntil: base},
		Policies: []Policy{
			{
				Name: "infra", RetryLimit: new(0), DefaultAction: "Fail", AntiAffinity: "node",
				Backoff: Backoff{InitialDelayMs: new(int64(1000)), MultiplierMilli: new(int64(1333))},
				Rules: []Rule{
					{Name: "lost", Action: "Retry", OnConditions: []string{"Preempted", "Evicted"}, Backoff: Backoff{Constant: true, JitterMilli: new(int64(100))}},
					{Action: "Ignore", OnExitCodes: &ExitCodes{"NotIn", []int32{1, -1}}, OnTerminationMessage: "^$|a", OnRunDuration: &RunDuration{LessThanMs: new(int64(30_500)), AtLeastMs: new(int64(0))}, ContainerName: "init-a", IncludeInitContainers: true},
				},
			},
			{Name: "gpu", Flat: true, DefaultAction: "Retry", Rules: []Rule{{Action: "Fail", OnFailureCategory: []string{"user"}, OnFailureSubcategory: []string{"net"}}}},
		},
		Queues: []Queue{{Name: "ml", RetryPolicies: []string{"infra", "gpu"}, Mode: "Shadow", Killed: true}},
	}
	want := `apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: infra}
spec:
  retryLimit: 0
  defaultAction: Fail
  backoff: {initialDelay: 1s, multiplier: 1.333}
  antiAffinity: {mode: node}
  rules:
  - {name: lost, action: Retry, onConditions: [Preempted, Evicted], includeInitContainers: false, backoff: {type: Constant, jitter: 0.1}}
  - {action: Ignore, onExitCodes: {operator: NotIn, values: [1, -1]}, onTerminationMessage: {pattern: "^$|a"}, onRunDuration: {atLeast: 0s, lessThan: 30500ms}, containerName: init-a, includeInitContainers: true}
---
apiVersion: armadaproject.io/v1beta1
kind: RetryPolicy
name: gpu
defaultAction: Retry
rules:
- {action: Fail, onCategory: user, onSubcategory: net}
---
kind: Queue
name: ml
retryPolicies: [infra, gpu]
mode: Shadow
killed: true
---
kind: RetrySettings
spec: {enabled: true, globalMaxRetries: 3, horizon: 5.001s, pausedUntil: 2026-08-21T12:00:00Z}
`
	if diff := cmp.Diff(want, string(p.YAML(false)[0].Data)); diff != "" {
		t.Errorf("YAML:\n%s", diff)
	}
}

// FuzzStep asks that no payload is too odd for the model.
func FuzzStep(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(Generate(seed, Options{}).Messages[0].Payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		m := New(Policies{})
		for i := range int64(2) {
			m.Step(Message{Entry: i, Publish: base, Payload: payload})
		}
	})
}
