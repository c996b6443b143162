package projection

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/dirlock"
)

// Store keeps one partition's records in its own Pebble directory.
//
// After Pebble has detected damage, also in the background, every call returns ErrCorrupt.
// If Pebble can no longer write, it ends the process by Logger.Fatalf; synced data is kept.
type Store struct {
	db      *pebble.DB
	lock    *pebble.Lock
	dirLock io.Closer   // nil: not on disk
	end     func(error) // ends the process
	damaged atomic.Pointer[error]

	manifest atomic.Value // path of the current MANIFEST, a string

	closing sync.RWMutex // held by those who read from other goroutines, and by Close
	closed  bool
}

// StoreConfig defines the directory of a Store and its resources.
type StoreConfig struct {
	FS            vfs.FS
	Dir           string
	Cache         *pebble.Cache // of blocks, and for memtables; may be shared. nil: its own, of 48 MiB
	MemTableBytes uint64        // 0: 16 MiB
	Logger        pebble.Logger
}

// OpenStore opens or creates a store. Pebble's lock keeps out a second process.
func OpenStore(c StoreConfig) (*Store, error) {
	c.MemTableBytes = cmp.Or(c.MemTableBytes, 16<<20)
	if c.Cache == nil {
		// Memtables, of which one may be written while the next one fills, take their room from it.
		c.Cache = pebble.NewCache(16<<20 + 2*int64(c.MemTableBytes))
		defer c.Cache.Unref()
	}
	if c.Logger == nil {
		c.Logger = pebble.DefaultLogger
	}
	end := func(err error) { c.Logger.Fatalf("%w", fmt.Errorf("write state in %s: %w", c.Dir, err)) }
	c.FS = &watchedFS{c.FS, c.Dir, end}
	s := &Store{end: end}
	if err := s.open(c); err != nil {
		err = errors.Join(err, s.unlock())
		return nil, fmt.Errorf("open state in %s: %w", c.Dir, err)
	}
	return s, nil
}

func (s *Store) open(c StoreConfig) (err error) {
	if err := c.FS.MkdirAll(c.Dir, 0o750); err != nil {
		return err
	}
	if err := s.lockDir(c); err != nil {
		return err
	}
	if err := checkManifest(c.FS, c.Dir); err != nil {
		return err
	}
	opts := &pebble.Options{
		FS: c.FS, Lock: s.lock, Cache: c.Cache, Logger: c.Logger,
		FormatMajorVersion: pebble.FormatNewest,
		MemTableSize:       c.MemTableBytes,
		EventListener: &pebble.EventListener{
			// Readers of damaged data get an error; without this, the process panics.
			DataCorruption:  func(i pebble.DataCorruptionInfo) { s.NoteDamage(i.Details) },
			BackgroundError: s.background,
			ManifestCreated: func(i pebble.ManifestCreateInfo) { s.manifest.Store(i.Path); s.markManifest(c.FS, c.Dir) },
			FlushEnd:        func(pebble.FlushInfo) { s.markManifest(c.FS, c.Dir) },
			CompactionEnd:   func(pebble.CompactionInfo) { s.markManifest(c.FS, c.Dir) },
		},
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	if s.db, err = pebble.Open(c.Dir, opts); err == nil {
		return nil
	}
	return openError(err)
}

// lockDir takes Pebble's lock, and that of the directory: Pebble's file may be deleted.
func (s *Store) lockDir(c StoreConfig) (err error) {
	onDisk := vfs.Root(c.FS) == vfs.Default
	if onDisk {
		if s.dirLock, err = dirlock.Lock(c.Dir); err != nil && !errors.Is(err, dirlock.ErrHeld) {
			return err
		}
	}
	if err == nil {
		if s.lock, err = pebble.LockDirectory(c.Dir, c.FS); err == nil || errors.As(err, new(*fs.PathError)) {
			return err // a file that cannot be opened is not locked by somebody
		}
	}
	holder := "another process"
	if onDisk {
		holder = cmp.Or(dirlock.Holder(c.Dir, filepath.Join(c.Dir, "LOCK")), holder)
	}
	return fmt.Errorf("%s has it open: %w", holder, err)
}

// unlock releases the locks.
func (s *Store) unlock() error {
	var errs []error
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	if s.dirLock != nil {
		errs = append(errs, s.dirLock.Close())
	}
	return errors.Join(errs...)
}

// Get returns the value under key, or nil.
func (s *Store) Get(key []byte) ([]byte, error) {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, s.Whole()
	}
	if err != nil {
		return nil, s.classify(err)
	}
	out := append(make([]byte, 0, len(value)), value...)
	return out, closer.Close()
}

// Scan visits the keys in [from, to) in order until visit returns false.
func (s *Store) Scan(from, to []byte, visit func(key, value []byte) bool) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return s.classify(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if !visit(it.Key(), it.Value()) {
			break
		}
	}
	return s.classify(errors.Join(it.Error(), it.Close()))
}

// NewBatch begins a batch.
func (s *Store) NewBatch() Batch { return storeBatch{s.db.NewBatch()} }

// Commit makes a batch of this store visible, with its meta record. It is durable
// after the next Sync.
func (s *Store) Commit(b Batch, meta []byte) error {
	if err := s.Whole(); err != nil {
		return err
	}
	batch := b.(storeBatch).b
	if err := batch.Set([]byte{metaKey}, meta, nil); err != nil {
		return fmt.Errorf("commit state: %w", err)
	}
	if err := batch.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("commit state: %w", err)
	}
	return batch.Close()
}

// Sync makes every commit so far durable.
func (s *Store) Sync() error {
	if err := s.Whole(); err != nil {
		return err
	}
	if err := s.db.LogData(nil, pebble.Sync); err != nil {
		return fmt.Errorf("sync state: %w", err)
	}
	return nil
}

// Checkpoint makes a copy of the store in dir, which must not exist. It holds
// exactly what was committed before the call, all of it durable when Checkpoint
// returns, and opens as a store of its own. What lies in tables is hard-linked
// (copied, if dir is on another file system); only the write-ahead log, at most
// a few memtables, is copied. It syncs the store as Sync does.
func (s *Store) Checkpoint(dir string) error {
	if err := s.Whole(); err != nil {
		return err
	}
	if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("copy state to %s: %w", dir, err)
	}
	return nil
}

// Meta is the meta record that was committed last, or nil.
func (s *Store) Meta() ([]byte, error) { return s.Get([]byte{metaKey}) }

// Close closes the store; what was not synced may be lost.
func (s *Store) Close() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	s.closed = true
	return errors.Join(s.db.Close(), s.unlock())
}

type storeBatch struct{ b *pebble.Batch }

func (b storeBatch) Set(key, value []byte) error       { return b.b.Set(key, value, nil) }
func (b storeBatch) Delete(key []byte) error           { return b.b.Delete(key, nil) }
func (b storeBatch) DeleteRange(from, to []byte) error { return b.b.DeleteRange(from, to, nil) }
