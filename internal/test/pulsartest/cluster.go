package pulsartest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Cluster is two brokers on one ZooKeeper and one bookie, all of them child processes. The two brokers are one through
// Front: its URL names both, and its AdminURL is a balancer that asks one that answers.
type Cluster struct {
	Front   *Broker
	Brokers [2]*Broker

	storage []*process // ZooKeeper and the bookie, in the order of their start
	ports   []int      // of these
	kept    string     // directory of the backup, with that of each of storage
}

// clusterName is how the brokers call the cluster, and what its topics' metadata is stored for.
const clusterName = "two"

// StartCluster runs a cluster, and ends it with the test. Without the distribution the test is skipped, or fails where
// REQUIRE_INTEGRATION=1.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	o, err := Options{Way: Process}.complete(ctx)
	giveUp(t, err)
	c := &Cluster{kept: t.TempDir()}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Errorf("end the cluster: %v", err)
		}
	})
	if err := c.launch(ctx, o); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(c.balancer())
	t.Cleanup(front.Close)
	urls := strings.TrimPrefix(c.Brokers[1].URL, "pulsar://")
	c.Front, err = Connect(ctx, c.Brokers[0].URL+","+urls, front.URL)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *Cluster) launch(ctx context.Context, o Options) error {
	free, err := FreePorts(6)
	if err != nil {
		return err
	}
	c.ports, free = free[:2], free[2:]
	store := fmt.Sprintf("zk:%s:%d", loopback, c.ports[0])
	small := o
	small.Memory = "-Xms64m -Xmx256m -XX:MaxDirectMemorySize=256m"
	for _, p := range []part{
		{[]string{"zookeeper"}, "zookeeper.conf", "PULSAR_ZK_CONF", map[string]string{
			"dataDir": dataOf, "clientPort": strconv.Itoa(c.ports[0]), "clientPortAddress": loopback, "admin.enableServer": "false",
			"metricsProvider.className": "org.apache.zookeeper.metrics.impl.NullMetricsProvider",
		}},
		{[]string{"bookie"}, "bookkeeper.conf", "PULSAR_BOOKKEEPER_CONF", map[string]string{
			"bookiePort": strconv.Itoa(c.ports[1]), "advertisedAddress": loopback, "listeningInterface": "lo", "allowLoopback": "true",
			"allowEphemeralPorts": "true", "journalDirectory": dataOf + "/journal", "ledgerDirectories": dataOf + "/ledgers",
			"zkTimeout": "6000", "metadataServiceUri": "metadata-store:" + store, "zkServers": fmt.Sprintf("%s:%d", loopback, c.ports[0]),
			"statsProviderClass": "org.apache.bookkeeper.stats.NullStatsProvider", "diskUsageThreshold": "0.99",
			"dbStorage_writeCacheMaxSizeMb": "32", "dbStorage_readAheadCacheMaxSizeMb": "32",
		}},
	} {
		s, err := newProcess(small, p)
		if err != nil {
			return err
		}
		c.storage = append(c.storage, s)
	}
	service := [2]string{fmt.Sprintf("%s:%d", loopback, free[0]), fmt.Sprintf("%s:%d", loopback, free[1])}
	web := [2]string{fmt.Sprintf("%s:%d", loopback, free[2]), fmt.Sprintf("%s:%d", loopback, free[3])}
	for i := range c.Brokers {
		p, err := newProcess(o, part{[]string{"broker"}, "broker.conf", "PULSAR_BROKER_CONF", with(Defaults(), map[string]string{
			"metadataStoreUrl": store, "configurationMetadataStoreUrl": store, "clusterName": clusterName,
			"brokerServicePort": strconv.Itoa(free[i]), "webServicePort": strconv.Itoa(free[2+i]), "advertisedAddress": loopback, "bindAddress": loopback,
			"managedLedgerDefaultEnsembleSize": "1", "managedLedgerDefaultWriteQuorum": "1", "managedLedgerDefaultAckQuorum": "1",
			"metadataStoreSessionTimeoutMillis": "6000", // a broker that is gone loses its topics
			"loadBalancerEnabled":               "true", "loadBalancerSheddingEnabled": "false", "loadBalancerAutoBundleSplitEnabled": "false",
		})})
		if err != nil {
			return err
		}
		c.Brokers[i] = &Broker{URL: "pulsar://" + service[i], AdminURL: "http://" + web[i], Way: Process, life: p}
	}
	if err := c.startStorage(ctx, func() error {
		p := c.Brokers[0].life.(*process)
		out, err := p.command("initialize-cluster-metadata", "--cluster", clusterName, "--metadata-store", store, "--configuration-metadata-store", store,
			"--web-service-url", "http://"+strings.Join(web[:], ","), "--broker-service-url", "pulsar://"+strings.Join(service[:], ",")).CombinedOutput()
		if err != nil {
			return fmt.Errorf("initialize the cluster's metadata: %w\n%s", err, lastLines(string(out)))
		}
		return nil
	}); err != nil {
		return err
	}
	return c.startBrokers(ctx)
}

// startStorage starts ZooKeeper, does something, and starts the bookie.
func (c *Cluster) startStorage(ctx context.Context, between func() error) error {
	for i, s := range c.storage {
		if err := s.start(ctx); err != nil {
			return err
		}
		if err := listens(ctx, s, c.ports[i]); err != nil {
			return err
		}
		if i == 0 && between != nil {
			if err := between(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) startBrokers(ctx context.Context) error {
	for _, b := range c.Brokers {
		if err := b.Restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

// listens waits until a process listens on a port.
func listens(ctx context.Context, p *process, port int) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-p.gone():
			return fmt.Errorf("%s ended; it printed last:\n%s", p.part.args[0], p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen on port %d: %w\nit printed last:\n%s", p.part.args[0], port, err, p.tail())
		}
	}
}

// balancer passes requests on to a broker that answers.
func (c *Cluster) balancer() http.Handler {
	dial := func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		for _, b := range c.Brokers {
			if conn, err = new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(b.AdminURL, "http://")); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "brokers"})
	p.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // while none answers
	p.Transport = &http.Transport{DialContext: dial, DisableKeepAlives: true}
	return p
}

// Leader returns which broker leads: it decides which one serves a bundle.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	var leader struct{ BrokerID, ServiceURL string }
	if err := c.Front.ask(ctx, "brokers/leaderBroker", &leader); err != nil {
		return 0, err
	}
	for i, b := range c.Brokers {
		if leader.BrokerID == strings.TrimPrefix(b.AdminURL, "http://") || leader.ServiceURL == b.AdminURL {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the leader is %+v, which is none of ours", leader)
}

// Owner returns which broker serves a topic.
func (c *Cluster) Owner(ctx context.Context, topic string) (int, error) {
	path, err := topicPath(topic)
	if err != nil {
		return 0, err
	}
	domain, name, _ := strings.Cut(path, "/")
	var found struct{ BrokerURL string }
	if err := c.Front.askAt(ctx, "/lookup/v2/topic/"+domain+"/"+name, &found); err != nil {
		return 0, err
	}
	for i, b := range c.Brokers {
		if found.BrokerURL == b.URL {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s is served by %q, which is none of ours", topic, found.BrokerURL)
}

// Active returns how many brokers the cluster has now.
func (c *Cluster) Active(ctx context.Context) (int, error) {
	var active []string
	err := c.Front.ask(ctx, "brokers/"+clusterName, &active)
	return len(active), err
}

// Move unloads each bundle of a namespace, and gives it to a broker: if the leader knows that broker, which takes a moment
// from its start on.
func (c *Cluster) Move(ctx context.Context, namespace string, to int) error {
	var bundles struct{ Boundaries []string }
	if err := c.Front.ask(ctx, "namespaces/"+namespace+"/bundles", &bundles); err != nil {
		return err
	}
	destination := url.QueryEscape(strings.TrimPrefix(c.Brokers[to].AdminURL, "http://"))
	for i, from := range bundles.Boundaries[:max(1, len(bundles.Boundaries))-1] {
		path := fmt.Sprintf("namespaces/%s/%s_%s/unload?destinationBroker=%s", namespace, from, bundles.Boundaries[i+1], destination)
		if err := c.Front.admin(ctx, http.MethodPut, path, nil); err != nil {
			return err
		}
	}
	return nil
}

// Keep shuts the whole cluster down, makes a backup of all data, and starts it again.
func (c *Cluster) Keep(ctx context.Context) error {
	return c.away(ctx, (*process).stop, func(i int, data string) error { return os.CopyFS(c.backup(i), os.DirFS(data)) })
}

// Restore kills the whole cluster, and starts it on what Keep kept.
func (c *Cluster) Restore(ctx context.Context) error {
	return c.away(ctx, (*process).kill, func(i int, data string) error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return os.CopyFS(data, os.DirFS(c.backup(i)))
	})
}

func (c *Cluster) backup(i int) string { return filepath.Join(c.kept, strconv.Itoa(i)) }

// away ends all parts, does something to the data of each that has some, and starts them.
func (c *Cluster) away(ctx context.Context, end func(*process, context.Context) error, do func(i int, data string) error) error {
	ctx, cancel := patient(ctx)
	defer cancel()
	for _, b := range c.Brokers {
		if err := end(b.life.(*process), ctx); err != nil {
			return err
		}
	}
	for _, s := range slices.Backward(c.storage) {
		if err := end(s, ctx); err != nil {
			return err
		}
	}
	for i, s := range c.storage {
		if err := do(i, s.data()); err != nil {
			return err
		}
	}
	if err := c.startStorage(ctx, nil); err != nil {
		return err
	}
	return c.startBrokers(ctx)
}

func (c *Cluster) close() (err error) {
	ctx, cancel := patient(context.Background())
	defer cancel()
	for _, b := range c.Brokers {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
	}
	for _, s := range c.storage {
		err = errors.Join(err, s.remove(ctx))
	}
	return err
}
