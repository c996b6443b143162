package bench_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/projection"
)

// crowd is a partition with one group, and the events of its members.
type crowd struct {
	tb       testing.TB
	p        *evaluator.Processor
	store    *projection.Memory
	replicas int
	members  int // of a replica
	gang     bool
	runs     int // of each member so far
	now      int64
	entry    int64
	records  int
}

const crowdSettings = "kind: RetrySettings\nspec: {enabled: true, mode: Enforce}\n"

// newCrowd begins with an empty state, and a group policy of so many replicas of so many
// members. spec is the rest of the part.
func newCrowd(tb testing.TB, replicas, members int, spec string) *crowd {
	tb.Helper()
	group := fmt.Sprintf(`apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: crowd}
spec:
  maxRestarts: 1000
  parts:
  - {name: workers, replicas: %d, members: %d%s}
  - {name: last}
`, replicas, members, spec)
	set, err := policyfile.Parse([]policyfile.File{{Name: "crowd.yaml", Data: []byte(crowdSettings + "---\n" + group)}})
	if err != nil {
		tb.Fatal(err)
	}
	c := &crowd{tb: tb, store: projection.NewMemory(), replicas: replicas, members: members, now: 1_800_000_000e9}
	state, err := projection.NewState(c.store, projection.NoWatermark, set.Horizon().Nanoseconds())
	if err != nil {
		tb.Fatal(err)
	}
	c.p = &evaluator.Processor{State: state, Rules: evaluator.Rules{Generation: 1, Set: set.Set}}
	c.p.Activate([]chain.Record{
		&chain.SemanticsActivated{Version: evaluator.SemanticsVersion},
		&chain.PolicyActivated{Generation: 1, Digest: set.Digest(), HorizonMS: set.Horizon().Milliseconds()},
	})
	return c
}

func (c *crowd) n() int { return c.replicas * c.members }

func (c *crowd) run(i int) string { return fmt.Sprintf("0197a1c2-%04d-7000-8000-%012d", c.runs, i) }

// message is the payload of one message.
func (c *crowd) message(events ...*pb.Event) eventlog.Message {
	c.now += 1e6
	for _, ev := range events {
		ev.Created = &pb.Timestamp{Seconds: c.now / 1e9, Nanos: int32(c.now % 1e9)}
	}
	payload, err := proto.Marshal(&pb.EventSequence{Queue: "vision-train", JobSetName: "set", Events: events})
	if err != nil {
		c.tb.Fatal(err)
	}
	c.entry++
	at := eventlog.Position{Ledger: 1, Entry: c.entry, Batch: -1}
	return eventlog.Message{Position: at, Publish: c.now, Payload: payload, Origin: eventlog.Origin{Recording: "crowd", Position: at, Publish: c.now}}
}

// each is a message of each member, in order.
func (c *crowd) each(event func(i int) *pb.Event) []eventlog.Message {
	msgs := make([]eventlog.Message, 0, c.n())
	for i := range c.n() {
		msgs = append(msgs, c.message(event(i)))
	}
	return msgs
}

func (c *crowd) submission(i int) *pb.Event {
	annotations := map[string]string{
		"refloat.github.io/group": "training", "refloat.github.io/group-policy": "crowd", "refloat.github.io/part": "workers",
		"refloat.github.io/replica": fmt.Sprint(i / c.members), "refloat.github.io/index": fmt.Sprint(i % c.members),
	}
	if c.gang {
		annotations["armadaproject.io/gangId"], annotations["armadaproject.io/gangCardinality"] = "gang", fmt.Sprint(c.members)
	}
	return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: jobID(i), ObjectMeta: &pb.ObjectMeta{Annotations: annotations}}}}
}

func (c *crowd) lease(i int) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunLeased{JobRunLeased: &pb.JobRunLeased{JobId: jobID(i), RunId: c.run(i), NodeId: "node-17"}}}
}

func (c *crowd) failure(i int) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunErrors{JobRunErrors: &pb.JobRunErrors{JobId: jobID(i), RunId: c.run(i), Errors: []*pb.Error{{
		Terminal: true, Reason: &pb.Error_PodError{PodError: &pb.PodError{Message: "exit", NodeName: "node-17"}},
	}}}}}
}

func (c *crowd) success(i int) *pb.Event {
	return &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: jobID(i), RunId: c.run(i)}}}
}

// take processes messages, each in an envelope of its own, and returns how long that took.
func (c *crowd) take(msgs ...eventlog.Message) time.Duration {
	start := cpuTime()
	c.records = 0
	for i := range msgs {
		out, err := c.p.Step(&msgs[i])
		if err != nil {
			c.tb.Fatal(err)
		}
		c.records += len(out.Records)
		b := c.store.NewBatch()
		n, err := c.p.State.Flush(b)
		if err == nil {
			err = c.store.Commit(b, nil)
		}
		if err != nil {
			c.tb.Fatal(err)
		}
		c.p.State.Committed(n)
	}
	return cpuTime() - start
}

// crowdSteps are what happens to a group, each measured per member.
var crowdSteps = []string{"submit", "lease", "restart", "fail", "release", "succeed"}

// restarted measures a life with two restarts of all: when one member fails, and when one
// message has a failure of each of them.
func (c *crowd) restarted() map[string]time.Duration {
	took := map[string]time.Duration{"submit": c.take(c.each(c.submission)...)}
	took["lease"] = c.take(c.each(c.lease)...)
	took["restart"] = c.take(c.message(c.failure(c.n() / 2)))
	c.expect(c.n() + 1)
	c.runs++
	c.take(c.each(c.lease)...)
	var all []*pb.Event
	for i := range c.n() {
		all = append(all, c.failure(i))
	}
	took["fail"] = c.take(c.message(all...))
	c.runs++
	c.take(c.each(c.lease)...)
	took["succeed"] = c.take(c.each(c.success)...)
	return took
}

// released measures a life of members of which all wait for another part.
func (c *crowd) released() map[string]time.Duration {
	took := map[string]time.Duration{"submit": c.take(c.each(c.submission)...)}
	c.expect(c.n() + 1)
	last := c.submission(c.n())
	last.GetSubmitJob().ObjectMeta.Annotations = map[string]string{
		"refloat.github.io/group": "training", "refloat.github.io/group-policy": "crowd", "refloat.github.io/part": "last",
	}
	took["release"] = c.take(c.message(last), c.message(c.lease(c.n())), c.message(c.success(c.n())))
	c.expect(c.n())
	took["lease"] = c.take(c.each(c.lease)...)
	took["succeed"] = c.take(c.each(c.success)...)
	return took
}

// oneByOne measures a life of units of two members of which one may run.
func (c *crowd) oneByOne() map[string]time.Duration {
	took := map[string]time.Duration{"submit": c.take(c.each(c.submission)...)}
	c.expect(1 + c.n()/2)
	turn := func(odd int) (lease, succeed []eventlog.Message) {
		for i := odd; i < c.n(); i += 2 {
			lease = append(lease, c.message(c.lease(i)))
			succeed = append(succeed, c.message(c.success(i)))
		}
		return lease, succeed
	}
	lease, succeed := turn(0)
	took["lease"] = c.take(lease...)
	took["release"] = c.take(succeed...)
	c.expect(c.n() / 2)
	lease, succeed = turn(1)
	c.take(lease...)
	took["succeed"] = c.take(succeed...)
	return took
}

// expect checks the number of records of what was taken last.
func (c *crowd) expect(records int) {
	if c.records != records {
		c.tb.Fatalf("%d records, want %d", c.records, records)
	}
}

// BenchmarkGroupRestart is the CPU time per member of what happens to a group: submissions,
// leases, a restart of all when one fails ("restart") or each in one message ("fail"),
// releases, successes. Each message is committed by itself. x-1st is the ratio to the same
// of the smallest group: 1 is what is wanted.
func BenchmarkGroupRestart(b *testing.B) {
	oneCore(b)
	restarted := (*crowd).restarted
	for _, shape := range []struct {
		name string
		make func(n int) *crowd
		live func(*crowd) map[string]time.Duration
	}{
		{"unit", func(n int) *crowd { return newCrowd(b, 1, n, "") }, restarted},
		{"units", func(n int) *crowd { return newCrowd(b, n, 1, "") }, restarted},
		{"gang", func(n int) *crowd { c := newCrowd(b, 1, n, ""); c.gang = true; return c }, restarted},
		{"after", func(n int) *crowd { return newCrowd(b, n, 1, ", after: [last]") }, (*crowd).released},
		{"parallelism", func(n int) *crowd { return newCrowd(b, n/2, 2, ", parallelism: 1") }, (*crowd).oneByOne},
	} {
		first := map[string]float64{}
		for _, n := range []int{100, 1000, 10_000} {
			b.Run(fmt.Sprintf("shape=%s/members=%d", shape.name, n), func(b *testing.B) {
				times := map[string][]float64{}
				for b.Loop() {
					for range max(3, 10_000/n) {
						for step, took := range shape.live(shape.make(n)) {
							times[step] = append(times[step], float64(took)/float64(n))
						}
					}
				}
				b.ReportMetric(0, "ns/op")
				for _, step := range crowdSteps {
					if len(times[step]) == 0 {
						continue
					}
					ns := median(times[step])
					if n == 100 {
						first[step] = ns
					}
					b.ReportMetric(ns, step+"-ns/member")
					b.ReportMetric(ns/first[step], step+"-x-1st")
				}
			})
		}
	}
}

// BenchmarkGroupMemory is the heap that a group's members take on top of the same jobs
// without a group.
func BenchmarkGroupMemory(b *testing.B) {
	for _, shape := range []struct {
		name              string
		replicas, members int
	}{{"unit", 1, 10_000}, {"units-of-8", 1250, 8}, {"units", 10_000, 1}} {
		b.Run("shape="+shape.name, func(b *testing.B) {
			var with, without uint64
			for b.Loop() {
				with, without = heapOf(b, shape.replicas, shape.members, false), heapOf(b, shape.replicas, shape.members, true)
			}
			b.ReportMetric(float64(int64(with)-int64(without))/float64(shape.replicas*shape.members), "B/member")
		})
	}
}

// heapOf is the heap that submitted and leased members take, or jobs without a group.
func heapOf(tb testing.TB, replicas, members int, alone bool) uint64 {
	tb.Helper()
	c := newCrowd(tb, replicas, members, "")
	msgs := c.each(func(i int) *pb.Event {
		ev := c.submission(i)
		if alone {
			ev.GetSubmitJob().ObjectMeta.Annotations = nil
		}
		return ev
	})
	before := heap()
	for i := range msgs { // without the store, which is not memory in a program
		if _, err := c.p.Step(&msgs[i]); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := c.p.State.Flush(nothing{}); err != nil {
		tb.Fatal(err)
	}
	after := heap()
	runtime.KeepAlive(msgs)
	runtime.KeepAlive(c)
	return after - before
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// nothing is a batch that goes nowhere.
type nothing struct{}

func (nothing) Set(_, _ []byte) error         { return nil }
func (nothing) Delete([]byte) error           { return nil }
func (nothing) DeleteRange(_, _ []byte) error { return nil }
