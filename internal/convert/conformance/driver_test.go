package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/convert"
	"github.com/refloat/refloat/internal/convert/conformance"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

const twoParts = `
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: two}
spec:
  maxRestarts: 1
  completed: Keep
  parts:
  - name: first
    restarts: {limit: 1, "on": OnFailure, backoff: {initialDelay: 5m}}
  - {name: second, after: [first], members: 2}
`

// A driver does only what Armada would do, and shows what the records say.
func TestDriver(t *testing.T) {
	t.Parallel()
	set, err := policyfile.Parse([]policyfile.File{{Name: "two.yaml", Data: []byte(twoParts)}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := conformance.New(set, "queue", "set")
	if err != nil {
		t.Fatal(err)
	}
	member := func(part, index string) conformance.Job {
		return conformance.Job{Annotations: map[string]string{
			"refloat.github.io/group": "g", "refloat.github.io/group-policy": "two",
			"refloat.github.io/part": part, "refloat.github.io/index": index,
		}}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error, why string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Fatalf("error = %v, want %q", err, why)
		}
	}
	must(d.Submit(member("first", "0"), member("second", "0"), member("second", "1")))
	if got := d.Startable(); !slices.Equal(got, []string{"first-0-0"}) {
		t.Fatalf("startable: %v", got)
	}
	refused(d.Start("second-0-0"), "held")
	refused(d.Succeed("first-0-0"), "does not run")
	must(d.Start("first-0-0"))
	must(d.Fail(conformance.Failure{ExitCode: 1}, "first-0-0"))
	refused(d.Start("first-0-0"), "may not start")
	if u := d.Group("g").Units["first/0"]; u.Restarts != 1 || u.Generation != 1 || u.Action != policy.RestartUnit {
		t.Fatalf("the unit: %+v", u)
	}
	d.Advance(5 * time.Minute)
	must(d.Start("first-0-0"))
	must(d.Succeed("first-0-0"))
	must(d.Start("second-0-0", "second-0-1"))
	must(d.Fail(conformance.Failure{Condition: policy.Evicted}, "second-0-1"))
	if j := d.Job("second-0-0"); j.State != conformance.Queued || j.Runs != 1 {
		t.Fatalf("a peer of a failed member of a group that restarts: %+v", j)
	}
	if g := d.Group("g"); g.Restarts != 1 || g.Counted != 1 || d.Job("first-0-0").State != conformance.Succeeded {
		t.Fatalf("the group: %+v", g)
	}
	at, _ := d.NextStart()
	d.Advance(time.Minute)
	if !at.Before(d.Now) {
		t.Fatalf("next start at %s", at)
	}
	must(d.Start("second-0-0", "second-0-1"))
	must(d.Fail(conformance.Failure{ExitCode: 1}, "second-0-0"))
	if g := d.Group("g"); g.State != policy.GroupFailed || g.Reason != policy.ReachedMaxRestarts {
		t.Fatalf("the group: %+v", g)
	}
	if got := d.Indexes("second", 0, conformance.Stopped); !slices.Equal(got, []int{1}) {
		t.Fatalf("stopped: %v", got)
	}
}

// TestBackoffLimitAboveGlobal: a Job with more retries than globalMaxRetries ends by its own limit, if the operator permits them.
func TestBackoffLimitAboveGlobal(t *testing.T) {
	t.Parallel()
	const limit = 30
	d, _, err := conformance.FromManifests(convert.File{Name: "job.yaml", Data: fmt.Appendf(nil, `{apiVersion: batch/v1, kind: Job, metadata: {name: job}, spec: {backoffLimit: %d,
		template: {spec: {restartPolicy: Never, containers: [{name: main, image: busybox}]}}}}`, limit)})
	if err != nil {
		t.Fatal(err)
	}
	id := conformance.Name("main", 0, 0)
	for run := range limit + 1 {
		if at, waiting := d.NextStart(); waiting {
			d.Advance(at.Sub(d.Now))
		}
		if err := d.Start(id); err != nil {
			t.Fatalf("run %d: %v", run, err)
		}
		if err := d.Fail(conformance.Failure{ExitCode: 1}, id); err != nil {
			t.Fatalf("run %d: %v", run, err)
		}
	}
	if last := d.Records()[0]; !strings.Contains(last, "JobFailed UnitLimit") {
		t.Errorf("after %d retries: %s; want UnitLimit", limit, last)
	}
}
