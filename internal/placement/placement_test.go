package placement_test

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/placement"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

func TestMain(m *testing.M) { os.Exit(pulsartest.Main(m)) }

// group is some instances' leases for the partitions of one topic.
type group struct {
	t       *testing.T
	cluster *pulsarlog.Cluster
	topic   *pulsarlog.Topic
	leases  map[string][]*placement.Lease
}

func newGroup(t *testing.T, partitions int) *group {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a broker")
	}
	b := pulsartest.Shared(t)
	ns := b.Namespace(t)
	_, short, _ := strings.Cut(ns, "/")
	b.CreateTopic(t, "persistent://"+ns+"/events", partitions)
	c, err := pulsarlog.Connect(t.Context(), pulsarlog.Config{ServiceURL: b.URL, AdminURL: b.AdminURL, Namespace: short, OperationTimeout: pulsartest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	topic, err := c.Open("events")
	if err != nil {
		t.Fatal(err)
	}
	return &group{t: t, cluster: c, topic: topic, leases: map[string][]*placement.Lease{}}
}

func (g *group) join(instance string) {
	g.t.Helper()
	for p := range g.topic.Partitions() {
		s, err := placement.Acquire(placement.Config{
			Client: g.cluster.Client(), Subscription: "group", Instance: instance, Log: slog.New(slog.DiscardHandler),
		}, g.topic.PartitionName(p), p)
		if err != nil {
			g.t.Fatal(err)
		}
		g.leases[instance] = append(g.leases[instance], s)
	}
}

func (g *group) leave(instance string) {
	g.t.Helper()
	for _, s := range g.leases[instance] {
		if err := s.Close(); err != nil {
			g.t.Fatal(err)
		}
	}
	delete(g.leases, instance)
}

// placed returns the active instance of each partition; empty unless there is exactly
// one.
func (g *group) placed() string {
	var all []string
	for p := range g.topic.Partitions() {
		who := ""
		for instance, leases := range g.leases {
			if leases[p].Active() {
				who += instance
			}
		}
		all = append(all, who)
	}
	return strings.Join(all, " ")
}

// hashed returns the instances that should be active.
func (g *group) hashed() string {
	var all []string
	for p := range g.topic.Partitions() {
		best := ""
		for instance := range g.leases {
			if best == "" || placement.Priority(instance, p) < placement.Priority(best, p) {
				best = instance
			}
		}
		all = append(all, best)
	}
	return strings.Join(all, " ")
}

func (g *group) settles() {
	g.t.Helper()
	g.await("placing as hashed", func() bool { return g.placed() == g.hashed() })
}

func (g *group) await(what string, ok func() bool) {
	g.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			g.t.Fatalf("waited in vain for %s: placed %q, hashed %q", what, g.placed(), g.hashed())
		}
	}
}

// TestSticky: the active leases are those of the rendezvous hash, so an instance that
// joins or leaves moves only its own partitions.
func TestSticky(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 6)
	for _, step := range []string{"+a", "+b", "+c", "-b", "+d", "-a", "+b"} {
		if step[0] == '+' {
			g.join(step[1:])
		} else {
			g.leave(step[1:])
		}
		g.settles()
	}
	for instance := range g.leases {
		g.leave(instance)
	}
}

// TestPriorityIsEven: instances get about the same number of partitions.
func TestPriorityIsEven(t *testing.T) {
	t.Parallel()
	counts := map[int]int{}
	const instances, partitions = 4, 4000
	for p := range partitions {
		best := 0
		for i := range instances {
			if placement.Priority(fmt.Sprint("evaluator-", i), p) < placement.Priority(fmt.Sprint("evaluator-", best), p) {
				best = i
			}
		}
		counts[best]++
	}
	for i := range instances {
		if n := counts[i]; n < partitions/instances*8/10 || n > partitions/instances*12/10 {
			t.Errorf("instance %d gets %d of %d partitions", i, n, partitions)
		}
	}
}

// TestAcknowledge: acknowledged messages are not redelivered to the group, and the
// entry of the newest position always is; also when another instance becomes active.
func TestAcknowledge(t *testing.T) {
	t.Parallel()
	for _, active := range []bool{true, false} {
		t.Run(fmt.Sprintf("active=%v", active), func(t *testing.T) {
			t.Parallel()
			acknowledge(t, active)
		})
	}
}

func acknowledge(t *testing.T, active bool) {
	g := newGroup(t, 1)
	a := g.topic.Appender()
	for i := range 5 {
		if err := a.AppendSync(t.Context(), 0, []eventlog.Message{{Payload: fmt.Append(nil, i, 0)}, {Payload: fmt.Append(nil, i, 1)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	var at []eventlog.Position
	r, err := eventlog.ToEnd(t.Context(), g.topic).Open(0, eventlog.Start)
	if err != nil {
		t.Fatal(err)
	}
	for buf := make([]eventlog.Message, 100); ; {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		for _, m := range buf[:n] {
			at = append(at, m.Position)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	g.join("a")
	g.join("b")
	g.settles()
	lease := g.leases["a"][0]
	if lease.Active() != active {
		lease = g.leases["b"][0]
	}
	for _, i := range []int{0, 3, 5, 5, 2, 7} { // the last: the second message of an entry, or the first
		lease.Acknowledge(at[i])
	}
	g.await("the acknowledgement of what is before the newest", func() bool { return lease.Acknowledged() == at[5] })
	acked := lease.Acknowledged()
	if acked.Compare(at[7]) >= 0 || acked.Entry == at[7].Entry && acked.Ledger == at[7].Ledger || acked == eventlog.Start {
		t.Fatalf("acknowledged %v with %v in use", acked, at[7])
	}
	g.leave("a")
	g.leave("b")
	c, err := g.cluster.Client().Subscribe(pulsar.ConsumerOptions{Topic: g.topic.PartitionName(0), SubscriptionName: "group", Type: pulsar.Failover})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := c.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := eventlog.Position{Ledger: m.ID().LedgerID(), Entry: m.ID().EntryID()}
	if first.Compare(acked) <= 0 || first.Compare(eventlog.Position{Ledger: at[7].Ledger, Entry: at[7].Entry}) > 0 {
		t.Fatalf("the next message is at %v; acknowledged %v, in use %v", first, acked, at[7])
	}
}
