package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/projection"
)

// What can be damaged, as a metric label.
const (
	damagedLog   = "log"
	damagedState = "state"
	damagedJobDB = "job_database"
)

// maxRebuilds is how often a process makes the same thing again: who finds it
// damaged more often has a broken disk.
const maxRebuilds = 3

// setAside renames a damaged file or directory, and what belongs to it, to a name
// beside it. Nothing is deleted.
func setAside(path string, now time.Time, suffixes ...string) (string, error) {
	to := path + ".damaged-" + now.UTC().Format("20060102T150405.000Z")
	for _, suffix := range append([]string{""}, suffixes...) {
		if err := os.Rename(path+suffix, to+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("set aside what is damaged: %w", err)
		}
	}
	return to, nil
}

// rebuildState sets a partition's damaged state aside. What takes its place is a
// checkpoint, or is folded from the logs.
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
	o.Log.Warn("state is damaged: it was set aside and is made again from a checkpoint or the logs; nothing is lost, and the old directory may be deleted",
		slog.Int("partition", o.partition), slog.String("set_aside", to), slog.Any("error", damage))
	return nil
}

// stateDamaged is told that a life ended with a damaged state.
func (o *owner) stateDamaged(err error) bool {
	if !errors.Is(err, projection.ErrCorrupt) || o.rebuilds >= maxRebuilds {
		return false
	}
	o.damaged = err
	return true
}

// ingest writes the job database. A file of SQLite that is damaged is set aside,
// and filled again from the logs.
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

// rebuildJobDB sets the job database aside, unless it alone knows something.
func (n *node) rebuildJobDB(ctx context.Context, damage error) error {
	path, err := sqlitePath(n.jobDB())
	if err != nil {
		return errors.Join(damage, err)
	}
	releases, err := countReleases(ctx, n.jobDB())
	if releases > 0 || err != nil && n.ReleaseAfter > 0 {
		return fmt.Errorf("%w (it may hold releases of --release-after, which do not stand in the logs: restore it from a copy, "+
			"or move it away to fill a new one without them)", damage)
	}
	to, err := setAside(path, n.Now(), "-wal", "-shm")
	if err != nil {
		return errors.Join(damage, err)
	}
	n.Log.Warn("job database is damaged: it was set aside and is filled again from the logs; nothing is lost, and the old file may be deleted",
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

// diskAdvice says what to do where a disk was full.
func diskAdvice(err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return fmt.Errorf("the disk is full: free space and start again, nothing that was acknowledged is lost: %w", err)
}
