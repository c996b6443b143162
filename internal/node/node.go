package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/sink"
)

// Config says what a node does on a data directory. Data, Log and Now are required.
type Config struct {
	Data       Dir
	Partitions int    // of logs that are created; 0: as the feeds need, at least 1
	Policies   string // policy file or directory to publish and watch; empty: none
	Feeds      []string
	Pace       float64 // of the feeds; 0: at once
	Evaluate   bool
	Ingest     bool
	Listen     string // address of /metrics, /healthz, /readyz; empty: none
	// ExitWhenDrained ends the node when the feeds are through and everything
	// in the log is decided and in the job database.
	ExitWhenDrained bool
	Progress        func(Status)
	Log             *slog.Logger
	Now             func() time.Time
}

// Status is how far a node came, in messages of the feeds.
type Status struct{ Fed, Total int }

// Run works until ctx ends, or until it is drained. It ends cleanly on both.
func Run(ctx context.Context, c Config) error {
	partitions, total, err := c.partitions()
	if err != nil {
		return err
	}
	logs, err := c.Data.OpenLogs(partitions, Access{Events: len(c.Feeds) > 0 || c.Evaluate && c.Ingest, Decisions: c.Evaluate, Policies: c.Evaluate})
	if err != nil {
		return err
	}
	if has := logs.Events.Partitions(); len(c.Feeds) > 0 && has < partitions {
		return errors.Join(fmt.Errorf("the feeds need %d partitions, %s has %d: start with a new data directory", partitions, c.Data.Events(), has), logs.Close())
	}
	n := &node{Config: c, logs: logs, metrics: NewMetrics(), total: total}
	return errors.Join(n.run(ctx), logs.Close())
}

type node struct {
	Config
	logs    *Logs
	metrics *Metrics
	total   int
}

// partitions is how many a new log gets, and the messages of all feeds.
func (c Config) partitions() (partitions, messages int, err error) {
	partitions = max(1, c.Partitions)
	for _, file := range c.Feeds {
		n, needed, err := Survey(file)
		if err != nil {
			return 0, 0, err
		}
		messages += n
		if needed > partitions && c.Partitions != 0 {
			return 0, 0, fmt.Errorf("%s needs %d partitions, --partitions says %d", file, needed, c.Partitions)
		}
		partitions = max(partitions, needed)
	}
	return partitions, messages, nil
}

func (n *node) run(ctx context.Context) error {
	if n.Policies != "" {
		set, err := ReadPolicies(n.Policies)
		if err != nil {
			return err
		}
		generation, err := PublishPolicies(ctx, n.logs.Policies, set, "files of "+n.Policies, n.Now())
		if errors.Is(err, context.Canceled) {
			return nil // ended before it began
		}
		if err != nil {
			return err
		}
		n.Log.Info("policies read", slog.String("from", n.Policies), slog.Uint64("generation", generation))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	fed := make(chan struct{})
	if n.Listen != "" {
		if err := n.serve(ctx, group); err != nil {
			return err
		}
	}
	if n.Policies != "" {
		group.Go(func() error { return WatchPolicies(ctx, n.logs.Policies, n.Policies, n.Now, n.Log) })
	}
	group.Go(func() error { defer close(fed); return n.feed(ctx) })
	if n.Evaluate {
		for p := range n.logs.Events.Partitions() {
			group.Go(func() error { return n.evaluate(ctx, p) })
		}
	}
	if n.Ingest {
		group.Go(func() error { return n.ingest(ctx) })
	}
	if n.ExitWhenDrained {
		group.Go(func() error { defer stop(); return n.awaitDrained(ctx, fed) })
	}
	n.metrics.ready.Store(true)
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (n *node) serve(ctx context.Context, group *errgroup.Group) error {
	l, err := net.Listen("tcp", n.Listen)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w (choose another --listen, or none with --listen '')", err)
	}
	n.Log.Info("serving /metrics, /healthz and /readyz", slog.String("address", l.Addr().String()))
	server := &http.Server{Handler: n.metrics.Handler(), ReadHeaderTimeout: 5 * time.Second}
	group.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	return nil
}

func (n *node) feed(ctx context.Context) error {
	before := 0
	for _, file := range n.Feeds {
		seen := 0
		f := Feed{File: file, Log: n.logs.Events, Pace: n.Pace, Now: n.Now, Progress: func(messages int) {
			seen = messages
			if n.Progress != nil {
				n.Progress(Status{Fed: before + seen, Total: n.total})
			}
		}}
		written, err := f.Run(ctx)
		if err != nil {
			return err
		}
		before += seen
		n.Log.Info("feed is through", slog.String("file", file), slog.Int("written", written), slog.Int("already_there", seen-written))
	}
	return nil
}

func (n *node) evaluate(ctx context.Context, partition int) error {
	store, err := projection.OpenStore(projection.StoreConfig{FS: vfs.Default, Dir: n.Data.State(partition), Logger: pebbleLog{n.Log}})
	if err != nil {
		return err
	}
	policies, err := evaluator.OpenPolicies(n.logs.Policies)
	if err != nil {
		return errors.Join(err, store.Close())
	}
	policies.OnUnusable = func(generation uint64, err error) {
		n.metrics.unusable.Inc()
		n.Log.Error("policy generation cannot be used; the one before stays in force", slog.Uint64("generation", generation), slog.Any("error", err))
	}
	l := evaluator.Loop{
		Config: evaluator.Config{
			Partition: partition, Store: store, Events: n.logs.Events, Decisions: n.logs.Decisions,
			Policies: policies, Random: rand.Reader, Hooks: n.metrics.owner(partition),
		},
		Publisher:    func() (eventlog.Publisher, error) { return n.logs.Decisions.Publisher(partition), nil },
		Now:          n.Now,
		BackOff:      randomBackOff(),
		DrainTimeout: 5 * time.Second,
		Log:          n.Log,
	}
	return errors.Join(l.Run(ctx), policies.Close(), store.Close())
}

// randomBackOff waits a little longer after each loss in a row, up to 10 s.
func randomBackOff() func(losses int) time.Duration {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, 10*time.Second
	return func(losses int) time.Duration {
		if losses == 1 {
			b.Reset()
		}
		return b.NextBackOff()
	}
}

func (n *node) ingest(ctx context.Context) error {
	db, err := sqlite.Open(ctx, n.Data.JobDB(), sqlite.Options{})
	if err != nil {
		return err
	}
	w, err := sink.New(sink.Config{Events: n.logs.Events, Decisions: n.logs.Decisions, DB: db, Hooks: n.metrics.ingester(n.Now)})
	if err != nil {
		return errors.Join(err, db.Close())
	}
	return errors.Join(w.Run(ctx), w.Close(), db.Close())
}

// awaitDrained returns when the feeds are through and the job database has
// come to the end of the events.
func (n *node) awaitDrained(ctx context.Context, fed <-chan struct{}) error {
	select {
	case <-fed:
	case <-ctx.Done():
		return nil
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		done, err := n.drained(ctx)
		if done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *node) drained(ctx context.Context) (bool, error) {
	r, err := sqlite.OpenReader(ctx, n.Data.JobDB())
	if err != nil {
		return false, nil //nolint:nilerr // the ingester creates it in a moment, or fails itself
	}
	defer r.Close()
	places := map[int]eventlog.Position{}
	err = r.View(ctx, func(q jobdb.Queries) error {
		all, err := q.Places()
		for _, p := range all {
			places[p.Partition] = p.Place.Chain.InTo
		}
		return err
	})
	if err != nil {
		return false, err
	}
	for p := range n.logs.Events.Partitions() {
		end, err := n.logs.Events.End(p)
		if err != nil {
			return false, err
		}
		if at, ok := places[p]; end != eventlog.Start && (!ok || at.Compare(end) < 0) {
			return false, nil
		}
	}
	return true, nil
}

// pebbleLog passes on what Pebble says, as far as it is an error.
type pebbleLog struct{ log *slog.Logger }

func (pebbleLog) Infof(string, ...any) {}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("state store", slog.String("message", fmt.Sprintf(format, args...)))
}

// Fatalf is called by Pebble when it cannot go on; it must not return.
func (l pebbleLog) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	panic("state store: " + fmt.Sprintf(format, args...))
}
