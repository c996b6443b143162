package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// onKafka is a broker of its own, with the topics of one program.
type onKafka struct {
	name, address, dir, java string
	broker                   *process
	client                   *kgo.Client
}

// The broker syncs every batch before it answers, as Pulsar does, except those of events while they are loaded.
const kafkaSettings = `process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[2]s
advertised.listeners=PLAINTEXT://%[1]s
controller.listener.names=CONTROLLER
controller.quorum.voters=1@%[2]s
log.dirs=%[3]s
log.flush.interval.messages=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
`

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func openKafka(ctx context.Context, s settings, name, dir string) (_ *onKafka, err error) {
	k := &onKafka{name: name, dir: dir, java: s.java}
	if k.address, err = freeAddress(); err != nil {
		return nil, err
	}
	controller, err := freeAddress()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(conf, fmt.Appendf(nil, kafkaSettings, k.address, controller, filepath.Join(dir, "kafka")), 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "java", "-cp", k.classes("streams"), "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", conf).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("format: %w\n%s", err, out)
	}
	if k.broker, err = start(filepath.Join(dir, "kafka.log"), "java", "-Xms1g", "-Xmx1g", brokerJVM, "-cp", k.classes("streams"), "kafka.Kafka", conf); err != nil {
		return nil, err
	}
	k.client, err = kgo.NewClient(kgo.SeedBrokers(k.address), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.ProducerBatchMaxBytes(1<<20), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		return nil, err
	}
	for {
		topics, err := kadm.NewClient(k.client).CreateTopics(ctx, partitions, 1, map[string]*string{"flush.messages": new("1000000000")}, "events")
		if err == nil && topics.Error() == nil {
			break
		}
		select {
		case <-k.broker.ended:
			return nil, fmt.Errorf("the broker has ended: see %s/kafka.log", dir)
		case <-time.After(200 * time.Millisecond):
		}
	}
	topics, err := kadm.NewClient(k.client).CreateTopics(ctx, partitions, 1, nil, "decisions")
	if err == nil {
		err = topics.Error()
	}
	return k, err
}

func (k *onKafka) classes(name string) string {
	return filepath.Join(k.java, name, "*") + ":" + filepath.Join(k.java, name, "dependency", "*")
}

func (k *onKafka) record(m message) *kgo.Record {
	return &kgo.Record{Topic: "events", Partition: int32(m.partition), Key: []byte(m.key), Value: m.payload}
}

func (k *onKafka) load(ctx context.Context, messages func(func(message) bool)) error {
	var once sync.Once
	var failed error
	messages(func(m message) bool {
		k.client.Produce(ctx, k.record(m), func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { failed = err })
			}
		})
		return true
	})
	if err := k.client.Flush(ctx); err != nil {
		return err
	}
	return failed
}

func (k *onKafka) send(m message) error {
	k.client.Produce(context.Background(), k.record(m), nil)
	return nil
}

func (k *onKafka) follow(ctx context.Context, record func([]byte)) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(k.address), kgo.ConsumeTopics("decisions"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer c.Close()
	for ctx.Err() == nil {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil && ctx.Err() == nil {
			return err
		}
		f.EachRecord(func(r *kgo.Record) { record(r.Value) })
	}
	return nil
}

func (k *onKafka) program() (string, []string) {
	class := map[string]string{"streams": "peers.Streams", "flink": "peers.Flink"}[k.name]
	return "java", []string{
		"-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
		"-cp", k.classes(k.name), class, k.address, filepath.Join(k.dir, "state"),
	}
}

func (k *onKafka) close() error {
	if k.client != nil {
		k.client.Close()
	}
	k.broker.kill()
	return nil
}
