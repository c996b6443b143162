package bench_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

func TestMain(m *testing.M) { os.Exit(pulsartest.Main(m)) }

// deployment is a namespace of a real broker with the topics of one partition.
type deployment struct {
	b         *testing.B
	broker    *pulsartest.Broker
	namespace string
	cluster   *pulsarlog.Cluster
	events    *pulsarlog.Topic
	policies  *pulsarlog.Topic
	topics    int // of decisions
}

func deploy(b *testing.B) *deployment {
	b.Helper()
	if testing.Short() {
		b.Skip("needs a broker")
	}
	d := &deployment{b: b, broker: pulsartest.Shared(b)}
	d.namespace = d.broker.Namespace(b)
	_, short, _ := cut(d.namespace)
	var err error
	d.cluster, err = pulsarlog.Connect(context.Background(), pulsarlog.Config{ServiceURL: d.broker.URL, AdminURL: d.broker.AdminURL, Namespace: short, OperationTimeout: pulsartest.Patience})
	d.must(err)
	b.Cleanup(func() { _ = d.cluster.Close() })
	d.events, d.policies = d.topic("events"), d.topic("policies")
	set := examplePolicies(b, policyfile.File{Name: "crowd.yaml", Data: []byte(crowdPolicy(1, crowdSize, ""))})
	payload, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "bench", Time: 1})
	d.must(err)
	a := d.policies.Appender()
	d.must(a.AppendSync(b.Context(), 0, []eventlog.Message{{Payload: payload}}))
	d.must(a.Close())
	return d
}

func cut(namespace string) (tenant, name string, ok bool) {
	for i := range namespace {
		if namespace[i] == '/' {
			return namespace[:i], namespace[i+1:], true
		}
	}
	return "", namespace, false
}

func (d *deployment) must(err error) {
	d.b.Helper()
	if err != nil {
		d.b.Fatal(err)
	}
}

func (d *deployment) topic(name string) *pulsarlog.Topic {
	d.b.Helper()
	d.broker.CreateTopic(d.b, "persistent://"+d.namespace+"/"+name, 1)
	t, err := d.cluster.Open(name)
	d.must(err)
	return t
}

// decisions is a topic of decisions that nobody used.
func (d *deployment) decisions() *pulsarlog.Topic {
	d.b.Helper()
	d.topics++
	return d.topic(fmt.Sprintf("decisions-%d", d.topics))
}

// load appends a history as Armada does.
func (d *deployment) load(msgs []eventlog.Message) {
	d.b.Helper()
	a := d.events.Appender()
	for chunk := range slices.Chunk(msgs, 500) {
		d.must(a.Append(0, chunk))
	}
	d.must(a.Flush(d.b.Context()))
	d.must(a.Close())
}

// owner is an owner on fresh decisions, with its state on disk.
func (d *deployment) owner(hooks evaluator.Hooks) (_ *evaluator.Owner, closeAll func()) {
	d.b.Helper()
	decisions := d.decisions()
	store, err := projection.OpenStore(projection.StoreConfig{FS: vfs.Default, Dir: d.b.TempDir(), Logger: quiet{}})
	d.must(err)
	policies, err := policylog.Open(d.policies)
	d.must(err)
	pub, err := decisions.Publisher(d.b.Context(), 0)
	d.must(err)
	o := evaluator.NewOwner(evaluator.Config{
		Store: store, Events: d.events, Decisions: decisions, Policies: policies, Publisher: pub, Random: rand.Reader, Hooks: hooks,
		AcceptEmptyDecisions: true, // the topic is new
		SaveEvery:            evaluator.DefaultSaveEvery,
	})
	return o, func() {
		d.must(o.Close())
		d.must(pub.Close())
		d.must(policies.Close())
		d.must(store.Close())
	}
}

// drive advances an owner until done says so.
func (d *deployment) drive(o *evaluator.Owner, done func() bool) {
	d.b.Helper()
	for !done() {
		progress, err := o.Advance(time.Now().UnixNano())
		d.must(err)
		if progress {
			continue
		}
		changed := o.Changed()
		select {
		case <-changed[0]:
		case <-changed[1]:
		case <-changed[2]:
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// decided reads the events to an end, decides and commits them.
func (d *deployment) decided(end eventlog.Position) {
	d.b.Helper()
	o, closeAll := d.owner(evaluator.Hooks{})
	d.drive(o, func() bool { return o.Positions().Chain.InTo == end })
	closeAll()
}

const (
	barePer   = 64      // messages that the bare loop answers at once
	bareBytes = 8 << 10 // of an answer
)

// bareProducer is a producer as an owner's is.
func (d *deployment) bareProducer() pulsar.Producer {
	d.b.Helper()
	p, err := d.cluster.Client().CreateProducer(pulsar.ProducerOptions{
		Topic: d.decisions().PartitionName(0), DisableBatching: true, SendTimeout: -1, CompressionType: pulsar.LZ4,
	})
	d.must(err)
	return p
}

func (d *deployment) bareReader(at pulsar.MessageID) pulsar.Reader {
	d.b.Helper()
	r, err := d.cluster.Client().CreateReader(pulsar.ReaderOptions{Topic: d.events.PartitionName(0), StartMessageID: at, ReceiverQueueSize: 1000})
	d.must(err)
	return r
}

// bare is what the client alone does: receive so many messages, and publish
// some kilobytes for every 64 of them.
func (d *deployment) bare(messages int) {
	d.b.Helper()
	r, p := d.bareReader(pulsar.EarliestMessageID()), d.bareProducer()
	payload := make([]byte, bareBytes)
	_, _ = rand.Read(payload[:bareBytes/2])
	var sent sync.WaitGroup
	for n := 1; n <= messages; n++ {
		_, err := r.Next(d.b.Context())
		d.must(err)
		if n%barePer == 0 || n == messages {
			sent.Add(1)
			p.SendAsync(d.b.Context(), &pulsar.ProducerMessage{Payload: payload}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				if err != nil {
					d.b.Error(err)
				}
				sent.Done()
			})
		}
	}
	sent.Wait()
	r.Close()
	p.Close()
}

// live is a history as Armada publishes it: in one partition, and not fed.
func live(h *history) []eventlog.Message {
	var all []eventlog.Message
	for _, msgs := range h.partitions {
		for _, m := range msgs {
			all = append(all, eventlog.Message{Key: m.Key, Payload: m.Payload})
		}
	}
	return all
}

// crowdSize is how many members the groups of crowded have.
const crowdSize = 64

// crowded is a history with as many messages about members of groups, each of which restarts once as a whole, between its own.
func crowded(b *testing.B, h *history) *history {
	b.Helper()
	c := newCrowd(b, 1, crowdSize, "")
	c.groups, c.now = h.messages/(4*crowdSize), h.partitions[0][0].Publish
	var groups []eventlog.Message
	take := func(msgs []eventlog.Message) {
		c.take(msgs...)
		groups = append(groups, msgs...)
	}
	take(c.each(c.submission))
	take(c.each(c.lease))
	var failures []eventlog.Message
	for first := 0; first < c.n(); first += c.size() {
		failures = append(failures, c.message(c.failure(first)))
	}
	take(failures)
	c.expect(c.n() + c.groups)
	c.runs++
	take(c.each(c.lease))
	take(c.each(c.success))
	mixed := &history{}
	for _, m := range live(h) {
		mixed.append(b, 0, m)
		if len(groups) > 0 {
			mixed.append(b, 0, groups[0])
			groups = groups[1:]
		}
	}
	return mixed
}

// BenchmarkLive compares an owner on a real broker, from its claim to the last
// commit, with the client's bare receive-and-publish loop over the same events:
// of-bare is how much of the bare loop's speed the owner reaches, by the wall
// clock, since both wait for the same broker. Half of the messages of load=groups
// are about members of groups.
func BenchmarkLive(b *testing.B) {
	of := func(times int) *history {
		return repeated(b, recorded(b, "plain", "chaos", "retried", "preempted"), times)
	}
	b.Run("load=recordings", func(b *testing.B) { benchmarkLive(b, of(80)) })
	b.Run("load=groups", func(b *testing.B) { benchmarkLive(b, crowded(b, of(40))) })
}

func benchmarkLive(b *testing.B, h *history) {
	d := deploy(b)
	d.load(live(h))
	end, err := d.events.End(0)
	d.must(err)
	var cores struct{ owner, bare []float64 } // that were busy, with the broker's
	wall := func(busy *[]float64, side func()) float64 {
		start, before := time.Now(), busyTime(b)
		side()
		took := time.Since(start).Seconds()
		*busy = append(*busy, (busyTime(b)-before).Seconds()/took)
		return took
	}
	owner := func() { d.decided(end) }
	bare := func() { d.bare(h.messages) }
	owner()
	bare()
	var of, aa, took []float64
	pair := func() {
		x, y := 0.0, 0.0
		if len(of)%2 == 0 {
			x, y = wall(&cores.owner, owner), wall(&cores.bare, bare)
		} else {
			y, x = wall(&cores.bare, bare), wall(&cores.owner, owner)
		}
		of, took = append(of, y/x), append(took, x)
		aa = append(aa, wall(&cores.bare, bare)/y)
	}
	for b.Loop() {
		pair()
	}
	for len(of) < minPairs {
		pair()
	}
	low, high := interval(of)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(of), "of-bare")
	b.ReportMetric(low, "of-bare-low")
	b.ReportMetric(high, "of-bare-high")
	b.ReportMetric(float64(h.messages)/median(took), "messages/s")
	b.ReportMetric(median(cores.owner), "owner-cores")
	b.ReportMetric(median(cores.bare), "bare-cores")
	aaLow, aaHigh := interval(aa)
	b.Logf("%d messages (%d events, %d bytes each on average), %d pairs: %.2f of the bare loop (95 %%: %.2f to %.2f); the bare loop against itself %.2f to %.2f",
		h.messages, h.events, h.bytes/int64(h.messages), len(of), median(of), low, high, aaLow, aaHigh)
}

// latency is what an open loop measured, in milliseconds.
type latency []float64

func (l latency) at(q float64) float64 {
	l = slices.Sorted(slices.Values(l))
	return l[min(len(l)-1, int(q*float64(len(l))))]
}

// BenchmarkLatency sends messages at a steady rate, each at its appointed time whatever happened to those before, and takes the time
// from the broker's receipt for an event to the durable answer: for an owner when it has read its envelope back, for the bare loop when
// it has the broker's receipt. At the low rate, each message has one event, of which 29 % are failures, and is sent by itself; at the
// others, recordings are sent in batches, compressed as Armada's are. The producer and the broker run on the same cores, of which the
// benchmark says how many were busy: at the high rate nearly all are, so the middle one is half of what such a machine can bear.
func BenchmarkLatency(b *testing.B) {
	const low, middle, high, seconds = 1000, 50_000, 100_000, 8
	recordings := func(times int) func() []eventlog.Message {
		return func() []eventlog.Message {
			return live(repeated(b, recorded(b, "plain", "chaos", "retried", "preempted"), times))
		}
	}
	for _, in := range []struct {
		rate    int
		batched bool
		msgs    func() []eventlog.Message
	}{
		{low, false, func() []eventlog.Message { return simulated(b, low*seconds/3).partitions[0][:low*seconds] }},
		{middle, true, recordings(40)},
		{high, true, recordings(80)},
	} {
		b.Run(fmt.Sprintf("rate=%d", in.rate), func(b *testing.B) {
			d, msgs := deploy(b), in.msgs()
			for b.Loop() {
				for _, side := range []string{"owner", "bare"} {
					var l latency
					start, busy := time.Now(), busyTime(b)
					if side == "owner" {
						l = d.ownerLatency(msgs, in.rate, in.batched)
					} else {
						l = d.bareLatency(msgs, in.rate, in.batched)
					}
					b.ReportMetric(l.at(0.5), side+"-p50-ms")
					b.ReportMetric(l.at(0.99), side+"-p99-ms")
					b.ReportMetric((busyTime(b)-busy).Seconds()/time.Since(start).Seconds(), side+"-cores")
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// receipts are when the broker had each entry, and the index of its last message, -1 if it is no batch.
type receipts struct {
	last map[eventlog.Position]int32
	mu   sync.Mutex
	at   map[eventlog.Position]time.Time
	n    atomic.Int64
}

// offer sends messages at a rate. The receipt of a batch is that of all its messages.
func (d *deployment) offer(ctx context.Context, msgs []eventlog.Message, rate int, batched bool, got *receipts) {
	o := pulsar.ProducerOptions{Topic: d.events.PartitionName(0), DisableBatching: !batched, SendTimeout: -1, MaxPendingMessages: len(msgs)}
	if batched {
		o.CompressionType = pulsar.ZLib
	}
	p, err := d.cluster.Client().CreateProducer(o)
	d.must(err)
	defer p.Close()
	start := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range msgs {
		for due := start.Add(time.Duration(i) * time.Second / time.Duration(rate)); time.Now().Before(due); {
			<-tick.C
		}
		p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: msgs[i].Payload, Key: msgs[i].Key}, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err == nil {
				got.mu.Lock()
				at := eventlog.Position{Ledger: id.LedgerID(), Entry: id.EntryID()}
				got.at[at], got.last[at] = time.Now(), max(got.last[at], id.BatchIdx())
				if !batched {
					got.last[at] = -1
				}
				got.mu.Unlock()
				got.n.Add(1)
			}
		})
	}
	_ = p.FlushWithCtx(ctx)
}

func (d *deployment) ownerLatency(msgs []eventlog.Message, rate int, batched bool) latency {
	d.b.Helper()
	type answer struct {
		from, to eventlog.Position
		at       time.Time
	}
	var answers []answer
	answered := 0
	o, closeAll := d.owner(evaluator.Hooks{Committed: func(c evaluator.Commit) {
		answers = append(answers, answer{c.Envelope.InFrom, c.Envelope.InTo, time.Now()})
		answered += int(c.Envelope.InCount)
	}})
	before, err := d.events.End(0)
	d.must(err)
	d.drive(o, func() bool {
		return o.Phase() == evaluator.Live && o.Positions().Chain.InTo == before || before == eventlog.Start && o.Phase() == evaluator.Live
	})
	answers, answered = nil, 0
	got := &receipts{at: map[eventlog.Position]time.Time{}, last: map[eventlog.Position]int32{}}
	go d.offer(d.b.Context(), msgs, rate, batched, got)
	d.drive(o, func() bool { return answered == len(msgs) && got.n.Load() == int64(len(msgs)) })
	closeAll()
	var l latency
	for at, when := range got.at {
		at.Batch = got.last[at]
		i, _ := slices.BinarySearchFunc(answers, at, func(a answer, at eventlog.Position) int { return a.to.Compare(at) })
		l = append(l, answers[i].at.Sub(when).Seconds()*1e3)
	}
	return l
}

func (d *deployment) bareLatency(msgs []eventlog.Message, rate int, batched bool) latency {
	d.b.Helper()
	r, p := d.bareReader(pulsar.LatestMessageID()), d.bareProducer()
	defer r.Close()
	defer p.Close()
	got := &receipts{at: map[eventlog.Position]time.Time{}, last: map[eventlog.Position]int32{}}
	go d.offer(d.b.Context(), msgs, rate, batched, got)
	answered := &receipts{at: map[eventlog.Position]time.Time{}}
	payload, sent := make([]byte, 512), int64(0)
	for range msgs {
		m, err := r.Next(d.b.Context())
		d.must(err)
		if m.ID().BatchIdx()+1 < m.ID().BatchSize() {
			continue // one answer for each batch
		}
		sent++
		at := eventlog.Position{Ledger: m.ID().LedgerID(), Entry: m.ID().EntryID()}
		p.SendAsync(d.b.Context(), &pulsar.ProducerMessage{Payload: payload}, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {
			answered.mu.Lock()
			answered.at[at] = time.Now()
			answered.mu.Unlock()
			answered.n.Add(1)
		})
	}
	wait := time.NewTicker(time.Millisecond)
	defer wait.Stop()
	for answered.n.Load() < sent || got.n.Load() < int64(len(msgs)) {
		<-wait.C
	}
	var l latency
	for at, when := range got.at {
		l = append(l, answered.at[at].Sub(when).Seconds()*1e3)
	}
	return l
}
