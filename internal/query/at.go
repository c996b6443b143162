package query

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/sink"
)

// notBehind reads a time or a position, and returns whether a message of events is not behind it. Positions are those that
// records name: of the recording, if the message was fed from one.
func notBehind(text string) (func(*eventlog.Message) bool, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return func(m *eventlog.Message) bool { return publishedAt(m) <= at.UnixNano() }, nil
	}
	p, err := eventlog.ParsePosition(text)
	if err != nil {
		return nil, invalid("at", "%q: want a time such as 2026-12-01T06:00:00Z, or a position such as 12:345:6", text)
	}
	return func(m *eventlog.Message) bool { return m.OriginPosition().Compare(p) <= 0 }, nil
}

// publishedAt is when a message was published: of one that was fed from a recording, in the recording.
func publishedAt(m *eventlog.Message) int64 {
	if m.Origin.Recording != "" {
		return m.Origin.Publish
	}
	return m.Publish
}

// At returns the time that a text means (pastMoment), or the position that it is, as JobAt reads them. Errors: *Invalid.
func At(text string, now time.Time) (string, error) {
	if _, err := eventlog.ParsePosition(text); err == nil || text == "" {
		return text, nil
	}
	at, err := pastMoment(text, now)
	if err != nil {
		return "", &Invalid{"at", fmt.Errorf("%w, or a position such as 12:345:6", err)}
	}
	return time.Unix(0, at).UTC().Format(time.RFC3339Nano), nil
}

// JobAt shows a job as it was at a time (RFC 3339), or after the message at a position; it is derived from the logs.
// Errors: *NotFound, *Invalid, ErrNoLogs, ErrBusy.
func (s *Source) JobAt(ctx context.Context, id, at string) (shown []Found, err error) {
	until, err := notBehind(at)
	if err != nil {
		return nil, err
	}
	if s.Logs == nil {
		return nil, ErrNoLogs
	}
	var in []jobdb.PartitionPositions // where the job may be
	releases := map[int][]*jobdb.Release{}
	err = s.Jobs(ctx, func(q jobdb.Queries) error {
		found, err := LookUp(q, id)
		all, err2 := q.Positions()
		known := map[int]bool{}
		for _, j := range found {
			id, known[j.Partition] = j.JobID, true
		}
		for _, p := range all {
			if len(found) == 0 || known[p.Partition] {
				in = append(in, p)
			}
		}
		return errors.Join(err, err2, q.Releases(jobdb.RecordFilter{}, func(r *jobdb.Release) error {
			releases[r.Partition] = append(releases[r.Partition], r)
			return nil
		}))
	})
	if err != nil {
		return nil, err
	}
	err = s.whole(ctx, func(logs audit.Logs) error {
		for i, p := range in {
			s.progress("deriving the job from the logs: partition %d, %d of %d", p.Partition, i+1, len(in))
			if err := ctx.Err(); err != nil {
				return err
			}
			c, err := sink.FoldJobUntil(logs.Events, logs.Decisions, id, p, releases[p.Partition], until)
			if err != nil {
				return fmt.Errorf("job %s cannot be derived from the logs: partition %d: %w", id, p.Partition, err)
			}
			late := map[string]uint64{}
			for _, d := range c.Decisions {
				if d.Late() {
					late[d.RunID] = d.Number
				}
			}
			for _, j := range c.Jobs {
				h := History{Runs: c.Runs}
				f := Found{Row: j, Runs: h.InOrder()}
				f.Job = superseded(JobOf(j, f.Runs), late)
				shown = append(shown, f)
			}
		}
		return nil
	})
	if err == nil && len(shown) == 0 {
		err = &NotFound{What: "job " + id, Text: fmt.Sprintf("there was no job %s at %s", id, at)}
	}
	return shown, err
}
