package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/projection"
)

// Kinds of damage, as a metric label.
const (
	damagedLog   = "log"
	damagedState = "state"
	damagedJobDB = "job_database"
)

// maxRebuilds is how often a process rebuilds the same thing. If it is damaged more often, the disk is broken.
const maxRebuilds = 3

// setAside renames a damaged file or directory, and the files that belong to it. It deletes nothing.
func setAside(path string, now time.Time, suffixes ...string) (string, error) {
	to := path + ".damaged-" + now.UTC().Format("20060102T150405.000Z")
	for _, suffix := range append([]string{""}, suffixes...) {
		if err := os.Rename(path+suffix, to+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("set damaged data aside: %w", err)
		}
	}
	return to, nil
}

// rebuildState sets a partition's damaged state aside. The state is then restored from a checkpoint or folded
// again from the logs.
func (o *owner) rebuildState(damage error) error {
	o.metrics.damage.WithLabelValues(damagedState).Inc()
	o.suspects.Delete(o.partition)
	if o.rebuilds++; o.rebuilds > maxRebuilds {
		return fmt.Errorf("%w (set aside %d times already: check the disk)", damage, maxRebuilds)
	}
	to, err := setAside(o.Data.State(o.partition), o.Now())
	if err != nil {
		return errors.Join(damage, err)
	}
	o.Log.Warn("state is damaged: set aside and rebuilt from a checkpoint or the logs; nothing is lost, and the old directory may be deleted",
		slog.Int("partition", o.partition), slog.String("set_aside", to), slog.Any("error", damage))
	return nil
}

// stateDamaged reports whether an owner ended because its state is damaged, and records it.
func (o *owner) stateDamaged(err error) bool {
	if !errors.Is(err, projection.ErrCorrupt) || o.rebuilds >= maxRebuilds {
		return false
	}
	o.damaged = err
	return true
}

// suspect keeps damage that the scrubber found until what is damaged is set aside, whether or not anybody uses it yet.
// It is safe for concurrent use.
type suspect struct {
	mu     sync.Mutex
	damage error
	stop   context.CancelCauseFunc // of the user; nil: there is none
}

// use registers a user, which stop ends when damage is found. It returns damage that was found before.
func (s *suspect) use(stop context.CancelCauseFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = stop
	return s.damage
}

func (s *suspect) found(damage error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damage = damage
	if s.stop != nil {
		s.stop(damage)
	}
}

func (s *suspect) setAside() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.damage, s.stop = nil, nil
}

// jobDBPart is the job database in /readyz.
const jobDBPart = "job database"

// ingest writes the job database. A damaged SQLite file is set aside and rebuilt from the logs.
func (n *node) ingest(ctx context.Context) error {
	for rebuilds := 0; ; rebuilds++ {
		err := n.ingestOnce(ctx)
		if !errors.Is(err, jobdb.ErrDamaged) {
			return err
		}
		n.metrics.damage.WithLabelValues(damagedJobDB).Inc()
		if rebuilds == maxRebuilds {
			return fmt.Errorf("%w (set aside %d times already: check the disk)", err, maxRebuilds)
		}
		if err := n.rebuildJobDB(ctx, err); err != nil {
			return err
		}
	}
}

// rebuildJobDB sets the job database aside, unless it holds something that is nowhere else.
func (n *node) rebuildJobDB(ctx context.Context, damage error) error {
	path, err := sqlitePath(n.jobDB())
	if err != nil {
		return errors.Join(damage, err)
	}
	releases, err := countReleases(ctx, n.jobDB())
	if releases > 0 || err != nil && n.ReleaseAfter > 0 {
		return fmt.Errorf("%w (it may hold releases of --release-after, which the logs do not contain: restore it from a backup, "+
			"or move it away to fill a new one without them)", damage)
	}
	to, err := setAside(path, n.Now(), "-wal", "-shm")
	if err != nil {
		return errors.Join(damage, err)
	}
	n.jobDBsSetAside.Add(1)
	n.suspectJobDB.setAside()
	n.metrics.health.report(jobDBPart, nil)
	n.Log.Warn("job database is damaged: set aside and rebuilt from the logs; nothing is lost, and the old file may be deleted",
		slog.String("set_aside", to), slog.Any("error", damage))
	return nil
}

// countReleases counts the releases in a damaged database, if they can be read.
func countReleases(ctx context.Context, at string) (n int, err error) {
	r, err := ReadJobDB(ctx, at)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	err = r.View(ctx, func(q jobdb.Queries) error {
		return q.Releases(jobdb.RecordFilter{}, func(*jobdb.Release) error { n++; return nil })
	})
	return n, err
}

// diskAdvice adds advice to an error about a disk that takes no more.
func diskAdvice(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("the disk is full: free space and restart; nothing acknowledged is lost: %w", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("the disk is read-only: make it writable and restart; nothing acknowledged is lost: %w", err)
	}
	return err
}

// writeAdvice adds advice to an error of a write to the state.
func writeAdvice(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the state is not writable: correct owner and mode of the directory and its files, and restart; nothing acknowledged is lost: %w", err)
	}
	return diskAdvice(err)
}
