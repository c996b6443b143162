package app_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

func recordingFile(name string) string {
	return filepath.Join("..", "..", "testdata", "recordings", name+".jsonl.gz")
}

func entriesOf(t *testing.T, file string) []recording.Entry {
	t.Helper()
	entries, err := recording.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func memLog(t *testing.T, partitions int) *filelog.Log {
	t.Helper()
	log, err := filelog.Open(filelog.Config{FS: vfs.NewMem(), Dir: "events", Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return log
}

func readAll(t *testing.T, topic eventlog.Topic, p int) []eventlog.Message {
	t.Helper()
	r, err := topic.Open(p, eventlog.Start)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all []eventlog.Message
	chunk := make([]eventlog.Message, 256)
	for {
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

// holds checks that a log holds a recording's messages, each once, in order.
func holds(t *testing.T, log eventlog.Topic, name string, entries []recording.Entry) {
	t.Helper()
	for p := range log.Partitions() {
		got := readAll(t, log, p)
		want := slices.DeleteFunc(slices.Clone(entries), func(e recording.Entry) bool { return e.Partition != p })
		got = slices.DeleteFunc(got, func(m eventlog.Message) bool { return m.Origin.Recording != name })
		if len(got) != len(want) {
			t.Fatalf("partition %d holds %d messages, want %d", p, len(got), len(want))
		}
		for i, m := range got {
			w := &want[i].Message
			if m.Origin != w.Origin || m.Key != w.Key || string(m.Payload) != string(w.Payload) {
				t.Fatalf("partition %d: message %d is %v, want %v", p, i, m.Origin, w.Origin)
			}
		}
	}
}

// TestFeedResumes checks that an interrupted feed continues where it stopped, at a different position in each
// partition, and next to messages of other recordings.
func TestFeedResumes(t *testing.T) {
	t.Parallel()
	file := recordingFile("chaos")
	entries := entriesOf(t, file)
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		log := memLog(t, 3)
		already := 0
		for p := range 3 {
			if err := log.Append(p, []eventlog.Message{{Payload: []byte("not fed")}}); err != nil {
				t.Fatal(err)
			}
			left := rng.IntN(230)
			for _, e := range entries {
				if e.Partition != p || left == 0 {
					continue
				}
				left--
				already++
				m := e.Message
				if err := log.Append(p, []eventlog.Message{m, {Origin: eventlog.Origin{Recording: "other", Position: m.Position}}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		f := app.Feed{File: file, Log: log}
		written, err := f.Run(t.Context())
		if err != nil || written != len(entries)-already {
			t.Fatalf("seed %d: Run = %d, %v; want %d", seed, written, err, len(entries)-already)
		}
		holds(t, log, "chaos", entries)
		if written, err := f.Run(t.Context()); written != 0 || err != nil {
			t.Fatalf("seed %d: again Run = %d, %v", seed, written, err)
		}
	}
}

// TestFeedCancelled checks that a cancelled feed ends with complete batches, and that a later one continues.
func TestFeedCancelled(t *testing.T) {
	t.Parallel()
	file := recordingFile("chaos")
	entries := entriesOf(t, file)
	log := memLog(t, 3)
	for rounds := 0; ; rounds++ {
		ctx, cancel := context.WithCancel(t.Context())
		f := app.Feed{File: file, Log: log, Progress: func(int) { cancel() }}
		_, err := f.Run(ctx)
		cancel()
		if err := log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err == nil || rounds > 10 {
			t.Fatalf("after %d rounds: %v", rounds, err)
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		fed := 0
		for p := range 3 {
			fed += len(readAll(t, log, p))
		}
		if fed == len(entries) {
			break
		}
	}
	holds(t, log, "chaos", entries)
}

// TestFeedPaced: a paced feed takes as long as the recording did, divided by
// the pace, and each message comes at its time.
func TestFeedPaced(t *testing.T) {
	t.Parallel()
	file := recordingFile("chaos")
	entries := entriesOf(t, file)
	first, last := entries[0].Message.Publish, entries[len(entries)-1].Message.Publish
	synctest.Test(t, func(t *testing.T) {
		const pace = 2.5
		log := memLog(t, 3)
		start := time.Now()
		f := app.Feed{File: file, Log: log, Pace: pace, Now: time.Now}
		written, err := f.Run(t.Context())
		if err != nil || written != len(entries) {
			t.Fatalf("Run = %d, %v", written, err)
		}
		if took, want := time.Since(start), time.Duration(float64(last-first)/pace); took < want || took > want+time.Second {
			t.Errorf("it took %v, want %v", took, want)
		}
		holds(t, log, "chaos", entries)
		next, latest := [3][]eventlog.Message{readAll(t, log, 0), readAll(t, log, 1), readAll(t, log, 2)}, first
		for _, e := range entries {
			p, m := e.Partition, next[e.Partition][0]
			next[p] = next[p][1:]
			latest = max(latest, m.Origin.Publish) // a line whose time is before that of the line before is not waited for
			if came, due := time.Unix(0, m.Publish).Sub(start), time.Duration(float64(latest-first)/pace); came < due || came > due+time.Millisecond {
				t.Errorf("message %v of partition %d came after %v, due after %v", m.Origin.Position, p, came, due)
			}
		}

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		f = app.Feed{File: file, Log: memLog(t, 3), Pace: 1, Now: time.Now}
		start = time.Now()
		if _, err := f.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("cancelled while it waits: %v after %v", err, time.Since(start))
		}
	})
}

func TestFeedMistakes(t *testing.T) {
	t.Parallel()
	f := app.Feed{File: recordingFile("chaos"), Log: memLog(t, 2)}
	if _, err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "partition 2, but the log has 2 partitions") {
		t.Errorf("too few partitions: %v", err)
	}
	broken := filepath.Join(t.TempDir(), "broken.jsonl.gz")
	b, err := os.ReadFile(recordingFile("chaos"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken, b[:len(b)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := (&app.Feed{File: broken, Log: memLog(t, 3)}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), broken) {
		t.Errorf("half a file: %v", err)
	}
	if _, _, err := app.Survey(broken); err == nil {
		t.Error("Survey counts half a file")
	}
	if messages, partitions, err := app.Survey(recordingFile("chaos")); messages != 630 || partitions != 3 || err != nil {
		t.Errorf("Survey = %d, %d, %v", messages, partitions, err)
	}
}
