package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/pgerror"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
	"github.com/refloat/refloat/internal/sink"
)

// Delay before a job database is opened again: it grows from the first to the last.
const (
	firstOpenWait = 100 * time.Millisecond
	lastOpenWait  = 10 * time.Second
)

// openForIngest opens the job database and detects which tables it has. It waits while the database is
// unavailable, and returns errors that retrying cannot cure.
func (n *node) openForIngest(ctx context.Context, away *outage) (db JobDB, mirrors func(int) sink.Mirror, err error) {
	unavailable := func(err error) bool {
		return errors.Is(err, jobdb.ErrUnavailable) || errors.Is(err, pgstore.ErrUnavailable)
	}
	failed := func(err error) { away.away(opening, err) }
	db, err = retry(ctx, firstOpenWait, lastOpenWait, unavailable, failed, func() (JobDB, error) {
		db, err := openJobDB(ctx, n.jobDB(), sqlite.Options{CacheBytes: n.memory.pages})
		if err != nil {
			return nil, err
		}
		if mirrors, err = n.mirrors(ctx, db); err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return db, nil
	})
	if err != nil {
		return nil, nil, err
	}
	away.back(opening)
	return db, mirrors, nil
}

// opening stands for the partition while the database is not open yet.
const opening = -1

// outage logs when the job database becomes unavailable, once for each state, and when it is back. All partitions
// see about the same.
type outage struct {
	gauge    *prometheus.GaugeVec
	log      *slog.Logger
	now      func() time.Time
	postgres bool

	mu    sync.Mutex
	state map[int]string // by waiting partition
	since time.Time      // when the first of them began to wait
}

func (n *node) newOutage() *outage {
	return &outage{gauge: n.metrics.away, log: n.Log, now: n.Now, postgres: isPostgres(n.jobDB()), state: map[int]string{}}
}

// away records that a partition waits for the database.
func (o *outage) away(partition int, err error) {
	state := "locked_or_full" // a file
	if o.postgres {
		state = pgerror.State(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state[partition] == state {
		return
	}
	if len(o.state) == 0 {
		o.since = o.now()
	}
	known := o.hasState(state)
	o.leave(partition)
	o.state[partition] = state
	o.gauge.WithLabelValues(state).Set(1)
	if !known {
		o.log.Warn("job database is unavailable; retrying, nothing is lost",
			slog.String("state", state), slog.String("look_at", advice(state)), slog.Any("error", err))
	}
}

// back records that a partition is written again.
func (o *outage) back(partition int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, waited := o.state[partition]; !waited {
		return
	}
	o.leave(partition)
	if len(o.state) == 0 {
		o.log.Info("job database is available again", slog.Duration("after", o.now().Sub(o.since).Round(time.Millisecond)))
	}
}

// handedBack records that a partition is no longer written here, whether or not it waited.
func (o *outage) handedBack(partition int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leave(partition)
}

func (o *outage) leave(partition int) {
	state, waited := o.state[partition]
	delete(o.state, partition)
	if waited && !o.hasState(state) {
		o.gauge.DeleteLabelValues(state)
	}
}

func (o *outage) hasState(state string) bool {
	for _, s := range o.state {
		if s == state {
			return true
		}
	}
	return false
}

// advice returns what to check while a database is in a state.
func advice(state string) string {
	switch state {
	case "unreachable":
		return "check that the server runs, and the host, port and TLS settings (sslmode, sslrootcert) of --job-db"
	case "starting":
		return "the server is starting, recovering or shutting down: check its log"
	case "read_only":
		return "the server is a standby, or default_transaction_read_only is set; with several hosts in --job-db, add target_session_attrs=read-write"
	case "disk_full":
		return "free or add disk space on the server"
	case "too_many_connections":
		return "check max_connections of the server, CONNECTION LIMIT of the role, and who holds connections (pg_stat_activity)"
	case "out_of_memory":
		return "check the memory of the server, and max_locks_per_transaction"
	case "slow":
		return "a timeout of the server struck: check statement_timeout of the server, the database and the role, and the disk"
	case "locked", "locked_or_full":
		return "check the disk, and which other process writes the file; another ingester on the same partition does no harm"
	}
	return "check the server's log"
}
