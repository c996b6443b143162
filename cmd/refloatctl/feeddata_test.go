package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/app"
)

// startUp starts an up on a data directory, and waits until it takes recordings.
func startUp(t *testing.T, data string, more ...string) *process {
	t.Helper()
	p := start(t, append([]string{"up", "--data", data, "--policies", testPolicies}, more...)...)
	until(t, "the inbox is there", func() bool {
		_, err := os.Stat(app.Dir(data).Inbox())
		return err == nil
	})
	return p
}

func stopped(t *testing.T, p *process) {
	t.Helper()
	p.signal(t, os.Interrupt)
	p.exits(t, exitFine)
}

// TestFeedData: recordings can be fed to a data directory, whether up runs on it or not.
func TestFeedData(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	ctl(t, "feed", recordingFile("plain"), "--data", data).exits(t, exitFine).prints(t, "1559 messages, 1559 of them new")
	ctl(t, "feed", recordingFile("plain"), "--data", data).exits(t, exitFine).prints(t, "1559 messages, 0 of them new")
	p := startUp(t, data)
	// The feed of another recording of that name was refused, and killed before it read why.
	writeFile(t, app.Dir(data).Inbox(), "retried.jsonl.gz.reason", "old")
	ctl(t, "feed", recordingFile("retried"), "--data", data).exits(t, exitFine).prints(t, "2298 messages; the process that runs on")
	ctl(t, "feed", recordingFile("retried"), "--data", data, "--pace", "9x").exits(t, exitEnvironment).prints(t, "leave out --pace")
	bad := writeFile(t, t.TempDir(), "bad.jsonl.gz", "no recording")
	ctl(t, "feed", bad, "--data", data).exits(t, exitEnvironment).prints(t, "is not a recording")
	stopped(t, p)
	ctl(t, "up", "--data", data, "--quiet", "--exit-when-drained").exits(t, exitFine)
	ctl(t, "verify", "--data", data).exits(t, exitFine).prints(t, "verified: deciding 3857 messages")
	if left, err := os.ReadDir(app.Dir(data).Inbox()); err != nil || len(left) > 0 {
		t.Errorf("left in the inbox: %v, %v", left, err)
	}
}

// TestFeedRefused: a recording that up cannot feed is refused with the reason, and nothing of it is written.
func TestFeedRefused(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	startUp(t, data) // one partition
	ctl(t, "feed", recordingFile("plain"), "--data", data).exits(t, exitEnvironment).
		prints(t, "refused the recording", "needs 3 partitions, the log has 1", "up --feed")
	if left, err := os.ReadDir(app.Dir(data).Inbox()); err != nil || len(left) > 0 {
		t.Errorf("left in the inbox: %v, %v", left, err)
	}
}

// TestPartitionsOfALaterFeed: a data directory without events takes the partitions of its first feed; one with
// events keeps its own.
func TestPartitionsOfALaterFeed(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	stopped(t, startUp(t, data))
	ctl(t, "up", "--data", data, "--feed", recordingFile("plain"), "--exit-when-drained").exits(t, exitFine).prints(t, "made anew", "infra")
	ctl(t, "verify", "--data", data).exits(t, exitFine).prints(t, "verified: deciding 1559 messages")
	ctl(t, "history", "--data", data).exits(t, exitFine).prints(t, testPolicies)

	// Events that were deleted are no events that never were.
	if err := os.RemoveAll(app.Dir(data).Events()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(app.Dir(data).Events(), os.DirFS(emptyLog(t))); err != nil {
		t.Fatal(err)
	}
	ctl(t, "up", "--data", data, "--feed", recordingFile("plain"), "--exit-when-drained").exits(t, exitEnvironment)
	if files, err := fs.Glob(os.DirFS(app.Dir(data).Decisions()), "*/*.seg"); err != nil || len(files) != 3 {
		t.Errorf("segments of the decision log: %v, %v", files, err)
	}
}

// emptyLog is an events log of one partition.
func emptyLog(t *testing.T) string {
	t.Helper()
	data := filepath.Join(t.TempDir(), "empty")
	stopped(t, startUp(t, data))
	return app.Dir(data).Events()
}

// TestTruncatedLog: damage is reported as damage, not as another number of partitions.
func TestTruncatedLog(t *testing.T) {
	t.Parallel()
	data := drainedCopy(t)
	segments, err := filepath.Glob(filepath.Join(app.Dir(data).Events(), "0000", "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	if err := os.Truncate(segments[0], 1000); err != nil {
		t.Fatal(err)
	}
	r := ctl(t, "up", "--data", data, "--exit-when-drained").exits(t, exitEnvironment)
	if strings.Contains(r.err, "partitions, not") || !strings.Contains(r.err, segments[0]) {
		t.Errorf("up says %s", r.err)
	}
}

// TestWrongDirectory: a log in place of a data directory, and the reverse, are told apart.
func TestWrongDirectory(t *testing.T) {
	t.Parallel()
	data := drainedCopy(t)
	events := app.Dir(data).Events()
	ctl(t, "import", recordingFile("plain"), "--log", data).exits(t, exitEnvironment).prints(t, "is a data directory", "refloatctl feed "+recordingFile("plain")+" --data "+data)
	if _, err := os.Stat(filepath.Join(data, "META")); err == nil {
		t.Error("import made a second log")
	}
	ctl(t, "replay", "--log", data, "--policies", testPolicies).exits(t, exitEnvironment).prints(t, "is a data directory: give its events log, "+events)
	ctl(t, "verify", "--data", events).exits(t, exitEnvironment).prints(t, "is a log, not a data directory")
}

// TestPoliciesWithoutServer: what the policies log holds can be read although nothing runs.
func TestPoliciesWithoutServer(t *testing.T) {
	t.Parallel()
	data := drainedCopy(t)
	ctl(t, "history", "--data", data).exits(t, exitFine).prints(t, "RetryPolicy infra created")
	ctl(t, "get", "policies", "--data", data).exits(t, exitFine).prints(t, "infra", "Nothing that serves the policy API runs on")
	ctl(t, "get", "policies", "infr", "--data", data).exits(t, exitEnvironment).prints(t, "did you mean infra?")
	yaml := ctl(t, "get", "resources", "-o", "yaml", "--data", data).exits(t, exitFine).out
	ctl(t, "lint", writeFile(t, t.TempDir(), "all.yaml", yaml)).exits(t, exitFine)
	// The address of a process that was killed.
	if err := os.WriteFile(app.Dir(data).APIAddress(), []byte("127.0.0.1:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctl(t, "history", "--data", data).exits(t, exitFine).prints(t, "RetryPolicy infra created")
	ctl(t, "rollback", "--everything", "--to", "1", "--data", data).exits(t, exitEnvironment).prints(t, "no server answers")
}
