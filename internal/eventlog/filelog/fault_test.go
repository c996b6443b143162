package filelog_test

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

var errInjected = errors.New("injected")

// Every operation fails once, in turn, or from then on all of them do: the log reports
// the error and stays failed, and after reopening holds what it had reported.
func TestEveryError(t *testing.T) {
	t.Parallel()
	for _, forGood := range []bool{false, true} {
		t.Run(fmt.Sprintf("for good=%v", forGood), func(t *testing.T) {
			t.Parallel()
			count := 0
			for index := 0; ; index++ {
				mem, m, ops := vfs.NewCrashableMem(), newModel(2), 0
				files := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					ops++
					if ops-1 == index || forGood && ops > index {
						return fmt.Errorf("%w: operation %d on %s", errInjected, index, op.Path)
					}
					return nil
				}))
				c := workConfig()
				c.FS = files
				err := workload(c, m)
				if ops <= index {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
				count++
				if !errors.Is(err, errInjected) {
					t.Fatalf("operation %d: error is %v", index, err)
				}
				afterwards(t, c, mem, m, fmt.Sprintf("operation %d", index))
				if testing.Short() {
					index += 6
				}
			}
			t.Logf("%d operations failed", count)
		})
	}
}

// afterwards reopens the log on the same file system, and on the state of that after a
// crash.
func afterwards(t *testing.T, c filelog.Config, mem *vfs.MemFS, m *model, where string) {
	t.Helper()
	crashed, before := cut(mem, 0, 1), m.clone()
	for i, files := range []*vfs.MemFS{mem, crashed} {
		now := m
		if i == 1 {
			now = before
		}
		c.FS = files
		log := mustOpen(t, c)
		if err := now.check(log); err != nil {
			t.Fatalf("%s, opened again (crashed: %v): %v", where, i == 1, err)
		}
		// It has made durable what it shows, and so are later messages.
		for range 2 {
			c.FS = cut(files, 0, 1)
			if err := now.clone().check(mustOpen(t, c)); err != nil {
				t.Fatalf("%s, opened again and crashed (crashed before: %v): %v", where, i == 1, err)
			}
			if err := errors.Join(now.append(log, 0, 1, 10), now.append(log, 1, 1, 10), now.commit(log)); err != nil {
				t.Fatalf("%s, going on (crashed: %v): %v", where, i == 1, err)
			}
		}
		if err := errors.Join(steps(log, now), now.check(log), log.Close()); err != nil {
			t.Fatalf("%s, going on (crashed: %v): %v", where, i == 1, err)
		}
	}
}

// faulty is a file system whose writes and syncs fail like disks do: a failed write has
// written half; after a failed sync the pages look clean, and reach the disk only if
// they are written again.
type faulty struct {
	vfs.FS
	full      bool // writes fail
	lost      bool // syncs fail
	pages     map[string][]byte
	injection int
}

const (
	pageClean = iota
	pageDirty
	pageLost
)

func (f *faulty) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, o...)
	return &faultyFile{file, f, name}, err
}

type faultyFile struct {
	vfs.File
	fs   *faulty
	name string
}

func (f *faultyFile) WriteAt(b []byte, off int64) (int, error) {
	if f.fs.full {
		f.fs.injection++
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, fmt.Errorf("%w: %w", errInjected, syscall.ENOSPC)
	}
	pages := f.fs.pages[f.name]
	if grow := int(off) + len(b) - len(pages); grow > 0 {
		pages = append(pages, make([]byte, grow)...)
	}
	for i := range b {
		pages[int(off)+i] = pageDirty
	}
	f.fs.pages[f.name] = pages
	return f.File.WriteAt(b, off)
}

func (f *faultyFile) SyncData() error { return f.Sync() }

func (f *faultyFile) Sync() error {
	pages := f.fs.pages[f.name]
	for i := range pages {
		if pages[i] != pageDirty {
			continue
		}
		pages[i] = pageClean
		if f.fs.lost {
			pages[i] = pageLost
		}
	}
	if f.fs.lost {
		f.fs.injection++
		return fmt.Errorf("%w: %w", errInjected, syscall.EIO)
	}
	return f.File.Sync()
}

// crash returns the disk after a crash: lost data is zero.
func (f *faulty) crash(t *testing.T, mem *vfs.MemFS) *vfs.MemFS {
	after := cut(mem, 0, 0)
	for name, pages := range f.pages {
		data, err := after.UnsafeGetFileDataBuffer(name)
		if err != nil {
			continue // the file does not exist
		}
		for i := range min(len(data), len(pages)) {
			if pages[i] == pageLost {
				data[i] = 0
			}
		}
	}
	return after
}

// A full disk and a failed sync end the log at once. Whatever it shows after reopening
// stays, even if the disk then loses what the failed sync left in memory.
func TestDiskFaults(t *testing.T) {
	t.Parallel()
	for rounds := range 4 {
		for _, kind := range []string{"full", "sync"} {
			t.Run(fmt.Sprintf("%s after %d", kind, rounds), func(t *testing.T) {
				t.Parallel()
				mem, m := vfs.NewCrashableMem(), newModel(2)
				files := &faulty{FS: mem, pages: make(map[string][]byte)}
				c := workConfig()
				c.FS = files
				log := mustOpen(t, c)
				readers := []eventlog.Reader{open(t, log, 0), open(t, log, 1)}
				for range rounds {
					if err := steps(log, m); err != nil {
						t.Fatal(err)
					}
				}
				files.full, files.lost = kind == "full", kind == "sync"
				if err := steps(log, m); !errors.Is(err, errInjected) {
					t.Fatalf("error is %v", err)
				}
				files.full, files.lost = false, false
				stuck(t, log, m, readers, files)

				log = mustOpen(t, c)
				if err := m.check(log); err != nil {
					t.Fatal(err)
				}
				c.FS = files.crash(t, mem)
				if err := m.check(mustOpen(t, c)); err != nil {
					t.Fatalf("after a crash: %v", err)
				}
			})
		}
	}
}

// stuck checks a failed log: readers get what is durable and then the error; nothing is
// accepted, and nothing is retried.
func stuck(t *testing.T, log *filelog.Log, m *model, readers []eventlog.Reader, files *faulty) {
	t.Helper()
	injected := files.injection
	for p, r := range readers {
		select {
		case <-r.Changed():
		default:
			t.Fatal("a reader was not woken")
		}
		got, err := drain(r)
		if !errors.Is(err, errInjected) {
			t.Fatalf("at the end of a log that failed, Read gave %v", err)
		}
		if err := m.compare(p, got); err != nil || len(got) != m.durable[p] {
			t.Fatalf("read %d of %d durable messages: %v", len(got), m.durable[p], err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range map[string]error{
		"Append":     log.Append(0, m.batch(1, 1)),
		"Publish":    log.Publisher(1).Publish(nil),
		"Commit":     log.Commit(),
		"Flush":      log.Flush(t.Context()),
		"AppendSync": log.AppendSync(t.Context(), 0, nil),
		"Close":      log.Close(),
	} {
		if !errors.Is(err, errInjected) {
			t.Fatalf("%s of a log that failed gave %v", name, err)
		}
	}
	if files.injection != injected {
		t.Fatal("the log tried again")
	}
}

func open(t testing.TB, log *filelog.Log, p int) eventlog.Reader {
	t.Helper()
	r, err := log.Open(p, eventlog.Start)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Read errors are reported, and do not harm the log.
func TestReadErrors(t *testing.T) {
	t.Parallel()
	mem, m := vfs.NewMem(), newModel(2)
	c := workConfig()
	c.FS = mem
	if err := workload(c, m); err != nil {
		t.Fatal(err)
	}
	for index := 0; ; index++ {
		ops := 0
		c.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
			if ops++; ops-1 == index {
				return errInjected
			}
			return nil
		}))
		c.ReadOnly = true
		err := func() error {
			log, err := filelog.Open(c)
			if err != nil {
				return err
			}
			defer func() { _ = log.Close() }()
			return m.check(log)
		}()
		if ops <= index {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, errInjected) || errors.Is(err, eventlog.ErrCorrupt) || errors.Is(err, io.EOF) {
			t.Fatalf("operation %d: error is %v", index, err)
		}
	}
}
