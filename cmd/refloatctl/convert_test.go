package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const aJob = `apiVersion: batch/v1
kind: Job
metadata: {name: sweep}
spec:
  completions: 3
  completionMode: Indexed
  backoffLimitPerIndex: 1
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, resources: {limits: {cpu: 100m, memory: 64Mi}}}]
`

// TestConvert: what convert writes is what lint and apply accept, and nothing is overwritten.
func TestConvert(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	job := writeFile(t, dir, "job.yaml", aJob)
	lossy := writeFile(t, dir, "lossy.yaml", strings.Replace(aJob, "spec:\n  comp", "spec:\n  ttlSecondsAfterFinished: 5\n  comp", 1))
	out := filepath.Join(dir, "out")

	ctl(t, "convert", "-f", job, "--queue", "ml", "--job-set", "monday", "-o", out).exits(t, exitFine).
		prints(t, "3 jobs and 1 file of policies for queue ml, job set monday", "wrote "+filepath.Join(out, "jobs.yaml"), "refloatctl apply -f "+filepath.Join(out, "policies"), "--semantics 5", "armadactl submit", "get groups --queue ml --job-set monday")
	ctl(t, "lint", "--strict", filepath.Join(out, "policies")).exits(t, exitFine)
	jobs, err := os.ReadFile(filepath.Join(out, "jobs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"queue: ml\njobSetId: monday\njobs:\n", `refloat.github.io/index: "2"`, "name: JOB_COMPLETION_INDEX\n        value: \"1\"", "armadaproject.io/retry-policy: sweep"} {
		if !strings.Contains(string(jobs), text) {
			t.Errorf("jobs.yaml does not have %q:\n%s", text, jobs)
		}
	}

	ctl(t, "convert", "-f", lossy, "-o", out).exits(t, exitFinding).prints(t, "jobs.yaml already exists, nothing was written")
	if again, err := os.ReadFile(filepath.Join(out, "jobs.yaml")); err != nil || !bytes.Equal(again, jobs) {
		t.Errorf("jobs.yaml was overwritten: %v", err)
	}
	ctl(t, "convert", "-f", lossy, "-o", out, "--overwrite").exits(t, exitFine).prints(t, "lossy.yaml:5:28: lost: Job sweep: spec.ttlSecondsAfterFinished 5 → nothing")
	if again, err := os.ReadFile(filepath.Join(out, "jobs.yaml")); err != nil || !strings.Contains(string(again), "jobSetId: sweep") {
		t.Errorf("jobs.yaml was not replaced: %v", err)
	}

	strict := ctl(t, "convert", "-f", lossy, "--strict").exits(t, exitFinding).prints(t, "with --strict, 1 field that is lost or changed is an error")
	if strict.out != "" {
		t.Errorf("with --strict, something was printed:\n%s", strict.out)
	}
	ctl(t, "convert", "-f", job, "--strict").exits(t, exitFine).prints(t, "kind: GroupPolicy", "\n---\n")
	ctl(t, "convert", "-f", job, "-f", job).exits(t, exitFinding).prints(t, "the name of the group that Job at "+job+":1:1 becomes", "nothing was written")
	ctl(t, "convert", "-f", filepath.Join(dir, "nowhere")).exits(t, exitEnvironment)
	ctl(t, "convert").exits(t, exitUsage).prints(t, "pass -f FILE")
}

// TestConvertStdin: kubectl pipes into it.
func TestConvertStdin(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(binaryPath(t), "convert", "-f", "-")
	cmd.Env = environ()
	cmd.Stdin = strings.NewReader("kind: List\napiVersion: v1\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(strings.Replace(aJob, "completions: 3", "completions: x", 1)), "\n", "\n  "))
	out, err := cmd.CombinedOutput()
	if want := "<stdin>:8:18: error: Job sweep: spec.completions x: YAML reads x as str. fix: write a whole number"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("convert of a list in stdin: %v, %s; want %s", err, out, want)
	}
}

// TestConvertWritesNoSettings: what convert writes is applied to a deployment, whose settings stay those of its operator.
// It says where they permit fewer retries than the manifest needs.
func TestConvertWritesNoSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, out := filepath.Join(dir, "data"), filepath.Join(dir, "out")
	settings := func(more string) string {
		return writeFile(t, dir, "settings.yaml", "apiVersion: armadaproject.io/v1\nkind: RetrySettings\nspec: {mode: Shadow, globalMaxRetries: 50"+more+"}\n")
	}
	manifest := writeFile(t, dir, "jobset.yaml", strings.ReplaceAll(tripOfJobSet, "backoffLimit: 0", "backoffLimit: 1"))
	p, ctlServed := served(t, data)
	ctlServed("apply", "-f", settings("")).exits(t, exitFine)

	const needs = "changed: JobSet training: spec.replicatedJobs[0] any number of retries of a job → %s: "
	ctl(t, "convert", "-f", manifest).exits(t, exitFine).prints(t, strings.Replace(needs, "%s", "20", 1)+"by default, the settings permit no more")
	ctlServed("convert", "-f", manifest, "-o", out).exits(t, exitFine).
		prints(t, strings.Replace(needs, "%s", "50", 1)+"the settings of the deployment permit no more in total, over all restarts: an operator can raise policyMaxRetries to 1000000")
	ctlServed("apply", "-f", filepath.Join(out, "policies")).exits(t, exitFine)
	ctlServed("get", "settings", "-o", "yaml").exits(t, exitFine).prints(t, "mode: Shadow", "globalMaxRetries: 50")

	ctlServed("apply", "-f", settings(", policyMaxRetries: 1000000")).exits(t, exitFine)
	if r := ctlServed("convert", "-f", manifest).exits(t, exitFine); strings.Contains(r.err, "retries of a job") {
		t.Errorf("enough retries are permitted, and convert says: %s", r.err)
	}
	p.ends(t)
}

// TestConvertQueues: manifests of several queues become a file for each.
func TestConvertQueues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name, queue string) string {
		return strings.Replace(strings.Replace(tripOfVolcano, "mpi", name, 1), "spec:\n", "spec:\n  queue: "+queue+"\n", 1)
	}
	file := writeFile(t, dir, "jobs.yaml", in("a", "dev")+"---\n"+in("b", "prod"))
	out := filepath.Join(dir, "out")
	ctl(t, "convert", "-f", file, "-o", out).exits(t, exitFine).
		prints(t, "6 jobs and 2 files of policies for queues dev, prod, job set a", "armadactl submit "+filepath.Join(out, "jobs-dev.yaml")+"; armadactl submit "+filepath.Join(out, "jobs-prod.yaml"), "get groups --queue prod --job-set a")
	for _, queue := range []string{"dev", "prod"} {
		text, err := os.ReadFile(filepath.Join(out, "jobs-"+queue+".yaml"))
		if err != nil || !strings.HasPrefix(string(text), "queue: "+queue+"\njobSetId: a\njobs:\n") {
			t.Errorf("jobs of queue %s: %v\n%s", queue, err, text)
		}
	}
	ctl(t, "convert", "-f", file).exits(t, exitFine).prints(t, "queue: dev\n", "---\nqueue: prod\n")
	ctl(t, "convert", "-f", file, "--queue", "one", "-o", filepath.Join(dir, "one")).exits(t, exitFine).prints(t, "for queue one, job set a")
}
