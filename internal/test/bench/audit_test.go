package bench_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/whatif"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
)

// audited is a history of one partition and what an owner decided on it, in logs in memory. The owner found so many messages
// at a time, as it does with much or little load, and so many are the messages of an envelope at the most.
func audited(b *testing.B, h *history, set *policyfile.Set, at int) audit.Logs {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	log := func() *filelog.Log {
		l, err := filelog.Open(filelog.Config{FS: vfs.NewMem(), Dir: "log", Partitions: 1})
		must(err)
		b.Cleanup(func() { _ = l.Close() })
		return l
	}
	events, decisions, proposals := log(), log(), log()
	payload, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "bench", Time: 1})
	must(err)
	must(proposals.AppendSync(b.Context(), 0, []eventlog.Message{{Payload: payload}}))
	store, err := projection.OpenStore(projection.StoreConfig{FS: vfs.NewMem(), Dir: "state", Logger: quiet{}})
	must(err)
	policies, err := policylog.Open(proposals)
	must(err)
	pub := decisions.Publisher(0)
	o := evaluator.NewOwner(evaluator.Config{
		Store: store, Events: events, Decisions: decisions, Policies: policies, Publisher: pub, Random: rand.NewChaCha8([32]byte{1}),
		AcceptEmptyDecisions: true,
	})
	for all := live(h); len(all) > 0; {
		n := min(at, len(all))
		must(events.AppendSync(b.Context(), 0, all[:n]))
		all = all[n:]
		end, err := events.End(0)
		must(err)
		for o.Positions().Chain.InTo != end {
			_, err := o.Advance(time.Now().UnixNano())
			must(err)
		}
	}
	for _, closes := range []func() error{o.Close, pub.Close, policies.Close, store.Close} {
		must(closes())
	}
	return audit.Logs{Events: events, Decisions: decisions, Policies: proposals}
}

// BenchmarkAudit compares a verification, and a what-if of one candidate, with plain protobuf decoding of the same events, on one
// core: x-faster is how many times faster it is. With at=1 every message is in an envelope of its own.
func BenchmarkAudit(b *testing.B) {
	set := examplePolicies(b)
	candidate, err := policyfile.Parse([]policyfile.File{{Name: "always.yaml", Data: []byte(alwaysRetry)}})
	if err != nil {
		b.Fatal(err)
	}
	for _, in := range []struct {
		name string
		h    *history
	}{
		{"recordings-x20", repeated(b, recorded(b, "plain", "chaos", "retried", "preempted"), 20)},
		{"errors", simulated(b, 6000)},
	} {
		for _, at := range []int{1, 1000} {
			logs := audited(b, in.h, set, at)
			verified, err := audit.Verify(b.Context(), logs, 0)
			if err != nil {
				b.Fatal(err)
			}
			for _, work := range []struct {
				name string
				do   func() error
			}{
				{"verify", func() error { _, err := audit.Verify(b.Context(), logs, 0); return err }},
				{"whatif", func() error {
					_, err := whatif.Run(b.Context(), logs, whatif.Options{Candidates: []whatif.Candidate{{Name: "always", Set: candidate}}, Limit: 20})
					return err
				}},
			} {
				b.Run(fmt.Sprintf("%s/history=%s/at=%d", work.name, in.name, at), func(b *testing.B) {
					r := compare(b, func() {
						if err := work.do(); err != nil {
							b.Fatal(err)
						}
					}, func() { unmarshalled(b, in.h) })
					b.ReportMetric(median(r.x)/float64(in.h.events), "ns/event")
					b.Logf("%d messages in %d envelopes", verified.Messages, verified.Envelopes)
				})
			}
		}
	}
}
