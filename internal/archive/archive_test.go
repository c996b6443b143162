package archive_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/archive"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
)

var names = archive.Names{Events: "data/events", Decisions: "data/decisions", Policies: "data/policies"}

// decide feeds a recording into a data directory and decides it, as another owner.
func decide(t testing.TB, data, recording string) {
	t.Helper()
	err := app.Run(t.Context(), app.Config{
		Data: app.Dir(data), Partitions: 3, Policies: "../../examples/policies",
		Feeds: []string{"../../testdata/recordings/" + recording + ".jsonl.gz"}, Evaluate: true, Ingest: true, ExitWhenDrained: true,
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readLogs opens the logs of a data directory.
func readLogs(t testing.TB, data string) audit.Logs {
	t.Helper()
	logs, err := app.Dir(data).OpenLogs(0, app.Access{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = logs.Close() })
	return logs.Audit()
}

func create(t testing.TB, dir string, logs audit.Logs, o archive.Options) (*archive.Manifest, error) {
	t.Helper()
	o.Now = time.Unix(1800000000, 5)
	return archive.Create(t.Context(), dir, archive.Source{Logs: logs, Names: names}, o)
}

func mustCreate(t testing.TB, dir string, logs audit.Logs) *archive.Manifest {
	t.Helper()
	m, err := create(t, dir, logs, archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func verify(t testing.TB, dir string) *archive.Report {
	t.Helper()
	r, err := archive.Verify(t.Context(), dir, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustBeWhole(t testing.TB, dir string) *archive.Report {
	t.Helper()
	r := verify(t, dir)
	if !r.Whole() {
		t.Fatalf("%s is not whole: %v, %+v", dir, r.Problems, r.Chains)
	}
	return r
}

// grown is a data directory and its archive of two ranges, to be read only.
func grown(t testing.TB) (data, dir string) {
	t.Helper()
	data, dir = filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "archive")
	decide(t, data, "plain")
	mustCreate(t, dir, readLogs(t, data))
	decide(t, data, "preempted")
	mustCreate(t, dir, readLogs(t, data))
	return data, dir
}

func readAll(t testing.TB, topic eventlog.Topic, p int, after eventlog.Position) []eventlog.Message {
	t.Helper()
	r, err := topic.Open(p, after)
	if err != nil {
		t.Fatalf("open after %v: %v", after, err)
	}
	defer r.Close()
	var all []eventlog.Message
	for {
		chunk := make([]eventlog.Message, 7)
		n, err := r.Read(chunk)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		all = append(all, chunk[:n]...)
	}
}

// TestGrows: an archive grows by what is new, verifies, and reads as the logs do.
func TestGrows(t *testing.T) {
	t.Parallel()
	data, dir := grown(t)
	logs := readLogs(t, data)
	if m := mustCreate(t, dir, logs); m != nil {
		t.Errorf("nothing is new, but it archived %+v", m)
	}
	r := mustBeWhole(t, dir)
	if r.Ranges != 2 || len(r.Chains) != 3 || r.Files == 0 || len(r.Unfinished) != 0 {
		t.Fatalf("%+v", r)
	}
	a, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ranges := a.Manifests()
	for i := range ranges {
		if got := len(ranges[i].Chains); got != len(r.Chains) {
			t.Fatalf("range %d has %d chains, want %d", i, got, len(r.Chains))
		}
	}
	for i, c := range r.Chains {
		want, err := audit.Verify(t.Context(), logs, c.Partition)
		if err != nil {
			t.Fatal(err)
		}
		first, second := ranges[0].Chains[i], ranges[1].Chains[i]
		if first.End != second.Begin || second.End != c.End || c.End.Running != want.Progress.Running.String() || c.Envelopes != want.Envelopes ||
			c.Derived != want.Messages || c.Derived != c.Events || c.End.Decided != want.Progress.Decisions || c.Decisions != want.Progress.Decisions || c.Ranges != 2 {
			t.Errorf("partition %d: %+v, the logs have %+v", c.Partition, c, want)
		}
	}
	for name, topics := range map[string][2]eventlog.Topic{
		"events":    {logs.Events, a.Join(audit.Logs{}).Events},
		"decisions": {logs.Decisions, a.Join(audit.Logs{}).Decisions},
		"policies":  {logs.Policies, a.Join(audit.Logs{}).Policies},
		"joined":    {logs.Decisions, a.Join(logs).Decisions},
	} {
		for p := range topics[0].Partitions() {
			want := readAll(t, topics[0], p, eventlog.Start)
			for i := -1; i < len(want); i += 1 + len(want)/9 {
				after := eventlog.Start
				if i >= 0 {
					after = want[i].Position
				}
				got := readAll(t, topics[1], p, after)
				if rest := want[i+1:]; len(rest)+len(got) > 0 && !reflect.DeepEqual(rest, got) {
					t.Fatalf("%s of partition %d after %v: %d messages, want %d, which are other ones", name, p, after, len(got), len(rest))
				}
			}
			end, err := topics[1].End(p)
			if len(want) == 0 || err != nil || end != want[len(want)-1].Position {
				t.Errorf("%s of partition %d end at %v (%v)", name, p, end, err)
			}
		}
	}
}

// TestSome: partitions may be archived at different times.
func TestSome(t *testing.T) {
	t.Parallel()
	data, dir := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "archive")
	decide(t, data, "plain")
	for _, partitions := range [][]int{{1}, {1, 0}, nil, {2}} {
		if _, err := create(t, dir, readLogs(t, data), archive.Options{Partitions: partitions}); err != nil {
			t.Fatal(err)
		}
		if partitions == nil {
			decide(t, data, "preempted")
		}
	}
	r := mustBeWhole(t, dir)
	got := ""
	for _, c := range r.Chains {
		got += fmt.Sprint(c.Partition, " in ", c.Ranges, "; ")
	}
	if got != "0 in 1; 1 in 1; 2 in 2; " || r.Ranges != 4 {
		t.Errorf("%d ranges: %s", r.Ranges, got)
	}
}

// TestRefuses: nothing is written over or beside what is no archive, and nobody adds to an archive
// that another one is adding to, or whose ranges are of other logs.
func TestRefuses(t *testing.T) {
	t.Parallel()
	data, dir := grown(t)
	other := filepath.Join(t.TempDir(), "other")
	decide(t, other, "preempted") // of "plain", it can have the very logs that the archive begins with
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.txt"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := create(t, foreign, readLogs(t, data), archive.Options{}); !errors.Is(err, archive.ErrProblem) || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("a directory of others: %v", err)
	}
	if _, err := create(t, dir, readLogs(t, other), archive.Options{}); err == nil {
		t.Error("a range of other logs was added")
	}
	var second error
	two, logs := filepath.Join(t.TempDir(), "two"), readLogs(t, data)
	if _, err := create(t, two, logs, archive.Options{Progress: func(string, int) { _, second = create(t, two, logs, archive.Options{}) }}); err != nil {
		t.Fatal(err)
	}
	if second == nil || !strings.Contains(second.Error(), "another process is adding") {
		t.Errorf("a second writer: %v", second)
	}
	mustBeWhole(t, two)
	mustBeWhole(t, dir)
}

// TestInterrupted: a copy that is interrupted is no part of the archive, and is continued.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	data, dir := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "archive")
	decide(t, data, "plain")
	logs := readLogs(t, data)
	total, steps := 0, 0
	count := func(what string, n int) {
		if steps++; strings.HasPrefix(what, "events") {
			total = max(total, n)
		}
	}
	if _, err := create(t, filepath.Join(t.TempDir(), "whole"), logs, archive.Options{Progress: count}); err != nil {
		t.Fatal(err)
	}
	all := steps
	for stop := 1; stop < all; stop++ {
		ctx, cancel := context.WithCancel(t.Context())
		steps = 0
		_, err := archive.Create(ctx, dir, archive.Source{Logs: logs, Names: names}, archive.Options{Progress: func(string, int) {
			if steps++; steps >= stop {
				cancel()
			}
		}})
		cancel()
		if !errors.Is(err, context.Canceled) {
			break // what is left takes fewer steps, because the rest was continued
		}
		if _, err := archive.Open(dir); err == nil {
			t.Fatalf("after %d steps there is an archive", stop)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 || !strings.Contains(left[0], "unfinished-000001") {
			t.Fatalf("after %d steps there are %v", stop, left)
		}
	}
	rest := 0
	if _, err := create(t, dir, logs, archive.Options{Progress: func(what string, n int) {
		if strings.HasPrefix(what, "events") {
			rest = max(rest, n)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	if rest >= total {
		t.Errorf("the last run copied %d of %d events: it did not continue", rest, total)
	}
	mustBeWhole(t, dir)
}

// TestInterruptedElsewhere: the unfinished copy of something else is not continued.
func TestInterruptedElsewhere(t *testing.T) {
	t.Parallel()
	data, other, dir := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "other"), filepath.Join(t.TempDir(), "archive")
	decide(t, data, "plain")
	decide(t, other, "preempted")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := archive.Create(ctx, dir, archive.Source{Logs: readLogs(t, other), Names: names}, archive.Options{Progress: func(string, int) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// Of other partitions: it is begun anew.
	if _, err := create(t, dir, readLogs(t, data), archive.Options{Partitions: []int{0, 2}}); err != nil {
		t.Fatal(err)
	}
	mustBeWhole(t, dir)
	// Of other logs under the same names: it is found, and not archived.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	second := filepath.Join(t.TempDir(), "second")
	_, err = archive.Create(ctx, second, archive.Source{Logs: readLogs(t, other), Names: names}, archive.Options{Progress: func(string, int) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err = create(t, second, readLogs(t, data), archive.Options{}); err == nil || !strings.Contains(err.Error(), "remove its directory") && !strings.Contains(err.Error(), "known to be durable only up to") {
		t.Errorf("a mixture of two logs: %v", err)
	}
	if ranges, _ := filepath.Glob(filepath.Join(second, "0*")); len(ranges) != 0 {
		t.Errorf("it was archived: %v", ranges)
	}
}

// filesOf lists the files of an archive.
func filesOf(t testing.TB, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			files = append(files, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}
