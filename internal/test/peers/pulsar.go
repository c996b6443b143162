package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/apache/pulsar-client-go/pulsar"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/test/e2e"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

const (
	brokerMemory = "-Xms1g -Xmx1g"
	brokerJVM    = "-XX:+UseG1GC"
)

func open(ctx context.Context, s settings, name, dir string) (broker, error) {
	if name == "refloat" {
		return openPulsar(ctx, s, dir)
	}
	return openKafka(ctx, s, name, dir)
}

type onPulsar struct {
	*e2e.Deployment
	broker    *pulsartest.Broker
	logs      *e2e.Logs
	producers []pulsar.Producer
}

func openPulsar(ctx context.Context, s settings, dir string) (_ *onPulsar, err error) {
	b, err := pulsartest.Launch(ctx, pulsartest.Options{Memory: brokerMemory + " -XX:MaxDirectMemorySize=1g", JVM: brokerJVM})
	if err != nil {
		return nil, err
	}
	o := &onPulsar{broker: b}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	namespace, err := b.NewNamespace(ctx)
	if err != nil {
		return nil, err
	}
	o.Deployment = &e2e.Deployment{URL: b.URL, AdminURL: b.AdminURL, Namespace: namespace, Dir: dir}
	o.Programs.Evaluator, o.Programs.Ctl = filepath.Join(s.bin, "evaluator"), filepath.Join(s.bin, "refloatctl")
	if err := o.Create(ctx, partitions); err != nil {
		return nil, err
	}
	if o.logs, err = o.Deployment.Open(); err != nil {
		return nil, err
	}
	for p := range partitions {
		producer, err := o.logs.Cluster.Client().CreateProducer(pulsar.ProducerOptions{
			Topic: o.logs.Events.PartitionName(p), DisableBatching: true, SendTimeout: -1,
		})
		if err != nil {
			return nil, err
		}
		o.producers = append(o.producers, producer)
	}
	return o, nil
}

func (o *onPulsar) load(ctx context.Context, messages func(func(message) bool)) (err error) {
	a := o.logs.Events.Appender()
	messages(func(m message) bool {
		err = a.Append(m.partition, []eventlog.Message{{Key: m.key, Payload: m.payload}})
		return err == nil
	})
	return errors.Join(err, a.Flush(ctx), a.Close())
}

func (o *onPulsar) send(m message) error {
	o.producers[m.partition].SendAsync(context.Background(), &pulsar.ProducerMessage{Key: m.key, Payload: m.payload},
		func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
	return nil
}

func (o *onPulsar) follow(ctx context.Context, record func([]byte)) error {
	ended := make(chan error, partitions)
	for p := range partitions {
		go func() {
			at := eventlog.Start
			ended <- e2e.Follow(ctx, o.logs.Decisions, p, &at, func(m eventlog.Message) error {
				var e pb.Envelope
				if err := proto.Unmarshal(m.Payload, &e); err != nil {
					return err
				}
				for _, r := range e.Records {
					record(r)
				}
				return nil
			})
		}()
	}
	var err error
	for range partitions {
		err = errors.Join(err, <-ended)
	}
	return err
}

func (o *onPulsar) program() (string, []string) {
	return o.Programs.Evaluator, []string{
		"--pulsar", o.URL, "--pulsar-admin", o.AdminURL, "--pulsar-namespace", filepath.Base(o.Namespace),
		"--data", filepath.Join(o.Dir, "state"), "--policies", "policies.yaml", "--listen", "127.0.0.1:0", "--instance", "peers",
	}
}

func (o *onPulsar) close() error {
	for _, p := range o.producers {
		p.Close()
	}
	var err error
	if o.logs != nil {
		err = o.logs.Close()
	}
	return errors.Join(err, o.broker.Close())
}
