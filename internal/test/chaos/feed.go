package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/test/e2e"
)

// feed publishes events as Armada does: by job set as the key, in batches.
type feed struct {
	history  *e2e.History
	producer pulsar.Producer
	probes   []pulsar.Producer // one for each partition
	rate     int
	paused   atomic.Bool
	sent     atomic.Int64
	failed   atomic.Pointer[error]
	work     sync.WaitGroup
}

func (c *campaign) newFeed(files []string) (*feed, error) {
	history, err := e2e.OpenHistory(files, 4*c.settings.partitions)
	if err != nil {
		return nil, err
	}
	f := &feed{history: history, rate: c.settings.rate}
	client := c.logs.Cluster.Client()
	f.producer, err = client.CreateProducer(pulsar.ProducerOptions{
		Topic: c.deployment.Topic("events"), CompressionType: pulsar.ZLib, SendTimeout: -1, MaxPendingMessages: 20_000,
	})
	if err != nil {
		return nil, err
	}
	for p := range c.settings.partitions {
		one, err := client.CreateProducer(pulsar.ProducerOptions{Topic: c.logs.Events.PartitionName(p), SendTimeout: -1, DisableBatching: true})
		if err != nil {
			return nil, err
		}
		f.probes = append(f.probes, one)
	}
	return f, nil
}

// run feeds at the rate until ctx ends.
func (f *feed) run(ctx context.Context) error {
	const ticks = 50 // a second
	tick := time.NewTicker(time.Second / ticks)
	defer tick.Stop()
	due := 0.0
	for {
		select {
		case <-ctx.Done():
			f.work.Wait()
			return nil
		case <-tick.C:
		}
		if err := f.failed.Load(); err != nil {
			return *err
		}
		if f.paused.Load() {
			continue
		}
		for due += float64(f.rate) / ticks; due >= 1; due-- {
			ev, err := f.history.Next(time.Now())
			if err != nil {
				return err
			}
			f.work.Add(1)
			f.producer.SendAsync(ctx, &pulsar.ProducerMessage{Key: ev.Key, Payload: ev.Payload}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				defer f.work.Done()
				if err != nil && !errors.Is(err, context.Canceled) {
					err = fmt.Errorf("feed: %w", err)
					f.failed.CompareAndSwap(nil, &err)
					return
				}
				f.sent.Add(1)
			})
		}
	}
}

// probe publishes an event to each partition, and calls durable with its position once it is durable.
func (f *feed) probe(ctx context.Context, n int, durable func(p int, at eventlog.Position, err error)) error {
	for p, producer := range f.probes {
		payload, err := proto.Marshal(&pb.EventSequence{
			Queue: "probe", JobSetName: fmt.Sprintf("probe-%d", p),
			Events: []*pb.Event{{Event: &pb.Event_JobSucceeded{JobSucceeded: &pb.JobSucceeded{JobId: fmt.Sprintf("probe-%d-%d", n, p)}}}},
		})
		if err != nil {
			return err
		}
		producer.SendAsync(ctx, &pulsar.ProducerMessage{Key: fmt.Sprintf("probe-%d", p), Payload: payload}, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				durable(p, eventlog.Position{}, err)
				return
			}
			durable(p, eventlog.Position{Ledger: id.LedgerID(), Entry: id.EntryID()}, nil)
		})
	}
	return nil
}
