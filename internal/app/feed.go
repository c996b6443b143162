package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/plural"
)

// Feed writes a recording into an events log. Each message keeps its partition and carries its origin. Messages
// that the log already has are skipped, so an interrupted feed continues where it stopped.
type Feed struct {
	File string
	Log  FeedLog
	// Pace is the replay speed relative to the recording; 0: as fast as possible.
	Pace float64
	Now  func() time.Time
	// Progress, if set, is called with the number of messages fed or skipped.
	Progress func(messages int)
}

const feedBatch = 256

// Run feeds until the recording ends, and returns how many messages it wrote.
func (f *Feed) Run(ctx context.Context) (written int, err error) {
	r, err := recording.Open(f.File)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	fed, err := fedAlready(f.Log, recording.Name(f.File))
	if err != nil {
		return 0, err
	}
	clock := pacer{pace: f.Pace, now: f.Now}
	pending := make([][]eventlog.Message, f.Log.Partitions())
	seen, n := 0, 0
	flush := func() error {
		for p, msgs := range pending {
			if len(msgs) == 0 {
				continue
			}
			if err := f.Log.Append(p, msgs); err != nil {
				return fmt.Errorf("feed %s: %w", f.File, err)
			}
			written += len(msgs)
			pending[p] = nil
		}
		n = 0
		if f.Progress != nil {
			f.Progress(seen)
		}
		return ctx.Err()
	}
	for {
		entry, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return written, err
		}
		seen++
		p, m := entry.Partition, entry.Message
		if p >= len(pending) {
			return written, fmt.Errorf("feed %s: a message belongs to partition %d, but the log has %s, which cannot be changed: use a new directory", f.File, p, plural.Of(len(pending), "partition"))
		}
		if m.Origin.Position.Compare(fed[p]) <= 0 {
			continue
		}
		if clock.early(m.Origin.Publish) {
			if err := flush(); err != nil {
				return written, err
			}
			if err := clock.wait(ctx, m.Origin.Publish); err != nil {
				return written, err
			}
		}
		pending[p] = append(pending[p], m)
		if n++; n >= feedBatch {
			if err := flush(); err != nil {
				return written, err
			}
		}
	}
	if err := flush(); err != nil {
		return written, err
	}
	return written, f.Log.Flush(ctx)
}

// fedAlready returns, by partition, the position of the log's last message of a recording.
func fedAlready(log FeedLog, name string) ([]eventlog.Position, error) {
	fed := make([]eventlog.Position, log.Partitions())
	chunk := make([]eventlog.Message, feedBatch)
	for p := range fed {
		fed[p] = eventlog.Start
		r, err := log.Open(p, eventlog.Start)
		if err != nil {
			return nil, err
		}
		for {
			n, err := r.Read(chunk)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				break
			}
			for i := range chunk[:n] {
				if o := &chunk[i].Origin; o.Recording == name {
					fed[p] = o.Position
				}
			}
		}
		if err := r.Close(); err != nil {
			return nil, err
		}
	}
	return fed, nil
}

// pacer keeps a feed to the timing of its recording.
type pacer struct {
	pace    float64
	now     func() time.Time
	started time.Time
	first   int64
}

func (p *pacer) due(publish int64) time.Time {
	if p.started.IsZero() {
		p.started, p.first = p.now(), publish
	}
	return p.started.Add(time.Duration(float64(publish-p.first) / p.pace))
}

func (p *pacer) early(publish int64) bool { return p.pace > 0 && p.due(publish).After(p.now()) }

func (p *pacer) wait(ctx context.Context, publish int64) error {
	select {
	case <-time.After(p.due(publish).Sub(p.now())):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Import writes a recording into a log directory of its own, not a data directory. It creates the log with the given
// number of partitions, or as many as the recording has. It returns how many messages it added, and how many the recording holds.
func Import(ctx context.Context, file, dir string, partitions int, progress func(done, total int)) (written, total int, err error) {
	total, needed, err := Survey(file)
	if err != nil {
		return 0, 0, err
	}
	partitions = cmp.Or(partitions, needed)
	if events := Dir(dir).Events(); filelog.Exists(vfs.Default, events) {
		return 0, total, fmt.Errorf("%s is a data directory, whose events log is %s: use `refloatctl feed %s --data %s`, or import into a directory of its own", dir, events, file, dir)
	}
	log, err := openLog(dir, partitions, true)
	if err != nil {
		return 0, total, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	f := Feed{File: file, Log: log, Progress: func(n int) { progress(n, total) }}
	written, err = f.Run(ctx)
	return written, total, err
}

// Survey counts a recording's messages and the partitions that it needs.
func Survey(file string) (messages, partitions int, err error) {
	r, err := recording.Open(file)
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	for {
		entry, err := r.Next()
		if errors.Is(err, io.EOF) {
			return messages, partitions, nil
		}
		if err != nil {
			return 0, 0, err
		}
		messages, partitions = messages+1, max(partitions, entry.Partition+1)
	}
}
