package cutover_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/armada/controlplane"
	"github.com/refloat/refloat/internal/doctor"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pb"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

// withControl adds a control-plane topic, without partitions as Armada creates it.
func (w *world) withControl() *pulsarlog.Topic {
	w.Helper()
	w.Control = "control-plane"
	pulsartest.Shared(w.T).CreateTopic(w.T, w.cluster.TopicName("control-plane"), 0)
	topic, err := w.cluster.Open("control-plane")
	w.must(err)
	w.Cleanup(func() { _ = topic.Close() })
	return topic
}

// cordon publishes n messages, in batches. Their executors are numbered.
func (w *world) cordon(topic *pulsarlog.Topic, from, n int, batch uint) {
	w.Helper()
	p, err := w.cluster.Client().CreateProducer(pulsar.ProducerOptions{
		Topic: topic.Name(), BatchingMaxMessages: batch, BatchingMaxPublishDelay: time.Second, DisableBatching: batch < 2,
	})
	w.must(err)
	for i := range n {
		payload, err := proto.Marshal(&pb.ControlEvent{Event: &pb.ControlEvent_ExecutorSettingsUpsert{
			ExecutorSettingsUpsert: &pb.ExecutorSettingsUpsert{Name: fmt.Sprintf("e%02d", from+i), Cordoned: true},
		}})
		w.must(err)
		p.SendAsync(w.Context(), &pulsar.ProducerMessage{Payload: payload}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				w.Error(err)
			}
		})
	}
	w.must(p.FlushWithCtx(w.Context()))
	p.Close()
}

// armadaCordons is Armada's ingester on the control-plane topic: it applies n messages
// and returns the executors that they name.
func (w *world) armadaCordons(topic *pulsarlog.Topic, n int) (names []string) {
	w.Helper()
	c := w.subscribe(topic.Name(), subscription)
	defer c.Close()
	for range n {
		m, err := c.Receive(w.Context())
		w.must(err)
		op, finding := schedulerdb.Control(&eventlog.Message{Payload: m.Payload()})
		if finding != nil {
			w.Fatalf("%+v", finding)
		}
		names = append(names, op.(*schedulerdb.SetExecutor).Executor)
		w.must(c.AckID(m.ID()))
	}
	return names
}

// TestControlPlane: start takes over the control-plane topic after the last message
// that Armada's ingester acknowledged, and back returns it after the last message that
// ours applied.
func TestControlPlane(t *testing.T) {
	w := newWorld(t, 1)
	w.subscribe(w.events.PartitionName(0), subscription).Close() // events are empty
	topic := w.withControl()
	w.cordon(topic, 0, 12, 4)
	report, err := w.Start(t.Context(), false)
	refused(t, report, err, "control-plane, partition 0: there is no subscription scheduler-ingester")
	if got := w.armadaCordons(topic, 4); got[0] != "e00" || got[3] != "e03" {
		t.Fatalf("Armada has taken in %q", got)
	}
	consumer := w.subscribe(topic.Name(), subscription)
	report, err = w.Start(t.Context(), false)
	refused(t, report, err, "control-plane, partition 0: subscription scheduler-ingester has 1 consumer: ")
	consumer.Close()

	report, err = w.Start(t.Context(), true)
	w.must(err)
	if len(report.Steps) != 3 || !strings.Contains(report.Steps[2].What, "control-plane, partition 0: our ingester continues after") {
		t.Errorf("rehearsed: %+v", report.Steps)
	}
	_, err = w.Start(t.Context(), false)
	w.must(err)
	report, err = w.Start(t.Context(), false)
	refused(t, report, err, "already has a position")

	// Ours continues where Armada's stopped.
	r := w.control(topic)
	r.advance(2)
	if got := w.executors(); got != "e04 e05" {
		t.Errorf("ours applied %q, want the two behind Armada's", got)
	}
	report, err = w.Back(t.Context(), false)
	refused(t, report, err, "in the middle of a batch")
	r.advance(2)
	ours := w.subscribe(topic.Name(), doctor.IngesterSubscription)
	report, err = w.Back(t.Context(), false)
	refused(t, report, err, "control-plane, partition 0: our ingester is connected")
	ours.Close()
	report, err = w.Back(t.Context(), false)
	w.must(err)
	if s := report.Steps[len(report.Steps)-2]; s.Done || !strings.Contains(s.What, "control-plane, partition 0: move subscription") {
		t.Errorf("step %+v", s)
	}
	report, err = w.Back(t.Context(), false)
	w.must(err)
	for _, s := range report.Steps {
		if !s.Done {
			t.Errorf("again: %+v", s)
		}
	}
	if got := w.armadaCordons(topic, 4); got[0] != "e08" || got[3] != "e11" {
		t.Errorf("Armada goes on with %q, want what ours left", got)
	}
}

// TestControlPlaneAlone: a deployment in which only events were taken over, or in which
// the topic does not exist yet.
func TestControlPlaneAlone(t *testing.T) {
	w := newWorld(t, 1)
	w.subscribe(w.events.PartitionName(0), subscription).Close()
	w.Control = "control-plane"
	_, err := w.Start(t.Context(), false) // without the topic
	w.must(err)
	if n := w.count("SELECT count(*) FROM refloat_control WHERE ledger = -1"); n != 1 {
		t.Error("what comes into a topic that was not there is not ours from its beginning")
	}
	topic := w.withControl()
	w.cordon(topic, 0, 2, 1)
	w.control(topic).advance(2)
	if got := w.executors(); got != "e00 e01" {
		t.Errorf("ours applied %q", got)
	}
	report, err := w.Back(t.Context(), false)
	refused(t, report, err, "control-plane, partition 0: there is no subscription scheduler-ingester")

	// As after an upgrade: Armada's ingester kept running for the topic.
	_, err = connect(t, w.JobDB).Exec(t.Context(), "DELETE FROM refloat_control")
	w.must(err)
	if got := w.armadaCordons(topic, 1); got[0] != "e00" {
		t.Fatalf("Armada has taken in %q", got)
	}
	report, err = w.Start(t.Context(), false)
	w.must(err)
	if s := report.Steps[len(report.Steps)-1].What; !strings.Contains(s, "control-plane, partition 0: our ingester continues") || strings.Contains(fmt.Sprint(report.Steps), "partition 0: our ingester starts") {
		t.Errorf("steps %+v", report.Steps)
	}
	_, err = connect(t, w.JobDB).Exec(t.Context(), "DELETE FROM executor_settings")
	w.must(err)
	w.control(topic).advance(1)
	if got := w.executors(); got != "e01" {
		t.Errorf("ours applied %q, want e01", got)
	}
	_, err = w.Back(t.Context(), false)
	w.must(err)
}

// controller is our ingester on the control-plane topic.
type controller struct {
	*world
	*controlplane.Follower
}

func (w *world) control(topic *pulsarlog.Topic) *controller {
	w.Helper()
	db, err := postgres.Open(w.Context(), w.JobDB, postgres.Options{})
	w.must(err)
	w.Cleanup(func() { _ = db.Close() })
	f := controlplane.New(controlplane.Config{Topic: eventlog.ToEnd(w.Context(), topic), DB: db})
	w.Cleanup(func() { _ = f.Close() })
	return &controller{w, f}
}

// advance applies n messages.
func (c *controller) advance(n int) {
	c.Helper()
	for range n {
		if did, err := c.Advance(c.Context()); err != nil || !did {
			c.Fatalf("nothing was applied: %v", err)
		}
	}
}

// executors returns the executors with settings.
func (w *world) executors() (names string) {
	w.Helper()
	w.must(connect(w.T, w.JobDB).QueryRow(w.Context(), "SELECT coalesce(string_agg(executor_id, ' ' ORDER BY executor_id), '') FROM executor_settings").Scan(&names))
	return names
}
