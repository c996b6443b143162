package bench_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// BenchmarkManyGroups is the CPU time per group of one member: its submission, its success while
// its queue is in shadow, its end when a policy generation comes that enforces, and until it is
// forgotten. B/group is what the store keeps of it beside its job.
func BenchmarkManyGroups(b *testing.B) {
	oneCore(b)
	first := map[string]float64{}
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("groups=%d", n), func(b *testing.B) {
			times, size := map[string]float64{}, 0
			for b.Loop() {
				size = manyGroups(b, n, func(step string, took time.Duration) { times[step] += float64(took) / float64(n) })
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(size)/float64(n), "B/group")
			for _, step := range []string{"submit", "succeed", "end", "forget"} {
				ns := times[step] / float64(b.N)
				if first[step] == 0 {
					first[step] = ns
				}
				b.ReportMetric(ns, step+"-ns/group")
				b.ReportMetric(ns/first[step], step+"-x-1st")
			}
		})
	}
}

// manyGroups is a life of groups of one member, and returns how many bytes the store had of them.
func manyGroups(b *testing.B, n int, step func(string, time.Duration)) (size int) {
	b.Helper()
	c := newCrowd(b, 1, 1, "")
	c.replicas = n
	generation := uint64(1)
	use := func(mode string) {
		set, err := policyfile.Parse([]policyfile.File{{Name: "many.yaml", Data: []byte(
			"kind: RetrySettings\nspec: {enabled: true, mode: " + mode + "}\n---\n" +
				"apiVersion: refloat.github.io/v1\nkind: GroupPolicy\nmetadata: {name: one}\nspec:\n  parts: [{name: main}]\n")}})
		if err != nil {
			b.Fatal(err)
		}
		generation++
		c.p.Rules = evaluator.Rules{Generation: generation, Set: set.Set}
		c.p.Activate([]chain.Record{&chain.PolicyActivated{Generation: generation, Digest: set.Digest(), HorizonMS: set.Horizon().Milliseconds()}})
	}
	batched := func(event func(i int) *pb.Event) (msgs []eventlog.Message) {
		for i := 0; i < n; i += 100 {
			var events []*pb.Event
			for k := i; k < i+100; k++ {
				events = append(events, event(k))
			}
			msgs = append(msgs, c.message(events...))
		}
		return msgs
	}
	quiet := func() (msgs []eventlog.Message) { // messages of nothing, enough for all groups
		for range n/1000 + 1 {
			msgs = append(msgs, c.message(c.lease(n)))
		}
		return msgs
	}
	use("Shadow")
	step("submit", c.take(batched(func(i int) *pb.Event {
		ev := c.submission(i)
		ev.GetSubmitJob().ObjectMeta.Annotations = map[string]string{
			"refloat.github.io/group": fmt.Sprint("training-", i), "refloat.github.io/group-policy": "one",
		}
		return ev
	})...))
	step("succeed", c.take(batched(c.success)...))
	use("Enforce")
	size = c.stored("gy")
	step("end", c.take(quiet()...))
	c.now += int64(48 * time.Hour)
	step("forget", c.take(quiet()...))
	if left := c.stored("gy"); left > 0 {
		b.Fatalf("%d bytes of groups are left", left)
	}
	return size
}

// stored returns the size of the store's records of these kinds.
func (c *crowd) stored(kinds string) (size int) {
	for _, kind := range []byte(kinds) {
		_ = c.store.Scan([]byte{kind}, []byte{kind + 1}, func(key, value []byte) bool {
			size += len(key) + len(value)
			return true
		})
	}
	return size
}
