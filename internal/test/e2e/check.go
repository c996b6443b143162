package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// Sum is what Check found in all partitions.
type Sum struct {
	Messages, Answered    uint64
	Envelopes             uint64
	Failed                int // runs
	Decisions, NotDecided int
	Claims, Parked        int
	Accepted              int // histories
	Rows                  int // of the job database
	Ignored               map[string]int
	Running               []string // running hash of each partition
	Groups                Groups
}

// Reader reads logs for Check; nil is Each. A test gives one that leaves
// something out, to see Check fail.
type Reader func(t eventlog.Topic, p int, fn func(eventlog.Message) error) error

// Check holds the logs and the job database against everything that must be
// true when all events are answered and nothing runs:
//
//   - every message is answered, and every failed run has exactly one record,
//     counted by a plain scan (Chain, Failures); the same scan finds no record of a group
//     that starts what has ended, or decides what was told to stop;
//   - the chain is whole, and deciding again gives its bytes (audit.Verify);
//   - the job database is the fold of both logs (sink.Fold).
//
// It returns what it counted, and each violation in a line. The error is for
// what could not be looked at.
func (d *Deployment) Check(ctx context.Context, read Reader) (_ Sum, violations []string, err error) {
	if read == nil {
		read = Each
	}
	l, err := d.Open()
	if err != nil {
		return Sum{}, nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	sum := Sum{Ignored: map[string]int{}}
	for p := range l.Events.Partitions() {
		found, err := l.scan(p, read, &sum)
		if err != nil {
			return sum, violations, err
		}
		verified, err := audit.Verify(ctx, l.Audit(), p)
		if err != nil {
			found = append(found, fmt.Sprintf("verify: %v", err))
		}
		sum.Running = append(sum.Running, verified.Progress.Running.String())
		rows, n, err := l.rows(ctx, d.jobDB(), p, d.Corrected)
		if err != nil {
			found = append(found, fmt.Sprintf("job database: %v", err))
		}
		sum.Rows += n
		for _, f := range append(found, rows...) {
			violations = append(violations, fmt.Sprintf("partition %d: %s", p, f))
		}
	}
	return sum, violations, nil
}

// scan reads both logs of a partition plainly.
func (l *Logs) scan(p int, read Reader, sum *Sum) (found []string, err error) {
	c, f := NewChain(), NewFailures()
	if err := read(l.Events, p, func(m eventlog.Message) error { f.Read(m.Payload); return nil }); err != nil {
		return nil, err
	}
	broken := read(l.Decisions, p, func(m eventlog.Message) error {
		_, err := c.Offer(m.Payload)
		return err
	})
	if broken != nil {
		found = append(found, fmt.Sprintf("decision log: %v", broken))
	}
	if c.Answered != f.Messages {
		found = append(found, fmt.Sprintf("%d of %d messages are answered", c.Answered, f.Messages))
	}
	found = append(found, f.Violations(c)...)
	sum.Messages += f.Messages
	sum.Answered += c.Answered
	sum.Envelopes += c.Seq
	sum.Failed += f.Failed()
	sum.Decisions += c.Decisions
	sum.NotDecided += c.NotDecided
	sum.Claims += c.Claims
	sum.Parked += c.Parked
	sum.Accepted += c.Accepted
	sum.Groups.add(&c.groups.Groups)
	for why, n := range c.Ignored {
		sum.Ignored[why] += n
	}
	return found, nil
}

// ingesterDelay is how long an ingester may take for what is in the log.
const ingesterDelay = 20 * time.Second

// rows compares the job database with what the logs demand.
func (l *Logs) rows(ctx context.Context, at string, p int, corrected func(sink.Difference) bool) (found []string, rows int, err error) {
	db, err := app.ReadJobDB(ctx, at)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var want, got *jobdb.Contents
	// A resumed owner may claim a partition while this reads, and the ingester
	// then is a moment behind.
	wait, cancel := context.WithTimeout(ctx, ingesterDelay)
	defer cancel()
	err = Until(wait, func() (bool, error) {
		err := db.View(ctx, func(q jobdb.Queries) error {
			var err error
			got, err = q.Contents(p)
			return err
		})
		if err != nil {
			return false, err
		}
		want, err = sink.Fold(eventlog.ToEnd(ctx, l.Events), eventlog.ToEnd(ctx, l.Decisions), p, 0, got.Releases...)
		return err == nil && want.Positions == got.Positions, err
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) || want == nil {
		return nil, 0, err
	}
	const limit = 20
	differences := sink.Compare(want, got)
	if corrected != nil {
		differences = slices.DeleteFunc(differences, corrected)
	}
	for i, d := range differences {
		if i == limit {
			found = append(found, "job database: … and more")
			break
		}
		found = append(found, "job database: "+d.String())
	}
	return found, got.Rows(), nil
}

// Leaving is a Reader that leaves out the first message that drop names.
func Leaving(drop func(topic eventlog.Topic, m eventlog.Message) bool) Reader {
	done := false
	return func(t eventlog.Topic, p int, fn func(eventlog.Message) error) error {
		return Each(t, p, func(m eventlog.Message) error {
			if !done && drop(t, m) {
				done = true
				return nil
			}
			return fn(m)
		})
	}
}

// Settled waits until every message is answered and in the job database.
func (d *Deployment) Settled(ctx context.Context) error {
	l, err := d.Open()
	if err != nil {
		return err
	}
	defer l.Close()
	ends := make([]eventlog.Position, l.Events.Partitions())
	for p := range ends {
		if ends[p], err = l.Events.End(p); err != nil {
			return err
		}
	}
	return d.Answered(ctx, ends)
}

// Answered waits until the job database answers events up to a position in each
// partition.
func (d *Deployment) Answered(ctx context.Context, upTo []eventlog.Position) error {
	last := ""
	err := Until(ctx, func() (bool, error) {
		positions, err := d.positions(ctx)
		if err != nil {
			last = err.Error()
			return false, nil // it does not exist yet
		}
		for p, to := range upTo {
			if at, ok := positions[p]; to != eventlog.Start && (!ok || at.Compare(to) < 0) {
				last = fmt.Sprintf("partition %d: the job database answers up to %v, wanted is %v", p, at, to)
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("not everything is answered: %w (%s)", err, last)
	}
	return nil
}

// positions returns the position up to which the job database answers events.
func (d *Deployment) positions(ctx context.Context) (map[int]eventlog.Position, error) {
	db, err := app.ReadJobDB(ctx, d.jobDB())
	if err != nil {
		return nil, err
	}
	defer db.Close()
	out := map[int]eventlog.Position{}
	err = db.View(ctx, func(q jobdb.Queries) error {
		all, err := q.Positions()
		for _, p := range all {
			out[p.Partition] = p.Positions.Chain.InTo
		}
		return err
	})
	return out, err
}
