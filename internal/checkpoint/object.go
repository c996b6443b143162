package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

// listTries is the maximum number of attempts at a listing. Listing a directory fails
// if a file disappears meanwhile, and temporary files of other writers come and go all
// the time.
const listTries = 50

// list returns the objects with a prefix, by the rest of their names.
func (v *Vault) list(ctx context.Context, prefix string) (map[string]*Object, error) {
	for try := 1; ; try++ {
		objects, err := v.storage.List(ctx, prefix)
		if err == nil {
			found := make(map[string]*Object, len(objects))
			for _, o := range objects {
				found[strings.TrimPrefix(o.Key, prefix)] = &o
			}
			return found, nil
		}
		if try == listTries || !isNotFound(err) {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
	}
}

func isNotFound(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// put writes an object atomically.
func (v *Vault) put(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := v.storage.Write(ctx, key, r, size); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

// fetch copies an object to w, up to one byte more than its expected size.
func (v *Vault) fetch(ctx context.Context, key string, size int64, w io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := v.storage.Read(ctx, key)
	if err == nil {
		_, err = io.Copy(w, io.LimitReader(r, size+1))
		err = errors.Join(err, r.Close())
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	return nil
}

// remove deletes an object, if it exists.
func (v *Vault) remove(ctx context.Context, key string) error {
	if err := v.storage.Delete(ctx, key); err != nil && !isNotFound(err) {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// each calls do for every item, a few concurrently. It stops at the first error.
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
