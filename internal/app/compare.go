package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/dirlock"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
)

// ErrForeign means that a job database was not written from the logs of a data directory.
var ErrForeign = errors.New("the job database does not belong to the logs")

// Compare compares the positions in a job database with the logs of the data directory, and the last envelope that each
// partition was written from. It returns ErrForeign, or what to say of a database that is behind; "": nothing. A
// database is always a little behind while a process writes it, and nothing is said then.
func (d Dir) Compare(ctx context.Context, db JobDBReader) (warning string, err error) {
	logs, err := d.OpenLogs(0, Access{})
	switch {
	case errors.Is(err, ErrNoData):
		return "", nil
	case err != nil:
		return "the job database was not compared with the logs: " + err.Error(), nil
	}
	defer func() { _ = logs.Close() }()
	var rows []jobdb.PartitionPositions
	err = db.View(ctx, func(q jobdb.Queries) (err error) {
		rows, err = q.Positions()
		return err
	})
	if err != nil {
		return "", err
	}
	partitions := logs.Events.Partitions()
	at := make([]jobdb.Positions, partitions)
	for p := range at {
		at[p] = jobdb.Positions{Chain: chain.Beginning, Decisions: eventlog.Start, Events: eventlog.Start}
	}
	for _, r := range rows {
		if r.Partition >= partitions {
			return "", d.foreign(fmt.Errorf("it has rows of partition %d, and there are %d", r.Partition, partitions))
		}
		at[r.Partition] = r.Positions
	}
	written, behind, first := d.written(), 0, ""
	for p := range at {
		end, err := logs.proves(p, at[p])
		switch {
		case errors.Is(err, chain.ErrMissing), errors.Is(err, eventlog.ErrTransient) && !written:
			return "", d.foreign(fmt.Errorf("partition %d: %w", p, err))
		case errors.Is(err, eventlog.ErrTransient):
		case err != nil:
			return fmt.Sprintf("the job database was not compared with the logs: partition %d: %v", p, err), nil
		case end.Compare(at[p].Events) > 0:
			if behind++; behind == 1 {
				first = fmt.Sprintf("in partition %d it has events up to %v, the log ends at %v", p, at[p].Events, end)
			}
		}
	}
	if behind == 0 || written {
		return "", nil
	}
	return fmt.Sprintf("the job database is behind the logs of %s in %d of %s, so newer events and decisions are missing (%s); `refloatctl up --data %s --exit-when-drained` brings it up to date",
		d, behind, plural.Of(partitions, "partition"), first, d), nil
}

func (d Dir) foreign(err error) error {
	return fmt.Errorf("%w of %s: it is a copy of another one, or the logs were replaced: move the database away, and `refloatctl up --data %s` writes a new one from the logs; --job-db alone shows it as it is: %w", ErrForeign, d, d, err)
}

// proves returns where the events of a partition end. It returns chain.ErrMissing if the envelope that rows were written
// from last is not the one at its position.
func (l *Logs) proves(partition int, at jobdb.Positions) (end eventlog.Position, err error) {
	f, err := follow.Open(l.Events, l.Decisions, partition, follow.Positions{Chain: at.Chain, Decisions: at.Decisions})
	if err != nil {
		return end, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Next(); err != nil {
		return end, err
	}
	return l.Events.End(partition)
}

// written reports whether a process writes the logs of the data directory, as far as this machine tells.
func (d Dir) written() bool {
	for _, dir := range []string{d.Events(), d.Decisions()} {
		if dirlock.Holder(dir, filepath.Join(dir, "LOCK")) != "" {
			return true
		}
	}
	return false
}
