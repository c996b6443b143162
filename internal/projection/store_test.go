package projection

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

// TestCheckpoint: a copy holds what was committed before it, also after a power
// cut right behind it, and nothing that was committed later.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	s, err := OpenStore(StoreConfig{FS: fs, Dir: "state", Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	commit := func(n int) {
		t.Helper()
		b := s.NewBatch()
		for i := range n {
			if err := b.Set(fmt.Appendf(nil, "key %d", i), fmt.Appendf(nil, "value of %d", n)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Commit(b, fmt.Append(nil, n)); err != nil {
			t.Fatal(err)
		}
	}
	all := func(s *Store) map[string]string {
		t.Helper()
		m := map[string]string{}
		err := s.Scan(nil, nil, func(k, v []byte) bool { m[string(k)] = string(v); return true })
		if err != nil {
			t.Fatal(err)
		}
		return m
	}

	commit(100)
	commit(50) // none of it is synced
	want := all(s)
	if err := s.Checkpoint("copy"); err != nil {
		t.Fatal(err)
	}
	cut := fs.CrashClone(vfs.CrashCloneCfg{})
	commit(70)
	if err := s.Checkpoint("copy"); err == nil {
		t.Error("Checkpoint to a directory that is there = nil, want an error")
	}

	for name, at := range map[string]*vfs.MemFS{"alive": fs, "after a power cut": cut} {
		c, err := OpenStore(StoreConfig{FS: at, Dir: "copy", Logger: quiet{}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, all(c)); diff != "" {
			t.Errorf("%s: the copy differs (-want +got):\n%s", name, diff)
		}
		if meta, err := c.Meta(); string(meta) != "50" || err != nil {
			t.Errorf("%s: Meta = %q, %v, want 50", name, meta, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Queues are those of the members of job sets, each once, whatever bytes they hold.
func TestQueues(t *testing.T) {
	t.Parallel()
	s, err := OpenStore(StoreConfig{FS: vfs.NewMem(), Dir: "state", Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	want := []string{"", "a", "a\x00", "a\x00b", "ab", "\xff"}
	for _, queue := range want {
		for i := range 3 {
			key := append(appendSetPrefix(nil, queue, fmt.Sprintf("set %d", i)), "job"...)
			if err := b.Set(key, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(b.Set(appendJobKey(nil, "job"), []byte("x")), s.Commit(b, nil)); err != nil {
		t.Fatal(err)
	}
	got, err := s.Queues()
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Queues (-want +got):\n%s%v", diff, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Queues(); len(got) > 0 || err != nil {
		t.Errorf("Queues of a closed store = %q, %v", got, err)
	}
}

// TestCacheBesideMemtables: what was read from tables is cached, although memtables take their room from the same cache.
func TestCacheBesideMemtables(t *testing.T) {
	t.Parallel()
	s, err := OpenStore(StoreConfig{FS: vfs.NewMem(), Dir: "state", Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var misses, hits int64
	value := make([]byte, 1000)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 40_000 { // more than a memtable holds, so that one of full size is reserved
		for k := range value {
			value[k] = byte(random.Uint32())
		}
		b := s.NewBatch()
		if err := errors.Join(b.Set(binary.BigEndian.AppendUint32([]byte("job"), uint32(i)), value), s.Commit(b, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first reads fill the cache
		before := s.db.Metrics().BlockCache
		for i := range 4000 {
			if _, err := s.Get(binary.BigEndian.AppendUint32([]byte("job"), uint32(i))); err != nil {
				t.Fatal(err)
			}
		}
		now := s.db.Metrics().BlockCache
		misses, hits = now.Misses-before.Misses, now.Hits-before.Hits
	}
	if misses > hits {
		t.Errorf("reading 4 MB of jobs again missed the cache %d times, and hit it %d times", misses, hits)
	}
}
