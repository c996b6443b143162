package checkpoint_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refloat/refloat/internal/checkpoint"
)

// keeping is a Keeper in a synctest bubble, with its notifications.
type keeping struct {
	*checkpoint.Keeper
	t       *testing.T
	storage *faulty
	vault   *checkpoint.Vault
	taken   []uint64

	mu     sync.Mutex
	saved  []uint64
	failed []error
}

func newKeeping(t *testing.T, dir string, seq uint64) *keeping {
	k := &keeping{t: t, storage: newFaulty(time.Now)}
	k.vault = newVault(t, k.storage, dir, time.Now)
	k.Keeper = checkpoint.NewKeeper(checkpoint.KeeperConfig{
		Vault: k.vault, Partition: 3, Seq: seq,
		OnSaved: func(i checkpoint.Info) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.saved = append(k.saved, i.Seq)
		},
		OnFailed: func(err error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.failed = append(k.failed, err)
		},
	})
	return k
}

func (k *keeping) take(ctx context.Context, seq uint64) {
	k.t.Helper()
	err := k.Take(ctx, time.Now(), at(seq), func(dir string) error {
		k.taken = append(k.taken, seq)
		return stateOf(int(seq), int(seq)).source(dir)
	})
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *keeping) wantDue(seq uint64, want bool) {
	k.t.Helper()
	synctest.Wait()
	if got := k.Due(time.Now(), seq); got != want {
		k.t.Errorf("Due(%d) = %v, want %v", seq, got, want)
	}
}

func (k *keeping) want(taken, saved []uint64, failed int) {
	k.t.Helper()
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Equal(k.taken, taken) || !slices.Equal(k.saved, saved) || len(k.failed) != failed {
		k.t.Errorf("taken %v, saved %v, failed %v, want %v, %v, %d", k.taken, k.saved, k.failed, taken, saved, failed)
	}
}

// pass advances the time. Timers in a bubble fire at once when everything else waits.
func pass(d time.Duration) { <-time.After(d) }

func TestKeeper(t *testing.T) {
	t.Parallel()
	tests := map[string]func(k *keeping){
		"every interval, when the chain moved": func(k *keeping) {
			k.wantDue(7, false)
			pass(59 * time.Second)
			k.wantDue(7, false)
			pass(time.Second)
			k.wantDue(5, false) // the seq that it was restored from
			k.wantDue(7, true)
			k.take(k.t.Context(), 7)
			k.want([]uint64{7}, []uint64{7}, 0)
			k.wantDue(8, false)
			pass(time.Minute)
			k.wantDue(7, false)
			k.wantDue(8, true)
		},
		"one at a time": func(k *keeping) {
			k.wantDue(6, false)
			pass(time.Minute)
			gate := make(chan struct{})
			k.storage.beforeCtx = func(context.Context, string) error { <-gate; return nil }
			k.take(k.t.Context(), 6)
			pass(time.Minute)
			k.wantDue(7, false)
			k.take(k.t.Context(), 7)
			k.want([]uint64{6}, nil, 0)
			close(gate)
			k.want([]uint64{6}, []uint64{6}, 0)
			k.wantDue(7, true)
		},
		"a failure is told, and tried again after an interval": func(k *keeping) {
			k.wantDue(6, false)
			pass(time.Minute)
			k.storage.before = func(int, string) error { return errCut }
			k.take(k.t.Context(), 6)
			k.want([]uint64{6}, nil, 1)
			if len(k.failed) == 0 || !errors.Is(k.failed[0], errCut) || !strings.Contains(k.failed[0].Error(), "partition 3 at seq 6") {
				k.t.Errorf("failed = %v", k.failed)
			}
			k.wantDue(6, false)
			k.storage.before = nil
			pass(time.Minute)
			k.wantDue(6, true)
			k.take(k.t.Context(), 6)
			k.want([]uint64{6, 6}, []uint64{6}, 1)
		},
		"a failed copy is returned": func(k *keeping) {
			k.wantDue(6, false)
			pass(time.Minute)
			err := k.Take(k.t.Context(), time.Now(), at(6), func(string) error { return errCut })
			if !errors.Is(err, errCut) {
				k.t.Errorf("Take = %v", err)
			}
			k.want(nil, nil, 0)
			k.wantDue(6, false)
			pass(time.Minute)
			k.wantDue(6, true)
		},
		"the context ends an upload": func(k *keeping) {
			ctx, cancel := context.WithCancel(k.t.Context())
			k.storage.beforeCtx = func(ctx context.Context, what string) error {
				if strings.Contains(what, "/3/files/") {
					<-ctx.Done()
				}
				return ctx.Err()
			}
			k.take(ctx, 6)
			synctest.Wait()
			cancel()
			k.Close()
			k.want([]uint64{6}, nil, 0)
			k.storage.beforeCtx = nil
			if got := objects(k.t, k.storage); len(got) > 0 {
				k.t.Errorf("left: %v", got)
			}
		},
		"a hung upload is given up": func(k *keeping) {
			k.storage.beforeCtx = func(ctx context.Context, what string) error { <-ctx.Done(); return ctx.Err() }
			k.take(k.t.Context(), 6)
			pass(3 * time.Hour)
			k.want([]uint64{6}, nil, 1)
			k.wantDue(6, true)
		},
		"close waits": func(k *keeping) {
			k.storage.beforeCtx = func(context.Context, string) error { pass(time.Second); return nil }
			k.take(k.t.Context(), 6)
			k.want([]uint64{6}, nil, 0)
			k.Close()
			k.want([]uint64{6}, []uint64{6}, 0)
			k.Close()
		},
		"old ones are pruned": func(k *keeping) {
			for seq := range uint64(6) {
				k.take(k.t.Context(), seq)
				pass(time.Minute)
			}
			if got := ids(list(k.t, k.vault)); !slices.Equal(got, []uint64{5, 4, 3}) {
				k.t.Errorf("List = %v", got)
			}
		},
		"a failed prune is told": func(k *keeping) {
			k.storage.before = func(_ int, what string) error {
				if strings.HasPrefix(what, "delete") {
					return errCut
				}
				return nil
			}
			for seq := range uint64(4) {
				k.take(k.t.Context(), seq)
				synctest.Wait()
			}
			k.want([]uint64{0, 1, 2, 3}, []uint64{0, 1, 2, 3}, 1)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			synctest.Test(t, func(t *testing.T) {
				k := newKeeping(t, dir, 5)
				test(k)
				k.Close()
			})
		})
	}
}
