package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/convert"
	"github.com/refloat/refloat/internal/convert/conformance"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/policy"
)

const (
	podOfOne     = `{spec: {restartPolicy: Never, containers: [{name: main, image: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]}}`
	tripOfJobSet = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: training}
spec:
  failurePolicy:
    maxRestarts: 1
    rules:
    - {name: hostMaintenance, action: RestartJobSetAndIgnoreMaxRestarts, onJobFailureReasons: [PodFailurePolicy]}
  replicatedJobs:
  - name: driver
    template: {spec: {backoffLimit: 0, template: ` + podOfOne + `}}
  - name: workers
    replicas: 2
    template:
      spec:
        backoffLimit: 0
        completions: 2
        parallelism: 2
        podFailurePolicy: {rules: [{action: FailJob, onPodConditions: [{type: DisruptionTarget, status: "True"}]}]}
        template: ` + podOfOne + `
`
	tripOfJob = `
apiVersion: batch/v1
kind: Job
metadata: {name: indexed}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  backoffLimitPerIndex: 1
  maxFailedIndexes: 1
  template: ` + podOfOne + `
`
	tripOfVolcano = `
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: mpi}
spec:
  minAvailable: 3
  maxRetry: 3
  policies: [{event: PodEvicted, action: RestartJob}]
  tasks:
  - {name: master, replicas: 1, policies: [{event: PodFailed, action: AbortJob}], template: ` + podOfOne + `}
  - {name: worker, replicas: 2, template: ` + podOfOne + `}
`
)

// TestConvertedRoundTrip: the history of a converted group becomes a test that passes, in which each member has the
// policies of its own pod.
func TestConvertedRoundTrip(t *testing.T) {
	t.Parallel()
	failed, evicted := conformance.Failure{ExitCode: 1, Container: "main"}, conformance.Failure{Condition: policy.Evicted}
	start := func(d *conformance.Driver) error {
		at, waiting := d.NextStart()
		if d.Advance(time.Minute); waiting {
			d.Advance(max(0, at.Sub(d.Now)))
		}
		return d.Start(d.Startable()...)
	}
	for _, tt := range []struct {
		group, manifest string
		play            func(d *conformance.Driver) []error
		covered         string
	}{
		{"training", tripOfJobSet, func(d *conformance.Driver) []error {
			return []error{
				start(d), d.Fail(evicted, "workers-0-1"), start(d), d.Fail(failed, "driver-0-0"),
				start(d), d.Succeed("driver-0-0"), d.Fail(failed, "workers-1-0"),
			}
		}, "5 of 5 rules"},
		{"indexed", tripOfJob, func(d *conformance.Driver) []error {
			return []error{start(d), d.Fail(failed, "main-0-1"), d.Succeed("main-0-0"), start(d), d.Fail(failed, "main-0-1"), d.Succeed("main-0-2")}
		}, ""},
		{"mpi", tripOfVolcano, func(d *conformance.Driver) []error {
			return []error{start(d), d.Fail(evicted, "main-0-2"), start(d), d.Fail(failed, "main-0-0")}
		}, ""},
	} {
		t.Run(tt.group, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			manifest, out, history, data := writeFile(t, dir, "manifest.yaml", tt.manifest), filepath.Join(dir, "out"), filepath.Join(dir, "history.jsonl.gz"), filepath.Join(dir, "data")
			ctl(t, "convert", "-f", manifest, "-o", out, "--queue", "default").exits(t, exitFine)
			d, r, err := conformance.FromManifests(convert.File{Name: "manifest.yaml", Data: []byte(tt.manifest)})
			if err != nil {
				t.Fatal(err)
			}
			for i, err := range tt.play(d) {
				if err != nil {
					t.Fatalf("step %d: %v, after\n%s", i, err, strings.Join(d.AllRecords(), "\n"))
				}
			}
			var entries []recording.Entry
			for _, m := range d.Messages {
				m.Key = d.JobSet
				entries = append(entries, recording.Entry{Producer: "test", Message: m})
			}
			writeRecording(t, history, entries)
			ctl(t, "up", "--data", data, "--policies", filepath.Join(out, "policies"), "--feed", history, "--quiet", "--exit-when-drained").exits(t, exitFine)
			tests := filepath.Join(dir, "tests")
			ctl(t, "test", "record", "--group", tt.group, "--queue", d.Queue, "--job-set", r.Submits[0].JobSetID, "--data", data, "--out", tests).exits(t, exitFine)
			if got := ctl(t, "test", tests, "--coverage"); !strings.Contains(got.out, "1 test in 1 file, 0 failed") || !strings.Contains(got.out, tt.covered) {
				t.Errorf("the test says\n%s%s", got.out, got.err)
			}
		})
	}
}
