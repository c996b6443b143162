package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// listTries bounds how often a listing is begun again. The driver for
// directories fails when a file goes away while it looks, and temporary files
// of others come and go all the time.
const listTries = 50

// list gives the objects below a prefix, by the rest of their names.
func (v *Vault) list(ctx context.Context, prefix string) (map[string]*blob.ListObject, error) {
	for try := 1; ; try++ {
		found := map[string]*blob.ListObject{}
		err := v.listOnce(ctx, prefix, found)
		if err == nil {
			return found, nil
		}
		if try == listTries || !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
	}
}

func (v *Vault) listOnce(ctx context.Context, prefix string, found map[string]*blob.ListObject) error {
	it := v.bucket.List(&blob.ListOptions{Prefix: prefix})
	for {
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		found[strings.TrimPrefix(o.Key, prefix)] = o
	}
}

func isNotFound(err error) bool { return gcerrors.Code(err) == gcerrors.NotFound }

// put writes an object: all of it, or nothing. In a directory it is synced.
func (v *Vault) put(ctx context.Context, key string, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var onDisk *os.File
	w, err := v.bucket.NewWriter(ctx, key, &blob.WriterOptions{
		ContentType: "application/octet-stream",
		BeforeWrite: func(as func(any) bool) error { as(&onDisk); return nil },
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	_, err = io.Copy(w, r)
	if err == nil && onDisk != nil {
		err = onDisk.Sync()
	}
	if err != nil {
		cancel() // Close finishes nothing then
		_ = w.Close()
		return fmt.Errorf("write %s: %w", key, err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	if onDisk == nil {
		return nil
	}
	dir := filepath.Dir(onDisk.Name())
	for range strings.Count(key, "/") + 1 { // up to the bucket's own
		if err := syncDir(dir); err != nil {
			return fmt.Errorf("write %s: %w", key, err)
		}
		dir = filepath.Dir(dir)
	}
	return nil
}

// fetch copies an object to w, but at most one byte more than it is to have.
func (v *Vault) fetch(ctx context.Context, key string, size int64, w io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := v.bucket.NewReader(ctx, key, nil)
	if err == nil {
		_, err = io.Copy(w, io.LimitReader(r, size+1))
		err = errors.Join(err, r.Close())
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	return nil
}

// remove deletes an object; that it is not there is fine.
func (v *Vault) remove(ctx context.Context, key string) error {
	if err := v.bucket.Delete(ctx, key); err != nil && !isNotFound(err) {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// each calls do for every item, some at a time. The first error ends it.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	const atOnce = 4
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(atOnce, len(items)) {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return
				}
				if err := do(ctx, items[i]); err != nil {
					stop(err)
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
