package writer_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/sink"
)

// spoiled is a recording in which a part of all texts is bad: ids, queues, job sets,
// nodes, pools, executors, users, reasons, messages, annotations. A bad text is bad
// everywhere. Some are too long, some contain NUL or U+001A, some are not UTF-8.
func spoiled(t *testing.T, name string, seed uint64) []recording.Entry {
	t.Helper()
	entries, err := recording.ReadFile(filepath.Join(recordings, name+".jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, 5))
	noise := make([]byte, 6000)
	for i := range noise {
		noise[i] = 'a' + byte(random.IntN(26))
	}
	messages := make([]*pb.EventSequence, len(entries))
	in := map[string]int{} // number of messages with a text
	for i := range entries {
		seq := &pb.EventSequence{}
		if err := proto.Unmarshal(entries[i].Message.Payload, seq); err != nil {
			continue // some recorded texts are bad already
		}
		messages[i] = seq
		seen := map[string]bool{}
		eachText(seq.ProtoReflect(), func(text string) string { seen[text] = true; return text })
		for text := range seen {
			in[text]++
		}
	}
	huge, bad := 0, 0
	for i, seq := range messages {
		if seq == nil {
			continue
		}
		swaps := map[string]string{}
		eachText(seq.ProtoReflect(), func(text string) string {
			h := fnv.New64a()
			fmt.Fprint(h, seed, text)
			of := uint64(24)
			if in[text] > 20 { // frequent texts are bad only in some messages
				fmt.Fprint(h, i)
				of = 400
			}
			k := h.Sum64() % of
			if len(text) < 8 || k > 4 {
				return text
			}
			bad++
			switch k {
			case 0:
				return text + string(noise)
			case 1:
				if len(text) > 40 && huge < 4 { // about the size of a message
					huge++
					return text + strings.Repeat("long ", 1<<19)
				}
			case 2:
				swaps[text] = text[:3] + "\x00" + text[4:]
			case 3:
				swaps[text] = text[:3] + "\xff" + text[4:]
			case 4:
				swaps[text] = text[:3] + "\x1a" + text[4:]
			}
			return text
		})
		payload, err := proto.Marshal(seq)
		if err != nil {
			t.Fatal(err)
		}
		for from, to := range swaps { // as long as before, so it stays a message
			payload = bytes.ReplaceAll(payload, []byte(from), []byte(to))
		}
		entries[i].Message.Payload = payload
	}
	if bad < 100 {
		t.Fatalf("only %d texts are spoiled", bad)
	}
	return entries
}

// eachText replaces all texts of a message.
func eachText(m protoreflect.Message, by func(string) string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, e protoreflect.Value) bool {
				if f.MapValue().Kind() == protoreflect.StringKind {
					v.Map().Set(k, protoreflect.ValueOfString(by(e.String())))
				}
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				switch f.Kind() {
				case protoreflect.StringKind:
					v.List().Set(i, protoreflect.ValueOfString(by(v.List().Get(i).String())))
				case protoreflect.MessageKind:
					eachText(v.List().Get(i).Message(), by)
				default:
				}
			}
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(by(v.String())))
		case f.Kind() == protoreflect.MessageKind:
			eachText(v.Message(), by)
		}
		return true
	})
}

// TestBadTexts: whatever texts events contain, no partition stalls, our rows are those
// of the fold, and no copy exceeds the broker's limit.
func TestBadTexts(t *testing.T) { //nolint:paralleltest // big
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		for _, name := range []string{"preempted", "plain"} {
			h := decided(t, spoiled(t, name, seed), forRecordings)
			for mode, as := range map[writer.Mode]string{writer.HoldBack: "HoldBack", writer.Direct: "Direct", writer.Passthrough: "Passthrough"} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, as, seed), func(t *testing.T) {
					left := h.play(t, mode, replay{rows: 300})
					for _, line := range left.copies {
						payload, err := hex.DecodeString(line[strings.LastIndexByte(line, ' ')+1:])
						if err != nil || len(payload) > 2<<20 {
							t.Errorf("a copy of %d bytes, %v", len(payload), err)
						}
					}
					checkFold(t, h, left.url)
					t.Logf("%d jobs, %d runs in Armada's tables, %d in ours; %d copies", len(left.tables["jobs"]), len(left.tables["runs"]), len(left.tables["refloat_jobs"]), len(left.copies))
				})
			}
		}
	}
}

func checkFold(t *testing.T, h *tape, url string) {
	t.Helper()
	r, err := postgres.OpenReader(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	jobs := 0
	for p := range h.events.Partitions() {
		var got *jobdb.Contents
		if err := r.View(t.Context(), func(q jobdb.Queries) (err error) { got, err = q.Contents(p); return err }); err != nil {
			t.Fatal(err)
		}
		want, err := sink.Fold(h.events, h.decisions, p, 0)
		if err != nil {
			t.Fatal(err)
		}
		end, err := h.events.End(p)
		if err != nil || end != eventlog.Start && got.Positions.Events != end {
			t.Errorf("partition %d stands at %v, the events end at %v, %v", p, got.Positions.Events, end, err)
		}
		for _, d := range sink.Compare(want, got) {
			t.Errorf("partition %d: %.300s", p, d)
		}
		jobs += len(got.Jobs)
	}
	if jobs == 0 {
		t.Error("no jobs")
	}
}

// decided is a history of these messages, with decisions.
func decided(t testing.TB, entries []recording.Entry, policies string) *tape {
	t.Helper()
	return decidedAs(t, slices.Values(entries), policies, tapeOptions{times: 1})
}
