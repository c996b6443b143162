package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/app"
)

// jobDBFiles are the files of a SQLite job database; all but the first may be absent.
func jobDBFiles(data string) []string {
	file := app.Dir(data).JobDB()
	return []string{file, file + "-wal", file + "-shm"}
}

// copyJobDB puts a copy of one data directory's job database in the place of another's.
func copyJobDB(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	target := jobDBFiles(to)
	for i, file := range jobDBFiles(from) {
		if err := os.Remove(target[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		content, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(target[i], content, 0o644)
		}
		if err != nil && (i == 0 || !errors.Is(err, fs.ErrNotExist)) {
			t.Fatal(err)
		}
	}
}

// TestOtherJobDB: whoever reads a job database that does not belong to the logs of the data directory, or is behind them,
// is told so.
func TestOtherJobDB(t *testing.T) {
	t.Parallel()
	up := func(data string, feeds ...string) {
		t.Helper()
		args := []string{"up", "--data", data, "--policies", examplesDir, "--partitions", "3", "--exit-when-drained", "--quiet"}
		for _, f := range feeds {
			args = append(args, "--feed", recordingFile(f))
		}
		inProcess(t, args...).exits(t, exitFine)
	}
	dir := t.TempDir()
	ours, theirs, older := filepath.Join(dir, "ours"), filepath.Join(dir, "theirs"), filepath.Join(dir, "older")
	up(ours, "preempted")
	job := strings.TrimPrefix(strings.Fields(inProcess(t, "get", "jobs", "--data", ours, "-o", "name").exits(t, exitFine).out)[0], "job/")
	copyJobDB(t, ours, older)
	up(ours, "chaos")
	up(theirs, "preempted", "chaos", "plain")
	reads := [][]string{{"get", "jobs"}, {"get", "job", job}, {"explain", job}, {"top", "retries"}, {"get", "partitions"}}
	each := func(data string, code int, texts ...string) {
		t.Helper()
		for _, read := range reads {
			r := inProcess(t, append(read, "--data", data)...).exits(t, code).prints(t, texts...)
			if n := strings.Count(r.err, "warning:"); n > 1 || n > 0 && len(texts) == 0 {
				t.Errorf("%q warns %d times:\n%s", read, n, r.err)
			}
		}
	}
	each(ours, exitFine)

	copyJobDB(t, older, ours)
	each(ours, exitFine, "the job database is behind the logs", "of 3 partitions", "up --data "+ours)
	if r := inProcess(t, "get", "jobs", "--data", ours, "-o", "json").exits(t, exitFine); strings.Contains(r.out, "behind the logs") {
		t.Errorf("the warning is among the rows:\n%s", tailOf(r.out))
	}
	inProcess(t, "get", "jobs", "--job-db", app.Dir(ours).JobDBURL()).exits(t, exitFine)
	up(ours)
	each(ours, exitFine)

	inProcess(t, "feed", recordingFile("plain"), "--data", ours).exits(t, exitFine)
	each(ours, exitFine, "behind the logs", "of 3 partitions")
	p := start(t, "up", "--data", ours, "--policies", examplesDir) // whoever writes it may be a little behind
	p.err.await(t, "serving the page")
	each(ours, exitFine)
	stopped(t, p)
	up(ours)

	for name, from := range map[string]string{"another deployment's": theirs, "one with more partitions": filepath.Join(dir, "five")} {
		if name != "another deployment's" {
			inProcess(t, "up", "--data", from, "--policies", examplesDir, "--partitions", "5", "--feed", recordingFile("preempted"), "--exit-when-drained", "--quiet").exits(t, exitFine)
		}
		copyJobDB(t, from, ours)
		each(ours, exitEnvironment, "does not belong to the logs of "+ours, "move the database away")
		inProcess(t, "get", "jobs", "--job-db", app.Dir(ours).JobDBURL()).exits(t, exitFine)
	}
	alone := filepath.Join(dir, "alone") // without logs there is nothing to compare
	copyJobDB(t, theirs, alone)
	inProcess(t, "get", "jobs", "--data", alone).exits(t, exitFine)
}
