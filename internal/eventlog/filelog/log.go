package filelog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/dirlock"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/plural"
)

const lockName = "LOCK"

// Log is an open log. Its methods are safe for concurrent use.
type Log struct {
	cfg   Config
	parts []*partition
	lock  io.Closer // nil when read-only

	dirLock io.Closer // nil when read-only, or not on disk

	committing sync.Mutex // held during a commit; guards the partitions' tails
	queue      queue
	run        runner
	poll       poller
}

var _ eventlog.Topic = (*Log)(nil)

// partition is one partition of an open log.
type partition struct {
	id     int
	fs     vfs.FS
	dir    string
	polled bool // the log is read-only: another process advances the mark
	synced *syncedFile
	tail   tail // of the writer

	mu      sync.Mutex // guards what follows, and synced when polled
	mark    mark
	ended   error // why no more messages will come; nil: they may
	readers map[*reader]struct{}
}

// Open opens the log in the directory. If there is none, it creates one, provided that
// the log is not ReadOnly and Partitions is set.
//
// A log that is open for writing is locked; while another writer holds the lock, Open
// returns [eventlog.ErrLocked]. It returns [eventlog.ErrCorrupt] if recovery finds that
// durable data is damaged.
func Open(c Config) (*Log, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Log{cfg: c}
	if err := l.open(); err != nil {
		_ = l.release()
		return nil, fmt.Errorf("filelog: %w", err)
	}
	l.queue.init(l.cfg)
	if !c.ReadOnly && !c.Manual {
		l.run.start(l)
	}
	return l, nil
}

func (l *Log) open() error {
	c := l.cfg
	if !c.ReadOnly {
		if err := c.FS.MkdirAll(c.Dir, 0o750); err != nil {
			return fmt.Errorf("create directory: %w", err)
		}
		if err := l.acquire(); err != nil {
			return err
		}
	}
	partitions, err := readMeta(c)
	if errors.Is(err, fs.ErrNotExist) && !c.ReadOnly {
		if err = create(c); err == nil {
			partitions = c.Partitions
		}
	}
	if err != nil {
		return err
	}
	if c.Partitions != 0 && c.Partitions != partitions {
		return fmt.Errorf("log %s has %s, not %d: the partition count cannot be changed", c.Dir, plural.Of(partitions, "partition"), c.Partitions)
	}
	l.cfg.Partitions = partitions
	if !c.ReadOnly {
		// A crash may have happened between renaming META and syncing its name.
		if err := syncDir(c.FS, c.Dir); err != nil {
			return err
		}
	}
	for id := range partitions {
		p := &partition{id: id, fs: c.FS, dir: partitionDir(c, id), polled: c.ReadOnly, readers: make(map[*reader]struct{})}
		l.parts = append(l.parts, p)
		if err := p.openSynced(c.ReadOnly); err != nil {
			return err
		}
		if c.ReadOnly {
			_, err = p.durable()
		} else {
			err = p.recover()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func partitionDir(c Config, id int) string {
	return c.FS.PathJoin(c.Dir, fmt.Sprintf("%04d", id))
}

// acquire takes the writer's lock.
func (l *Log) acquire() error {
	dir := l.cfg.Dir
	if vfs.Root(l.cfg.FS) == vfs.Default {
		// The operating system's lock is per process and file, and the vfs tracks this
		// process's locks by name: so resolve the directory to one name.
		full, err := filepath.Abs(dir)
		if err == nil {
			full, err = filepath.EvalSymlinks(full)
		}
		if err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		dir = full
		// LOCK may be deleted under a writer; the directory cannot.
		if l.dirLock, err = dirlock.Lock(dir); errors.Is(err, dirlock.ErrHeld) {
			return l.held(dir)
		} else if err != nil {
			return fmt.Errorf("lock %s: %w", l.cfg.Dir, err)
		}
	}
	lock, err := l.cfg.FS.Lock(l.cfg.FS.PathJoin(dir, lockName))
	switch {
	case err == nil:
		l.lock = lock
		return nil
	case errors.As(err, new(*fs.PathError)): // LOCK cannot be opened
		return fmt.Errorf("lock %s: %w: the directory and LOCK must be writable for this user", l.cfg.Dir, err)
	// The vfs has no error class for a lock that is held.
	case errors.Is(err, error(syscall.EAGAIN)), errors.Is(err, error(syscall.EACCES)), err.Error() == "lock held by current process":
		return l.held(dir)
	}
	return fmt.Errorf("lock %s: %w", l.cfg.Dir, err)
}

// held names who has the lock.
func (l *Log) held(dir string) error {
	holder := ""
	if vfs.Root(l.cfg.FS) == vfs.Default {
		holder = dirlock.Holder(dir, filepath.Join(dir, lockName))
	}
	if holder != "" {
		holder = ", " + holder + ","
	}
	return fmt.Errorf("another writer%s has %s open: stop it first: %w", holder, l.cfg.Dir, eventlog.ErrLocked)
}

// release closes files and releases the lock.
func (l *Log) release() error {
	var errs []error
	for _, p := range l.parts {
		if p.tail.file != nil {
			errs = append(errs, p.tail.file.Close())
		}
		if p.tail.dir != nil {
			errs = append(errs, p.tail.dir.Close())
		}
		if p.synced != nil {
			errs = append(errs, p.synced.Close())
		}
	}
	for _, lock := range []io.Closer{l.lock, l.dirLock} {
		if lock != nil {
			errs = append(errs, lock.Close())
		}
	}
	return errors.Join(errs...)
}

// Partitions returns the number of partitions.
func (l *Log) Partitions() int { return len(l.parts) }

func (l *Log) partition(p int) (*partition, error) {
	if p < 0 || p >= len(l.parts) {
		return nil, fmt.Errorf("filelog: partition %d does not exist in %s, which has %s", p, l.cfg.Dir, plural.Of(len(l.parts), "partition"))
	}
	return l.parts[p], nil
}

// End returns the position of the last durable message of a partition, or
// [eventlog.Start] if there has never been one.
func (l *Log) End(p int) (eventlog.Position, error) {
	part, err := l.partition(p)
	if err != nil {
		return eventlog.Position{}, err
	}
	m, err := part.durable()
	if err != nil {
		return eventlog.Position{}, fmt.Errorf("filelog: %w", err)
	}
	return m.last, nil
}

// Beginning returns the earliest position that Open accepts: [eventlog.Start] if
// nothing was trimmed, otherwise that of the last trimmed message.
func (l *Log) Beginning(p int) (eventlog.Position, error) {
	part, err := l.partition(p)
	if err != nil {
		return eventlog.Position{}, err
	}
	at, err := part.beginning()
	if err != nil {
		return eventlog.Position{}, fmt.Errorf("filelog: %w", err)
	}
	return at, nil
}

// Close commits what is queued, ends the readers of this log, and gives up the
// lock. It returns the error by which the log failed, if it did.
func (l *Log) Close() error {
	if !l.queue.close() {
		return nil
	}
	l.run.stop()
	l.poll.stop()
	err := l.queue.failed()
	if !l.cfg.ReadOnly && err == nil {
		err = l.finish()
	}
	l.queue.shut()
	l.committing.Lock()
	defer l.committing.Unlock()
	for _, p := range l.parts {
		p.end(fmt.Errorf("log %s: %w", l.cfg.Dir, fs.ErrClosed))
	}
	return errors.Join(err, l.release())
}

// finish commits the queued messages and makes the marks durable.
func (l *Log) finish() error {
	if err := l.commit(); err != nil {
		return err
	}
	for _, p := range l.parts {
		if err := p.synced.Sync(); err != nil {
			return fmt.Errorf("filelog: sync %s: %w", p.synced.path, err)
		}
	}
	return nil
}
