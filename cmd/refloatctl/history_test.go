package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/model"
)

const (
	partitions = 3
	// historyStart is where the generated histories begin.
	historyStart = "2026-08-21T12:00:00Z"
	window       = 3 * time.Hour
)

func recordingFile(name string) string {
	return filepath.Join("..", "..", "testdata", "recordings", name+".jsonl.gz")
}

var recordings = []string{"plain", "chaos", "retried", "preempted"}

// history is a long history: copies of the real recordings with job ids and job
// sets of their own, and many random ones, side by side in time.
type history struct {
	file     string
	messages [partitions][]model.Message
	real     map[string]bool // first characters of the job ids of real jobs
	total    int
	times    []int64 // by which the messages stand in order, of all partitions
}

// stream is the messages of one history in one partition.
type stream []model.Message

// makeHistory writes a recording of so many copies of the real recordings and
// so many random histories.
func makeHistory(t *testing.T, seed uint64, copies, random int) *history {
	t.Helper()
	h := &history{file: filepath.Join(t.TempDir(), fmt.Sprintf("long-%d.jsonl.gz", seed)), real: map[string]bool{}}
	var streams [partitions][]stream
	start := parseTime(t, historyStart).UnixNano()
	for c := range copies {
		for i, name := range recordings {
			id := fmt.Sprintf("r%04d", c*len(recordings)+i)
			h.real[id] = true
			at := start + int64(float64(window)*0.95*float64(c*len(recordings)+i)/float64(copies*len(recordings)))
			for p, s := range copyRecording(t, recordingFile(name), id, at) {
				streams[p] = append(streams[p], s)
			}
		}
	}
	for n := 0; n < random; seed++ {
		g := model.Generate(seed, model.Options{})
		if first, last := g.Messages[0].Publish, g.Messages[len(g.Messages)-1].Publish; last-first > int64(window)/2 {
			continue // it would only wait
		}
		p := 1
		if n%4 == 3 {
			p = 2
		}
		streams[p] = append(streams[p], renameRandom(g.Messages, n))
		n++
	}
	h.merge(t, streams)
	return h
}

// copyRecording copies a real recording under another beginning of its job ids
// and other job sets, moved in time. Its partitions 1 and 2 become one.
func copyRecording(t *testing.T, file, id string, at int64) [partitions]stream {
	t.Helper()
	entries, err := recording.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	shift := (at - entries[0].Message.Publish) / 1e9
	var out [partitions]stream
	for _, e := range entries {
		var seq pb.EventSequence
		if err := proto.Unmarshal(e.Message.Payload, &seq); err != nil {
			t.Fatal(err)
		}
		seq.JobSetName += "-" + id
		for _, ev := range seq.Events {
			if ev.Created != nil {
				ev.Created.Seconds += shift
			}
		}
		payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(&seq)
		if err != nil {
			t.Fatal(err)
		}
		p := min(e.Partition, 1) * 2
		out[p] = append(out[p], model.Message{Publish: e.Message.Publish + shift*1e9, Payload: bytes.ReplaceAll(payload, []byte("01m7x"), []byte(id))})
	}
	return out
}

// renameRandom gives the jobs and job sets of a random history unique names of the same length, so that mangled
// messages stay mangled.
func renameRandom(messages []model.Message, n int) stream {
	job, set := fmt.Appendf(nil, "g%04d", n), fmt.Appendf(nil, "%04d", n)
	var out stream
	for _, m := range messages {
		m.Payload = bytes.ReplaceAll(bytes.ReplaceAll(m.Payload, []byte("01job"), job), []byte("set-"), set)
		out = append(out, m)
	}
	return out
}

// merge puts the streams together by time, as far as the order in each allows,
// gives positions and writes the recording.
func (h *history) merge(t *testing.T, streams [partitions][]stream) {
	t.Helper()
	type timed struct {
		partition int
		at        int64
		message   model.Message
	}
	var all []timed
	for p := range streams {
		for _, s := range streams[p] {
			at := int64(math.MinInt64)
			for _, m := range s {
				at = max(at, m.Publish)
				all = append(all, timed{p, at, m})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
	var entries []recording.Entry
	for _, x := range all {
		h.times = append(h.times, x.at)
		i := int64(len(h.messages[x.partition]))
		x.message.Ledger, x.message.Entry, x.message.Batch = 7+i/1000, i%1000/2, int32(i%2)
		h.messages[x.partition] = append(h.messages[x.partition], x.message)
		entries = append(entries, entryOf(x.partition, x.message))
	}
	h.total = len(all)
	writeRecording(t, h.file, entries)
}

func entryOf(p int, m model.Message) recording.Entry {
	return recording.Entry{Partition: p, Producer: "test", Message: eventlog.Message{
		Position: eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}, Publish: m.Publish, Key: "key", Payload: m.Payload,
	}}
}

func writeRecording(t *testing.T, path string, entries []recording.Entry) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := recording.NewWriter(f)
	for _, e := range entries {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// messagesOf are a recording's messages by partition, as the model reads them.
func messagesOf(t *testing.T, file string) [partitions][]model.Message {
	t.Helper()
	entries, err := recording.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out [partitions][]model.Message
	for _, e := range entries {
		m := &e.Message
		out[e.Partition] = append(out[e.Partition], model.Message{
			Ledger: m.Position.Ledger, Entry: m.Position.Entry, Batch: m.Position.Batch, Publish: m.Publish, Payload: m.Payload,
		})
	}
	return out
}

// makePolicies is a random policy set for the queues of the long history. It
// decides and forgets much.
func makePolicies(seed uint64) model.Policies {
	for ; ; seed++ {
		p := model.Generate(seed, model.Options{}).Policies
		if len(p.Policies) < 3 || len(p.Queues) < 2 || p.Settings == nil {
			continue
		}
		s := *p.Settings
		s.Enabled, s.Mode, s.PausedUntil = nil, "", 0
		s.GlobalMaxRetries = new(3 + int(seed%5))
		s.HorizonMs = new((20 + int64(seed%4)*10) * 60_000)
		p.Settings = &s
		for i, q := range []string{"vision-train", "genomics", "risk-batch"} {
			p.Queues = append(p.Queues, model.Queue{
				Name: q, RetryPolicies: []string{p.Policies[i%len(p.Policies)].Name, p.Policies[(i+1)%len(p.Policies)].Name},
			})
		}
		return p
	}
}

// writePolicies makes a directory hold a policy set and nothing else, in one
// file that is there as a whole or not at all.
func writePolicies(t *testing.T, dir string, p model.Policies) *policyfile.Set {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := p.YAML(false)
	if len(files) != 1 {
		t.Fatalf("%d files", len(files))
	}
	whole := writeFile(t, dir+"-next", files[0].Name, string(files[0].Data))
	if err := os.Rename(whole, filepath.Join(dir, files[0].Name)); err != nil {
		t.Fatal(err)
	}
	set, err := policyfile.Parse([]policyfile.File{{Name: files[0].Name, Data: files[0].Data}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func parseTime(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
