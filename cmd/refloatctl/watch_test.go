package main

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestWatchDecisions: each decision is shown once, those that are there and those that come, also by the former name.
func TestWatchDecisions(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("chaos"), "--exit-when-drained").exits(t, exitFine)
	old := strings.Count(ctl(t, "get", "decisions", "--data", data, "-o", "json").out, "\n")
	ctl(t, "tail", "--data", data, "-o", "xml").exits(t, exitUsage)
	ctl(t, "tail").exits(t, exitUsage)

	ctl(t, "get", "decisions", "--data", data, "--watch", "--last", "3", "--node", "x").exits(t, exitUsage).prints(t, "--last with --watch goes only with")

	few := start(t, "tail", "--data", data, "--last", "3", "-o", "json", "--every", "20ms")
	none := start(t, "get", "decisions", "--watch", "--data", data, "--last", "0", "-o", "json", "--every", "20ms")
	all := start(t, "get", "decisions", "--watch", "--data", data, "-o", "json", "--every", "20ms")
	few.err.await(t, "refloatctl tail is the command get decisions --watch --last 10 now")
	until(t, "what is there is shown", func() bool {
		return strings.Count(few.out.text(), "\n") == 3 && strings.Count(all.out.text(), "\n") == old
	})
	ctl(t, "up", "--data", data, "--policies", testPolicies, "--feed", recordingFile("chaos"), "--feed", recordingFile("preempted"), "--exit-when-drained").exits(t, exitFine)
	want := ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out
	total := strings.Count(want, "\n")
	if total == old {
		t.Fatal("nothing new was decided")
	}
	until(t, "what comes is shown", func() bool {
		return strings.Count(few.out.text(), "\n") == total-old+3 && strings.Count(none.out.text(), "\n") == total-old && strings.Count(all.out.text(), "\n") == total
	})
	for _, p := range []*process{few, none, all} {
		p.signal(t, syscall.SIGINT)
		p.exits(t, exitFine)
	}
	got := slices.Sorted(strings.Lines(all.out.text()))
	if sorted := slices.Sorted(strings.Lines(want)); !slices.Equal(got, sorted) {
		t.Errorf("what is watched and what is listed differ: %s", firstDifference(strings.Join(sorted, ""), strings.Join(got, "")))
	}
}
