package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/checkpoint"
)

// TestVault saves, lists, restores and prunes in each kind of storage.
func TestVault(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			v := newVault(t, kind, dir, newClock().now)
			if _, ok, err := v.Newest(t.Context(), 3); ok || err != nil {
				t.Fatalf("Newest of nothing = %v, %v", ok, err)
			}
			states := map[uint64]contents{}
			for i := range 5 {
				seq := uint64(i+1) * 10
				states[seq] = stateOf(i, 1, 2, i+2, i+3)
				info := save(t, v, seq, states[seq])
				size := 0
				for _, data := range states[seq] {
					size += len(data)
				}
				if info.Bytes != int64(size) || info.Files != len(states[seq]) || info.At != at(seq) || info.Partition != 3 || info.Format != 1 {
					t.Errorf("Save = %+v, want %d bytes in %d files", info, size, len(states[seq]))
				}
				if got := list(t, v)[0]; got != info {
					t.Errorf("List = %+v, want what Save gave: %+v", got, info)
				}
			}
			if got, want := ids(list(t, v)), []uint64{50, 40, 30, 20, 10}; !slices.Equal(got, want) {
				t.Errorf("List = %v, want %v", got, want)
			}
			mustRestore(t, v, dir, states)
			if n, err := v.Prune(t.Context(), 3); n < 3 || err != nil {
				t.Errorf("Prune = %d, %v, want two manifests and their logs", n, err)
			}
			if got, want := ids(list(t, v)), []uint64{50, 40, 30}; !slices.Equal(got, want) {
				t.Errorf("List after Prune = %v, want %v", got, want)
			}
			if n := mustRestore(t, v, dir, states); n != 3 {
				t.Errorf("%d usable checkpoints after Prune", n)
			}
			// Of the three: 3 manifests, 3 logs, tables 1, 2, 4, 5, 6 and 7.
			if got := objects(t, kind); len(got) != 3+3+6 {
				t.Errorf("%d objects are left: %s", len(got), strings.Join(got, " "))
			}
			if left, err := os.ReadDir(filepath.Join(dir, "scratch")); len(left) > 0 || err != nil {
				t.Errorf("scratch holds %v, %v", left, err)
			}
			if infos, err := v.List(t.Context(), 4); len(infos) > 0 || err != nil {
				t.Errorf("List of another partition = %v, %v", infos, err)
			}
		})
	}
}

// TestUnchangedFilesAreNotUploaded: a table is uploaded once, by any process.
func TestUnchangedFilesAreNotUploaded(t *testing.T) {
	t.Parallel()
	s := newFaulty(newClock().now)
	dir := tempDir(t)
	save(t, newVault(t, s, filepath.Join(dir, "a"), newClock().now), 1, stateOf(1, 1, 2, 3))
	state := stateOf(2, 1, 2, 3, 4)
	info := save(t, newVault(t, s, filepath.Join(dir, "b"), newClock().now), 2, state)
	if want := int64(len(state["LOG"]) + len(state["000004.sst"])); info.Uploaded != want {
		t.Errorf("Uploaded = %d, want %d", info.Uploaded, want)
	}
}

// TestRot changes one byte of each object, truncates it or deletes it: that checkpoint
// is not restored, and the next older one is.
func TestRot(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := tempDir(t)
	clock := newClock()
	old, recent := stateOf(1, 1, 2), stateOf(2, 3, 4)
	rots := map[string]func(b []byte) []byte{
		"flip":  func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b },
		"cut":   func(b []byte) []byte { return b[:len(b)-1] },
		"grow":  func(b []byte) []byte { return append(bytes.Clone(b), '\n') },
		"empty": func([]byte) []byte { return nil },
	}
	for name, rot := range rots {
		s := newFaulty(clock.now)
		v := newVault(t, s, dir, clock.now)
		save(t, v, 1, old)
		before := objects(t, s)
		save(t, v, 2, recent)
		rotten := 0
		for _, key := range objects(t, s) {
			if slices.Contains(before, key) {
				continue
			}
			rotten++
			intact := read(t, s, key)
			write(t, s, key, rot(intact))
			infos := list(t, v)
			if len(infos) != 2 || infos[1].Unusable != "" {
				t.Fatalf("%s of %s: List = %+v", name, key, infos)
			}
			if _, err := restored(t, v, infos[0], dir); !errors.Is(err, checkpoint.ErrDamaged) {
				t.Errorf("%s of %s: Restore = %v, want ErrDamaged", name, key, err)
			}
			if name != "flip" || strings.Contains(key, "/manifests/") {
				if infos[0].Unusable == "" {
					t.Errorf("%s of %s is not seen in the list", name, key)
				}
				if newest, ok, err := v.Newest(ctx, 3); newest.Seq != 1 || !ok || err != nil {
					t.Errorf("%s of %s: Newest = %+v, %v, %v", name, key, newest, ok, err)
				}
			}
			if got, err := restored(t, v, infos[1], dir); err != nil || !gocmp.Equal(old, got) {
				t.Errorf("%s of %s: the older one does not restore: %v", name, key, err)
			}
			write(t, s, key, intact)
		}
		if rotten != 1+3 {
			t.Errorf("%d objects were damaged", rotten)
		}
		mustRestore(t, v, dir, map[uint64]contents{1: old, 2: recent})
	}
}

// TestLostFileIsUploadedAgain: a checkpoint reuses only files that exist.
func TestLostFileIsUploadedAgain(t *testing.T) {
	t.Parallel()
	s := newFaulty(newClock().now)
	dir := tempDir(t)
	v := newVault(t, s, dir, newClock().now)
	save(t, v, 1, stateOf(1, 1, 2))
	for _, key := range objects(t, s) {
		if strings.Contains(key, "/files/") {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, ok, _ := v.Newest(t.Context(), 3); ok {
		t.Error("a checkpoint without its files is usable")
	}
	save(t, v, 2, stateOf(1, 1, 2))
	if n := mustRestore(t, v, dir, map[uint64]contents{2: stateOf(1, 1, 2)}); n != 1 {
		t.Errorf("%d usable, want 1", n)
	}
}

// TestNewerFormats: checkpoints of a newer program are neither used nor deleted.
func TestNewerFormats(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := newFaulty(clock.now)
	dir := tempDir(t)
	v := newVault(t, s, dir, clock.now)
	newer, err := checkpoint.New(checkpoint.Config{Storage: s, Prefix: "some/where", Scratch: filepath.Join(dir, "newer"), Format: 2, Now: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	save(t, v, 1, stateOf(1, 1))
	for seq := range uint64(4) {
		save(t, newer, 2+seq, stateOf(int(2+seq), 1, 2))
	}
	if _, err := v.Prune(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if got, want := ids(list(t, v)), []uint64{5, 4, 3, 1}; !slices.Equal(got, want) {
		t.Errorf("List after Prune = %v, want %v", got, want)
	}
	newest, ok, err := v.Newest(t.Context(), 3)
	if newest.Seq != 1 || !ok || err != nil {
		t.Errorf("Newest = %+v, %v, %v, want the one in our format", newest, ok, err)
	}
	if newest, ok, err = newer.Newest(t.Context(), 3); newest.Seq != 5 || !ok || err != nil {
		t.Errorf("Newest of the newer program = %+v, %v, %v", newest, ok, err)
	}

	// A manifest that is too new to be read prevents the deletion of files.
	key := "some/where/3/manifests/00000000000000000009-NEWER"
	write(t, s, key, []byte("refloat-checkpoint 2 in another way\n\x00"))
	save(t, v, 6, stateOf(6, 1))
	save(t, v, 7, stateOf(7, 1))
	count := func() (files int) {
		for _, key := range objects(t, s) {
			if strings.Contains(key, "/files/") {
				files++
			}
		}
		return files
	}
	before := count()
	clock.add(24 * time.Hour)
	if _, err := v.Prune(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if infos := list(t, v); count() != before || infos[0].ID != "00000000000000000009-NEWER" || !strings.Contains(infos[0].Unusable, "newer program") {
		t.Errorf("Prune left %d of %d files, List = %+v", count(), before, infos)
	}
}

// TestAnotherChain: after a chain was started over, its checkpoints have lower seqs.
// They are not pruned as old ones.
func TestAnotherChain(t *testing.T) {
	t.Parallel()
	clock := newClock()
	dir := tempDir(t)
	v := newVault(t, newFaulty(clock.now), dir, clock.now)
	for seq := range uint64(5) {
		save(t, v, 1000+seq, stateOf(1, int(seq)))
	}
	for seq := range uint64(5) {
		save(t, v, 1+seq, stateOf(2, int(seq)))
	}
	if _, err := v.Prune(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if got, want := ids(list(t, v)), []uint64{1004, 1003, 1002, 5, 4, 3}; !slices.Equal(got, want) {
		t.Errorf("List after Prune = %v, want %v", got, want)
	}
}

// TestBadNames: a manifest cannot name a file outside the directory.
func TestBadNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../x", "/x", "a/b", ".", "..", "", `a\b`} {
		if err := checkpoint.CheckName(name); err == nil {
			t.Errorf("file name %q is taken", name)
		}
	}
	if err := checkpoint.CheckName("000004.sst"); err != nil {
		t.Error(err)
	}
}

// TestRestoreTo: existing directories are not overwritten; leftovers of an earlier
// attempt are.
func TestRestoreTo(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	v := newVault(t, newFaulty(newClock().now), dir, newClock().now)
	info := save(t, v, 1, stateOf(1, 1))
	to := filepath.Join(dir, "state", "3")
	if err := os.MkdirAll(to+".tmp/left", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := v.Restore(t.Context(), 3, info, to); err != nil {
		t.Fatal(err)
	}
	if err := v.Restore(t.Context(), 3, info, to); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("Restore to a directory that is there = %v", err)
	}
	if got, err := readDir(to); err != nil || !gocmp.Equal(stateOf(1, 1), got) {
		t.Errorf("it holds %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := v.Restore(ctx, 3, info, filepath.Join(dir, "other")); !errors.Is(err, context.Canceled) || errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("Restore with an ended context = %v", err)
	}
	if left, err := os.ReadDir(dir); len(left) != 2 || err != nil {
		t.Errorf("left: %v, %v, want scratch and state", left, err)
	}
}

// TestTwoOwners save and prune the same partition at the same time.
func TestTwoOwners(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			states := map[uint64]contents{}
			for seq := range uint64(40) {
				states[seq] = stateOf(int(seq/2), 1, 2, int(seq/4)+3, int(seq/2)+4)
			}
			var group sync.WaitGroup
			for owner := range 2 {
				v := newVault(t, kind, filepath.Join(dir, string(rune('a'+owner))), newClock().now)
				group.Go(func() {
					for i := range 20 {
						seq := uint64(2*i + owner)
						if _, err := v.Save(context.Background(), 3, states[seq].source, at(seq)); err != nil && !errors.Is(err, checkpoint.ErrOvertaken) {
							t.Errorf("owner %d: %v", owner, err)
						}
						if _, err := v.Prune(context.Background(), 3); err != nil {
							t.Errorf("owner %d: %v", owner, err)
						}
					}
				})
			}
			group.Wait()
			v := newVault(t, kind, dir, newClock().now)
			if n := mustRestore(t, v, dir, states); n < 3 {
				t.Errorf("%d usable checkpoints are left", n)
			}
			if infos := list(t, v); infos[0].Seq != 39 {
				t.Errorf("the newest has seq %d", infos[0].Seq)
			}
			for _, info := range list(t, v) {
				if info.Unusable != "" {
					t.Errorf("%s is unusable: %s", info.ID, info.Unusable)
				}
			}
		})
	}
}

func objects(t *testing.T, s checkpoint.Storage) (keys []string) {
	t.Helper()
	all, err := s.List(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		keys = append(keys, o.Key)
	}
	return keys
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	b := newFaulty(newClock().now)
	for _, prefix := range []string{"..", "../a", "a//b", "a/./b", "a/../b"} {
		_, err := checkpoint.New(checkpoint.Config{Storage: b, Prefix: prefix, Scratch: "x", Now: newClock().now})
		if err == nil || !strings.Contains(err.Error(), "prefix") {
			t.Errorf("New with prefix %q = %v", prefix, err)
		}
	}
	if _, err := checkpoint.New(checkpoint.Config{Storage: b, Now: newClock().now}); err == nil {
		t.Error("New without Scratch = nil")
	}
}
