package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/projection"
)

// refusedWait is the interval between attempts on a refused partition.
const refusedWait = 30 * time.Second

// owner is what successive owners of one partition share.
type owner struct {
	*node
	partition int
	lease     Lease              // nil: the partition always belongs to this process
	keeper    *checkpoint.Keeper // nil: no checkpoints
	committed time.Time          // when the oldest unsynced commit was made; zero: everything is synced
	damaged   error              // damage to the last owner's state; nil: it is undamaged
	rebuilds  int                // how often the state was set aside
}

func evaluatorOf(partition int) string { return fmt.Sprintf("evaluator of partition %d", partition) }

// evaluatePartition decides one partition.
func (n *node) evaluatePartition(ctx context.Context, partition int) error {
	p := newParts(ctx)
	return p.wait(n.startEvaluator(p, partition))
}

func (n *node) startEvaluator(p *parts, partition int) (err error) {
	o := &owner{node: n, partition: partition}
	hooks := n.metrics.owner(partition, n.Now)
	count := hooks.Committed
	hooks.Committed = func(c evaluator.Commit) {
		count(c)
		n.groupsFailed(partition, &c)
		for _, r := range c.Records {
			if a, ok := r.(*chain.PolicyActivated); ok {
				n.inForce.set(partition, a.Generation, n.Now())
			}
		}
		if o.committed.IsZero() {
			o.committed = n.Now()
		}
	}
	phase, began := hooks.Phase, hooks.Began
	hooks.Phase = func(name string) {
		phase(name)
		if name != evaluator.Live {
			n.inForce.leave(partition)
		}
	}
	hooks.Began = func(generation uint64, decided eventlog.Position) {
		began(generation, decided)
		n.inForce.set(partition, generation, n.Now())
	}
	l := evaluator.Loop{
		Config: evaluator.Config{
			Partition: partition, Events: n.backend.Events, Decisions: n.backend.Decisions, Random: rand.Reader,
			Semantics: n.Semantics, AcceptPartitions: n.AcceptPartitions, AcceptHistory: n.AcceptHistory, AcceptedBy: n.Instance,
			AcceptEmptyDecisions: n.AcceptEmptyDecisions, CacheJobs: n.memory.cacheJobs, SaveEvery: evaluator.DefaultSaveEvery,
			Hooks: hooks,
		},
		Acquire: o.acquire, Rebuild: o.stateDamaged, Now: n.Now, BackOff: randomBackOff(), DrainTimeout: time.Second, Log: n.Log,
	}
	if n.backend.Acknowledged != nil {
		l.Config.Acknowledged = func() (eventlog.Position, error) { return n.backend.Acknowledged(partition) }
	}
	part := evaluatorOf(partition)
	l.Lost = func(err error) { n.metrics.health.report(part, err) }
	if n.backend.Lease != nil {
		if o.lease, err = n.backend.Lease(Evaluators, partition); err != nil {
			return err
		}
		p.closes("lease of the "+part, o.lease.Close)
		l.Placement, l.RefusedWait = o.lease, refusedWait
		l.Refused = func(err error) {
			refuse(n.metrics.refused, partition, err)
			n.metrics.health.refused(part, err)
		}
		p.run("watcher of the lease of the "+part, func(ctx context.Context) error {
			n.watch(ctx, fmt.Sprintf("lease of partition %d of events", partition), o.lease)
			return nil
		})
	}
	if n.vault != nil {
		o.keeper = o.newKeeper()
		p.closes("checkpoints", func() error { o.keeper.Close(); return nil })
	}
	p.run(part, l.Run)
	return nil
}

// newKeeper returns what takes checkpoints of the partition and acknowledges what they contain.
func (o *owner) newKeeper() *checkpoint.Keeper {
	return checkpoint.NewKeeper(checkpoint.KeeperConfig{
		Vault: o.vault, Partition: o.partition, Interval: o.CheckpointEvery,
		OnSaved: func(info checkpoint.Info) {
			o.metrics.checkpointSaved(o.partition, info)
			at, err := eventlog.ParsePosition(info.Events)
			switch {
			case err != nil:
				o.Log.Warn("checkpoint not acknowledged", slog.Int("partition", o.partition), slog.Any("error", err))
			case o.lease != nil:
				o.lease.Acknowledge(at)
			}
		},
		OnFailed: func(err error) {
			o.metrics.checkpointFailed(o.partition)
			o.Log.Error("checkpoint not saved", slog.Int("partition", o.partition), slog.Any("error", err))
		},
	})
}

// stateFormat is the format of a Store: that of its records.
const stateFormat = 1

func (n *node) newVault(storage checkpoint.Storage) (*checkpoint.Vault, error) {
	return checkpoint.New(checkpoint.Config{Storage: storage, Scratch: n.Data.Scratch(), Format: stateFormat, Now: n.Now})
}

// acquire takes the exclusive right to publish, then opens the state.
func (o *owner) acquire(ctx context.Context) (*evaluator.Ownership, error) {
	pub, err := o.backend.Publisher(ctx, o.partition)
	if err != nil {
		return nil, err
	}
	store, err := o.openState(ctx)
	if err != nil {
		return nil, errors.Join(err, pub.Close())
	}
	policies := o.policyLog.Follow()
	o.stores.Store(o.partition, store)
	o.memory.states.Add(1)
	if damage, ok := o.suspects.Load(o.partition); ok {
		store.NoteDamage(damage.(error))
	}
	return &evaluator.Ownership{
		Store: store, Policies: policies, Publisher: pub,
		Synced: func(positions follow.Positions) error { return o.synced(ctx, store, positions) },
		Close: func() error {
			o.memory.states.Add(-1)
			return errors.Join(pub.Close(), policies.Close(), store.Close())
		},
	}, nil
}

// synced acknowledges what is durable: with shared checkpoints, the contents of the newest checkpoint; without,
// those of the local state.
func (o *owner) synced(ctx context.Context, store *projection.Store, positions follow.Positions) error {
	if err := store.Whole(); err != nil {
		return err
	}
	if !o.committed.IsZero() {
		o.metrics.commit.WithLabelValues(strconv.Itoa(o.partition)).Observe(o.Now().Sub(o.committed).Seconds())
		o.committed = time.Time{}
	}
	if o.keeper != nil {
		if !o.keeper.Due(o.Now(), positions.Chain.Seq) {
			return nil
		}
		at := checkpoint.At{
			Seq: positions.Chain.Seq, Link: positions.Chain.Link.String(),
			Events: positions.Chain.InTo.String(), Decisions: positions.Decisions.String(),
		}
		if err := o.keeper.Take(ctx, o.Now(), at, store.Checkpoint); err != nil {
			o.metrics.checkpointFailed(o.partition)
			o.Log.Error("checkpoint not taken", slog.Int("partition", o.partition), slog.Any("error", err))
		}
		return nil
	}
	if o.lease != nil {
		o.lease.Acknowledge(positions.Chain.InTo)
	}
	return nil
}

// openState opens the partition's state, or restores the newest checkpoint if that is ahead or the state cannot be
// opened.
func (o *owner) openState(ctx context.Context) (*projection.Store, error) {
	dir := o.Data.State(o.partition)
	// A crash while the state was replaced leaves these behind.
	if err := errors.Join(os.RemoveAll(dir+newSuffix), os.RemoveAll(dir+oldSuffix)); err != nil {
		return nil, fmt.Errorf("clear state: %w", err)
	}
	store, reached, err := o.openWhole(dir)
	if errors.Is(err, projection.ErrCorrupt) {
		if err := o.rebuildState(err); err != nil {
			return nil, err
		}
		o.damaged, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	if o.vault != nil {
		restored, err := o.restore(ctx, dir+newSuffix, reached)
		if err != nil && store != nil {
			err = errors.Join(err, store.Close())
		}
		if err != nil {
			return nil, err
		}
		if restored && store != nil {
			if err := store.Close(); err != nil {
				return nil, err
			}
		}
		if restored {
			if err := replace(dir); err != nil {
				return nil, fmt.Errorf("put checkpoint in place: %w", err)
			}
			store = nil
		}
	}
	if store != nil {
		return store, nil
	}
	return o.openStore(dir)
}

// openWhole opens the state and returns how far it came. It returns projection.ErrCorrupt if the state is damaged,
// or was when the last owner ended.
func (o *owner) openWhole(dir string) (*projection.Store, uint64, error) {
	if o.damaged != nil {
		return nil, 0, o.damaged
	}
	store, err := o.openStore(dir)
	if err != nil {
		return nil, 0, err
	}
	positions, err := evaluator.PositionsIn(store)
	if err != nil {
		return nil, 0, errors.Join(err, store.Close())
	}
	return store, positions.Chain.Seq, nil
}

const newSuffix, oldSuffix = ".new", ".old"

// replace moves the new state to the place of the old one. A crash in between leaves one of them complete, or
// neither.
func replace(dir string) error {
	if err := os.Rename(dir, dir+oldSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return errors.Join(os.Rename(dir+newSuffix, dir), os.RemoveAll(dir+oldSuffix))
}

func (o *owner) openStore(dir string) (*projection.Store, error) {
	return projection.OpenStore(projection.StoreConfig{
		FS: vfs.Default, Dir: dir, Cache: o.memory.blocks, MemTableBytes: o.memory.memTable, Logger: pebbleLog{o.Log, o.Fatal},
	})
}

// restore downloads the newest usable checkpoint after a sequence number to a directory, if there is one.
func (o *owner) restore(ctx context.Context, dir string, beyond uint64) (bool, error) {
	saved, err := o.vault.List(ctx, o.partition)
	if err != nil {
		return false, fmt.Errorf("%w: list checkpoints: %w", eventlog.ErrTransient, err)
	}
	for _, c := range saved {
		if c.Seq <= beyond {
			break
		}
		began := o.Now()
		err := errors.New(c.Unusable)
		if c.Unusable == "" {
			err = o.vault.Restore(ctx, o.partition, c, dir)
		}
		if err == nil {
			o.Log.Info("checkpoint restored", slog.Int("partition", o.partition), slog.Uint64("seq", c.Seq), slog.Duration("took", o.Now().Sub(began)))
			return true, nil
		}
		if c.Unusable == "" && !errors.Is(err, checkpoint.ErrDamaged) {
			return false, fmt.Errorf("%w: restore checkpoint: %w", eventlog.ErrTransient, err)
		}
		o.Log.Error("checkpoint is unusable; trying an older one", slog.Int("partition", o.partition), slog.Uint64("seq", c.Seq), slog.Any("error", err))
	}
	return false, nil
}
