package policylog_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

const (
	manyPolicies = 10_000
	manyRules    = 20
)

// manySet is 10,000 policies of 20 rules each, and 10,000 queues of two policies
// each.
func manySet(b *testing.B) *policyfile.Set {
	b.Helper()
	kinds := []string{
		`"onConditions":["OOMKilled","Preempted"]`,
		`"onExitCodes":{"operator":"In","values":[1,2,139]}`,
		`"onTerminationMessage":{"pattern":"ECC error on %s|NVLink"}`,
		`"onFailureCategory":["oom","user"]`,
		`"onFailureCategory":["infrastructure"],"onFailureSubcategory":["gpu","network"]`,
	}
	var text bytes.Buffer
	text.WriteString(`{"policies":[`)
	for i := range manyPolicies {
		name := fmt.Sprintf("p%05d", i)
		fmt.Fprintf(&text, `{"name":%q,"spec":{"rules":[`, name)
		for j := range manyRules {
			kind := bytes.ReplaceAll([]byte(kinds[j%len(kinds)]), []byte("%s"), []byte(name))
			fmt.Fprintf(&text, `{"action":"Retry","name":"r%d",%s},`, j, kind)
		}
		text.Truncate(text.Len() - 1)
		text.WriteString("]}},")
	}
	text.Truncate(text.Len() - 1)
	text.WriteString(`],"queues":[`)
	for i := range manyPolicies {
		fmt.Fprintf(&text, `{"name":"q%05d","retryPolicies":["p%05d","p%05d"]},`, i, i, (i+1)%manyPolicies)
	}
	text.Truncate(text.Len() - 1)
	text.WriteString(`],"version":1}`)
	set, err := policyfile.Empty().ParseCanonical(text.Bytes())
	if err != nil {
		b.Fatal(err)
	}
	return set
}

// changing is the set with another limit for one policy.
func changing(b *testing.B, set *policyfile.Set, n int) *policyfile.Set {
	b.Helper()
	set, _, err := set.With(onePolicy(n))
	if err != nil {
		b.Fatal(err)
	}
	return set
}

func onePolicy(n int) policyfile.File {
	return policyfile.File{Name: "test", Data: fmt.Appendf(nil,
		"{apiVersion: armadaproject.io/v1, kind: RetryPolicy, metadata: {name: p%05d}, spec: {retryLimit: %d, rules: [{action: Fail, onExitCodes: {operator: In, values: [1]}}]}}",
		n*7919%manyPolicies, n)}
}

func benchLog(b *testing.B) *filelog.Log {
	b.Helper()
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: filepath.Join(b.TempDir(), "policies"), Partitions: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = log.Close() })
	return log
}

func appendSet(b *testing.B, log *filelog.Log, set *policyfile.Set) {
	b.Helper()
	payload, err := policylog.Encode(&policylog.Proposal{Set: set})
	if err == nil {
		err = log.AppendSync(b.Context(), 0, []eventlog.Message{{Payload: payload}})
	}
	if err != nil {
		b.Fatal(err)
	}
}

func newest(b *testing.B, log *policylog.Log, want uint64) *policyfile.Set {
	b.Helper()
	if err := log.Refresh(); err != nil {
		b.Fatal(err)
	}
	n, set := log.Newest()
	if n != want {
		b.Fatalf("newest %d, want %d", n, want)
	}
	return set
}

// From bytes in the log to a set that is ready to decide: the one before is held,
// and one policy of 10,000 is another.
func BenchmarkActivate(b *testing.B) {
	topic := benchLog(b)
	log, err := policylog.Open(topic)
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	appendSet(b, topic, manySet(b))
	set := newest(b, log, 1)
	b.ReportAllocs()
	for n := 2; b.Loop(); n++ {
		b.StopTimer()
		appendSet(b, topic, changing(b, set, n))
		runtime.GC()
		b.StartTimer()
		set = newest(b, log, uint64(n))
	}
}

// The same, and nothing is held.
func BenchmarkFirstLoad(b *testing.B) {
	topic := benchLog(b)
	appendSet(b, topic, manySet(b))
	b.ReportAllocs()
	for b.Loop() {
		log, err := policylog.Open(topic)
		if err != nil {
			b.Fatal(err)
		}
		newest(b, log, 1)
		_ = log.Close()
	}
}

// One change through a store, durable and read back.
func BenchmarkDo(b *testing.B) {
	topic := benchLog(b)
	appendSet(b, topic, manySet(b))
	write := func(ctx context.Context, payload []byte) error {
		return topic.AppendSync(ctx, 0, []eventlog.Message{{Payload: payload}})
	}
	s, err := policylog.OpenStore(topic, write, func() time.Time { return time.Unix(7, 0) })
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Newest(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for n := 2; b.Loop(); n++ {
		v, err := s.Do(b.Context(), policylog.Edit{Make: func(s policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
			set, _, err := s.Base.With(onePolicy(n))
			return set, s.ActiveOverrides(), err
		}})
		if err != nil || v.Number != uint64(n) || len(v.Changes) != 1 {
			b.Fatalf("Do = %v, %v", v, err)
		}
	}
}

// What a log keeps of 100 generations, of which it holds the newest as a set.
func BenchmarkHeld(b *testing.B) {
	const generations = 100
	topic := benchLog(b)
	for n, set := 0, manySet(b); n < generations; n++ {
		set = changing(b, set, n)
		appendSet(b, topic, set)
	}
	for b.Loop() {
		before, begin := heap(), time.Now()
		log, err := policylog.Open(topic)
		if err != nil {
			b.Fatal(err)
		}
		if err := log.Refresh(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(begin).Milliseconds())/generations, "ms/generation")
		entries := heap()
		newest(b, log, generations)
		b.ReportMetric((entries-before)/generations, "B/generation")
		b.ReportMetric(heap()-entries, "B/set")
		_ = log.Close()
	}
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
