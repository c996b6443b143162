package checkpoint_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/checkpoint"
)

// TestLaw: three owners save, prune and crash, one operation at a time, in any order.
// After each operation all complete checkpoints are intact, and the newest one is at
// least as new as the newest that was saved; at the end all of them restore.
func TestLaw(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) { newFleet(rt, dir).sail() })
	})
}

// fleet is three owners of one partition on one storage.
type fleet struct {
	t       *rapid.T
	dir     string
	storage *faulty
	clock   *clock
	owners  []*owner
	judge   *checkpoint.Vault
	states  map[uint64]contents
	newest  uint64 // seq of the newest saved one

	mu      sync.Mutex
	waiting []*waiting
}

type owner struct {
	vault  *checkpoint.Vault
	ctx    context.Context //nolint:containedctx // it is the owner's life
	die    context.CancelFunc
	done   chan error // of the current action; nil: no action runs
	saving uint64     // 0: it prunes
}

// waiting is an operation that waits to be granted.
type waiting struct {
	owner int
	what  string
	let   chan error
}

func newFleet(t *rapid.T, dir string) *fleet {
	f := &fleet{t: t, dir: dir, clock: newClock(), states: map[uint64]contents{}}
	f.storage = newFaulty(f.clock.now)
	for seq := range uint64(60) {
		f.states[seq] = stateOf(int(seq), 1000+int(seq/4), 2000+int(seq/2))
	}
	f.judge = f.vault("judge")
	for i := range 3 {
		f.owners = append(f.owners, nil)
		f.boot(i)
	}
	return f
}

func (f *fleet) vault(name string) *checkpoint.Vault {
	v, err := checkpoint.New(checkpoint.Config{Storage: f.storage, Scratch: filepath.Join(f.dir, name), Keep: 1, Now: f.clock.now})
	if err != nil {
		f.t.Fatal(err)
	}
	return v
}

type ownerKey struct{}

func (f *fleet) boot(i int) {
	o := &owner{vault: f.vault(fmt.Sprint(i))}
	o.ctx, o.die = context.WithCancel(context.WithValue(context.Background(), ownerKey{}, i))
	f.owners[i] = o
}

func (f *fleet) sail() {
	f.storage.beforeCtx = f.wait
	for range rapid.IntRange(10, 80).Draw(f.t, "steps") {
		i := rapid.IntRange(0, len(f.owners)-1).Draw(f.t, "owner")
		o := f.owners[i]
		switch what := rapid.IntRange(0, 99).Draw(f.t, "what"); {
		case o.done == nil:
			f.begin(o)
		case what == 0:
			f.kill(i)
		case what == 1 && !slices.ContainsFunc(f.owners, func(o *owner) bool { return o.done != nil }):
			f.clock.add(5 * time.Hour)
		default:
			f.grant(i)
		}
		f.settle()
		f.check(false)
	}
	for i := range f.owners {
		f.kill(i)
	}
	f.check(true)
}

func (f *fleet) begin(o *owner) {
	o.done = make(chan error, 1)
	if o.saving = 0; rapid.IntRange(0, 2).Draw(f.t, "save") > 0 {
		// A slow former owner lags behind the others.
		o.saving = min(59, max(1, f.newest+uint64(rapid.IntRange(0, 4).Draw(f.t, "ahead"))-2))
	}
	go func() {
		var err error
		if o.saving > 0 {
			_, err = o.vault.Save(o.ctx, 3, f.states[o.saving].source, at(o.saving))
		} else {
			_, err = o.vault.Prune(o.ctx, 3)
		}
		o.done <- err
	}()
}

// wait blocks an operation until it is granted.
func (f *fleet) wait(ctx context.Context, what string) error {
	i, ok := ctx.Value(ownerKey{}).(int)
	if !ok {
		return nil
	}
	w := &waiting{owner: i, what: what, let: make(chan error)}
	f.mu.Lock()
	f.waiting = append(f.waiting, w)
	f.mu.Unlock()
	return <-w.let
}

// grant grants some operations of an owner.
func (f *fleet) grant(i int) {
	for range rapid.SampledFrom([]int{1, 1, 2, 5, 40}).Draw(f.t, "operations") {
		synctest.Wait()
		mine := f.ofOwner(i)
		if len(mine) == 0 {
			return
		}
		w := mine[rapid.IntRange(0, len(mine)-1).Draw(f.t, "operation")]
		f.let(w, nil)
		if strings.HasPrefix(w.what, "delete") || strings.HasPrefix(w.what, "write 3/manifests/") {
			f.check(false)
		}
	}
}

func (f *fleet) ofOwner(i int) (mine []*waiting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.waiting {
		if w.owner == i {
			mine = append(mine, w)
		}
	}
	slices.SortStableFunc(mine, func(a, b *waiting) int { return cmp.Compare(a.what, b.what) })
	return mine
}

func (f *fleet) let(w *waiting, err error) {
	f.mu.Lock()
	f.waiting = slices.DeleteFunc(f.waiting, func(o *waiting) bool { return o == w })
	f.mu.Unlock()
	w.let <- err
	synctest.Wait()
}

// kill ends an owner: its later operations have no effect.
func (f *fleet) kill(i int) {
	o := f.owners[i]
	for o.done != nil && len(o.done) == 0 {
		synctest.Wait()
		for _, w := range f.ofOwner(i) {
			f.let(w, errCut)
		}
	}
	if o.done != nil {
		if err := <-o.done; err != nil && !errors.Is(err, errCut) {
			f.t.Errorf("killed: %v", err)
		}
	}
	o.die()
	f.boot(i)
}

// settle records completed actions.
func (f *fleet) settle() {
	synctest.Wait()
	for _, o := range f.owners {
		if len(o.done) == 0 {
			continue
		}
		err := <-o.done
		if errors.Is(err, checkpoint.ErrOvertaken) {
			if infos := list(f.t, f.judge); len(infos) > 0 && infos[0].Seq >= o.saving {
				o.done = nil
				continue
			}
		}
		if err != nil {
			f.t.Errorf("save %d: %v", o.saving, err)
		}
		f.newest = max(f.newest, o.saving)
		o.done = nil
	}
}

func (f *fleet) check(restore bool) {
	infos, err := f.judge.List(context.Background(), 3)
	if err != nil {
		f.t.Fatal(err)
	}
	if f.newest > 0 && (len(infos) == 0 || infos[0].Seq < f.newest) {
		f.t.Fatalf("%d was saved, the list has %v", f.newest, ids(infos))
	}
	for _, info := range infos {
		if info.Unusable != "" {
			f.t.Fatalf("%s is unusable: %s", info.ID, info.Unusable)
		}
	}
	if restore {
		mustRestore(f.t, f.judge, f.dir, f.states)
	}
}
