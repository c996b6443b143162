package cutover_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/armada/cutover"
	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/pgtest"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

func TestMain(m *testing.M) { os.Exit(pulsartest.Main(m)) }

const subscription = "scheduler-ingester"

// world is an events topic on a real broker and an Armada scheduler database.
type world struct {
	*testing.T
	cutover.Site
	cluster *pulsarlog.Cluster
	events  *pulsarlog.Topic
	rules   string // policies
}

func newWorld(t *testing.T, partitions int) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Pulsar broker and PostgreSQL")
	}
	b := pulsartest.Shared(t)
	tenant, namespace, _ := strings.Cut(b.Namespace(t), "/")
	for _, name := range []string{"events", "decisions"} {
		b.CreateTopic(t, fmt.Sprintf("persistent://%s/%s/%s", tenant, namespace, name), partitions)
	}
	w := &world{T: t, rules: policies}
	var err error
	w.cluster, err = pulsarlog.Connect(w.Context(), pulsarlog.Config{ServiceURL: b.URL, AdminURL: b.AdminURL, Tenant: tenant, Namespace: namespace, OperationTimeout: pulsartest.Patience})
	w.must(err)
	t.Cleanup(func() { _ = w.cluster.Close() })
	w.events, err = w.cluster.Open("events")
	w.must(err)
	w.Site = cutover.Site{
		Cluster: w.cluster, Events: "events", Decisions: "decisions", Subscription: subscription, JobDB: armadaDB(t), Now: time.Now,
	}
	return w
}

// armadaDB is a fresh database with Armada's tables.
func armadaDB(t *testing.T) string {
	t.Helper()
	url := pgtest.Database(t)
	conn := connect(t, url)
	if err := schema.Create(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	return url
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func readRecording(t *testing.T, name string) []recording.Entry {
	t.Helper()
	entries, err := recording.ReadFile(filepath.Join("..", "..", "..", "testdata", "recordings", name+".jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// publish publishes messages to events in batches, as Armada does.
func (w *world) publish(entries []recording.Entry, batch uint) {
	w.Helper()
	producers := map[int]pulsar.Producer{}
	for _, e := range entries {
		p := producers[e.Partition]
		if p == nil {
			var err error
			p, err = w.cluster.Client().CreateProducer(pulsar.ProducerOptions{
				Topic: w.events.PartitionName(e.Partition), BatchingMaxMessages: batch, BatchingMaxPublishDelay: time.Second,
				CompressionType: pulsar.ZLib, DisableBatching: batch < 2,
			})
			w.must(err)
			producers[e.Partition] = p
		}
		m := &pulsar.ProducerMessage{Key: e.Message.Key, Payload: e.Message.Payload, Properties: map[string]string{}}
		for _, property := range e.Message.Properties {
			m.Properties[property.Key] = property.Value
		}
		p.SendAsync(w.Context(), m, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				w.Error(err)
			}
		})
	}
	for _, p := range producers {
		w.must(p.FlushWithCtx(w.Context()))
		p.Close()
	}
}

// admin makes a request of the admin API.
func (w *world) admin(method, path, body string) (answer string) {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), method, pulsartest.Shared(w.T).AdminURL+"/admin/v2/"+path, strings.NewReader(body))
	w.must(err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	w.must(err)
	b, err := io.ReadAll(resp.Body)
	w.must(errors.Join(err, resp.Body.Close()))
	if resp.StatusCode/100 != 2 {
		w.Fatalf("%s: %s", path, resp.Status)
	}
	return string(b)
}

// wait calls the function until it is done.
func (w *world) wait(what string, more func() (bool, error)) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), pulsartest.Patience)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		on, err := more()
		if err != nil {
			w.Fatalf("%s: %v", what, err)
		}
		if !on {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			w.Fatalf("not in two minutes: %s", what)
		}
	}
}

// positions returns the positions of all messages of a partition.
func (w *world) positions(p int) (all []eventlog.Position) {
	w.Helper()
	r, err := eventlog.ToEnd(w.Context(), w.events).Open(p, eventlog.Start)
	w.must(err)
	defer r.Close()
	chunk := make([]eventlog.Message, 256)
	for {
		n, err := r.Read(chunk)
		w.must(err)
		if n == 0 {
			return all
		}
		for _, m := range chunk[:n] {
			all = append(all, m.Position)
		}
	}
}

// entryEnd returns the first index from i on of a message that is the last of its
// entry.
func entryEnd(all []eventlog.Position, i int) int {
	for i+1 < len(all) && all[i+1].Ledger == all[i].Ledger && all[i+1].Entry == all[i].Entry {
		i++
	}
	return i
}

func (w *world) subscribe(topic, name string) pulsar.Consumer {
	w.Helper()
	c, err := w.cluster.Client().Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: name, Type: pulsar.Failover, ReceiverQueueSize: 100,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		// An unload loses acknowledgements that are on their way, and then the broker never deletes what they are for.
		AckWithResponse: true, AckGroupingOptions: &pulsar.AckGroupingOptions{MaxSize: 1},
	})
	w.must(err)
	return c
}

// armadaIngests is a stand-in for Armada's ingester: it applies the messages of a
// partition up to a position to a database, and acknowledges each. It returns the
// position of the first.
func (w *world) armadaIngests(name, url string, p int, to eventlog.Position) (first eventlog.Position) {
	w.Helper()
	consumer := w.subscribe(w.events.PartitionName(p), name)
	defer consumer.Close()
	conn, converter := connect(w.T, url), schedulerdb.NewConverter()
	ctx, cancel := context.WithTimeout(w.Context(), pulsartest.Patience)
	defer cancel()
	for first = eventlog.Start; ; {
		var ops []schedulerdb.Op
		var ids []pulsar.MessageID
		at := eventlog.Start
		for len(ids) < 100 && at != to {
			m, err := consumer.Receive(ctx)
			w.must(err)
			at = eventlog.Position{Ledger: m.ID().LedgerID(), Entry: m.ID().EntryID(), Batch: max(m.ID().BatchIdx(), 0)}
			if first == eventlog.Start {
				first = at
			}
			effects, _ := converter.Convert(&eventlog.Message{Position: at, Publish: m.PublishTime().UnixNano(), Key: m.Key(), Payload: m.Payload()}, nil)
			for _, e := range effects {
				ops = append(ops, e.Op)
			}
			ids = append(ids, m.ID())
		}
		w.must(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return pgstore.In(tx).Apply(ctx, ops) }))
		for _, id := range ids {
			w.must(consumer.AckID(id))
		}
		if at == to {
			return first
		}
	}
}

// gate is a topic that ends at a given position in each partition.
type gate struct {
	eventlog.Topic
	limit []eventlog.Position
}

func (g *gate) End(p int) (eventlog.Position, error) {
	end, err := g.Topic.End(p)
	if end.Compare(g.limit[p]) > 0 {
		end = g.limit[p]
	}
	return end, err
}

func (g *gate) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	r, err := g.Topic.Open(p, after)
	return &gateReader{Reader: r, gate: g, p: p}, err
}

type gateReader struct {
	eventlog.Reader
	gate  *gate
	p     int
	queue []eventlog.Message
}

func (r *gateReader) Read(dst []eventlog.Message) (int, error) {
	if len(r.queue) == 0 {
		chunk := make([]eventlog.Message, 256)
		n, err := r.Reader.Read(chunk)
		if err != nil {
			return 0, err
		}
		r.queue = chunk[:n]
	}
	n := 0
	for n < len(dst) && n < len(r.queue) && r.queue[n].Position.Compare(r.gate.limit[r.p]) <= 0 {
		n++
	}
	copy(dst, r.queue[:n])
	r.queue = r.queue[n:]
	return n, nil
}

// refloat is our evaluators and our ingester, on the same events and database, with
// file logs of their own.
type refloat struct {
	*world
	gate                *gate
	decisions, policies *filelog.Log
	owners              []*evaluator.Owner
	closers             []func() error
	db                  *postgres.DB
	writer              *sink.Writer
}

const policies = `
kind: RetryPolicy
apiVersion: armadaproject.io/v1
metadata: {name: all}
spec: {retryLimit: 3, defaultAction: Retry}
---
kind: Queue
name: a
retryPolicies: [all]
`

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) {}

// proposal returns the policies in the policies log.
func (w *world) proposal() []byte {
	w.Helper()
	set, err := policyfile.Parse([]policyfile.File{{Name: "policies.yaml", Data: []byte(w.rules)}})
	w.must(err)
	payload, err := policylog.Encode(&policylog.Proposal{Set: set, Author: "test", Time: time.Now().UnixNano()})
	w.must(err)
	return payload
}

func (w *world) refloat(mode writer.Mode) *refloat {
	w.Helper()
	r := &refloat{world: w, gate: &gate{Topic: eventlog.ToEnd(w.Context(), w.events), limit: make([]eventlog.Position, w.events.Partitions())}}
	fs := vfs.NewMem()
	open := func(dir string, partitions int) *filelog.Log {
		log, err := filelog.Open(filelog.Config{FS: fs, Dir: dir, Partitions: partitions, Manual: true, Now: time.Now})
		w.must(err)
		return log
	}
	r.decisions, r.policies = open("decisions", w.events.Partitions()), open("policies", 1)
	w.must(r.policies.AppendSync(w.Context(), 0, []eventlog.Message{{Payload: w.proposal()}}))
	var err error
	r.db, err = postgres.Open(w.Context(), w.JobDB, postgres.Options{})
	w.must(err)
	for p := range w.events.Partitions() {
		state, err := projection.OpenStore(projection.StoreConfig{FS: vfs.NewMem(), Dir: "state", Logger: quiet{}})
		w.must(err)
		policies, err := policylog.Open(r.policies)
		w.must(err)
		o := evaluator.NewOwner(evaluator.Config{
			Partition: p, Store: state, Events: r.gate, Decisions: r.decisions, Policies: policies, Publisher: r.decisions.Publisher(p), Random: rand.Reader,
			AcceptHistory: new(eventlog.Start), AcceptEmptyDecisions: true,
		})
		r.owners = append(r.owners, o)
		r.closers = append(r.closers, o.Close, policies.Close, state.Close)
	}
	r.writer, err = sink.New(sink.Config{
		Events: r.gate, Decisions: r.decisions, DB: r.db, Now: time.Now,
		Mirror: func(p int) sink.Mirror { return writer.New(writer.Config{Partition: p, Mode: mode}) },
	})
	w.must(err)
	r.closers = append(r.closers, r.writer.Close, r.db.Close, r.decisions.Close, r.policies.Close)
	w.Cleanup(func() {
		for _, c := range r.closers {
			w.must(c())
		}
	})
	return r
}

// ingestTo lets evaluators and ingester advance to these positions.
func (r *refloat) ingestTo(limit []eventlog.Position) {
	r.Helper()
	copy(r.gate.limit, limit)
	for progress := true; progress; {
		progress = false
		for p, o := range r.owners {
			did, err := o.Advance(time.Now().UnixNano())
			r.must(err)
			r.must(r.decisions.Commit())
			wrote, err := r.writer.Advance(r.Context(), p)
			r.must(err)
			progress = progress || did || wrote
		}
	}
}

// rows returns Armada's four tables, without columns that depend on when they were
// written.
func rows(t *testing.T, url string) map[string]string {
	t.Helper()
	conn, all := connect(t, url), map[string]string{}
	for table, key := range map[string]string{"jobs": "job_id", "runs": "run_id", "job_run_errors": "run_id", "job_metadata": "job_id"} {
		found, err := conn.Query(t.Context(), "SELECT "+key+", (to_jsonb(r) - 'serial' - 'last_modified')::text FROM "+table+" AS r")
		if err != nil {
			t.Fatal(err)
		}
		var id, text string
		if _, err := pgx.ForEachRow(found, []any{&id, &text}, func() error {
			all[table+" "+id] = text
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func equalRows(t *testing.T, want, got map[string]string) {
	t.Helper()
	if len(want) < 100 {
		t.Errorf("%d rows are too few to compare", len(want))
	}
	wrong := 0
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] != want[key] {
			if wrong++; wrong < 4 {
				t.Errorf("%s is\n%s, want\n%s", key, got[key], want[key])
			}
		}
	}
	if wrong > 0 || len(got) != len(want) {
		t.Errorf("%d of %d rows are wrong, there are %d", wrong, len(want), len(got))
	}
}

// refused checks that nothing was done, for these reasons, each in its own finding.
func refused(t *testing.T, r *cutover.Report, err error, want ...string) {
	t.Helper()
	if !errors.Is(err, cutover.ErrRefused) {
		t.Fatalf("error %v, want a refusal; findings %+v", err, r)
	}
	var found []string
	for _, f := range r.Findings {
		if f.Refuses {
			found = append(found, f.About+": "+f.What+" | "+f.Fix)
		}
	}
	if len(found) != len(want) {
		t.Fatalf("refused by %q, want %q", found, want)
	}
	for i, text := range want {
		if !strings.Contains(found[i], text) {
			t.Errorf("refused by %q, want %q", found[i], text)
		}
	}
}
