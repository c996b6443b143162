package main

import (
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

// TestVerifyIncomplete: messages that the decision log does not answer were not
// verified, which is a finding unless the evaluator may still be at work.
func TestVerifyIncomplete(t *testing.T) {
	t.Parallel()
	data := drainedCopy(t)
	decisions := app.Dir(data).Decisions()
	if err := os.RemoveAll(decisions); err != nil {
		t.Fatal(err)
	}
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: decisions, Partitions: 3, Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	ctl(t, "replay", "--verify", "--data", data).exits(t, exitFinding).says(t, "not verified: the decision log does not answer 2298 messages")
	ctl(t, "replay", "--verify", "--data", data, "--allow-waiting").exits(t, exitFine)
}
