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

// scrubPause is how long the scrubber rests between two rounds, and before the first.
const scrubPause = time.Minute

// scrubber reads what a process has on disk, slowly and for ever, and compares it
// with its checksums: what nobody reads can be damaged for years, until it is
// needed. It goes on where the last process stopped.
type scrubber struct {
	*node
	limit *rate.Limiter
	done  map[string]string // by what is read: how far; kept in the data directory
	kept  time.Time
}

// scrub runs until ctx ends, or until a log is damaged.
func (n *node) scrub(ctx context.Context) error {
	s := &scrubber{node: n, limit: rate.NewLimiter(rate.Limit(n.ScrubRate), int(max(n.ScrubRate, 64<<10))), done: map[string]string{}}
	if b, err := os.ReadFile(s.file()); err == nil {
		_ = json.Unmarshal(b, &s.done) // where that is damaged, too, it begins anew
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
		pause := time.NewTimer(scrubPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}

func (s *scrubber) file() string { return filepath.Join(string(s.Data), "scrub.json") }

func (s *scrubber) keep() error {
	b, err := json.Marshal(s.done)
	if err == nil {
		// On Pulsar the scrubber may be the first to write into the data directory.
		err = errors.Join(os.MkdirAll(string(s.Data), 0o755), writeFile(s.file(), b))
	}
	if err != nil {
		return fmt.Errorf("keep how far the scrubber came: %w", err)
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

// keepEvery is how often the scrubber writes down how far it came.
const keepEvery = 30 * time.Second

// read counts bytes, and waits as long as they should have taken.
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

// logs reads the logs' messages as everybody reads them: each frame's place,
// checksums and contents are compared. Damage in them ends the process, since
// everything else follows from them.
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
		if from, err = topic.Beginning(p); err == nil {
			r, err = topic.Open(p, from)
		}
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
			delete(s.done, key) // the next round reads from the beginning
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

// state reads the tables of a partition's state. A damaged one ends the life of
// its owner, who sets it aside; others go on.
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
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) { // compacted meanwhile
			return err
		}
		s.done[key] = table
	}
	delete(s.done, key)
	return nil
}

// tableSettles is for how long a table must not have changed before what cannot be
// read in it is damage: until then it may still be being written.
const tableSettles = 3 * time.Second

// table verifies one table. Pebble never changes a table that it has written, so one
// that changes while it is read again and again is left to the next round.
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
		wait := time.NewTimer(min(tableSettles-age, tableSettles))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// inState tells the partition's owner of damage in its state.
func (s *scrubber) inState(partition int, damage error) {
	s.Log.Warn("the scrubber found damage in the state", slog.Int("partition", partition), slog.Any("error", damage))
	s.suspects.Store(partition, damage)
	if store, ok := s.stores.Load(partition); ok {
		store.(*projection.Store).NoteDamage(damage)
	}
}

// jobs reads the pages of a job database in a file. Where one is damaged, the
// ingester sets the file aside.
func (s *scrubber) jobs(ctx context.Context, path string) error {
	const key = "job_database"
	from, _ := strconv.ParseInt(s.done[key], 10, 64)
	err := sqlite.Scrub(path, from, func(next int64, n int) error {
		s.done[key] = strconv.FormatInt(next, 10)
		return s.read(ctx, damagedJobDB, n)
	})
	if errors.Is(err, jobdb.ErrDamaged) {
		delete(s.done, key)
		if end := s.jobDBDamaged.Load(); end != nil {
			(*end)(err)
		}
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) { // not yet, or set aside just now
		err = nil
	}
	if err == nil {
		delete(s.done, key)
	}
	return err
}
