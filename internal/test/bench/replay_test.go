package bench_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// examplePolicies are the examples, and others.
func examplePolicies(tb testing.TB, others ...policyfile.File) *policyfile.Set {
	tb.Helper()
	files, err := policyfile.LoadDir(os.DirFS("../../../examples/policies"))
	if err != nil {
		tb.Fatal(err)
	}
	set, err := policyfile.Parse(append(files, others...))
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// replayed decides all partitions of a topic afresh: read, decode, fold,
// decide, encode, hash, and move what changed to the store now and then.
func replayed(tb testing.TB, topic eventlog.Topic, set *policyfile.Set) (hash chain.Hash, decisions uint64) {
	tb.Helper()
	for p := range topic.Partitions() {
		by := audit.Rules{Set: set.Set, Semantics: evaluator.SemanticsVersion, Passing: true}
		progress, err := audit.ReplayBy(tb.Context(), topic, p, by, func(*eventlog.Message, *evaluator.Output) error { return nil })
		if err != nil {
			tb.Fatal(err)
		}
		hash = hash.Extend(progress.Running[:])
		decisions += progress.Decisions
	}
	return hash, decisions
}

// unmarshalled is the measure: every message by protobuf-go, into a fresh one.
func unmarshalled(tb testing.TB, h *history) (events int) {
	for _, msgs := range h.partitions {
		for i := range msgs {
			seq := new(pb.EventSequence)
			if err := proto.Unmarshal(msgs[i].Payload, seq); err != nil {
				tb.Fatal(err)
			}
			events += len(seq.Events)
		}
	}
	return events
}

// logged writes a history into a log on disk, compressed.
func logged(tb testing.TB, h *history) *filelog.Log {
	tb.Helper()
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: tb.TempDir(), Partitions: len(h.partitions), Codec: filelog.CodecS2})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = log.Close() })
	for p, msgs := range h.partitions {
		for len(msgs) > 0 {
			n := min(len(msgs), 1000)
			if err := log.AppendSync(tb.Context(), p, msgs[:n]); err != nil {
				tb.Fatal(err)
			}
			msgs = msgs[n:]
		}
	}
	return log
}

// BenchmarkReplay compares replay with plain protobuf decoding of the same
// bytes, on one core: x-faster is how many times faster it is, from memory
// (source=raw) or from a log on disk, compressed (source=s2).
func BenchmarkReplay(b *testing.B) {
	set := examplePolicies(b)
	for _, in := range []struct {
		name string
		make func() *history
	}{
		{"recordings", func() *history { return recorded(b, "plain", "chaos", "retried", "preempted") }},
		{"recordings-x20", func() *history {
			return repeated(b, recorded(b, "plain", "chaos", "retried", "preempted"), 20)
		}},
		{"errors", func() *history { return simulated(b, 6000) }},
	} {
		h := in.make()
		want, decisions := replayed(b, h, set)
		b.Logf("%s: %d messages, %d events, %d bytes, %d decisions, running hash %.8s", in.name, h.messages, h.events, h.bytes, decisions, want)
		for _, source := range []string{"raw", "s2"} {
			b.Run(fmt.Sprintf("history=%s/source=%s", in.name, source), func(b *testing.B) {
				topic := eventlog.Topic(h)
				if source == "s2" {
					topic = logged(b, h)
				}
				replay := func() {
					if got, _ := replayed(b, topic, set); got != want {
						b.Fatalf("running hash %v, want %v", got, want)
					}
				}
				unmarshal := func() {
					if n := unmarshalled(b, h); n != h.events {
						b.Fatalf("%d events, want %d", n, h.events)
					}
				}
				r := compare(b, replay, unmarshal)
				objects, bytes := allocations(replay)
				n := float64(h.events)
				b.ReportMetric(median(r.x)/n, "ns/event")
				b.ReportMetric(median(r.y)/n, "unmarshal-ns/event")
				b.ReportMetric(objects/n, "allocs/event")
				b.ReportMetric(bytes/n, "B/event")
			})
		}
	}
}

// BenchmarkReplayBudgets compares replay with retry budgets, one of all queues and one of each, that hold nothing back with replay
// without any: x-faster is how many times as long it takes with them.
func BenchmarkReplayBudgets(b *testing.B) {
	files, err := policyfile.LoadDir(os.DirFS("../../../examples/policies"))
	if err != nil {
		b.Fatal(err)
	}
	without, h := examplePolicies(b), repeated(b, recorded(b, "plain", "chaos", "retried", "preempted"), 20)
	const budget = "apiVersion: refloat.github.io/v1\nkind: RetryBudget\nmetadata: {name: b%d}\nspec: {%s ratio: 1, floor: 1000}\n"
	of := []string{""}
	for _, queue := range without.Queues() {
		of = append(of, "queue: "+queue+",")
	}
	for i := range of {
		files = append(files, policyfile.File{Name: fmt.Sprintf("budget%d.yaml", i), Data: fmt.Appendf(nil, budget, i, of[i])})
	}
	with, err := policyfile.Parse(files)
	if err != nil {
		b.Fatal(err)
	}
	_, want := replayed(b, h, without)
	replay := func(set *policyfile.Set) func() {
		return func() {
			if _, got := replayed(b, h, set); got != want {
				b.Fatalf("%d decisions, want %d", got, want)
			}
		}
	}
	b.Logf("%d events, %d decisions, %d budgets", h.events, want, len(with.Budgets()))
	compare(b, replay(without), replay(with))
}
