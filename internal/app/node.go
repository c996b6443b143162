package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refloat/refloat/internal/armada/policysync"
	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/notify"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/query"
)

// Config configures a node. Required are Log, Now and Data (except for an ingester on Pulsar with an external job
// database).
type Config struct {
	Data     Dir
	Pulsar   *Pulsar // nil: the logs are those of the data directory
	Instance string  // unique name of this process, on Pulsar
	JobDB    string  // URL; empty: SQLite in the data directory
	// IngestMode is one of IngestModes; empty: the first. It applies if the job database is also Armada's
	// scheduler database.
	IngestMode string
	NodeLabel  string // Armada's scheduling.nodeIdLabel; empty: its default
	// ReleaseAfter is how long an event may wait for a decision before it is written to the job database without
	// one (protocol.md 13); 0: forever.
	ReleaseAfter time.Duration
	Retain       Retain // of jobs that are over, in the job database
	// Checkpoints opens the shared storage of checkpoints; nil: there is none.
	Checkpoints     func(ctx context.Context) (checkpoint.Storage, error)
	CheckpointEvery time.Duration // default: one minute
	// Semantics is the lowest version of the semantics to decide by; 0: the one that the decision log names
	// (evaluator.Config).
	Semantics uint32
	// AcceptHistory and AcceptPartitions are operator acknowledgements (evaluator.Config).
	AcceptHistory        *eventlog.Position
	AcceptPartitions     int
	AcceptEmptyDecisions bool
	Partitions           int           // of new logs; 0: as many as the feeds need, at least 1
	Policies             string        // policy file or directory to publish and watch; empty: none
	PolicySettle         time.Duration // how long the files must be unchanged before they are read
	AllowEmpty           bool          // files may take policies away
	Feeds                []string
	Pace                 float64 // of the feeds; 0: as fast as possible
	Evaluate             bool
	Ingest               bool
	Listen               string // address of /metrics, /healthz and /readyz; empty: none
	Memory               int64  // bytes that the process may use (MinMemory or more); 0: by the container's limit
	PolicySeries         int    // how many label combinations each metric of policies may have
	API                  API
	Follow               *Follow          // an Armada whose policies are used; not together with Policies
	Notify               *notify.Receiver // nil: nobody is notified
	// ExitWhenDrained ends the node when the feeds are complete and everything in the log is decided and in the
	// job database.
	ExitWhenDrained bool
	Progress        func(Status)
	Drained         func() // notified before a node with ExitWhenDrained ends by itself; nil: nobody
	// ScrubRate is how many bytes a second the scrubber reads; 0: it does not run.
	ScrubRate int64
	// Fatal ends the process after an error of the state store that leaves no way to clean up. It must not return.
	// nil: panic.
	Fatal func(error)
	Log   *slog.Logger
	Now   func() time.Time
}

// Status is the progress of the feeds, in messages.
type Status struct{ Fed, Total int }

// Run works until ctx ends or everything is drained. Both are a clean end.
func Run(ctx context.Context, c Config) error {
	return run(ctx, c, roles{evaluate: (*node).startEvaluators, ingest: (*node).ingest})
}

// RunEvaluator is Run of a node that evaluates and does not ingest. Programs that call it do not link an ingester.
func RunEvaluator(ctx context.Context, c Config) error {
	c.Evaluate, c.Ingest = true, false
	return run(ctx, c, roles{evaluate: (*node).startEvaluators})
}

// RunIngester is Run of a node that ingests and does not evaluate. Programs that call it link neither an evaluator nor
// the API.
func RunIngester(ctx context.Context, c Config) error {
	c.Evaluate, c.Ingest = false, true
	return run(ctx, c, roles{ingest: (*node).ingest})
}

// roles are what a node does if its Config says so. They are values so that a program links no role that it does not name.
type roles struct {
	evaluate func(n *node, p *parts) error
	ingest   func(n *node, ctx context.Context) error
}

func run(ctx context.Context, c Config, r roles) error {
	partitions, total, err := c.partitions()
	if err != nil {
		return err
	}
	n := &node{Config: c, roles: r, metrics: NewMetrics(c.Now, c.PolicySeries), total: total}
	p := newParts(ctx)
	if err := n.serve(p); err != nil { // first: a process that waits for its broker is alive
		return err
	}
	return diskAdvice(errors.Join(n.work(p.ctx, partitions), p.wait(errEnded)))
}

// work opens the logs, and runs the node on them.
func (n *node) work(ctx context.Context, partitions int) (err error) {
	if n.Pulsar != nil {
		if n.backend, err = OpenPulsar(ctx, *n.Pulsar, n.Instance, n.Log); err != nil {
			return endedBefore(ctx, err)
		}
		return endedBefore(ctx, errors.Join(n.start(ctx), n.backend.Close()))
	}
	access := Access{Events: len(n.Feeds) > 0 || n.Evaluate && n.Ingest, Decisions: n.Evaluate, Policies: n.Evaluate}
	logs, err := n.Data.OpenLogs(partitions, access)
	if err != nil {
		return err
	}
	if has := logs.Events.Partitions(); len(n.Feeds) > 0 && has < partitions {
		if logs, err = n.makeAnew(ctx, logs, partitions, access); err != nil {
			return err
		}
		n.Log.Info("the data directory had no events yet: its logs were made anew for the partitions of the feeds", slog.Int("partitions", partitions), slog.Int("before", has))
	}
	n.backend, n.feedLog = logs.Backend(), logs.Events
	if n.Evaluate && n.Ingest {
		n.backend.Copies = logs.Events.AppendSync
	}
	return errors.Join(n.start(ctx), n.backend.Close())
}

// endedBefore makes a shutdown clean if it comes before the start, or while waiting for the broker.
func endedBefore(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

type node struct {
	Config
	roles     roles
	backend   *Backend
	feedLog   FeedLog
	vault     *checkpoint.Vault // nil: no checkpoints
	metrics   *Metrics
	policyLog *policylog.Shared
	policies  *policylog.Store // nil: this node changes none
	followed  *policysync.Follower
	watched   *policyWatch                   // nil: no files
	sender    *notify.Sender                 // nil: nobody is notified
	waiting   atomic.Pointer[policyfile.Set] // what the files say and is refused
	inForce   inForce

	whyRefused string      // why policy files are; "": they are not
	whole      query.Gate  // of questions that read whole logs
	slackRead  atomic.Bool // the policies were read to their end once, by terminationSlack
	memory     *memory

	stores         sync.Map     // of *projection.Store, by partition
	suspects       sync.Map     // errors by partition: damage that the scrubber found
	suspectJobDB   suspect      // damage that the scrubber found in the job database
	jobDBsSetAside atomic.Int64 // how many damaged ones the ingester has replaced
	total          int
}

// start opens what all partitions share.
func (n *node) start(ctx context.Context) error {
	total := memoryOf(n.Memory)
	n.memory = newMemory(total, n.backend.Events.Partitions())
	if n.Ingest && !isPostgres(n.jobDB()) {
		limitHeap(total - n.memory.pages)
	} else {
		limitHeap(total)
	}
	defer n.memory.blocks.Unref()
	if n.Checkpoints != nil && n.Evaluate {
		storage, err := n.Checkpoints(ctx)
		if err != nil {
			return err
		}
		if n.vault, err = n.newVault(storage); err != nil {
			return err
		}
	}
	return n.run(ctx)
}

// partitions returns the number of partitions of a new log, and the number of messages in all feeds.
func (c Config) partitions() (partitions, messages int, err error) {
	partitions = max(1, c.Partitions)
	for _, file := range c.Feeds {
		n, needed, err := Survey(file)
		if err != nil {
			return 0, 0, err
		}
		messages += n
		if needed > partitions && c.Partitions != 0 {
			return 0, 0, fmt.Errorf("%s needs %s, --partitions says %d", file, plural.Of(needed, "partition"), c.Partitions)
		}
		partitions = max(partitions, needed)
	}
	return partitions, messages, nil
}

// run runs the node's parts until ctx ends, one of them fails, or everything is drained.
func (n *node) run(ctx context.Context) error {
	p := newParts(ctx)
	return p.wait(n.startParts(p))
}

func (n *node) startParts(p *parts) error {
	n.policyLog = policylog.NewShared(n.backend.Policies)
	n.policyLog.OnUnusable = n.unusable
	p.closes("policy log", n.policyLog.Close)
	fed := make(chan struct{})
	if n.Evaluate {
		if err := n.roles.evaluate(n, p); err != nil {
			return err
		}
	}
	p.run("feed", func(ctx context.Context) error { defer close(fed); return n.feed(ctx) })
	if n.feedLog != nil && n.Evaluate && n.Ingest && !n.ExitWhenDrained {
		p.run("inbox of recordings", func(ctx context.Context) error { return n.watchInbox(ctx, fed) })
	}
	if n.Ingest {
		p.run("ingester", func(ctx context.Context) error { return n.roles.ingest(n, ctx) })
	}
	if n.backend.Recount != nil {
		p.run("watcher of partitions", n.watchPartitions)
	}
	if n.ScrubRate > 0 && n.Data != "" && !n.ExitWhenDrained {
		p.run("scrubber", n.scrub)
	}
	p.run("lag", n.measureLag)
	if n.Listen != "" {
		p.run("metrics of policies", n.measurePolicies)
	}
	p.run("health probe", n.probe)
	if n.ExitWhenDrained {
		p.run("end", func(ctx context.Context) error { return n.awaitDrained(ctx, fed) })
	}
	n.metrics.ready.Store(true)
	return nil
}

// startEvaluators starts deciding all partitions, and the API over the policies to decide by.
func (n *node) startEvaluators(p *parts) error {
	if err := n.startPolicies(p); err != nil {
		return err
	}
	if err := n.serveAPI(p); err != nil {
		return err
	}
	if n.Policies != "" {
		p.run("watcher of policy files", n.watched.run)
	}
	if n.policies != nil && (n.Ingest || n.API.JobDB != "") {
		jobs := newJobReader(n)
		p.closes("job database of the guard", jobs.Close)
		source := n.source(jobs)
		g := &guard{policies: n.policies, jobs: jobs.view, order: n.orders(&source), log: n.Log, now: n.Now, metrics: &n.metrics.guard}
		p.run("guard", g.run)
	}
	if n.followed != nil {
		p.run("follower of Armada's policies", n.followed.Run)
	}
	p.run("check for policies", n.warnWithoutPolicies)
	for partition := range n.backend.Events.Partitions() {
		p.run(evaluatorOf(partition), func(ctx context.Context) error { return n.evaluatePartition(ctx, partition) })
	}
	return nil
}

// startPolicies publishes the policies that this node is given.
func (n *node) startPolicies(p *parts) (err error) {
	if n.Policies != "" || n.API.Listen != "" || n.Follow != nil || n.Notify != nil {
		n.policies = policylog.NewStore(n.policyLog.Follow(), n.backend.AppendPolicies, n.Now)
		p.closes("policy store", n.policies.Close)
	}
	if n.Notify != nil {
		if err := n.startNotifying(p); err != nil {
			return err
		}
	}
	if n.Policies != "" {
		n.watched = &policyWatch{
			path: n.Policies, settle: n.PolicySettle, accept: n.AllowEmpty, store: n.policies, log: n.Log, now: n.Now, refused: n.filesRefused,
		}
		if err := n.watched.begin(p.ctx); err != nil {
			return err
		}
	}
	if n.Follow != nil {
		if err := n.beginToFollow(p.ctx); err != nil {
			return err
		}
		p.closes("connection to Armada", n.followed.Close)
	}
	return nil
}

// name is how this process is called in notifications.
func (n *node) name() string {
	host, _ := os.Hostname()
	return cmp.Or(n.Instance, host)
}

func (n *node) unusable(generation uint64, err error) {
	n.metrics.unusable.Inc()
	n.sender.Notify(event("policies.unusable", n.Now().UnixNano(), fmt.Sprintf("policy generation %d cannot be used by %s, where the previous one stays in force: %v", generation, n.name(), err),
		map[string]any{"generation": generation, "instance": n.name(), "error": err.Error()}, n.name(), generation))
	n.Log.Error("policy generation is unusable; the previous one stays in force", slog.Uint64("generation", generation), slog.Any("error", err))
}

// serve serves metrics and health.
func (n *node) serve(p *parts) error {
	if n.Listen == "" {
		return nil
	}
	l, err := net.Listen("tcp", n.Listen)
	if err != nil {
		return fmt.Errorf("listen for metrics: %w (choose another --listen, or none with --listen '')", err)
	}
	n.Log.Info("serving /metrics, /healthz and /readyz", slog.String("address", l.Addr().String()))
	server := &http.Server{Handler: n.metrics.Handler(), ReadHeaderTimeout: 5 * time.Second}
	p.run("metrics server", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}

func (n *node) feed(ctx context.Context) error {
	before := 0
	for _, file := range n.Feeds {
		seen := 0
		f := Feed{File: file, Log: n.feedLog, Pace: n.Pace, Now: n.Now, Progress: func(messages int) {
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
		n.Log.Info("feed complete", slog.String("file", file), slog.Int("written", written), slog.Int("already_there", seen-written))
	}
	return nil
}

// awaitDrained ends the node when the feeds are complete, the job database has reached the end of the events, and whoever decides
// them has opened its state.
func (n *node) awaitDrained(ctx context.Context, fed <-chan struct{}) (err error) {
	select {
	case <-fed:
	case <-ctx.Done():
		return nil
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var db JobDBReader // nil until the ingester has created it
	closeDB := func() {
		if db != nil {
			err = errors.Join(err, db.Close())
			db = nil
		}
	}
	defer closeDB()
	var opened time.Time
	for setAside := int64(0); ; {
		// The ingester may have put another file in its place.
		if now := n.jobDBsSetAside.Load(); now != setAside || n.Now().Sub(opened) > time.Second {
			setAside, opened = now, n.Now()
			closeDB()
		}
		if db == nil {
			db, _ = ReadJobDB(ctx, n.jobDB()) // if it cannot be opened, the ingester waits for it, or fails itself
		}
		done, err := n.drained(ctx, db)
		if err != nil {
			return err
		}
		if done {
			if n.Drained != nil {
				n.Drained()
			}
			return errEnded
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *node) drained(ctx context.Context, db JobDBReader) (bool, error) {
	if db == nil {
		return false, nil
	}
	positions := map[int]eventlog.Position{}
	err := db.View(ctx, func(q jobdb.Queries) error {
		all, err := q.Positions()
		for _, p := range all {
			positions[p.Partition] = p.Positions.Chain.InTo
		}
		return err
	})
	if errors.Is(err, jobdb.ErrUnavailable) {
		return false, nil // the ingester reports the error
	}
	if err != nil {
		return false, err
	}
	for p := range n.backend.Events.Partitions() {
		end, err := n.backend.Events.End(p)
		if err != nil {
			return false, err
		}
		if end == eventlog.Start {
			continue
		}
		if at, ok := positions[p]; !ok || at.Compare(end) < 0 {
			return false, nil
		}
		if n.Evaluate && n.backend.Lease == nil && !n.metrics.health.worksOn(evaluatorOf(p)) {
			return false, nil // what an earlier process decided does not show that this one can
		}
	}
	return true, nil
}

// pebbleLog forwards Pebble's errors to the log.
type pebbleLog struct {
	log *slog.Logger
	end func(error) // nil: panic
}

func (pebbleLog) Infof(string, ...any) {}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.log.Error("state store", slog.String("message", fmt.Sprintf(format, args...)))
}

// Fatalf is called by Pebble when it cannot continue; it must not return. Pebble formats errors with %v and %s,
// which drops their class; this keeps it.
func (l pebbleLog) Fatalf(format string, args ...any) {
	err := errors.New("state store: " + fmt.Sprintf(strings.ReplaceAll(format, "%w", "%v"), args...))
	for _, a := range args {
		if cause, ok := a.(error); ok {
			err = fmt.Errorf("state store: %w", cause)
		}
	}
	if l.end != nil {
		l.end(writeAdvice(err))
	}
	panic(err)
}
