package checkpoint_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/checkpoint/storage"
)

// faulty is an in-memory storage in which each operation can fail, before or after its
// effect, or be preceded by operations of others.
type faulty struct {
	now  func() time.Time
	page int // objects per page of a listing

	mu      sync.Mutex
	objects map[string]checkpoint.Object
	content map[string][]byte
	ops     int
	before  func(op int, what string) error // called for each operation
	// beforeCtx is called too, with the operation's context.
	beforeCtx func(ctx context.Context, what string) error
	after     func(op int) error // its error is returned although the operation took effect
}

func newFaulty(now func() time.Time) *faulty {
	return &faulty{now: now, page: 2, objects: map[string]checkpoint.Object{}, content: map[string][]byte{}}
}

// precede sets the function to call before each operation, from within such a call.
func (s *faulty) precede(before func(op int, what string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// do is one operation.
func (s *faulty) do(ctx context.Context, what string, effect func() error) error {
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

// List reads small pages, so that a listing is not atomic.
func (s *faulty) List(ctx context.Context, prefix string) (found []checkpoint.Object, err error) {
	last, more := "", true
	for more && err == nil {
		err = s.do(ctx, "list "+prefix, func() error {
			page := 0
			more = false
			for _, key := range slices.Sorted(maps.Keys(s.objects)) {
				if !strings.HasPrefix(key, prefix) || key <= last && last != "" {
					continue
				}
				if more = page == s.page; more {
					return nil
				}
				found = append(found, s.objects[key])
				last = key
				page++
			}
			return nil
		})
	}
	return found, err
}

func (s *faulty) Read(ctx context.Context, key string) (r io.ReadCloser, err error) {
	err = s.do(ctx, "read "+key, func() error {
		if _, ok := s.objects[key]; !ok {
			return fs.ErrNotExist
		}
		r = io.NopCloser(bytes.NewReader(s.content[key]))
		return nil
	})
	return r, err
}

func (s *faulty) Write(ctx context.Context, key string, content io.Reader, size int64) error {
	b, err := io.ReadAll(content)
	if err == nil && int64(len(b)) != size {
		err = fmt.Errorf("%s: %d bytes, announced were %d", key, len(b), size)
	}
	if err != nil {
		return err
	}
	return s.do(ctx, "write "+key, func() error {
		s.content[key] = b
		s.objects[key] = checkpoint.Object{Key: key, Size: size, Modified: s.now()}
		return nil
	})
}

func (s *faulty) Delete(ctx context.Context, key string) error {
	return s.do(ctx, "delete "+key, func() error {
		if _, ok := s.objects[key]; !ok {
			return fs.ErrNotExist
		}
		delete(s.objects, key)
		return nil
	})
}

// clock is a clock that tests advance.
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

// fataler is the common part of *testing.T and *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

func newVault(t fataler, s checkpoint.Storage, dir string, now func() time.Time) *checkpoint.Vault {
	t.Helper()
	v, err := checkpoint.New(checkpoint.Config{Storage: s, Prefix: "some/where", Scratch: filepath.Join(dir, "scratch"), Format: 1, Now: now})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return v
}

// contents is a state directory, by file name.
type contents map[string]string

// stateOf returns a state of several files; each number but the first one names a
// table.
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

// restored restores a checkpoint and returns its content.
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

// mustRestore checks that every usable checkpoint of a list equals what was saved.
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

// tempDir returns a directory in memory if possible: these tests sync a lot.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "checkpoint")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// kinds are the available kinds of storage.
func kinds(t *testing.T) map[string]checkpoint.Storage {
	t.Helper()
	m := map[string]checkpoint.Storage{"injected": newFaulty(time.Now)}
	for name, url := range map[string]string{"memory": "mem://", "directory": "file://" + filepath.Join(tempDir(t), "a", "bucket")} {
		b, err := storage.Open(t.Context(), url, environment(nil))
		if err != nil {
			t.Fatal(err)
		}
		m[name] = b
	}
	return m
}

// environment returns an environment with only these variables.
func environment(variables map[string]string) storage.Environment {
	return storage.Environment{Getenv: func(name string) string { return variables[name] }, Now: time.Now}
}

func write(t fataler, s checkpoint.Storage, key string, content []byte) {
	t.Helper()
	if err := s.Write(context.Background(), key, bytes.NewReader(content), int64(len(content))); err != nil {
		t.Fatalf("Write(%s): %v", key, err)
	}
}

func read(t fataler, s checkpoint.Storage, key string) []byte {
	t.Helper()
	r, err := s.Read(context.Background(), key)
	if err != nil {
		t.Fatalf("Read(%s): %v", key, err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("Read(%s): %v", key, err)
	}
	return b
}
