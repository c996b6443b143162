package checkpoint_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"gocloud.dev/blob"
	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"

	"github.com/refloat/refloat/internal/checkpoint"
)

// storage is a bucket in memory in which each operation can be made to fail,
// before or after its effect, or be preceded by something that others do.
type storage struct {
	now  func() time.Time
	page int // objects in a listing's page

	mu      sync.Mutex
	objects map[string]*driver.ListObject
	content map[string][]byte
	ops     int
	before  func(op int, what string) error // called for each operation
	// beforeCtx is called too, with the operation's context.
	beforeCtx func(ctx context.Context, what string) error
	after     func(op int) error // what it returned is returned, the effect is there
}

func newStorage(now func() time.Time) *storage {
	return &storage{now: now, page: 2, objects: map[string]*driver.ListObject{}, content: map[string][]byte{}}
}

// precede sets what is called before each operation, from within such a call.
func (s *storage) precede(before func(op int, what string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

func (s *storage) bucket() *blob.Bucket { return blob.NewBucket(s) }

var errGone = errors.New("no such object")

// do is one operation.
func (s *storage) do(ctx context.Context, what string, effect func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	s.ops++
	op, before, after := s.ops, s.before, s.after
	s.mu.Unlock()
	if s.beforeCtx != nil {
		if err := s.beforeCtx(ctx, what); err != nil {
			return err
		}
	}
	if before != nil {
		if err := before(op, what); err != nil {
			return err
		}
	}
	s.mu.Lock()
	err := effect()
	s.mu.Unlock()
	if err == nil && after != nil {
		err = after(op)
	}
	return err
}

func (s *storage) ErrorCode(err error) gcerrors.ErrorCode {
	if errors.Is(err, errGone) {
		return gcerrors.NotFound
	}
	return gcerrors.Unknown
}

func (s *storage) As(any) bool             { return false }
func (s *storage) ErrorAs(error, any) bool { return false }
func (s *storage) Close() error            { return nil }

func (s *storage) Attributes(context.Context, string) (*driver.Attributes, error) {
	panic("not used")
}

func (s *storage) Copy(context.Context, string, string, *driver.CopyOptions) error {
	panic("not used")
}

func (s *storage) SignedURL(context.Context, string, *driver.SignedURLOptions) (string, error) {
	panic("not used")
}

// ListPaged gives small pages, so that listings are not of one moment.
func (s *storage) ListPaged(ctx context.Context, opts *driver.ListOptions) (*driver.ListPage, error) {
	page := &driver.ListPage{}
	err := s.do(ctx, "list "+opts.Prefix, func() error {
		for _, key := range slices.Sorted(maps.Keys(s.objects)) {
			if !strings.HasPrefix(key, opts.Prefix) || key <= string(opts.PageToken) {
				continue
			}
			if len(page.Objects) == s.page {
				page.NextPageToken = []byte(page.Objects[s.page-1].Key)
				break
			}
			page.Objects = append(page.Objects, s.objects[key])
		}
		return nil
	})
	return page, err
}

type reader struct{ *bytes.Reader }

func (reader) Close() error { return nil }
func (r reader) Attributes() *driver.ReaderAttributes {
	return &driver.ReaderAttributes{Size: r.Size()}
}
func (reader) As(any) bool { return false }

func (s *storage) NewRangeReader(ctx context.Context, key string, offset, length int64, _ *driver.ReaderOptions) (driver.Reader, error) {
	var r reader
	err := s.do(ctx, "read "+key, func() error {
		if s.objects[key] == nil {
			return errGone
		}
		r = reader{bytes.NewReader(s.content[key])}
		return nil
	})
	return r, err
}

type writer struct {
	bytes.Buffer
	s   *storage
	ctx context.Context //nolint:containedctx // as the driver's interface has it
	key string
}

func (s *storage) NewTypedWriter(ctx context.Context, key, _ string, _ *driver.WriterOptions) (driver.Writer, error) {
	return &writer{s: s, ctx: ctx, key: key}, nil
}

func (w *writer) Close() error {
	return w.s.do(w.ctx, "write "+w.key, func() error {
		w.s.content[w.key] = w.Bytes()
		w.s.objects[w.key] = &driver.ListObject{Key: w.key, Size: int64(w.Len()), ModTime: w.s.now()}
		return nil
	})
}

func (s *storage) Delete(ctx context.Context, key string, _ *driver.DeleteOptions) error {
	return s.do(ctx, "delete "+key, func() error {
		if s.objects[key] == nil {
			return errGone
		}
		delete(s.objects, key)
		return nil
	})
}

// clock is a clock that tests put forward.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(time.Millisecond)
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// fataler is what *testing.T and *rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

func newVault(t fataler, bucket *blob.Bucket, dir string, now func() time.Time) *checkpoint.Vault {
	t.Helper()
	v, err := checkpoint.New(checkpoint.Config{Bucket: bucket, Prefix: "some/where", Scratch: filepath.Join(dir, "scratch"), Format: 1, Now: now})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return v
}

// contents is a state directory, by file name.
type contents map[string]string

// stateOf is a state of several files; each number but the first one names a table.
func stateOf(numbers ...int) contents {
	c := contents{"marker": "", "MANIFEST": fmt.Sprint("manifest of ", numbers), "LOG": strings.Repeat(fmt.Sprintf("log %v;", numbers), 1000)}
	for _, n := range numbers[1:] {
		c[fmt.Sprintf("%06d.sst", n)] = strings.Repeat(fmt.Sprintf("table %d;", n), 1000+n)
	}
	return c
}

func (c contents) source(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, data := range c {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func readDir(dir string) (contents, error) {
	files, err := os.ReadDir(dir)
	c := contents{}
	for _, f := range files {
		b, rerr := os.ReadFile(filepath.Join(dir, f.Name()))
		err = cmp.Or(err, rerr)
		c[f.Name()] = string(b)
	}
	return c, err
}

func at(seq uint64) checkpoint.At {
	return checkpoint.At{Seq: seq, Link: fmt.Sprintf("%064x", seq), Events: fmt.Sprintf("%d:7:-1", seq), Decisions: fmt.Sprintf("%d:1:-1", seq)}
}

// restored gives what Restore makes of a checkpoint.
func restored(t fataler, v *checkpoint.Vault, info checkpoint.Info, root string) (contents, error) {
	t.Helper()
	dir := filepath.Join(root, "restored")
	defer os.RemoveAll(dir)
	err := v.Restore(context.Background(), info.Partition, info, dir)
	if err != nil {
		for _, name := range []string{dir, dir + ".tmp"} {
			if _, statErr := os.Lstat(name); statErr == nil {
				t.Errorf("after Restore = %v there is %s", err, name)
			}
		}
		return nil, err
	}
	c, err := readDir(dir)
	if err != nil {
		t.Fatalf("read what was restored: %v", err)
	}
	return c, nil
}

func save(t fataler, v *checkpoint.Vault, seq uint64, c contents) checkpoint.Info {
	t.Helper()
	info, err := v.Save(context.Background(), 3, c.source, at(seq))
	if err != nil {
		t.Fatalf("Save(%d): %v", seq, err)
	}
	return info
}

func list(t fataler, v *checkpoint.Vault) []checkpoint.Info {
	t.Helper()
	infos, err := v.List(context.Background(), 3)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return infos
}

// mustRestore checks that every usable checkpoint of a list is what was saved as it.
func mustRestore(t fataler, v *checkpoint.Vault, root string, want map[uint64]contents) (usable int) {
	t.Helper()
	for _, info := range list(t, v) {
		if info.Unusable != "" {
			continue
		}
		usable++
		got, err := restored(t, v, info, root)
		if err != nil {
			t.Fatalf("Restore(%s): %v", info.ID, err)
		}
		if diff := gocmp.Diff(want[info.Seq], got); diff != "" || info.At != at(info.Seq) {
			t.Fatalf("Restore(%s) at %v differs (-want +got):\n%s", info.ID, info.At, diff)
		}
	}
	return usable
}

func ids(infos []checkpoint.Info) (seqs []uint64) {
	for _, i := range infos {
		seqs = append(seqs, i.Seq)
	}
	return seqs
}

// tempDir is a directory in memory where there is such a thing: these tests sync a lot.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "checkpoint")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// buckets are the kinds of storage that are here.
func buckets(t *testing.T) map[string]*blob.Bucket {
	t.Helper()
	m := map[string]*blob.Bucket{"injected": newStorage(time.Now).bucket()}
	for name, url := range map[string]string{"memory": "mem://", "directory": "file://" + filepath.Join(tempDir(t), "a", "bucket")} {
		b, err := checkpoint.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		m[name] = b
	}
	return m
}

var _ io.Writer = (*writer)(nil)
