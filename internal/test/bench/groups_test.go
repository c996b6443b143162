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

// crowd is a partition with groups of the same shape, and the events of their members.
type crowd struct {
	tb       testing.TB
	p        *evaluator.Processor
	store    *projection.Memory
	groups   int
	replicas int // of a group
	members  int // of a replica
	gang     bool
	runs     int // of each member so far
	now      int64
	entry    int64
	records  int
}

const crowdSettings = "kind: RetrySettings\nspec: {enabled: true, mode: Enforce}\n"

// crowdPolicy is the group policy of so many replicas of so many members. spec is the rest of the part.
func crowdPolicy(replicas, members int, spec string) string {
	return fmt.Sprintf(`apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: crowd}
spec:
  maxRestarts: 1000
  parts:
  - {name: workers, replicas: %d, members: %d%s}
  - {name: last}
`, replicas, members, spec)
}

// newCrowd begins with an empty state, and a group policy of so many replicas of so many
// members, for one group. spec is the rest of the part.
func newCrowd(tb testing.TB, replicas, members int, spec string) *crowd {
	tb.Helper()
	set, err := policyfile.Parse([]policyfile.File{{Name: "crowd.yaml", Data: []byte(crowdSettings + "---\n" + crowdPolicy(replicas, members, spec))}})
	if err != nil {
		tb.Fatal(err)
	}
	c := &crowd{tb: tb, store: projection.NewMemory(), groups: 1, replicas: replicas, members: members, now: 1_800_000_000e9}
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

// n is how many members all groups have, and size how many each.
func (c *crowd) n() int    { return c.groups * c.size() }
func (c *crowd) size() int { return c.replicas * c.members }

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
		"refloat.github.io/group": c.group(i), "refloat.github.io/group-policy": "crowd", "refloat.github.io/part": "workers",
		"refloat.github.io/replica": fmt.Sprint(i % c.size() / c.members), "refloat.github.io/index": fmt.Sprint(i % c.members),
	}
	if c.gang {
		annotations["armadaproject.io/gangId"], annotations["armadaproject.io/gangCardinality"] = c.group(i), fmt.Sprint(c.members)
	}
	return &pb.Event{Event: &pb.Event_SubmitJob{SubmitJob: &pb.SubmitJob{JobId: jobID(i), ObjectMeta: &pb.ObjectMeta{Annotations: annotations}}}}
}

func (c *crowd) group(i int) string { return fmt.Sprint("training-", i/c.size()) }

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

// restarted measures a life with two restarts of all: when one member of each group fails, and when one
// message has a failure of each of them.
func (c *crowd) restarted() map[string]time.Duration {
	took := map[string]time.Duration{"submit": c.take(c.each(c.submission)...)}
	took["lease"] = c.take(c.each(c.lease)...)
	var one, all []eventlog.Message
	for first := 0; first < c.n(); first += c.size() {
		one = append(one, c.message(c.failure(first+c.size()/2)))
	}
	took["restart"] = c.take(one...)
	c.expect(c.n() + c.groups)
	c.runs++
	c.take(c.each(c.lease)...)
	for first := 0; first < c.n(); first += c.size() {
		var events []*pb.Event
		for i := range c.size() {
			events = append(events, c.failure(first+i))
		}
		all = append(all, c.message(events...))
	}
	took["fail"] = c.take(all...)
	c.runs++
	c.take(c.each(c.lease)...)
	took["succeed"] = c.take(c.each(c.success)...)
	return took
}

// released measures a life of members of which all wait for another part of their group.
func (c *crowd) released() map[string]time.Duration {
	took := map[string]time.Duration{"submit": c.take(c.each(c.submission)...)}
	c.expect(c.n() + c.groups)
	var lives []eventlog.Message
	for g := range c.groups {
		other := c.n() + g
		last := c.submission(other)
		last.GetSubmitJob().ObjectMeta.Annotations = map[string]string{
			"refloat.github.io/group": c.group(g * c.size()), "refloat.github.io/group-policy": "crowd", "refloat.github.io/part": "last",
		}
		lives = append(lives, c.message(last), c.message(c.lease(other)), c.message(c.success(other)))
	}
	took["release"] = c.take(lives...)
	c.expect(c.n())
	took["lease"] = c.take(c.each(c.lease)...)
	took["succeed"] = c.take(c.each(c.success)...)
	return took
}

// oneByOne measures a life of units of two members of which one may run.
func (c *crowd) oneByOne() map[string]time.Duration {
	took := map[string]time.Duration{"submit": c.take(c.each(c.submission)...)}
	c.expect(c.groups + c.n()/2)
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

// BenchmarkGroupRestart is the CPU time per member of what happens to 10,000 members, in groups of 100, of 1000, or all in one: submissions,
// leases, a restart of each group when a member fails ("restart") or when all fail in one message ("fail"), releases, successes. Each
// message is committed by itself. x-1st is the median ratio to groups of 100, which run in turns with the others: 1 is what is wanted.
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
		const members, least = 10_000, 100
		life := func(size int) map[string]time.Duration {
			c := shape.make(size)
			c.groups = members / size
			runtime.GC()
			return shape.live(c)
		}
		for _, size := range []int{1000, members} {
			b.Run(fmt.Sprintf("shape=%s/members=%d", shape.name, size), func(b *testing.B) {
				times, ratios := map[string][]float64{}, map[string][]float64{}
				turns := 0
				pair := func() {
					var these, those map[string]time.Duration
					if turns++; turns%2 == 0 {
						these, those = life(size), life(least)
					} else {
						those, these = life(least), life(size)
					}
					for step, took := range these {
						times[step] = append(times[step], float64(took)/members)
						ratios[step] = append(ratios[step], float64(took)/float64(those[step]))
					}
				}
				for b.Loop() {
					pair()
				}
				for turns < minPairs {
					pair()
				}
				b.ReportMetric(0, "ns/op")
				for _, step := range crowdSteps {
					if len(times[step]) > 0 {
						low, high := interval(ratios[step])
						b.ReportMetric(median(times[step]), step+"-ns/member")
						b.ReportMetric(median(ratios[step]), step+"-x-1st")
						b.Logf("%s: %.2f times groups of %d (95 %%: %.2f to %.2f)", step, median(ratios[step]), least, low, high)
					}
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
