package jobdb

import (
	"context"
	"errors"

	"github.com/refloat/refloat/internal/eventlog"
)

// Errors by class; an implementation wraps them with what it knows.
var (
	// ErrMoved: the place is not the one expected, since someone else wrote.
	// Nothing was written; read the place again and go on from there.
	ErrMoved = errors.New("the place was moved by someone else")
	// ErrUnavailable: the database is locked, full or out of reach; trying again may help.
	ErrUnavailable = errors.New("job database is not available now")
	// ErrForeign: this is no job database of ours.
	ErrForeign = errors.New("not a refloat job database")
	// ErrNewer: a newer version of the program wrote it.
	ErrNewer = errors.New("job database has a newer schema")
	// ErrOlder: it must be migrated, by a writer, before it can be read.
	ErrOlder = errors.New("job database has an older schema")
	// ErrGivenBack: Armada's own ingester writes this database, and ours must not.
	ErrGivenBack = errors.New("job database was given back to Armada's ingester")
	// ErrReadOnly: it cannot be written. With ErrUnavailable: it, or the server that
	// takes its place, may be later.
	ErrReadOnly = errors.New("job database is read-only")
	// ErrDamaged: what it holds is not what was written to it. It is a fold of the
	// logs, so it can be filled again from them.
	ErrDamaged = errors.New("job database is damaged")
	// ErrDenied: it does not let this user in, or write.
	ErrDenied = errors.New("job database denies this user access")
)

// Store is a job database as its writer uses it.
type Store interface {
	// Begin opens a transaction on one partition. It takes the partition's lock
	// first, so what the transaction sees of it stays true until it ends.
	Begin(ctx context.Context, partition int) (Tx, error)
}

// Tx is one transaction on one partition. It ends by Commit or Rollback;
// Rollback after the end does nothing.
type Tx interface {
	// Place is where the partition's rows stand.
	Place() Place
	// Origin is up to where another ingester took in the events before the rows begin,
	// as a release of no messages from the beginning says; eventlog.Start: there was none.
	Origin(ctx context.Context) (eventlog.Position, error)
	// Load finds rows. What is not there is left out.
	Load(ctx context.Context, keys Keys) (*Found, error)
	// Write inserts or replaces rows.
	Write(ctx context.Context, changes *Changes) error
	// Commit moves the place by compare-and-set and ends the transaction.
	// ErrMoved: nothing was written. After any other error it is not known
	// whether the transaction took effect.
	Commit(ctx context.Context, from, to Place) error
	Rollback() error
}

// Keys names the rows that a fold may read.
type Keys struct {
	Jobs []string
	Runs []RunKey
	// OpenRunsOf asks for all runs of these jobs whose end was not reported.
	OpenRunsOf []string
	// Sets asks for all jobs of these sets that were submitted and are not over.
	Sets []SetKey
}

// RunKey names a run within a partition.
type RunKey struct{ JobID, RunID string }

// SetKey names a job set within a partition.
type SetKey struct{ Queue, JobSet string }

// Found are the rows that Load found, in no order, each at least once.
type Found struct {
	Jobs []Job
	Runs []Run
}

// Changes are rows to be written, each once. Jobs and runs replace what stands
// under their key; the others are new.
type Changes struct {
	Jobs        []*Job
	Runs        []*Run
	Decisions   []*Decision
	NotDecided  []*NotDecided
	Parked      []*Parked
	Ready       []*Ready
	Activations []*Activation
	Releases    []*Release
}

// Rows is how many rows there are to be written.
func (c *Changes) Rows() int {
	return len(c.Jobs) + len(c.Runs) + len(c.Decisions) + len(c.NotDecided) + len(c.Parked) + len(c.Ready) + len(c.Activations) + len(c.Releases)
}

// Contents are all rows of one partition, jobs and runs by their keys, the
// others in log order.
type Contents struct {
	Partition int
	Place     Place
	Changes
}
