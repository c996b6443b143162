package pulsarlog_test

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/test/logtest"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

func TestMain(m *testing.M) { os.Exit(pulsartest.Main(m)) }

// bench is a broker, and a namespace of the test's own in it.
type bench struct {
	testing.TB
	broker  *pulsartest.Broker
	config  pulsarlog.Config
	cluster *pulsarlog.Cluster
}

func setUp(t testing.TB) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Pulsar broker")
	}
	b := &bench{TB: t, broker: pulsartest.Shared(t)}
	tenant, namespace := path.Split(b.broker.Namespace(t))
	b.config = pulsarlog.Config{
		ServiceURL: b.broker.URL, AdminURL: b.broker.AdminURL, Tenant: strings.Trim(tenant, "/"), Namespace: namespace, OperationTimeout: pulsartest.Patience,
	}
	b.cluster = b.connect(b.config)
	return b
}

func (b *bench) connect(c pulsarlog.Config) *pulsarlog.Cluster {
	b.Helper()
	k, err := pulsarlog.Connect(context.Background(), c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { shut(b, k) })
	return k
}

func shut(t testing.TB, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// admin is the admin API's view of a topic.
func (b *bench) name(topic string) utils.TopicName {
	b.Helper()
	name, err := utils.GetTopicName(b.cluster.TopicName(topic))
	b.must(err)
	return *name
}

// create makes a topic; with no partitions it is one topic.
func (b *bench) create(topic string, partitions int) {
	b.Helper()
	admin, err := b.cluster.Admin()
	b.must(err)
	b.must(admin.Topics().Create(b.name(topic), partitions))
}

func (b *bench) open(topic string) *pulsarlog.Topic {
	b.Helper()
	t, err := b.cluster.Open(topic)
	b.must(err)
	b.Cleanup(func() { shut(b, t) })
	return t
}

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name string
		hide bool // of the admin API
	}{{name: "with admin API"}, {name: "without", hide: true}} {
		t.Run(c.name, func(t *testing.T) {
			b := setUp(t)
			config := b.config
			if c.hide {
				config.AdminURL = ""
			}
			logtest.Run(t, func(t *testing.T, partitions int) *logtest.Harness {
				b := *b
				b.TB = t
				name := "log-" + strings.ReplaceAll(path.Base(t.Name()), " ", "-")
				b.create(name, partitions)
				return harness(&b, config, name)
			})
		})
	}
}

func harness(b *bench, config pulsarlog.Config, name string) *logtest.Harness {
	var k *pulsarlog.Cluster
	var topic *pulsarlog.Topic
	var appender *pulsarlog.Appender
	open := func() (err error) {
		if k, err = pulsarlog.Connect(context.Background(), config); err != nil {
			return err
		}
		if topic, err = k.Open(name); err == nil {
			appender = topic.Appender()
		}
		return err
	}
	end := func() error { return errors.Join(appender.Close(), topic.Close(), k.Close()) }
	b.must(open())
	b.Cleanup(func() {
		if err := end(); err != nil {
			b.Error(err)
		}
	})
	return &logtest.Harness{
		Topic:     func() eventlog.Topic { return topic },
		Append:    func(p int, batch []eventlog.Message) error { return appender.AppendSync(b.Context(), p, batch) },
		Publisher: func(p int) (eventlog.Publisher, error) { return topic.Publisher(b.Context(), p) },
		Reopen: func() error {
			if err := end(); err != nil {
				return err
			}
			return open()
		},
	}
}
