package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/checkpoint"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/projection"
)

// NewestCheckpoints returns what restores the newest checkpoint of a partition below a
// scratch directory, for a verification that begins there. Where a partition has none,
// it begins at the beginning. fatal is as in Config.
func NewestCheckpoints(storage checkpoint.Storage, scratch string, now func() time.Time, fatal func(error)) (func(context.Context, int) (*audit.Start, func() error, error), error) {
	vault, err := checkpoint.New(checkpoint.Config{Storage: storage, Scratch: filepath.Join(scratch, "transit"), Format: stateFormat, Now: now})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, partition int) (*audit.Start, func() error, error) {
		done := func() error { return nil }
		info, found, err := vault.Newest(ctx, partition)
		if err != nil || !found {
			return nil, done, err
		}
		dir := filepath.Join(scratch, "state-"+strconv.Itoa(partition))
		if err := vault.Restore(ctx, partition, info, dir); err != nil {
			return nil, done, fmt.Errorf("restore checkpoint: %w", err)
		}
		store, err := projection.OpenStore(projection.StoreConfig{FS: vfs.Default, Dir: dir, Logger: pebbleLog{slog.New(slog.DiscardHandler), fatal}})
		if err != nil {
			return nil, done, err
		}
		done = func() error { return errors.Join(store.Close(), os.RemoveAll(dir)) }
		p, at, err := evaluator.Resume(store)
		if err != nil {
			return nil, done, errors.Join(fmt.Errorf("read checkpoint: %w", err), done())
		}
		return &audit.Start{At: at, Processor: p, Store: store}, done, nil
	}, nil
}
