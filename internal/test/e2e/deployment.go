package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

// Deployment is Refloat on one namespace of a broker. Programs, URL, AdminURL,
// Namespace ("public/x") and Dir are required.
type Deployment struct {
	Programs
	URL, AdminURL string
	Namespace     string
	Dir           string // state, checkpoints, job database and logs of our programs
	Policies      string // directory; empty: none
	JobDB         string // URL; empty: Database
	// Corrected says that a difference of the job database is none, because an older program wrote the row; nil: none is.
	Corrected func(sink.Difference) bool
}

func (d *Deployment) namespace() string { return filepath.Base(d.Namespace) }

// Topic is the full name of a topic.
func (d *Deployment) Topic(name string) string { return "persistent://" + d.Namespace + "/" + name }

// Database is the file of the job database.
func (d *Deployment) Database() string { return filepath.Join(d.Dir, "jobs.sqlite") }

func (d *Deployment) jobDB() string { return cmp.Or(d.JobDB, "sqlite://"+d.Database()) }

// Checkpoints is the directory of the shared checkpoints.
func (d *Deployment) Checkpoints() string { return filepath.Join(d.Dir, "checkpoints") }

// Data is the data directory of an evaluator.
func (d *Deployment) Data(name string) string { return filepath.Join(d.Dir, name) }

// Create makes the topics.
func (d *Deployment) Create(ctx context.Context, partitions int) error {
	if err := os.MkdirAll(d.Checkpoints(), 0o755); err != nil {
		return err
	}
	_, err := d.Ctl(ctx, "topics", "create", "--partitions", fmt.Sprint(partitions), "--create-events")
	return err
}

// Ctl runs refloatctl to its end, with the flags for the cluster.
func (d *Deployment) Ctl(ctx context.Context, args ...string) (string, error) {
	args = append(args, "--pulsar", d.URL, "--pulsar-admin", d.AdminURL, "--pulsar-namespace", d.namespace())
	out, err := exec.CommandContext(ctx, d.Programs.Ctl, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("refloatctl %s: %w\n%s", args[0], err, out)
	}
	return string(out), nil
}

// Change changes policies by refloatctl through an evaluator that has --api.
func (d *Deployment) Change(ctx context.Context, evaluator string, args ...string) error {
	out, err := exec.CommandContext(ctx, d.Programs.Ctl, append(args, "--data", d.Data(evaluator))...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("refloatctl %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// Within tries something again until it succeeds, or until a time is over, and then
// returns why it did not.
func Within(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// Evaluator starts an evaluator, with its state in a directory of its name. With
// a proxy, that is between it and the broker.
func (d *Deployment) Evaluator(name string, proxy *Proxy, extra ...string) (*Process, error) {
	args := append(d.cluster(proxy), "--data", d.Data(name), "--checkpoints", "file://"+d.Checkpoints(), "--checkpoint-every", "5s",
		"--listen", "127.0.0.1:0", "--instance", name)
	if d.Policies != "" {
		args = append(args, "--policies", d.Policies)
	}
	return Start(name, d.log(name), d.Programs.Evaluator, append(args, extra...)...)
}

// Ingester starts an ingester.
func (d *Deployment) Ingester(name string, extra ...string) (*Process, error) {
	args := append(d.cluster(nil), "--job-db", d.jobDB(), "--listen", "127.0.0.1:0", "--instance", name)
	return Start(name, d.log(name), d.Programs.Ingester, append(args, extra...)...)
}

func (d *Deployment) log(name string) string { return filepath.Join(d.Dir, name+".log") }

func (d *Deployment) cluster(proxy *Proxy) []string {
	url, admin := d.URL, d.AdminURL
	if proxy != nil {
		url, admin = proxy.URL, proxy.AdminURL
	}
	return []string{"--pulsar", url, "--pulsar-admin", admin, "--pulsar-namespace", d.namespace()}
}

// Logs are the topics, as we read them ourselves.
type Logs struct {
	Cluster                     *pulsarlog.Cluster
	Events, Decisions, Policies *pulsarlog.Topic
}

// Open opens the topics.
func (d *Deployment) Open() (*Logs, error) {
	k, err := pulsarlog.Connect(context.Background(), pulsarlog.Config{ServiceURL: d.URL, AdminURL: d.AdminURL, Namespace: d.namespace(), OperationTimeout: pulsartest.Patience})
	if err != nil {
		return nil, err
	}
	l := &Logs{Cluster: k}
	for _, t := range []struct {
		name string
		to   **pulsarlog.Topic
	}{{"events", &l.Events}, {"decisions", &l.Decisions}, {"policies", &l.Policies}} {
		if *t.to, err = k.Open(t.name); err != nil {
			return nil, errors.Join(err, k.Close())
		}
	}
	return l, nil
}

// Audit is the logs as an audit reads them.
func (l *Logs) Audit() audit.Logs {
	ctx := context.Background()
	return audit.Logs{Events: eventlog.ToEnd(ctx, l.Events), Decisions: eventlog.ToEnd(ctx, l.Decisions), Policies: eventlog.ToEnd(ctx, l.Policies)}
}

// Close closes them.
func (l *Logs) Close() error { return l.Cluster.Close() }

// Each calls fn with each message that a partition holds now.
func Each(t eventlog.Topic, p int, fn func(eventlog.Message) error) (err error) {
	r, err := eventlog.ToEnd(context.Background(), t).Open(p, eventlog.Start)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	chunk := make([]eventlog.Message, 512)
	for {
		n, err := r.Read(chunk)
		if err != nil || n == 0 {
			return err
		}
		for _, m := range chunk[:n] {
			if err := fn(m); err != nil {
				return fmt.Errorf("partition %d at %v: %w", p, m.Position, err)
			}
		}
	}
}

// Follow calls fn with each message of a partition after at, also with those to come, until ctx ends. It moves at along.
func Follow(ctx context.Context, t eventlog.Topic, p int, at *eventlog.Position, fn func(eventlog.Message) error) error {
	r, err := t.Open(p, *at)
	if err != nil {
		return err
	}
	defer r.Close()
	chunk := make([]eventlog.Message, 64)
	for {
		n, err := r.Read(chunk)
		if err != nil {
			return err
		}
		for _, m := range chunk[:n] {
			*at = m.Position
			if err := fn(m); err != nil {
				return err
			}
		}
		if n > 0 {
			continue
		}
		select {
		case <-r.Changed():
		case <-ctx.Done():
			return nil
		}
	}
}
