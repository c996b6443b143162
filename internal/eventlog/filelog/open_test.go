package filelog_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
)

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	mustClose(t, mustOpen(t, filelog.Config{FS: mem, Dir: "log", Partitions: 2}))
	for _, c := range []struct {
		name   string
		config filelog.Config
		want   string
	}{
		{"no FS", filelog.Config{Dir: "log"}, "required"},
		{"no directory", filelog.Config{FS: mem}, "required"},
		{"other partitions", filelog.Config{FS: mem, Dir: "log", Partitions: 3}, "log log has 2 partitions, not 3"},
		{"partitions missing", filelog.Config{FS: mem, Dir: "new"}, "partition count is required"},
		{"negative partitions", filelog.Config{FS: mem, Dir: "new", Partitions: -1}, "invalid partition count -1"},
		{"codec", filelog.Config{FS: mem, Dir: "log", Codec: 7}, "codec(7)"},
		{"no log to read", filelog.Config{FS: mem, Dir: "none", ReadOnly: true}, "open log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := filelog.Open(c.config)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Open: %v, want %q", err, c.want)
			}
		})
	}
	if _, err := filelog.Open(filelog.Config{FS: mem, Dir: "none", ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Open of no log: %v", err)
	}
	// A failed Open leaves no lock behind.
	log := mustOpen(t, filelog.Config{FS: mem, Dir: "log"})
	if n := log.Partitions(); n != 2 {
		t.Fatalf("Partitions() = %d", n)
	}
	mustClose(t, log)
}

func TestLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/log"
	link := t.TempDir() + "/link"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		fs     vfs.FS
		dirs   []string // the same directory
		holder string
	}{
		{"memory", vfs.NewMem(), []string{"log"}, "log"},
		{"disk", vfs.Default, []string{dir, dir + "/../log", link}, dir},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := mustOpen(t, filelog.Config{FS: c.fs, Dir: c.holder, Partitions: 1})
			for _, d := range c.dirs {
				_, err := filelog.Open(filelog.Config{FS: c.fs, Dir: d, Partitions: 1})
				if !errors.Is(err, eventlog.ErrLocked) || !strings.Contains(err.Error(), d) {
					t.Fatalf("second writer on %s: %v", d, err)
				}
				mustClose(t, mustOpen(t, filelog.Config{FS: c.fs, Dir: d, ReadOnly: true}))
			}
			mustClose(t, log)
			mustClose(t, log) // Close is idempotent
			mustClose(t, mustOpen(t, filelog.Config{FS: c.fs, Dir: c.holder}))
		})
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	for _, readOnly := range []bool{false, true} {
		mem := vfs.NewMem()
		c := filelog.Config{FS: mem, Dir: "log", Partitions: 1}
		log := mustOpen(t, c)
		if readOnly {
			mustClose(t, log)
			c.ReadOnly = true
			log = mustOpen(t, c)
		}
		r := open(t, log, 0)
		mustClose(t, log)
		<-r.Changed()
		_, readErr := r.Read(make([]eventlog.Message, 1))
		_, endErr := log.End(0)
		_, openErr := log.Open(0, eventlog.Start)
		for name, err := range map[string]error{
			"Read": readErr, "End": endErr, "Open": openErr,
			"Append": log.Append(0, []eventlog.Message{{}}),
		} {
			if err == nil || !readOnly && !errors.Is(err, fs.ErrClosed) {
				t.Errorf("%s on a closed log: %v", name, err)
			}
		}
		mustClose(t, r)
		if _, err := r.Read(make([]eventlog.Message, 1)); err == nil {
			t.Error("a closed reader reads")
		}
	}
}

func TestNoSuchPartition(t *testing.T) {
	t.Parallel()
	log := mustOpen(t, filelog.Config{FS: vfs.NewMem(), Dir: "log", Partitions: 1})
	defer mustClose(t, log)
	for _, p := range []int{-1, 1} {
		_, openErr := log.Open(p, eventlog.Start)
		_, endErr := log.End(p)
		_, beginErr := log.Beginning(p)
		for _, err := range []error{openErr, endErr, beginErr, log.Append(p, nil), log.Publisher(p).Publish(nil)} {
			if err == nil || !strings.Contains(err.Error(), "does not exist") {
				t.Fatalf("partition %d: %v", p, err)
			}
		}
	}
}

// Segments deleted from the front: the rest can be read, from the last deleted message
// on; earlier positions are trimmed, and so is a reader in the deleted part.
func TestTrimmed(t *testing.T) {
	t.Parallel()
	c, mem, m := segmented(t, filelog.CodecNone)
	all := m.appended[0]
	names := segmentsOf(t, mem, "log/0000")
	log := mustOpen(t, c)
	defer mustClose(t, log)
	before := open(t, log, 0)
	defer mustClose(t, before)
	if n, err := before.Read(make([]eventlog.Message, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if at, err := log.Beginning(0); err != nil || at != eventlog.Start {
		t.Fatalf("Beginning = %v, %v", at, err)
	}
	for _, name := range names[:2] {
		if err := mem.Remove("log/0000/" + name); err != nil {
			t.Fatal(err)
		}
	}
	begin, err := log.Beginning(0)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(m eventlog.Message) bool { return m.Position == begin }) + 1
	if i < 3 || i == len(all) {
		t.Fatalf("the log begins after %v, which is message %d of %d", begin, i-1, len(all))
	}
	for j := range all {
		got, err := readAll(log, 0, all[j].Position)
		if j+1 < i {
			if !errors.Is(err, eventlog.ErrTrimmed) {
				t.Fatalf("after message %d: %v", j, err)
			}
			continue
		}
		if err != nil || len(got) != len(all)-j-1 {
			t.Fatalf("after message %d: %d messages, %v", j, len(got), err)
		}
	}
	if _, err := log.Open(0, eventlog.Start); !errors.Is(err, eventlog.ErrTrimmed) {
		t.Fatalf("Open at the start: %v", err)
	}
	if _, err := drain(before); !errors.Is(err, eventlog.ErrTrimmed) {
		t.Fatalf("a reader in what was trimmed: %v", err)
	}
	// A writer that opens it continues.
	mustClose(t, log)
	log = mustOpen(t, c)
	if err := errors.Join(m.append(log, 0, 2, 10), m.commit(log)); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(log, 0, begin); err != nil || len(got) != len(all)-i+2 {
		t.Fatalf("%d messages, %v", len(got), err)
	}
}

func segmentsOf(t *testing.T, mem *vfs.MemFS, dir string) []string {
	t.Helper()
	names, err := mem.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".seg") })
	slices.Sort(names)
	if len(names) < 4 {
		t.Fatalf("only %d segments", len(names))
	}
	return names
}

// A segment missing in the middle is damage, for a reader that reaches it and for one
// that starts in it.
func TestMissingSegment(t *testing.T) {
	t.Parallel()
	c, mem, m := segmented(t, filelog.CodecNone)
	names := segmentsOf(t, mem, "log/0000")
	if err := mem.Remove("log/0000/" + names[1]); err != nil {
		t.Fatal(err)
	}
	log := mustOpen(t, c)
	defer mustClose(t, log)
	gone, ok := 0, 0
	for i, msg := range m.appended[0] {
		got, err := readAll(log, 0, msg.Position)
		if err == nil && len(got) == len(m.appended[0])-i-1 {
			ok++
		} else if errors.Is(err, eventlog.ErrCorrupt) && strings.Contains(err.Error(), "missing") {
			gone++
		} else {
			t.Fatalf("after message %d: %d messages, %v", i, len(got), err)
		}
	}
	if gone == 0 || ok == 0 {
		t.Fatalf("%d positions met the gap, %d did not", gone, ok)
	}
}

// A position after the end means that the log lost messages that were read from it.
func TestBeyondEnd(t *testing.T) {
	t.Parallel()
	c, _, m := segmented(t, filelog.CodecNone)
	beyond := lastPosition(m.appended[0])
	beyond.Batch++
	log := mustOpen(t, c)
	if _, err := log.Open(0, beyond); !errors.Is(err, eventlog.ErrCorrupt) {
		t.Fatalf("Open: %v", err)
	}
	mustClose(t, log)
	c.ReadOnly = true
	log = mustOpen(t, c)
	defer mustClose(t, log)
	if _, err := log.Open(0, beyond); !errors.Is(err, eventlog.ErrTransient) {
		t.Fatalf("Open, read-only: %v", err)
	}
	if err := log.Append(0, nil); err == nil {
		t.Fatal("a read-only log takes messages")
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	log := mustOpen(t, filelog.Config{FS: vfs.NewMem(), Dir: "log", Partitions: 1, Manual: true})
	defer mustClose(t, log)
	if err := log.Append(0, []eventlog.Message{{Payload: make([]byte, 64<<20)}}); err == nil {
		t.Fatal("Append took a message of more than 64 MiB")
	}
	if err := log.Commit(); err != nil {
		t.Fatal(err)
	}
	if end, err := log.End(0); err != nil || end != eventlog.Start {
		t.Fatalf("End = %v, %v", end, err)
	}
}

// A lock whose file is deleted still keeps a second writer out, and its holder is named.
func TestLockFileDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/log"
	log := mustOpen(t, filelog.Config{FS: vfs.Default, Dir: dir, Partitions: 1})
	if err := os.Remove(dir + "/LOCK"); err != nil {
		t.Fatal(err)
	}
	_, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: dir})
	if !errors.Is(err, eventlog.ErrLocked) {
		t.Fatalf("a second writer after LOCK was deleted: %v", err)
	}
	if runtime.GOOS == "linux" && !strings.Contains(err.Error(), fmt.Sprintf("process %d (", os.Getpid())) {
		t.Errorf("%v does not name process %d", err, os.Getpid())
	}
	mustClose(t, log)
	mustClose(t, mustOpen(t, filelog.Config{FS: vfs.Default, Dir: dir}))
}

// unwritable is a file system on which LOCK cannot be opened for writing.
type unwritable struct{ vfs.FS }

func (unwritable) Lock(name string) (io.Closer, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EACCES}
}

// A directory that is not writable is not locked by somebody.
func TestNotWritable(t *testing.T) {
	t.Parallel()
	_, err := filelog.Open(filelog.Config{FS: unwritable{vfs.NewMem()}, Dir: "log", Partitions: 1})
	if err == nil || errors.Is(err, eventlog.ErrLocked) || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), "must be writable") {
		t.Errorf("Open = %v", err)
	}
}
