package app_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/schedulerdb/pb"
	"github.com/refloat/refloat/internal/schedulerdb/schema"
	"github.com/refloat/refloat/internal/test/pgtest"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

// TestControlPlane checks that exactly one of several ingesters on Armada's scheduler database applies the
// control-plane topic, unless its mode is observe.
func TestControlPlane(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a Pulsar broker and PostgreSQL")
	}
	b, url := pulsartest.Start(t, pulsartest.Options{}), pgtest.Database(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := schema.Create(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	tenant, namespace, _ := strings.Cut(b.Namespace(t), "/")
	cfg := pulsarlog.Config{ServiceURL: b.URL, AdminURL: b.AdminURL, Tenant: tenant, Namespace: namespace, OperationTimeout: pulsartest.Patience}
	cluster, err := pulsarlog.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	for topic, partitions := range map[string]int{"events": 1, "decisions": 1, "policies": 0, "control-plane": 0} {
		b.CreateTopic(t, cluster.TopicName(topic), partitions)
	}
	start := func(instance, mode string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- app.Run(ctx, app.Config{
				Pulsar:   &app.Pulsar{Cluster: cfg, Events: "events", Decisions: "decisions", Policies: "policies", Control: "control-plane"},
				Instance: instance, JobDB: url, IngestMode: mode, Ingest: true, Log: slog.New(slog.DiscardHandler), Now: time.Now,
			})
		}()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	readers := func(topic string) []string {
		name, err := utils.GetTopicName(cluster.TopicName(topic))
		if err != nil {
			t.Fatal(err)
		}
		admin, err := cluster.Admin()
		if err != nil {
			t.Fatal(err)
		}
		stats, err := admin.Topics().GetStats(*name)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range stats.Subscriptions[string(app.Ingesters)].Consumers {
			names = append(names, c.ConsumerName)
		}
		return names
	}
	producer, err := cluster.Client().CreateProducer(pulsar.ProducerOptions{Topic: cluster.TopicName("control-plane"), DisableBatching: true})
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	cordon := func(executor string) {
		payload, err := proto.Marshal(&pb.ControlEvent{Event: &pb.ControlEvent_ExecutorSettingsUpsert{ExecutorSettingsUpsert: &pb.ExecutorSettingsUpsert{Name: executor}}})
		if err == nil {
			_, err = producer.Send(t.Context(), &pulsar.ProducerMessage{Payload: payload})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cordoned := func() (names string) {
		if err := conn.QueryRow(t.Context(), "SELECT coalesce(string_agg(executor_id, ' ' ORDER BY executor_id), '') FROM executor_settings").Scan(&names); err != nil {
			t.Fatal(err)
		}
		return names
	}

	stop := start("observer", "observe")
	cordon("a")
	eventually(t, "the observer reads decisions", func() bool { return len(readers("decisions-partition-0")) == 1 })
	stop()
	if cordoned() != "" || len(readers("control-plane")) != 0 {
		t.Error("an ingester that observes follows the control-plane topic")
	}

	first := start("first", "holdback")
	eventually(t, "what was asked for before is in the tables", func() bool { return cordoned() == "a" })
	second := start("second", "passthrough")
	eventually(t, "both have a lease", func() bool { return len(readers("control-plane")) == 2 })
	cordon("b")
	eventually(t, "what is asked for is in the tables", func() bool { return cordoned() == "a b" })
	first()
	cordon("c")
	eventually(t, "the other one goes on", func() bool { return cordoned() == "a b c" })
	second()
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	late := time.After(2 * time.Minute)
	for !holds() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("not in two minutes: %s", what)
		}
	}
}
