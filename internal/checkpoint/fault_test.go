package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/checkpoint"
)

var errCut = errors.New("storage is cut off")

// TestCrash fails a save and a prune at each operation on the storage, before or after
// its effect, once or from then on. Earlier checkpoints are listed and restore, the
// next save and prune succeed, and no garbage stays for ever.
func TestCrash(t *testing.T) {
	t.Parallel()
	states := map[uint64]contents{}
	for seq := range uint64(8) {
		states[seq] = stateOf(int(seq), 1, 2+int(seq)/3, 3+int(seq))
	}
	for _, mode := range []string{"before, once", "before, for good", "after, once", "after, for good"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			failed := 0
			for i := 1; ; i++ {
				n := crashAt(t, mode, i, states)
				if n < i { // there is no i-th operation
					if failed < 20 {
						t.Errorf("only %d operations failed a save or a prune", failed)
					}
					t.Logf("%d operations", n)
					return
				}
				failed++
			}
		})
	}
}

func crashAt(t *testing.T, mode string, i int, states map[uint64]contents) (ops int) {
	t.Helper()
	dir := tempDir(t)
	clock := newClock()
	s := newFaulty(clock.now)
	v := newVault(t, s, filepath.Join(dir, "first"), clock.now)
	for seq := range uint64(5) {
		save(t, v, seq, states[seq])
	}

	fails := func(op int) error {
		if op == i || op > i && strings.HasSuffix(mode, "for good") {
			return fmt.Errorf("operation %d: %w", op, errCut)
		}
		return nil
	}
	s.ops = 0
	if strings.HasPrefix(mode, "before") {
		s.before = func(op int, _ string) error { return fails(op) }
	} else {
		s.after = fails
	}
	_, err := v.Save(context.Background(), 3, states[5].source, at(5))
	if err == nil {
		_, err = v.Prune(context.Background(), 3)
	}
	ops = s.ops
	s.before, s.after = nil, nil
	if ops >= i && !errors.Is(err, errCut) {
		t.Fatalf("%s, operation %d: save and prune = %v", mode, i, err)
	}

	v = newVault(t, s, filepath.Join(dir, "second"), clock.now)
	if n := mustRestore(t, v, dir, states); n < 3 {
		t.Fatalf("%s, operation %d: %d usable checkpoints are left", mode, i, n)
	}
	for _, info := range list(t, v) {
		if info.Unusable != "" {
			t.Fatalf("%s, operation %d: %s is listed: %s", mode, i, info.ID, info.Unusable)
		}
	}
	if newest, _, _ := v.Newest(t.Context(), 3); newest.Seq < 4 {
		t.Fatalf("%s, operation %d: the newest is %d", mode, i, newest.Seq)
	}
	clock.add(5 * time.Hour)
	save(t, v, 6, states[6])
	if _, err := v.Prune(t.Context(), 3); err != nil {
		t.Fatalf("%s, operation %d: the next prune: %v", mode, i, err)
	}
	if n := mustRestore(t, v, dir, states); n != 3 {
		t.Fatalf("%s, operation %d: then %d usable checkpoints are left", mode, i, n)
	}
	if got := objects(t, s); len(got) != wanted(list(t, v), states) {
		t.Fatalf("%s, operation %d: %d objects are left, want %d: %s", mode, i, len(got), wanted(list(t, v), states), strings.Join(got, " "))
	}
	return ops
}

// wanted counts the objects of some checkpoints.
func wanted(infos []checkpoint.Info, states map[uint64]contents) int {
	files := map[string]bool{}
	for _, info := range infos {
		for _, data := range states[info.Seq] {
			if len(data) > 4<<10 {
				files[data] = true
			}
		}
	}
	return len(infos) + len(files)
}

// TestBetween lets another owner save three checkpoints, which makes all others old,
// and prune, before each operation of a save: the save succeeds, and its checkpoint is
// intact; and vice versa.
func TestBetween(t *testing.T) {
	t.Parallel()
	states := map[uint64]contents{}
	for seq := range uint64(9) {
		states[seq] = stateOf(int(seq), 10+int(seq)/5, 20+int(seq))
	}
	states[4] = stateOf(4, 10, 23) // all tables are those of 3
	mine := func(v *checkpoint.Vault) error {
		_, err := v.Save(context.Background(), 3, states[4].source, at(4))
		return err
	}
	other := func(v *checkpoint.Vault) error {
		for seq := uint64(5); seq < 8; seq++ {
			if _, err := v.Save(context.Background(), 3, states[seq].source, at(seq)); err != nil {
				return err
			}
		}
		_, err := v.Prune(context.Background(), 3)
		return err
	}
	for name, pair := range map[string][2]func(*checkpoint.Vault) error{"save": {mine, other}, "prune": {other, mine}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := 1; ; i++ {
				dir := tempDir(t)
				clock := newClock()
				s := newFaulty(clock.now)
				a := newVault(t, s, filepath.Join(dir, "a"), clock.now)
				b := newVault(t, s, filepath.Join(dir, "b"), clock.now)
				save(t, a, 3, states[3])
				s.ops = 0
				between := false
				s.before = func(op int, what string) error {
					if op != i {
						return nil
					}
					between = true // later operations are numbered differently
					if err := pair[1](b); err != nil {
						t.Errorf("before operation %d, %s: %v", i, what, err)
					}
					return nil
				}
				// Saved, pruned as an old one, and read back only then.
				late := func(err error) bool { return name == "save" && errors.Is(err, checkpoint.ErrOvertaken) }
				if err := pair[0](a); err != nil && !late(err) {
					t.Errorf("around operation %d: %v", i, err)
				}
				if !between {
					t.Logf("%d operations", i-1)
					return
				}
				mustRestore(t, a, dir, states)
				for _, info := range list(t, a) {
					if info.Unusable != "" {
						t.Fatalf("operation %d: %s is listed: %s", i, info.ID, info.Unusable)
					}
				}
			}
		})
	}
}

// TestSplitReading: the base of a checkpoint is deleted after the reader has passed it,
// and the checkpoint appears before the reader's page.
func TestSplitReading(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	clock := newClock()
	s := newFaulty(clock.now)
	s.page = 1
	vault := func(name string) *checkpoint.Vault {
		v, err := checkpoint.New(checkpoint.Config{Storage: s, Scratch: filepath.Join(dir, name), Keep: 1, Now: clock.now})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	pruner, zombie, owner := vault("pruner"), vault("zombie"), vault("owner")
	states := map[uint64]contents{10: stateOf(10, 1), 7: stateOf(7, 2), 5: stateOf(5, 1), 20: stateOf(20, 3)}
	save(t, owner, 10, states[10])
	save(t, owner, 7, states[7])

	lists, overtaken := 0, false
	s.before = func(_ int, what string) error {
		if what != "list 3/manifests/" {
			return nil
		}
		if lists++; lists != 4 { // the second page of the first reading
			return nil
		}
		s.precede(func(_ int, what string) error {
			if strings.HasPrefix(what, "write 3/files/") {
				s.precede(nil)
				save(t, owner, 20, states[20])
				if _, err := owner.Prune(t.Context(), 3); err != nil {
					t.Error(err)
				}
				overtaken = true
			}
			return nil
		})
		save(t, zombie, 5, states[5])
		return nil
	}
	if _, err := pruner.Prune(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if !overtaken {
		t.Fatal("nothing came between")
	}
	if n := mustRestore(t, pruner, dir, states); n != 2 || len(list(t, pruner)) != 2 {
		t.Errorf("%d usable, the list is %+v", n, list(t, pruner))
	}
}
