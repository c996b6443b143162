package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/doctor"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

// TestArchive: the commands, as an operator uses them, and what is wrong with their arguments.
func TestArchive(t *testing.T) {
	t.Parallel()
	data, dir := drainedCopy(t), filepath.Join(t.TempDir(), "archive")
	r := ctl(t, "archive", "create", dir, "--data", data, "--partition", "0,2").exits(t, exitFine).prints(t, "RANGE", "SHA-256 of "+dir)
	sum := strings.TrimSpace(r.out[strings.LastIndex(r.out, " "):])
	ctl(t, "archive", "verify", dir, "--sha256", sum).exits(t, exitFine).prints(t, "verified: "+dir+" is whole", sum, "partition 2: envelopes 1 to ")
	ctl(t, "archive", "create", dir, "--data", data, "-o", "json").exits(t, exitFine).prints(t, `"record":"ArchivedRange","range":2,`, `"partition":1`)
	ctl(t, "archive", "create", dir, "--data", data).exits(t, exitFine).prints(t, "nothing new was decided")
	ctl(t, "archive", "verify", dir, "--sha256", sum).exits(t, exitFinding).prints(t, "not the expected "+sum)
	lines := strings.Split(strings.TrimSpace(ctl(t, "archive", "verify", dir, "-o", "json").exits(t, exitFine).out), "\n")
	if len(lines) != 4 || jsonLine(t, lines[3]+"\n")["verified"] != true || jsonLine(t, lines[0]+"\n").text("record") != "ArchivedChain" {
		t.Errorf("as JSON: %q", lines)
	}
	ctl(t, "archive", "list", dir).exits(t, exitFine).prints(t, "PARTITION", "\n2 ")
	ctl(t, "archive", "list", dir, "-o", "json").exits(t, exitFine).prints(t, `"record":"ArchivedRange"`)
	if r := ctl(t, "verify", "--data", data, "--archive", dir, "--allow-waiting").exits(t, exitFine); r.out != ctl(t, "replay", "--verify", "--data", data, "--allow-waiting").exits(t, exitFine).out {
		t.Errorf("with an archive: %s", r.out)
	}

	segment := filepath.Join(dir, "000001", "decisions", "0000", "00000000000000000000.seg")
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(segment, b, 0o644); err != nil {
		t.Fatal(err)
	}
	ctl(t, "archive", "verify", dir).exits(t, exitFinding).prints(t, "problem: 000001/decisions/0000/00000000000000000000.seg: its SHA-256 is", "not verified: chain and decisions", "1 problem in ")
	ctl(t, "archive", "verify", dir, "-o", "json").exits(t, exitFinding).prints(t, `"record":"ArchiveProblem"`, `"verified":false`)

	for _, c := range []struct{ args, want string }{
		{"archive", "refloatctl archive: needs a subcommand: create, list, verify"},
		{"archive create --data " + data, "DIR"},
		{"archive create " + dir, "--data DIR is required"},
		{"archive create " + dir + " --data " + data + " --partition 3", "have 3 partitions"},
		{"archive create " + dir + " --data " + data + " --partition -1", "--partition -1"},
		{"archive list " + dir + " -o yaml", "use table or json"},
		{"replay --archive " + dir + " --log x --policies y", "--archive needs --verify"},
	} {
		ctl(t, strings.Fields(c.args)...).exits(t, exitUsage).prints(t, c.want)
	}
	ctl(t, "archive", "verify", data).exits(t, exitFinding).prints(t, "does not belong to an archive")
	ctl(t, "archive", "verify", t.TempDir()).exits(t, exitEnvironment).prints(t, "is no archive")
	ctl(t, "archive", "create", data, "--data", data).exits(t, exitEnvironment).prints(t, "does not belong to an archive")
}

// segmentPerEnvelope writes the decision log of a data directory again, with a segment for each
// envelope, so that single ones can be deleted.
func segmentPerEnvelope(t *testing.T, data app.Dir) {
	t.Helper()
	old, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: data.Decisions(), ReadOnly: true, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	to := string(data) + "-small"
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: to, Partitions: old.Partitions(), SegmentBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	for p := range old.Partitions() {
		r, err := old.Open(p, eventlog.Start)
		if err != nil {
			t.Fatal(err)
		}
		for {
			chunk := make([]eventlog.Message, 1)
			n, err := r.Read(chunk)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			if err := log.AppendSync(t.Context(), p, chunk); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(old.Close(), log.Close(), os.RemoveAll(data.Decisions()), os.Rename(to, data.Decisions())); err != nil {
		t.Fatal(err)
	}
}

// TestTrimmedUpToArchive: what works, and what is refused with which words, when the decisions up to an
// archived range are deleted.
func TestTrimmedUpToArchive(t *testing.T) {
	t.Parallel()
	data, dir := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "archive")
	up := func(more ...string) result {
		t.Helper()
		return inProcess(t, append([]string{"up", "--data", data, "--policies", "../../examples/policies", "--exit-when-drained", "--quiet"}, more...)...)
	}
	up("--feed", "../../testdata/recordings/plain.jsonl.gz").exits(t, exitFine)
	for _, gone := range []string{"state", "jobs.sqlite"} { // they hold positions in the old log
		if err := os.RemoveAll(filepath.Join(data, gone)); err != nil {
			t.Fatal(err)
		}
	}
	segmentPerEnvelope(t, app.Dir(data))
	up("--feed", "../../testdata/recordings/retried.jsonl.gz").exits(t, exitFine) // so every owner goes live, with a state on disk
	inProcess(t, "archive", "create", dir, "--data", data).exits(t, exitFine)
	inProcess(t, "archive", "verify", dir).exits(t, exitFine)
	job := firstJob(t, data)
	explained := inProcess(t, "explain", job, "--data", data).exits(t, exitFine).out
	verified := inProcess(t, "verify", "--data", data).exits(t, exitFine).out
	for p := range 3 {
		segments, err := filepath.Glob(filepath.Join(app.Dir(data).Decisions(), fmt.Sprintf("%04d", p), "*.seg"))
		if err != nil || len(segments) < 2 {
			t.Fatalf("partition %d: %v, %v", p, segments, err)
		}
		if err := os.Remove(segments[0]); err != nil {
			t.Fatal(err)
		}
	}
	// The logs alone cannot be verified, with the archive they can.
	inProcess(t, "verify", "--data", data).exits(t, exitFinding).prints(t, "log no longer holds this position", "--archive DIR", "--checkpoints URL")
	if got := inProcess(t, "verify", "--data", data, "--archive", dir).exits(t, exitFine).out; got != verified {
		t.Errorf("with the archive: %s, want %s", got, verified)
	}
	inProcess(t, "jobdb", "verify", "--data", data).exits(t, exitFinding).prints(t, "log no longer holds this position")
	inProcess(t, "jobdb", "verify", "--data", data, "--archive", dir).exits(t, exitFine).prints(t, ": equal")
	// Explanations need the job database and the policies only.
	if got := inProcess(t, "explain", job, "--data", data).exits(t, exitFine).out; got != explained {
		t.Errorf("explained: %s, want %s", got, explained)
	}
	// An evaluator with its state goes on, and so does the archive.
	up("--feed", damageFeed).exits(t, exitFine)
	inProcess(t, "archive", "create", dir, "--data", data).exits(t, exitFine).prints(t, "\n2 ")
	inProcess(t, "archive", "verify", dir).exits(t, exitFine)
	inProcess(t, "verify", "--data", data, "--archive", dir).exits(t, exitFine)
	// One without state is refused: it cannot know what was decided.
	if err := os.RemoveAll(filepath.Join(data, "state")); err != nil {
		t.Fatal(err)
	}
	// (With nothing new to decide, a node that ends when drained may end before it notices.)
	up("--feed", "../../testdata/recordings/plain.jsonl.gz").exits(t, exitEnvironment).prints(t, "log no longer holds this position", "partition ")
}

// TestRetentionFlags: how long topics are retained, in days too.
func TestRetentionFlags(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]doctor.Retention{
		"forever": doctor.Forever, "90d": {Minutes: 90 * 24 * 60, MB: -1}, "36h": {Minutes: 36 * 60, MB: -1}, "1d": {Minutes: 24 * 60, MB: -1},
	} {
		if got, err := parseRetention("retain-decisions", text, 24*time.Hour); got != want || err != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "-1d", "1h", "d", "1.5d", "99999d", "1d12h", "24h0m1s", "for ever", "-30h"} {
		if got, err := parseRetention("retain-decisions", text, 24*time.Hour); err == nil || !strings.Contains(err.Error(), "--retain-decisions") {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}
