package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/test/model"
)

// TestBadInput feeds a real recording with everything among its messages that
// no honest producer sends. Nothing of it is lost, blocks the others or
// panics: what cannot be used is parked with its bytes, everything else is
// decided as the naive model decides it, and the job database follows.
func TestBadInput(t *testing.T) {
	t.Parallel()
	seed := killSeed(t)
	t.Logf("SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	broken, odd := brokenMessages(t, rng), oddMessages(t, rng)
	h := &history{file: filepath.Join(t.TempDir(), "bad.jsonl.gz")}
	h.mix(t, rng, broken, odd)
	dir, policies := filepath.Join(t.TempDir(), "policies"), makePolicies(seed)
	digest := writePolicies(t, dir, policies).Digest()
	data := filepath.Join(t.TempDir(), "data")

	r := ctl(t, "up", "--data", data, "--policies", dir, "--allow-empty", "--feed", h.file, "--exit-when-drained").exits(t, exitFine)
	r.prints(t, "parked: ")
	if strings.Contains(r.err, "ERROR") || strings.Contains(r.err, "WARN") {
		t.Errorf("up complains:\n%s", tailOf(r.err))
	}
	ctl(t, "verify", "--data", data).exits(t, exitFine).prints(t, "0 messages not decided yet; ignored: none")
	sum := followed(t, data, h.messages, map[string]model.Policies{string(digest[:]): policies}, func(string) bool { return false })
	all := ctl(t, "replay", "--log", app.Dir(data).Events(), "--policies", dir, "-o", "json", "--all").exits(t, exitFine).out
	got := ctl(t, "get", "decisions", "--data", data, "-o", "json", "--all").exits(t, exitFine).out
	if w, g := sortedLines(all), sortedLines(got); w != g {
		t.Errorf("get decisions and replay differ: %s", firstDifference(w, g))
	}
	wholeParked(t, broken, got)
	jobs := ctl(t, "get", "jobs", "--data", data, "-o", "json").exits(t, exitFine).out
	for line := range strings.Lines(jobs) {
		jsonLine(t, line)
	}
	// People see one line for a job, whatever its name holds.
	table := ctl(t, "get", "jobs", "--data", data).exits(t, exitFine).out
	if lines, jobs := strings.Count(table, "\n"), strings.Count(jobs, "\n"); lines != jobs+1 || strings.ContainsAny(table, rewriting) {
		t.Errorf("%d lines for %d jobs", lines, jobs)
	}
	for i := range oddNames {
		job := fmt.Sprintf("odd-%d", i)
		for _, args := range [][]string{{"explain", job}, {"get", "job", job}} {
			if r := ctl(t, append(args, "--data", data)...).exits(t, exitFine).prints(t, job); strings.ContainsAny(r.out, rewriting+"\u202e") {
				t.Errorf("%s prints a name as it stands: %q", strings.Join(args, " "), tailOf(r.out))
			}
		}
	}
	t.Logf("%d messages, %d of them broken, %d sorts of odd ones; %v", sum.messages, len(broken), len(odd), sum.kinds)
}

// wholeParked checks that each message that no protobuf reader can read is
// parked as it was.
func wholeParked(t *testing.T, broken [][]byte, lines string) {
	t.Helper()
	parked := map[string]int{}
	for line := range strings.Lines(lines) {
		if o := jsonLine(t, line); o.text("record") == "Parked" && o["event"] == nil {
			b, err := base64.StdEncoding.DecodeString(o.text("raw"))
			if err != nil {
				t.Fatal(err)
			}
			parked[string(b)]++
		}
	}
	whole := 0
	for _, b := range broken {
		if proto.Unmarshal(b, &pb.EventSequence{}) != nil {
			if whole++; parked[string(b)] == 0 {
				t.Errorf("a message of %d bytes is not parked: %.40x…", len(b), b)
			}
			parked[string(b)]--
		}
	}
	if whole < 20 {
		t.Errorf("only %d unreadable messages", whole)
	}
}

// oddNames are names of job sets and, numbered, of their jobs.
var oddNames = []string{
	"作业集 ☃ \U0001F680", "  spaces around  ", `quotes " ' ` + "`", "nul\x00inside", "\x00", "line\nbreak\ttab\r", "../../etc/passwd",
	"%s%d%!", "<script>&amp;", "\x1b[31mred\x1b[0m", "\u202eright to left", "\ufeffbom", "'; DROP TABLE jobs; --", strings.Repeat("long", 16<<10),
}

// brokenMessages are bytes that are not what an honest producer encodes.
func brokenMessages(t *testing.T, rng *rand.Rand) [][]byte {
	t.Helper()
	entries, err := recording.ReadFile(recordingFile("chaos"))
	if err != nil {
		t.Fatal(err)
	}
	recorded := func() []byte { return entries[rng.IntN(len(entries))].Message.Payload }
	all := [][]byte{{}, {0}, {0xff}, bytes.Repeat([]byte{0xff}, 4<<20), bytes.Repeat([]byte{0x80}, 11)}
	for n := 1; n < 5000; n *= 2 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		all = append(all, b)
	}
	for range 40 {
		truncated := recorded()
		truncated = truncated[:rng.IntN(len(truncated))]
		flipped := bytes.Clone(recorded())
		flipped[rng.IntN(len(flipped))] ^= 1 << rng.IntN(8)
		cut := recorded()
		at := rng.IntN(len(cut))
		all = append(all, truncated, flipped, slices.Concat(cut[:at], cut[rng.IntN(len(cut)):]))
	}
	// Unknown kinds of event, alone and beside a failure.
	failure, err := proto.Marshal(failedRun("unknown-kind", "run-0", 0, "boom"))
	if err != nil {
		t.Fatal(err)
	}
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 777, protowire.BytesType), []byte("from the future"))
	return append(all, sequenceOf("set", unknown, failure, slices.Concat(failure, unknown), unknown), sequenceOf("bad \xff set", failure))
}

// sequenceOf is an EventSequence, by hand.
func sequenceOf(set string, events ...[]byte) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "genomics")
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), set)
	for _, ev := range events {
		b = protowire.AppendBytes(protowire.AppendTag(b, 5, protowire.BytesType), ev)
	}
	return b
}

// oddMessages are protobuf, and odd. Their order is that of their jobs' lives.
func oddMessages(t *testing.T, rng *rand.Rand) [][]byte {
	t.Helper()
	var all [][]byte
	encode := func(queue, set string, events ...*pb.Event) {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&pb.EventSequence{Queue: queue, JobSetName: set, Events: events})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	queue := func() string { return []string{"genomics", "vision-train", "risk-batch"}[rng.IntN(3)] }
	life := func(set, job, policies, message string) {
		q := queue()
		encode(q, set, submitted(job, map[string]string{"armadaproject.io/retry-policy": policies}), leasedRun(job, "run-0"))
		encode(q, set, failedRun(job, "run-0", 1, message))
	}
	for i, name := range oddNames {
		life(name, fmt.Sprintf("odd-%d", i), "", "boom "+name)
		life("set", name, strings.TrimSpace(name), "boom")
	}
	life("set", "huge-message", "", strings.Repeat("4 MiB of words ", 4<<20/15))
	life("set", "many-policies", strings.Repeat("nobody,", 10_000)+"x", "boom")
	encode(queue(), "set", submitted("big", map[string]string{"note": strings.Repeat("x", 4<<20)}))
	encode(queue(), "set")
	encode(queue(), "", leasedRun("nobody", "run-0"))
	encode("", "set", leasedRun("nobody", "run-0"))
	for range 10 {
		encode(queue(), "set", failedRun(fmt.Sprintf("nobody-%d", rng.IntN(4)), "run-0", 1, "who?"))
	}
	var nameless []*pb.Event
	for range 300 {
		nameless = append(nameless, failedRun("", "", 1, ""), failedRun("somebody", "", 1, ""), &pb.Event{})
	}
	encode(queue(), "set", nameless...)
	for i, seconds := range []int64{0, -1, 1, math.MaxInt64, math.MinInt64, 253402300800, -62135596801, 1 << 33} {
		job := fmt.Sprintf("clock-%d", i)
		events := []*pb.Event{submitted(job, nil), leasedRun(job, "run-0"), failedRun(job, "run-0", 1, "late")}
		for _, ev := range events {
			ev.Created = &pb.Timestamp{Seconds: seconds, Nanos: []int32{0, math.MinInt32, math.MaxInt32}[i%3]}
		}
		encode(queue(), "clocks", events...)
	}
	return all
}

func submitted(job string, annotations map[string]string) *pb.Event {
	return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: job, ObjectMeta: &pb.ObjectMeta{Annotations: annotations}}}}
}

func leasedRun(job, run string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: job, RunId: run, NodeId: "node \"1\"\xff"}}}
}

func failedRun(job, run string, code int32, message string) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: job, RunId: run, Errors: []*pb.Error{{
		Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{Message: message, ContainerErrors: []*pb.ContainerError{{
			ObjectMeta: &pb.ObjectMeta{Name: "main\x00\xfe"}, ExitCode: code, Message: message, Reason: "Error",
		}}}},
	}}}}}
}

// mix puts messages among those of a real recording, at random places but in
// their order, some with a clock of their own: a third of the broken ones and all
// odd ones into each partition, the huge ones into one.
func (h *history) mix(t *testing.T, rng *rand.Rand, broken, odd [][]byte) {
	t.Helper()
	recorded := messagesOf(t, recordingFile("chaos"))
	var entries []recording.Entry
	for p := range recorded {
		mine := slices.Clone(odd)
		if p > 0 { // the huge ones once
			mine = slices.DeleteFunc(mine, func(b []byte) bool { return len(b) > 1<<20 })
		}
		for i := p; i < len(broken); i += partitions {
			mine = slices.Insert(mine, rng.IntN(len(mine)+1), broken[i])
		}
		places := make([]int, len(mine))
		for i := range places {
			places[i] = rng.IntN(len(recorded[p]) + 1)
		}
		slices.Sort(places)
		for i := range len(recorded[p]) + 1 {
			for len(places) > 0 && places[0] == i {
				m := model.Message{Publish: recorded[p][min(i, len(recorded[p])-1)].Publish, Payload: mine[0]}
				if rng.IntN(20) == 0 {
					m.Publish += rng.Int64N(48*3600e9) - 24*3600e9
				}
				h.messages[p] = append(h.messages[p], m)
				places, mine = places[1:], mine[1:]
			}
			if i < len(recorded[p]) {
				h.messages[p] = append(h.messages[p], recorded[p][i])
			}
		}
		for i := range h.messages[p] {
			m := &h.messages[p][i]
			m.Ledger, m.Entry, m.Batch = 3, int64(i), -1
			entries = append(entries, entryOf(p, *m))
		}
	}
	writeRecording(t, h.file, entries)
}
