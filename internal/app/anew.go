package app

import (
	"errors"
	"fmt"
	"os"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// makeAnew replaces the logs of events and decisions, the state and the job database of a data directory that has no
// event yet, so that there are as many partitions as the feeds need. Policies stay. It closes the logs that it gets.
func (c Config) makeAnew(logs *Logs, partitions int, write Access) (*Logs, error) {
	has := logs.Events.Partitions()
	tooFew := fmt.Errorf("the feeds need %d partitions, %s has %d, which cannot be changed once it has events: use a new data directory", partitions, c.Data.Events(), has)
	unused, err := logs.unused()
	if err != nil {
		return nil, errors.Join(err, logs.Close())
	}
	if !unused || c.JobDB != "" || !write.Decisions || !write.Events {
		return nil, errors.Join(tooFew, logs.Close())
	}
	// While the logs are open, they are locked. Events goes last and at once, so that what is left after a crash in
	// between is complete, or made anew too.
	db := c.Data.JobDB()
	var errs []error
	for _, path := range []string{db + "-wal", db + "-shm", db, c.Data.stateRoot(), c.Data.Decisions()} {
		errs = append(errs, os.RemoveAll(path))
	}
	old := c.Data.Events() + ".empty"
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(fmt.Errorf("make the logs anew: %w", err), logs.Close())
	}
	err = errors.Join(os.RemoveAll(old), os.Rename(c.Data.Events(), old), logs.Close(), os.RemoveAll(old))
	if err != nil {
		return nil, fmt.Errorf("make the logs anew: %w", err)
	}
	return c.Data.OpenLogs(partitions, write)
}

// unused reports whether there is no event, and no envelope that covers one: the events may have been deleted.
func (l *Logs) unused() (bool, error) {
	for p := range l.Events.Partitions() {
		end, err := l.Events.End(p)
		if err != nil || end != eventlog.Start {
			return false, err
		}
		decisions, err := l.Decisions.Open(p, eventlog.Start)
		if err != nil {
			return false, err
		}
		covers, err := coversEvents(decisions)
		if err = errors.Join(err, decisions.Close()); err != nil || covers {
			return false, err
		}
	}
	return true, nil
}

func coversEvents(decisions eventlog.Reader) (bool, error) {
	chunk := make([]eventlog.Message, feedBatch)
	for {
		n, err := decisions.Read(chunk)
		if err != nil || n == 0 {
			return false, err
		}
		for i := range chunk[:n] {
			if e, err := chain.DecodeEnvelope(chunk[i].Payload); err != nil || e.InTo != eventlog.Start {
				return true, nil //nolint:nilerr // what cannot be read is kept
			}
		}
	}
}
