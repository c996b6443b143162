package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/projection"
)

// DefaultScrubRate is how many MiB a second the scrubber reads: 337 GiB a day.
const DefaultScrubRate = 4.0

// scrubPause is the pause before each round of the scrubber.
const scrubPause = time.Minute

// scrubber verifies what a process has on disk against its checksums, slowly and continuously: damage to data that
// nobody reads would otherwise stay unnoticed until it is needed. It continues where the last process stopped.
type scrubber struct {
	*node
	limit *rate.Limiter
	done  map[string]string // progress by file set; kept in the data directory
	kept  time.Time
}

// scrub runs until ctx ends, or until a log is found damaged.
func (n *node) scrub(ctx context.Context) error {
	s := &scrubber{node: n, limit: rate.NewLimiter(rate.Limit(n.ScrubRate), int(max(n.ScrubRate, 64<<10))), done: map[string]string{}}
	if b, err := os.ReadFile(s.file()); err == nil {
		_ = json.Unmarshal(b, &s.done) // if the file is damaged, start over
	}
	n.Log.Info("scrubbing", slog.String("kept_in", s.file()), slog.Int64("bytes_per_second", n.ScrubRate))
	for {
		if err := s.round(ctx); err != nil {
			if ctx.Err() != nil {
				return s.keep()
			}
			return errors.Join(err, s.keep())
		}
		if err := s.keep(); err != nil {
			return err
		}
		if eventlog.Sleep(ctx, scrubPause) != nil {
			return nil
		}
	}
}

func (s *scrubber) file() string { return filepath.Join(string(s.Data), "scrub.json") }

func (s *scrubber) keep() error {
	b, err := json.Marshal(s.done)
	if err == nil {
		// On Pulsar, the scrubber may be the first to write to the data directory.
		err = errors.Join(os.MkdirAll(string(s.Data), 0o750), writeFile(s.file(), b))
	}
	if err != nil {
		return fmt.Errorf("save the scrubber's progress: %w", err)
	}
	return nil
}

// round reads everything once, from where the last round was interrupted.
func (s *scrubber) round(ctx context.Context) error {
	if s.Pulsar == nil {
		if err := s.logs(ctx); err != nil {
			return err
		}
	}
	if s.Evaluate {
		for p := range s.backend.Events.Partitions() {
			if err := s.state(ctx, p); err != nil {
				return err
			}
		}
		s.completed(damagedState)
	}
	if path, err := sqlitePath(s.jobDB()); s.Ingest && err == nil {
		if err := s.jobs(ctx, path); err != nil {
			return err
		}
		s.completed(damagedJobDB)
	}
	return nil
}

func (s *scrubber) completed(what string) {
	s.metrics.scrubEnd.WithLabelValues(what).Set(float64(s.Now().UnixNano()) / 1e9)
}

// keepEvery is how often the scrubber saves its progress.
const keepEvery = 30 * time.Second

// read counts bytes, and waits to keep to the rate.
func (s *scrubber) read(ctx context.Context, what string, n int) error {
	if now := s.Now(); now.Sub(s.kept) > keepEvery {
		s.kept = now
		if err := s.keep(); err != nil {
			return err
		}
	}
	s.metrics.scrubbed.WithLabelValues(what).Add(float64(n))
	for n > 0 {
		some := min(n, s.limit.Burst())
		if err := s.limit.WaitN(ctx, some); err != nil {
			return err
		}
		n -= some
	}
	return nil
}

// logs reads the messages of the logs in the usual way, which verifies each frame's position, checksum and
// content. Damage ends the process, since everything else is derived from the logs.
func (s *scrubber) logs(ctx context.Context) error {
	for _, l := range []struct {
		name  string
		topic eventlog.Topic
	}{{"events", s.backend.Events}, {"decisions", s.backend.Decisions}, {"policies", s.backend.Policies}} {
		for p := range l.topic.Partitions() {
			if err := s.partition(ctx, l.name+"/"+strconv.Itoa(p), l.topic, p); err != nil {
				return fmt.Errorf("scrub %s, partition %d: %w", l.name, p, err)
			}
		}
	}
	s.completed(damagedLog)
	return nil
}

func (s *scrubber) partition(ctx context.Context, key string, topic eventlog.Topic, p int) error {
	from, err := eventlog.ParsePosition(s.done[key])
	if err != nil {
		from = eventlog.Start
	}
	r, err := topic.Open(p, from)
	if errors.Is(err, eventlog.ErrTrimmed) {
		r, _, err = eventlog.OpenHeld(topic, p)
	}
	if err != nil {
		return s.logDamage(err)
	}
	defer r.Close()
	chunk := make([]eventlog.Message, 64)
	for {
		n, err := r.Read(chunk)
		if err != nil {
			return s.logDamage(err)
		}
		if n == 0 {
			delete(s.done, key) // the next round starts at the beginning
			return nil
		}
		size := 0
		for i := range chunk[:n] {
			size += len(chunk[i].Payload) + len(chunk[i].Key)
		}
		s.done[key] = chunk[n-1].Position.String()
		if err := s.read(ctx, damagedLog, size); err != nil {
			return err
		}
	}
}

func (s *scrubber) logDamage(err error) error {
	if errors.Is(err, eventlog.ErrCorrupt) {
		s.metrics.damage.WithLabelValues(damagedLog).Inc()
	}
	return err
}

// state reads the tables of a partition's state. If one is damaged, the partition's owner ends and sets the state
// aside; other partitions continue.
func (s *scrubber) state(ctx context.Context, partition int) error {
	dir, key := s.Data.State(partition), "state/"+strconv.Itoa(partition)
	tables, err := projection.Tables(dir)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if table <= s.done[key] {
			continue
		}
		err := s.table(ctx, filepath.Join(dir, table))
		if errors.Is(err, projection.ErrCorrupt) {
			s.inState(partition, err)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) { // compacted in the meantime
			return err
		}
		s.done[key] = table
	}
	delete(s.done, key)
	return nil
}

// tableSettles is how long a table must be unchanged before a read error in it is damage: until then it may still
// be being written.
const tableSettles = 3 * time.Second

// table verifies one table. Pebble never changes a finished table, so one that keeps changing while it is read is
// left to the next round.
func (s *scrubber) table(ctx context.Context, path string) error {
	for range 3 {
		err := projection.CheckTable(path, func(n int) error { return s.read(ctx, damagedState, n) })
		if !errors.Is(err, projection.ErrCorrupt) {
			return err
		}
		info, statErr := os.Stat(path)
		if statErr != nil {
			return statErr
		}
		age := s.Now().Sub(info.ModTime())
		if age >= tableSettles {
			return err
		}
		if err := eventlog.Sleep(ctx, min(tableSettles-age, tableSettles)); err != nil {
			return err
		}
	}
	return nil
}

// inState reports damage in its state to the partition's owner.
func (s *scrubber) inState(partition int, damage error) {
	s.Log.Warn("scrubber found damage in the state", slog.Int("partition", partition), slog.Any("error", damage))
	s.suspects.Store(partition, damage)
	if store, ok := s.stores.Load(partition); ok {
		store.(*projection.Store).NoteDamage(damage)
	}
}

// jobs reads the pages of a SQLite job database. If one is damaged, the ingester sets the file aside.
func (s *scrubber) jobs(ctx context.Context, path string) error {
	const key = "job_database"
	from, _ := strconv.ParseInt(s.done[key], 10, 64)
	setAside := s.jobDBsSetAside.Load()
	err := sqlite.Scrub(path, from, func(next int64, n int) error {
		s.done[key] = strconv.FormatInt(next, 10)
		return s.read(ctx, damagedJobDB, n)
	})
	if errors.Is(err, jobdb.ErrDamaged) {
		delete(s.done, key)
		if s.jobDBsSetAside.Load() == setAside { // else this was the file that the ingester has replaced
			s.metrics.health.report(jobDBPart, err)
			s.suspectJobDB.found(err)
		}
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) { // not created yet, or just set aside
		err = nil
	}
	if err == nil {
		delete(s.done, key)
	}
	return err
}
