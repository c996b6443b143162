package checkpoint

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Restore writes a listed checkpoint to dir, which must not exist: it writes to
// <dir>.tmp, verifies every hash, syncs, and renames at the end. After an error there
// is nothing at dir; if the error is ErrDamaged, try the next older checkpoint.
func (v *Vault) Restore(ctx context.Context, partition int, info Info, dir string) error {
	if err := v.restore(ctx, partition, info, filepath.Clean(dir)); err != nil {
		return fmt.Errorf("restore checkpoint %s of partition %d: %w", info.ID, partition, err)
	}
	return nil
}

func (v *Vault) restore(ctx context.Context, partition int, info Info, dir string) error {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s already exists: move it away", dir), err)
	}
	m, bad, err := v.readManifest(ctx, partition, info.ID)
	switch {
	case isNotFound(err):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case err != nil:
		return err
	case bad != nil:
		return fmt.Errorf("%w: %w", ErrDamaged, bad)
	case !m.Complete || m.At != info.At || m.Partition != partition:
		return fmt.Errorf("%w: its manifest differs from the listed one", ErrDamaged)
	case m.Format > v.format:
		return fmt.Errorf("state has format %d, but this program reads formats up to %d: use an older checkpoint or a newer program", m.Format, v.format)
	}
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := v.restoreTo(ctx, m, tmp, dir); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

func (v *Vault) restoreTo(ctx context.Context, m *manifest, tmp, dir string) error {
	if err := os.MkdirAll(tmp, 0o750); err != nil {
		return err
	}
	err := each(ctx, m.Files, func(ctx context.Context, f file) error {
		return v.restoreFile(ctx, m.Partition, f, filepath.Join(tmp, f.Name))
	})
	if err != nil {
		return err
	}
	if err := syncDir(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

func (v *Vault) restoreFile(ctx context.Context, partition int, f file, name string) error {
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	sum := sha256.New()
	w := io.MultiWriter(out, sum)
	if f.Object == "" {
		_, err = w.Write(f.Data)
	} else {
		err = v.fetch(ctx, v.files(partition)+f.Object, f.Size, w)
	}
	switch {
	case isNotFound(err):
		err = fmt.Errorf("%w: file %s: %w", ErrDamaged, f.Name, err)
	case err == nil && hexOf(sum) != f.SHA256:
		err = fmt.Errorf("%w: file %s does not match its hash: it is %s now", ErrDamaged, f.Name, hexOf(sum))
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
