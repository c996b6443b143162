package checkpoint

import (
	"context"
	"time"
)

// KeeperConfig says what a Keeper does. Vault is required.
type KeeperConfig struct {
	Vault     *Vault
	Partition int
	// Interval is how often a checkpoint is taken at most (1 min).
	Interval time.Duration
	// Seq is that of the checkpoint the state was restored from; 0: none.
	Seq uint64
	// OnSaved and OnFailed are called from the goroutine of the upload, never
	// two at once. An upload that its context ended is not told. What went wrong
	// with pruning comes to OnFailed after OnSaved.
	OnSaved  func(Info)
	OnFailed func(error)
}

// Keeper saves the state of one partition from time to time. Its methods are
// for one goroutine, the partition's owner: between two commits it asks Due and
// calls Take, which costs it a local copy. The upload goes on behind it.
type Keeper struct {
	cfg   KeeperConfig
	last  time.Time     // when one was taken last, or Due was asked first
	saved uint64        // seq of the last one that was saved
	busy  chan struct{} // closed when the upload is through; nil: none was begun
	seq   uint64        // of that upload
	done  bool          // it succeeded; read after busy is closed
}

// NewKeeper makes a keeper.
func NewKeeper(c KeeperConfig) *Keeper {
	if c.Interval == 0 {
		c.Interval = time.Minute
	}
	return &Keeper{cfg: c, saved: c.Seq}
}

// Due says whether it is time for a checkpoint of a state that has come to seq:
// none is on its way, the interval is over, and the chain moved since the last
// one that was saved. The first interval begins with the first question.
func (k *Keeper) Due(now time.Time, seq uint64) bool {
	if k.last.IsZero() {
		k.last = now
	}
	return now.Sub(k.last) >= k.cfg.Interval && !k.uploading() && seq != k.saved
}

// Take makes a local copy of the state, which is at that place, and begins to
// upload it until ctx ends. It returns at once when an upload is on its way. An
// error is about the local copy alone; the next one is due after an interval.
func (k *Keeper) Take(ctx context.Context, now time.Time, at At, source func(dir string) error) error {
	if k.uploading() {
		return nil
	}
	k.last = now
	if err := k.cfg.Vault.take(k.cfg.Partition, source); err != nil {
		return err
	}
	busy := make(chan struct{})
	k.busy, k.seq, k.done = busy, at.Seq, false
	go func() {
		defer close(busy)
		k.done = k.upload(ctx, at)
	}()
	return nil
}

// Close waits for the upload that is on its way; end its context to make that
// short. Only then may another keeper of the partition use the vault.
func (k *Keeper) Close() {
	if k.busy != nil {
		<-k.busy
	}
}

func (k *Keeper) uploading() bool {
	if k.busy == nil {
		return false
	}
	select {
	case <-k.busy:
		if k.busy = nil; k.done {
			k.saved = k.seq
		}
		return false
	default:
		return true
	}
}

func (k *Keeper) upload(ctx context.Context, at At) bool {
	info, err := k.cfg.Vault.upload(ctx, k.cfg.Partition, at)
	if err != nil {
		k.failed(ctx, err)
		return false
	}
	if k.cfg.OnSaved != nil {
		k.cfg.OnSaved(info)
	}
	if _, err := k.cfg.Vault.Prune(ctx, k.cfg.Partition); err != nil {
		k.failed(ctx, err)
	}
	return true
}

func (k *Keeper) failed(ctx context.Context, err error) {
	if ctx.Err() == nil && k.cfg.OnFailed != nil {
		k.cfg.OnFailed(err)
	}
}
