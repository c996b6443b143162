package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

// publishAt is the publish time of the i-th message of historyLog.
func publishAt(i int) time.Time { return time.Unix(1_700_000_000+int64(i), 0).UTC() }

// historyLog is a log of three partitions: message i goes to partition i%2, the
// third stays empty.
func historyLog(t *testing.T, n int) *filelog.Log {
	t.Helper()
	next := 0
	log, err := filelog.Open(filelog.Config{
		FS: vfs.NewMem(), Dir: "log", Partitions: 3, Manual: true,
		Now: func() time.Time { return publishAt(next) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	for ; next < n; next++ {
		add(t, log, next)
	}
	return log
}

func add(t *testing.T, log *filelog.Log, i int) {
	t.Helper()
	m := eventlog.Message{Key: "set", Payload: fmt.Appendf(nil, "message %d", i), Properties: []eventlog.Property{{Key: "i", Value: fmt.Sprint(i)}}}
	if err := log.AppendSync(t.Context(), i%2, []eventlog.Message{m}); err != nil {
		t.Fatal(err)
	}
}

// recordInto records a topic as the command does.
func recordInto(t *testing.T, topic eventlog.Topic, out string, f recordFlags) (r *recorder, notes string, err error) {
	t.Helper()
	f.topic, f.out = "x", out
	if f.from == "" {
		f.from = fromEarliest
	}
	if f.to == "" {
		f.to = toNow
	}
	s, err := f.span()
	if err != nil {
		return nil, "", err
	}
	partitions, err := choose(f.partition, topic.Partitions(), s)
	if err != nil {
		return nil, "", err
	}
	to, err := openTarget(out, "t/n/x", topic.Partitions())
	if err != nil {
		return nil, "", err
	}
	r = &recorder{
		topic: topic, partitions: partitions, span: s, to: to, progress: func(int, int64) {},
		note: func(format string, args ...any) { notes += fmt.Sprintf(format+"\n", args...) },
	}
	err = r.run(t.Context())
	return r, notes, errors.Join(err, to.close(err == nil))
}

// recorded are the numbers of the messages in a recording.
func recorded(t *testing.T, file string) (numbers []int) {
	t.Helper()
	entries, err := recording.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var i int
		if _, err := fmt.Sscanf(string(e.Message.Payload), "message %d", &i); err != nil {
			t.Fatal(err)
		}
		if e.Partition != i%2 || e.Message.Key != "set" || e.Message.Publish != publishAt(i).UnixNano() {
			t.Errorf("entry %d is %+v", i, e)
		}
		numbers = append(numbers, i)
	}
	return numbers
}

func through(from, to, step int) []int {
	var all []int
	for i := from; i <= to; i += step {
		all = append(all, i)
	}
	return all
}

func TestRecordSpans(t *testing.T) {
	t.Parallel()
	log := historyLog(t, 20)
	at := func(i int) string { return publishAt(i).Format(time.RFC3339) }
	position := func(i int) string { return eventlog.Position{Entry: int64(i / 2)}.String() } // an entry for each commit
	for _, c := range []struct {
		name string
		f    recordFlags
		want []int
	}{
		{"all", recordFlags{partition: allOfThem}, through(0, 19, 1)},
		{"one partition", recordFlags{partition: 1}, through(1, 19, 2)},
		{"an empty partition", recordFlags{partition: 2}, nil},
		{"from a time", recordFlags{partition: allOfThem, from: at(7)}, through(7, 19, 1)},
		{"to a time", recordFlags{partition: allOfThem, to: at(7)}, through(0, 7, 1)},
		{"between times", recordFlags{partition: allOfThem, from: at(3), to: at(12)}, through(3, 12, 1)},
		{"a moment", recordFlags{partition: allOfThem, from: at(3), to: at(3)}, []int{3}},
		{"nothing", recordFlags{partition: allOfThem, from: at(100)}, nil},
		{"before everything", recordFlags{partition: allOfThem, to: at(-5)}, nil},
		{"from a position", recordFlags{partition: 1, from: position(7)}, through(7, 19, 2)},
		{"to a position", recordFlags{partition: 0, to: position(8)}, through(0, 8, 2)},
		{"one position", recordFlags{partition: 0, from: position(8), to: position(8)}, []int{8}},
		{"position to time", recordFlags{partition: 0, from: position(8), to: at(13)}, through(8, 12, 2)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "x.jsonl.gz")
			r, notes, err := recordInto(t, log, out, c.f)
			if err != nil || notes != "" {
				t.Fatalf("%v, notes %q", err, notes)
			}
			if diff := cmp.Diff(c.want, recorded(t, out)); diff != "" {
				t.Error(diff)
			}
			if r.written != len(c.want) {
				t.Errorf("says %d messages, wrote %d", r.written, len(c.want))
			}
			if _, err := os.Stat(out + ".partial"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a partial recording stays: %v", err)
			}
		})
	}
}

func TestRecordRefuses(t *testing.T) {
	t.Parallel()
	log := historyLog(t, 20)
	dir := t.TempDir()
	file := filepath.Join(dir, "there.jsonl.gz")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fed := filepath.Join(dir, "fed")
	l, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: fed, Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AppendSync(t.Context(), 1, []eventlog.Message{{Payload: []byte("x"), Origin: eventlog.Origin{Recording: "plain"}}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, out string
		f         recordFlags
		want      string
	}{
		{"a recording that is there", file, recordFlags{partition: allOfThem}, "already exists"},
		{"a file that is no recording", other, recordFlags{partition: allOfThem}, "is a file"},
		{"a log of something else", fed, recordFlags{partition: allOfThem}, "contains another topic (plain), not t/n/x"},
		{"a position of which partition", dir + "/a.jsonl.gz", recordFlags{partition: allOfThem, from: "0:1:0"}, "choose one with --partition"},
		{"no such partition", dir + "/b.jsonl.gz", recordFlags{partition: 3}, "the topic has 3 partitions"},
		{"after the end", dir + "/c.jsonl.gz", recordFlags{partition: 0, to: "0:99:0"}, "--to 0:99:0 is after the end of the topic, 0:9:0"},
		{"from after the end", dir + "/d.jsonl.gz", recordFlags{partition: 0, from: "0:99:0"}, "partition 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := recordInto(t, log, c.out, c.f); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("record = %v, want %q", err, c.want)
			}
			if _, err := os.Stat(c.out); strings.HasPrefix(c.want, "partition") && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("what is not complete has its name: %v", err)
			}
		})
	}
}

// TestRecordResumes: into a directory, in parts, is the same as at once.
func TestRecordResumes(t *testing.T) {
	t.Parallel()
	whole := historyLog(t, 30)
	dir := filepath.Join(t.TempDir(), "copy")
	total := 0
	for _, to := range []int{0, 5, 6, 17, 17, 100} {
		r, _, err := recordInto(t, whole, dir, recordFlags{partition: allOfThem, to: publishAt(to).Format(time.RFC3339)})
		if err != nil {
			t.Fatal(err)
		}
		total += r.written
		if want := min(to+1, 30); total != want {
			t.Fatalf("after message %d: wrote %d, want %d", to, total, want)
		}
	}
	copyOf, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer copyOf.Close()
	for p := range 3 {
		want, got := messagesIn(t, whole, p), messagesIn(t, copyOf, p)
		for i := range got {
			o := got[i].Origin
			got[i].Position, got[i].Publish, got[i].Origin = o.Position, o.Publish, eventlog.Origin{}
			if o.Recording != "t/n/x" {
				t.Fatalf("partition %d, message %d: origin %+v", p, i, o)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("partition %d:\n%s", p, diff)
		}
	}
}

func messagesIn(t *testing.T, log eventlog.Topic, p int) []eventlog.Message {
	t.Helper()
	r, err := log.Open(p, eventlog.Start)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all []eventlog.Message
	chunk := make([]eventlog.Message, 7)
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

// TestRecordFollows checks that --follow records new messages until it is interrupted.
func TestRecordFollows(t *testing.T) {
	t.Parallel()
	log := historyLog(t, 4)
	dir := filepath.Join(t.TempDir(), "copy")
	to, err := openTarget(dir, "t/n/x", 3)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan int, 100)
	r := &recorder{topic: log, partitions: []int{0, 1, 2}, span: span{follow: true}, to: noticing{to, written}, note: t.Errorf, progress: func(int, int64) {}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.run(ctx) }()
	for i := range 8 {
		if i >= 4 {
			add(t, log, i)
		}
		select {
		case <-written:
		case <-time.After(limit):
			t.Fatalf("message %d was not written", i)
		}
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) || r.written != 8 {
		t.Errorf("run = %v after %d messages", err, r.written)
	}
	if err := to.close(true); err != nil {
		t.Error(err)
	}
}

// noticing calls back for each message written.
type noticing struct {
	target
	written chan<- int
}

func (n noticing) write(p int, m *eventlog.Message) error {
	n.written <- p
	return n.target.write(p, m)
}

// broken fails in the middle of a partition.
type broken struct{ eventlog.Topic }

func (b broken) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	r, err := b.Topic.Open(p, after)
	return &brokenReader{r, 0}, err
}

type brokenReader struct {
	eventlog.Reader
	n int
}

func (r *brokenReader) Read(dst []eventlog.Message) (int, error) {
	if r.n++; r.n > 3 {
		return 0, fmt.Errorf("it was trimmed: %w", eventlog.ErrTrimmed)
	}
	return r.Reader.Read(dst[:1])
}

// TestRecordDamage: an error names its place, and what was recorded before is kept
// under another name.
func TestRecordDamage(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "x.jsonl.gz")
	_, _, err := recordInto(t, broken{historyLog(t, 20)}, out, recordFlags{partition: 0})
	if !errors.Is(err, eventlog.ErrTrimmed) || !strings.Contains(err.Error(), "partition 0 after 0:2:0") || !strings.Contains(err.Error(), "x.jsonl.gz.partial") {
		t.Errorf("record = %v", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not complete has its name: %v", err)
	}
	if err := os.Rename(out+".partial", out); err != nil {
		t.Fatal(err)
	}
	if got := recorded(t, out); len(got) != 3 {
		t.Errorf("kept %v", got)
	}
}

// TestRecordTrimmed: where the history begins is said, when it is no longer whole.
func TestRecordTrimmed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "log")
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, Partitions: 1, SegmentBytes: 200})
	if err != nil {
		t.Fatal(err)
	}
	const n = 10
	for i := range n {
		if err := log.AppendSync(t.Context(), 0, []eventlog.Message{{Payload: fmt.Appendf(nil, "message %d", 2*i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(segments(t, dir)[0]); err != nil {
		t.Fatal(err)
	}
	if log, err = filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r, notes, err := recordInto(t, log, filepath.Join(t.TempDir(), "x.jsonl.gz"), recordFlags{partition: allOfThem})
	if err != nil || r.written == 0 || r.written >= n || !strings.Contains(notes, "partition 0 begins after 0:") || !strings.Contains(notes, "earlier messages have expired") {
		t.Errorf("recorded %d messages, notes %q, %v", r.written, notes, err)
	}
	// No note is printed for a range that is complete.
	from := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if _, notes, err = recordInto(t, log, filepath.Join(t.TempDir(), "x.jsonl.gz"), recordFlags{partition: allOfThem, from: from}); err != nil || notes != "" {
		t.Errorf("notes %q, %v", notes, err)
	}
}
