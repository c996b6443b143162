package checkpoint

import (
	"cmp"
	"context"
	"time"
)

// KeeperConfig configures a Keeper. Vault is required.
type KeeperConfig struct {
	Vault     *Vault
	Partition int
	// Interval is the minimum time between checkpoints (1 min).
	Interval time.Duration
	// Seq is the seq of the checkpoint from which the state was restored; 0: none.
	Seq uint64
	// OnSaved and OnFailed are called from the goroutine of the upload, never
	// concurrently. An upload that was cancelled by its context is not reported.
	// OnFailed also reports errors of pruning, after OnSaved.
	OnSaved  func(Info)
	OnFailed func(error)
}

// Keeper saves the state of one partition periodically. Its methods are for one
// goroutine, the partition's owner, which calls Due and Take between two commits. Take
// makes a local copy; the upload runs in the background.
type Keeper struct {
	cfg   KeeperConfig
	last  time.Time     // time of the last checkpoint, or of the first call of Due
	saved uint64        // seq of the last saved checkpoint
	busy  chan struct{} // closed when the upload is done; nil: no upload was started
	seq   uint64        // of that upload
	done  bool          // it succeeded; read after busy is closed
}

// NewKeeper returns a Keeper.
func NewKeeper(c KeeperConfig) *Keeper {
	c.Interval = cmp.Or(c.Interval, time.Minute)
	return &Keeper{cfg: c, saved: c.Seq}
}

// Due reports whether a checkpoint of a state at seq is due: no upload is running, the
// interval has passed, and the chain has advanced since the last saved checkpoint. The
// first interval starts with the first call.
func (k *Keeper) Due(now time.Time, seq uint64) bool {
	if k.last.IsZero() {
		k.last = now
	}
	return now.Sub(k.last) >= k.cfg.Interval && !k.uploading() && seq != k.saved
}

// Take makes a local copy of the state, which is at that position, and starts to upload
// it until ctx ends. It does nothing while an upload is running. An error concerns only
// the local copy; the next checkpoint is due after another interval.
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

// Close waits for the running upload; cancel its context to keep that short. Only then
// may another Keeper of the partition use the vault.
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
