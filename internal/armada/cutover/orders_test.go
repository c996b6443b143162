package cutover_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/doctor"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

// order is a deployment that goes through the steps of one of the orders below. Its
// decisions are on the broker, like events.
type order struct {
	*world
	entries     []recording.Entry // not published yet
	undisturbed string            // the rows of an Armada ingester that is never replaced
	decisions   *pulsarlog.Topic
	owners      []*evaluator.Owner // nil: no evaluator ever ran
	ours        bool
	deleted     bool // a ledger was deleted
}

// steps are the possible steps. Each begins when the previous one is done.
var steps = map[rune]func(o *order){
	'p': (*order).publishSome,
	'a': (*order).armada,
	'e': (*order).evaluate,
	'i': (*order).ingest,
	't': (*order).trim,
	's': (*order).start,
	'b': (*order).back,
}

// TestOrders: in whatever order our ingester and Armada's replace each other, and
// whatever ledgers the broker deletes meanwhile, each message is applied once.
func TestOrders(t *testing.T) {
	type row struct {
		steps   string
		deletes bool // the broker must have deleted something
	}
	orders := []row{
		{"pa s pi b pa t s pi b pa", true},          // again after Armada's ingester continued and ledgers were deleted
		{"pea pea pea t s pi b pa", true},           // the first time, long after evaluators were started
		{"pea t pa e s pi b pa", false},             // the evaluators lag, and catch up just before
		{"pa t s t b t s t pi b t pa", true},        // nothing happens between start and back
		{"pae t p s t pi b t s t pi b pa", false},   // Armada's ingester has a backlog
		{"p s pi b t s pi t b pa", true},            // Armada's ingester applied nothing
		{"pa s pi b pa pa pa t s b t s b pa", true}, // back at once, and again
	}
	for seed := range uint64(4) {
		orders = append(orders, row{steps: anyOrder(seed)})
	}
	for _, tt := range orders {
		t.Run(tt.steps, func(t *testing.T) {
			o := newOrder(t)
			o.run(tt.steps)
			if tt.deletes && !o.deleted {
				t.Error("the broker deleted nothing")
			}
		})
	}
}

// anyOrder returns a random valid order: start and back alternate, and before each of
// them the running ingester sometimes catches up.
func anyOrder(seed uint64) string {
	r := mathrand.New(mathrand.NewPCG(seed, 1))
	steps, ours := []rune("p"), false
	for range 14 {
		switch n := r.IntN(10); {
		case n < 3:
			steps = append(steps, 'p')
		case n < 5:
			steps = append(steps, 't')
		case n < 6:
			steps = append(steps, 'e')
		case n < 8 && ours:
			steps = append(steps, 'i')
		case n < 8:
			steps = append(steps, 'a')
		case ours:
			steps, ours = append(steps, 'b'), false
		default:
			steps, ours = append(steps, 's'), true
		}
	}
	if ours {
		steps = append(steps, 'i', 'b')
	}
	return string(append(steps, 'p', 'a'))
}

func newOrder(t *testing.T) *order {
	t.Helper()
	o := &order{world: newWorld(t, 2), entries: readRecording(t, "chaos"), undisturbed: armadaDB(t)}
	for i := range o.entries {
		o.entries[i].Partition %= 2
	}
	for p := range 2 {
		o.subscribe(o.events.PartitionName(p), subscription).Close()
	}
	// The broker deletes ledgers that all subscriptions have acknowledged. (The ledger
	// of decisions stays open.)
	name, err := utils.GetTopicName(o.events.Name())
	o.must(err)
	o.admin(http.MethodPost, "namespaces/"+name.GetTenant()+"/"+name.GetNamespace()+"/retention", `{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}`)
	o.decisions, err = o.cluster.Open("decisions")
	o.must(err)
	return o
}

func (o *order) run(order string) {
	for i, step := range strings.ReplaceAll(order, " ", "") {
		steps[step](o)
		if o.Failed() {
			o.Fatalf("in step %d, %c", i+1, step)
		}
	}
	if o.ours {
		o.Fatal("an order ends with Armada's ingester")
	}
	equalRows(o.T, rows(o.T, o.undisturbed), rows(o.T, o.JobDB))
}

func (o *order) publishSome() {
	o.must(o.unload()) // its own ledger
	o.reopen()
	n := min(60, len(o.entries))
	o.publish(o.entries[:n], 4)
	o.entries = o.entries[n:]
	for p := range 2 { // at once, so that it retains no ledger
		o.armadaToEnd("undisturbed", o.undisturbed, p)
	}
}

// TestUndecided: start refuses if our ingester could not follow the decisions.
func TestUndecided(t *testing.T) {
	o := newOrder(t)
	for _, step := range "pa" {
		steps[step](o)
	}
	other := strings.TrimSuffix(o.decisions.Name(), "decisions") + "other"
	pulsartest.Shared(t).CreateTopic(t, other, 2)
	topic, err := o.cluster.Open(other)
	o.must(err)
	defer topic.Close()
	publish := func() {
		out := topic.Appender()
		defer out.Close()
		o.must(out.AppendSync(t.Context(), 1, []eventlog.Message{{Payload: []byte("an envelope")}}))
	}
	publish()
	o.must(pulsartest.Shared(t).Unload(other)) // which gives it a new ledger
	name, err := utils.GetTopicName(topic.PartitionName(1))
	o.must(err)
	o.admin(http.MethodDelete, name.GetRestPath()+"/truncate", "")
	publish()
	o.Decisions = other
	r, err := o.Start(t.Context(), true)
	refused(t, r, err, "partition 1: our ingester cannot follow the decisions")
	if r.Database.Ours {
		t.Error("there are tables of ours")
	}
}

// TestLeaveCursor: if a topic does not hold our position, Armada's ingester continues
// from its subscription's position only if an operator says so; then ours may start
// again.
func TestLeaveCursor(t *testing.T) {
	o := newOrder(t)
	for _, step := range "paspi" {
		steps[step](o)
	}
	_, err := connect(t, o.JobDB).Exec(t.Context(), "UPDATE refloat_positions SET event_ledger = event_ledger + 1000000 WHERE partition = 1")
	o.must(err)
	r, err := o.Start(t.Context(), true)
	refused(t, r, err, "already has a position")
	r, err = o.Back(t.Context(), false)
	refused(t, r, err, "partition 1: Armada's ingester cannot continue from our ingester's position")
	o.LeaveCursor = true
	r, err = o.Back(t.Context(), true)
	o.must(err)
	if !strings.Contains(fmt.Sprint(r.Findings), "as --leave-cursor says") {
		t.Errorf("findings %+v", r.Findings)
	}
	at := r.Partitions[1].Applied.At
	o.back()
	state, err := o.Inspect(t.Context())
	o.must(err)
	if got := state.Partitions[1].Applied.At; got != at {
		t.Errorf("partition 1: Armada's ingester stands at %v, want %v", got, at)
	}
	if got := state.Partitions[0]; got.Applied.At != got.EventsAt.At {
		t.Errorf("partition 0: Armada's ingester stands at %+v", got)
	}
	o.start()
	o.ingest()
	o.LeaveCursor = false
	o.back()
}

// armadaToEnd lets an Armada ingester apply everything.
func (o *order) armadaToEnd(name, url string, p int) {
	o.Helper()
	state, err := o.Inspect(o.Context())
	o.must(err)
	if end := o.end(p); end != eventlog.Start && (name != subscription || state.Partitions[p].Applied.At.Compare(end) < 0) {
		o.armadaIngests(name, url, p, end)
	}
}

func (o *order) armada() {
	if o.ours {
		o.Fatal("Armada's ingester would run beside ours")
	}
	for p := range 2 {
		o.armadaToEnd(subscription, o.JobDB, p)
	}
}

func (o *order) start() {
	r, err := o.Start(o.Context(), false)
	if err != nil {
		o.Fatalf("start: %v: %+v", err, r)
	}
	o.ours = true
}

func (o *order) back() {
	r, err := o.Back(o.Context(), false)
	if err != nil {
		o.Fatalf("back: %v: %+v", err, r)
	}
	o.ours = false
}

// trim starts a new ledger, and makes the broker delete what no subscription needs.
func (o *order) trim() {
	o.must(o.unload())
	for p := range 2 {
		name, err := utils.GetTopicName(o.events.PartitionName(p))
		o.must(err)
		o.admin(http.MethodPost, name.GetRestPath()+"/trim", "")
	}
	o.reopen()
	for p := range 2 {
		at, err := o.events.Beginning(p)
		o.must(err)
		o.deleted = o.deleted || at != eventlog.Start
	}
}

// reopen drops what is cached about events.
func (o *order) reopen() {
	o.must(o.events.Close())
	var err error
	o.events, err = o.cluster.Open("events")
	o.must(err)
}

// evaluate lets the evaluators decide everything. They have their state, and a
// subscription that retains undecided messages and their last message.
func (o *order) evaluate() {
	if o.owners == nil {
		o.evaluatorsUp()
	}
	for p, owner := range o.owners {
		end := o.end(p)
		o.wait(fmt.Sprintf("partition %d is answered up to %v", p, end), func() (bool, error) {
			if owner.Positions().Chain.InTo.Compare(end) >= 0 {
				return false, nil
			}
			_, err := owner.Advance(time.Now().UnixNano())
			return true, err
		})
		o.acknowledge(p, end)
	}
}

// acknowledge retains the last message.
func (o *order) acknowledge(p int, end eventlog.Position) {
	c := o.subscribe(o.events.PartitionName(p), doctor.EvaluatorSubscription)
	defer c.Close()
	var ids []pulsar.MessageID
	for at := eventlog.Start; at.Compare(end) < 0; {
		m, err := c.Receive(o.Context())
		o.must(err)
		at = eventlog.Position{Ledger: m.ID().LedgerID(), Entry: m.ID().EntryID(), Batch: max(m.ID().BatchIdx(), 0)}
		ids = append(ids, m.ID())
	}
	for _, id := range ids[:max(len(ids)-1, 0)] {
		if id.EntryID() != end.Entry {
			o.must(c.AckID(id))
		}
	}
}

func (o *order) evaluatorsUp() {
	log, err := filelog.Open(filelog.Config{FS: vfs.NewMem(), Dir: "policies", Partitions: 1, Manual: true, Now: time.Now})
	o.must(err)
	o.Cleanup(func() { _ = log.Close() })
	o.must(log.AppendSync(o.Context(), 0, []eventlog.Message{{Payload: o.proposal()}}))
	for p := range 2 {
		publisher, err := o.decisions.Publisher(o.Context(), p)
		o.must(err)
		state, err := projection.OpenStore(projection.StoreConfig{FS: vfs.NewMem(), Dir: "state", Logger: quiet{}})
		o.must(err)
		policies, err := policylog.Open(log)
		o.must(err)
		owner := evaluator.NewOwner(evaluator.Config{
			Partition: p, Store: state, Events: here{o}, Decisions: o.decisions, Policies: policies, Publisher: publisher, Random: rand.Reader,
			AcceptHistory: new(eventlog.Start), AcceptEmptyDecisions: true,
		})
		o.owners = append(o.owners, owner)
		o.Cleanup(func() { o.must(errors.Join(owner.Close(), publisher.Close(), policies.Close(), state.Close())) })
	}
}

// here is events, reopened if necessary.
type here struct{ o *order }

func (h here) Partitions() int                            { return h.o.events.Partitions() }
func (h here) Beginning(p int) (eventlog.Position, error) { return h.o.events.Beginning(p) }
func (h here) End(p int) (eventlog.Position, error)       { return h.o.events.End(p) }
func (h here) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	return h.o.events.Open(p, after)
}

// ingest starts our ingester, lets it catch up, and stops it.
func (o *order) ingest() {
	o.evaluate()
	db, err := postgres.Open(o.Context(), o.JobDB, postgres.Options{})
	o.must(err)
	defer db.Close()
	positions := map[int]eventlog.Position{}
	w, err := sink.New(sink.Config{
		Events: here{o}, Decisions: o.decisions, DB: db, Now: time.Now,
		Hooks:  sink.Hooks{Committed: func(b sink.Batch) { positions[b.Partition] = b.Positions.Events }},
		Mirror: func(p int) sink.Mirror { return writer.New(writer.Config{Partition: p, Mode: writer.Passthrough}) },
	})
	o.must(err)
	defer func() { o.must(w.Close()) }()
	for p := range 2 {
		tx, err := db.Begin(o.Context(), p)
		o.must(err)
		positions[p] = tx.Positions().Events
		o.must(tx.Rollback())
		end := o.end(p)
		o.wait(fmt.Sprintf("partition %d is ingested up to %v", p, end), func() (bool, error) {
			_, err := w.Advance(o.Context(), p)
			return positions[p].Compare(end) < 0, err
		})
	}
	reader, err := postgres.OpenReader(o.Context(), o.JobDB)
	o.must(err)
	defer reader.Close()
	for p := range 2 { // the rows equal what follows from the logs
		var got *jobdb.Contents
		o.must(reader.View(o.Context(), func(q jobdb.Queries) (err error) {
			got, err = q.Contents(p)
			return err
		}))
		want, err := sink.FoldTo(eventlog.ToEnd(o.Context(), o.events), eventlog.ToEnd(o.Context(), o.decisions), jobdb.PartitionPositions{Partition: p, Positions: got.Positions}, got.Releases...)
		o.must(err)
		for _, d := range sink.Compare(want, got) {
			o.Errorf("partition %d: %v", p, d)
		}
	}
}
