package app

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/topiccopy"
	"github.com/refloat/refloat/internal/plural"
)

// Dir is a data directory: logs/events, logs/decisions, logs/policies,
// state/<partition> and jobs.sqlite.
type Dir string

// Events is the directory of the events log.
func (d Dir) Events() string { return filepath.Join(string(d), "logs", "events") }

// Decisions is the directory of the decision log.
func (d Dir) Decisions() string { return filepath.Join(string(d), "logs", "decisions") }

// Policies is the directory of the policies log.
func (d Dir) Policies() string { return filepath.Join(string(d), "logs", "policies") }

// State is the directory of a partition's state.
func (d Dir) State(partition int) string {
	return filepath.Join(d.stateRoot(), strconv.Itoa(partition))
}

func (d Dir) stateRoot() string { return filepath.Join(string(d), "state") }

// Scratch is the directory of checkpoints in transit.
func (d Dir) Scratch() string { return filepath.Join(string(d), "scratch") }

// JobDB is the file of the embedded job database.
func (d Dir) JobDB() string { return filepath.Join(string(d), "jobs.sqlite") }

// APIAddress is the file that records the API address of the process on the directory.
func (d Dir) APIAddress() string { return filepath.Join(string(d), "api.address") }

// Inbox is the directory of recordings that `feed` leaves to a running `up`.
func (d Dir) Inbox() string { return filepath.Join(string(d), "feed") }

// Logs are the open logs of a data directory.
type Logs struct{ Events, Decisions, Policies *filelog.Log }

// Access lists the logs to open for writing; the others are opened for reading.
type Access struct{ Events, Decisions, Policies bool }

// ErrNoData reports that the directory holds no logs.
var ErrNoData = errors.New("no Refloat data")

// OpenLogs opens the logs of a data directory. It creates those opened for writing if they do not exist: events
// with the given number of partitions, decisions with as many as events has.
func (d Dir) OpenLogs(partitions int, write Access) (*Logs, error) {
	if filelog.Exists(vfs.Default, string(d)) {
		return nil, fmt.Errorf("%s is a log, not a data directory: a data directory has its events log in logs/events", d)
	}
	var l Logs
	open := func(dst **filelog.Log, dir string, partitions int, write bool) (err error) {
		*dst, err = openLog(dir, partitions, write)
		return err
	}
	if err := open(&l.Events, d.Events(), partitions, write.Events); err != nil {
		return nil, err
	}
	if err := open(&l.Decisions, d.Decisions(), l.Events.Partitions(), write.Decisions); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := open(&l.Policies, d.Policies(), 1, write.Policies); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if e, c := l.Events.Partitions(), l.Decisions.Partitions(); e != c {
		return nil, errors.Join(fmt.Errorf("%s has %s and %s has %d: they must be equal", d.Events(), plural.Of(e, "partition"), d.Decisions(), c), l.Close())
	}
	return &l, nil
}

func openLog(dir string, partitions int, write bool) (*filelog.Log, error) {
	if !write {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w in %s", ErrNoData, dir)
		}
	} else if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	if !write || filelog.Exists(vfs.Default, dir) {
		partitions = 0 // as many as it has
	}
	return filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir, Partitions: partitions, ReadOnly: !write})
}

// Audit returns the logs as audits read them.
func (l *Logs) Audit() audit.Logs {
	return audit.Logs{Events: l.Events, Decisions: l.Decisions, Policies: l.Policies}
}

// Recorded returns the logs as audits read them. If `refloatctl record` copied them from Pulsar, messages have the
// positions that they had there.
func (l *Logs) Recorded() (audit.Logs, error) {
	events, e1 := topiccopy.Topic(l.Events)
	decisions, e2 := topiccopy.Topic(l.Decisions)
	policies, e3 := topiccopy.Topic(l.Policies)
	return audit.Logs{Events: events, Decisions: decisions, Policies: policies}, errors.Join(e1, e2, e3)
}

// Close closes the open logs.
func (l *Logs) Close() error {
	var errs []error
	for _, log := range []*filelog.Log{l.Events, l.Decisions, l.Policies} {
		if log != nil {
			errs = append(errs, log.Close())
		}
	}
	return errors.Join(errs...)
}

// OpenEvents opens an events log that import or record wrote, for reading.
func OpenEvents(dir string) (_ eventlog.Topic, closeLog func() error, err error) {
	switch events := Dir(dir).Events(); {
	case filelog.Exists(vfs.Default, dir):
	case filelog.Exists(vfs.Default, events):
		return nil, nil, fmt.Errorf("%s is a data directory: give its events log, %s", dir, events)
	default:
		return nil, nil, fmt.Errorf("%w in %s: `refloatctl import FILE --log %s` makes an events log", ErrNoData, dir, dir)
	}
	log, err := openLog(dir, 0, false)
	if err != nil {
		return nil, nil, err
	}
	topic, err := topiccopy.Topic(log)
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	return topic, log.Close, nil
}

// LogDirs are the directories of the three logs of a deployment, such as copies of its
// topics. Policies may be empty: then it is the directory policies beside Decisions.
type LogDirs struct{ Events, Decisions, Policies string }

// Open opens the logs as audits read them.
func (d LogDirs) Open() (logs audit.Logs, closeLogs func() error, err error) {
	d.Policies = cmp.Or(d.Policies, filepath.Join(filepath.Dir(filepath.Clean(d.Decisions)), "policies"))
	var closers []func() error
	closeLogs = func() error {
		var errs []error
		for _, c := range closers {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}
	for _, l := range []struct {
		dir   string
		topic *eventlog.Topic
	}{{d.Events, &logs.Events}, {d.Decisions, &logs.Decisions}, {d.Policies, &logs.Policies}} {
		topic, closeLog, err := OpenEvents(l.dir)
		if err != nil {
			return logs, nil, errors.Join(err, closeLogs())
		}
		*l.topic, closers = topic, append(closers, closeLog)
	}
	if e, c := logs.Events.Partitions(), logs.Decisions.Partitions(); e != c {
		return logs, nil, errors.Join(fmt.Errorf("%s has %s and %s has %d: they must be equal", d.Events, plural.Of(e, "partition"), d.Decisions, c), closeLogs())
	}
	return logs, closeLogs, nil
}
