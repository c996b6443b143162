package pulsarlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/prometheus/client_golang/prometheus"
)

// Config defines how to reach a cluster.
type Config struct {
	ServiceURL string // pulsar://host:6650 or pulsar+ssl://host:6651; required
	AdminURL   string // http://host:8080 or https://host:8443; without it, calls that need the admin API fail
	Tenant     string // for short topic names; default "public"
	Namespace  string // for short topic names; default "default"

	Auth Auth
	TLS  TLS
	// Settings says how errors call a field, such as "--pulsar-token-file" for "Auth.TokenFile"; default: as it is.
	Settings map[string]string

	KeepAlive         time.Duration // a connection is closed after twice that without an answer; default 10 s
	ConnectionTimeout time.Duration // for opening one; default 10 s
	OperationTimeout  time.Duration // for one request; default 15 s
	ReconnectFor      time.Duration // after that, Read of a disconnected reader returns an error, while the reader keeps trying; default 30 s
	MaxConnections    int           // to one broker; default 16: receipts do not wait behind what a reader gets
	ReceiverQueue     int           // messages that the client prefetches, per reader, whatever their size; default 100
	InFlight          int           // messages of a publisher without a receipt; default 64

	Instance string // name of this process, which its publishers show in [InstanceProperty]; default: none

	Log *slog.Logger // gets the client's warnings and errors; default: none
}

// InstanceProperty is the property of a publisher by which the admin API tells whose
// it is. The name of a producer must differ from all others on the topic, those of
// frozen predecessors included, so the broker chooses it.
const InstanceProperty = "refloat-instance"

// Auth defines how to authenticate: not at all, or by one of the four methods. Files are read again for each
// connection and each request to the admin API.
type Auth struct {
	Token     string
	TokenFile string
	OAuth2    OAuth2
	CertFile  string // mutual TLS
	KeyFile   string
}

// OAuth2 is the client-credentials flow.
type OAuth2 struct {
	Issuer   string // URL
	Audience string
	KeyFile  string // JSON with client id and secret; read again for each token
	Scope    string // scopes, separated by spaces
}

// TLS defines whom to trust, if the URLs use TLS.
type TLS struct {
	CAFile          string // read again for each connection; default: the system's
	NoHostnameCheck bool
	AllowInsecure   bool // accepts any certificate
}

const (
	defaultKeepAlive         = 10 * time.Second
	defaultConnectionTimeout = 10 * time.Second
	defaultOperationTimeout  = 15 * time.Second
	defaultReconnectFor      = 30 * time.Second
	defaultMaxConnections    = 16
	defaultReceiverQueue     = 100
	defaultInFlight          = 64
	maxReconnectDelay        = 5 * time.Second
)

// Errors without a class in package eventlog.
var (
	// ErrDenied: authentication or authorization failed.
	ErrDenied = errors.New("denied by the broker")
	// ErrGone: the topic, or this partition of it, does not exist (any more).
	ErrGone = errors.New("topic does not exist")
	// ErrNoAdmin: the configuration has no AdminURL.
	ErrNoAdmin = errors.New("AdminURL is not set")
)

// Cluster is a connection to one Pulsar cluster. It is safe for concurrent use.
type Cluster struct {
	cfg      Config
	identity *identity
	client   pulsar.Client
	admin    pulsaradmin.Client // nil without AdminURL
	sources  sync.Map           // subscription name → *source: the subject of lines in the client's log
	reported spoken
	closed   chan struct{}
	once     sync.Once

	// ctx is the context passed to Connect. It is stored here instead of being passed to
	// each call, because the code that reads logs does not know about networks.
	ctx  context.Context
	over chan struct{} // closed shortly after ctx ends: then nothing waits any more
}

// lastWait is how long closing may take once the context of Connect has ended.
const lastWait = 500 * time.Millisecond

// Connect checks the configuration and creates a client, which connects when it is
// first used.
//
// When ctx ends, all calls that wait for the broker return its error, and closing takes
// only a moment. Open readers and publishers work until they are closed, so that published
// messages can be read back.
func Connect(ctx context.Context, c Config) (*Cluster, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("pulsarlog: config: %w", err)
	}
	who, err := c.identity()
	if err != nil {
		return nil, fmt.Errorf("pulsarlog: config: %w", err)
	}
	k := &Cluster{cfg: c, identity: who, closed: make(chan struct{}), ctx: ctx, over: make(chan struct{})}
	k.reported.refused = make(chan struct{})
	options := pulsar.ClientOptions{
		URL:                        c.ServiceURL,
		ConnectionTimeout:          c.ConnectionTimeout,
		OperationTimeout:           c.OperationTimeout,
		KeepAliveInterval:          c.KeepAlive,
		TLSTrustCertsFilePath:      c.TLS.CAFile,
		TLSAllowInsecureConnection: c.TLS.AllowInsecure,
		TLSValidateHostname:        !c.TLS.NoHostnameCheck && !c.TLS.AllowInsecure,
		MaxConnectionsPerBroker:    c.MaxConnections,
		Logger:                     &clientLog{cluster: k, out: c.Log},
		MetricsCardinality:         pulsar.MetricsCardinalityNone,
		MetricsRegisterer:          prometheus.NewRegistry(), // not exported
		MemoryLimitBytes:           -1,                       // publishers and appenders have their own, non-blocking limits
	}
	if who.provider != nil {
		options.Authentication = who.provider
	}
	if c.TLS.NoHostnameCheck { // the client checks it nevertheless
		if options.TLSConfig, err = c.tlsConfig(); err != nil {
			return nil, fmt.Errorf("pulsarlog: config: %w", err)
		}
	}
	if k.client, err = pulsar.NewClient(options); err != nil {
		return nil, fmt.Errorf("pulsarlog: connect to %s: %w", c.ServiceURL, err)
	}
	if c.AdminURL != "" {
		if k.admin, err = c.admin(who); err != nil {
			k.client.Close()
			return nil, fmt.Errorf("pulsarlog: admin client for %s: %w", c.AdminURL, err)
		}
	}
	context.AfterFunc(ctx, func() { time.AfterFunc(lastWait, func() { close(k.over) }) })
	return k, nil
}

// Context returns the context that was passed to Connect: no call waits beyond it.
func (k *Cluster) Context() context.Context { return k.ctx }

// Client returns the underlying client, for what this package does not do.
func (k *Cluster) Client() pulsar.Client { return k.client }

// Admin returns the client of the admin API, or [ErrNoAdmin].
func (k *Cluster) Admin() (pulsaradmin.Client, error) {
	if k.admin == nil {
		return nil, fmt.Errorf("pulsarlog: %w: set it to the HTTP address of a broker, such as http://host:8080", ErrNoAdmin)
	}
	return k.admin, nil
}

// TopicName returns the full name of a topic: a short name belongs to the configured
// tenant and namespace; tenant/namespace/name and full names are kept.
func (k *Cluster) TopicName(name string) string {
	switch {
	case strings.Contains(name, "://"):
		return name
	case strings.Count(name, "/") == 2:
		return "persistent://" + name
	}
	return "persistent://" + k.cfg.Tenant + "/" + k.cfg.Namespace + "/" + name
}

// Close closes the client and everything opened with it. It waits only for a short
// time, because the client waits for answers that may never come.
func (k *Cluster) Close() error {
	k.once.Do(func() { close(k.closed) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.client.Close()
	}()
	if !k.wait(done, closeWait) {
		k.cfg.Log.Warn("the Pulsar client has not closed in time; it continues in the background")
	}
	return nil
}

// wait reports whether done was closed in time.
func (k *Cluster) wait(done <-chan struct{}, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
	case <-k.over:
	}
	return false
}
