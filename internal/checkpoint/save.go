package checkpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Save copies a state to the storage. source creates a directory, which must not exist
// yet, with plain files only (projection's Store.Checkpoint); at is the position of
// that state.
//
// When Save returns without an error, every file has been read back from the storage,
// or was there since an earlier checkpoint and still has its size. So every upload is
// downloaded once, too. After an error, the storage lists the same checkpoints as
// before, and perhaps this one, complete.
func (v *Vault) Save(ctx context.Context, partition int, source func(dir string) error, at At) (Info, error) {
	if err := v.take(partition, source); err != nil {
		return Info{}, err
	}
	return v.upload(ctx, partition, at)
}

// take makes the local copy for upload.
func (v *Vault) take(partition int, source func(dir string) error) error {
	dir := v.local(partition)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear checkpoint scratch: %w", err)
	}
	if err := os.MkdirAll(v.scratch, 0o750); err != nil {
		return fmt.Errorf("create checkpoint scratch: %w", err)
	}
	if err := source(dir); err != nil {
		return errors.Join(fmt.Errorf("take checkpoint of partition %d: %w", partition, err), os.RemoveAll(dir))
	}
	return nil
}

// upload saves the local copy, and removes it.
func (v *Vault) upload(ctx context.Context, partition int, at At) (Info, error) {
	began := v.now()
	ctx, cancel := context.WithTimeout(ctx, v.grace/2)
	defer cancel()
	u := upload{
		Vault: v, dir: v.local(partition), id: idSeq(at.Seq) + "-" + rand.Text(),
		manifest: manifest{At: at, Partition: partition, Format: v.format, Taken: began.UnixNano()},
	}
	err := u.run(ctx, began)
	if err != nil {
		err = errors.Join(fmt.Errorf("save checkpoint of partition %d at seq %d: %w", partition, at.Seq, err), u.withdraw(ctx))
	}
	if err = errors.Join(err, os.RemoveAll(u.dir)); err != nil {
		return Info{}, err
	}
	return u.info(u.id), nil
}

// upload is a checkpoint that is being uploaded.
type upload struct {
	*Vault
	manifest
	dir, id string
	claimed bool
}

func (u *upload) run(ctx context.Context, began time.Time) error {
	if err := u.hashFiles(ctx); err != nil {
		return err
	}
	if err := u.claim(ctx); err != nil {
		return err
	}
	if err := each(ctx, slices.Clone(u.Files), u.send); err != nil {
		return err
	}
	there, err := u.list(ctx, u.files(u.Partition))
	if err != nil {
		return err
	}
	if why := lacking(&u.manifest, there); why != "" {
		return fmt.Errorf("%s although it was just uploaded: the storage loses objects, or its listings lag", why)
	}
	if took := u.now().Sub(began); took > u.grace/2 {
		return fmt.Errorf("the upload took %v, more than half of the grace period of %v", took, u.grace)
	}
	u.Complete = true
	return u.write(ctx)
}

// claimTries is the maximum number of times that the base of a checkpoint may be pruned
// while it is being claimed.
const claimTries = 5

// claim writes a manifest with all files of the checkpoint before the first upload, so
// that none is pruned. It reuses files only of complete manifests, which must still
// exist after the claim: see Prune.
func (u *upload) claim(ctx context.Context) error {
	for range claimTries {
		bases, err := u.plan(ctx)
		if err != nil {
			return err
		}
		u.claimed = true
		if err := u.write(ctx); err != nil {
			return err
		}
		left, err := u.list(ctx, u.manifests(u.Partition))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(bases, func(id string) bool { return left[id] == nil }) {
			return nil
		}
		if err := u.withdraw(ctx); err != nil {
			return err
		}
		u.id = idSeq(u.Seq) + "-" + rand.Text()
	}
	return fmt.Errorf("%w, %d times before the claim was complete", ErrOvertaken, claimTries)
}

// plan assigns an object to each file: an existing one, or a new name. It returns the
// manifests that reference the existing ones.
func (u *upload) plan(ctx context.Context) (bases []string, err error) {
	entries, err := u.survey(ctx, u.Partition, nil)
	if err != nil {
		return nil, err
	}
	there, err := u.list(ctx, u.files(u.Partition))
	if err != nil {
		return nil, err
	}
	type known struct{ object, base string }
	objects := map[string]known{} // by hash
	for _, e := range entries {
		if e.manifest == nil || !e.manifest.Complete {
			continue
		}
		for _, f := range e.manifest.Files {
			if o := there[f.Object]; o != nil && o.Size == f.Size && objects[f.SHA256].object == "" {
				objects[f.SHA256] = known{f.Object, e.id}
			}
		}
	}
	u.Uploaded = 0
	for i := range u.Files {
		f := &u.Files[i]
		if f.Size <= inlineLimit {
			continue
		}
		k, ok := objects[f.SHA256]
		f.Object, f.fresh = k.object, !ok
		if ok {
			bases = append(bases, k.base)
			continue
		}
		f.Object = f.SHA256 + "-" + rand.Text()
		u.Uploaded += f.Size
	}
	return bases, nil
}

// write writes the manifest in its current state, and reads it back.
func (u *upload) write(ctx context.Context) error {
	b, err := u.encode()
	if err != nil {
		return err
	}
	key := u.manifests(u.Partition) + u.id
	if err := u.put(ctx, key, bytes.NewReader(b), int64(len(b))); err != nil {
		return err
	}
	var back bytes.Buffer
	if err := u.fetch(ctx, key, int64(len(b)), &back); isNotFound(err) {
		return fmt.Errorf("%w (or the storage loses objects): %w", ErrOvertaken, err)
	} else if err != nil {
		return err
	}
	if !bytes.Equal(b, back.Bytes()) {
		return fmt.Errorf("%s was not stored as written", key)
	}
	return nil
}

// withdraw deletes the claim, so that its uploads are pruned.
func (u *upload) withdraw(ctx context.Context) error {
	if !u.claimed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return u.remove(ctx, u.manifests(u.Partition)+u.id)
}

// send uploads a file and reads it back.
func (u *upload) send(ctx context.Context, f file) error {
	if !f.fresh {
		return nil
	}
	in, err := os.Open(filepath.Join(u.dir, f.Name))
	if err != nil {
		return err
	}
	defer in.Close()
	key := u.files(u.Partition) + f.Object
	if err := u.put(ctx, key, in, f.Size); err != nil {
		return err
	}
	sum := sha256.New()
	if err := u.fetch(ctx, key, f.Size, sum); err != nil {
		return err
	}
	if got := hexOf(sum); got != f.SHA256 {
		return fmt.Errorf("%s was not stored as written: its hash is %s", key, got)
	}
	return nil
}

// hashed is a file with a known hash. Tables do not change once they are written, so
// most of a state need not be read again for each checkpoint.
type hashed struct {
	info os.FileInfo
	sum  string
}

// is reports whether info is the same unchanged file, perhaps by another link.
func (h hashed) is(info os.FileInfo) bool {
	return h.info != nil && os.SameFile(h.info, info) && h.info.Size() == info.Size() && h.info.ModTime().Equal(info.ModTime())
}

// hashFiles collects the files of the local copy and their hashes.
func (u *upload) hashFiles(ctx context.Context) error {
	dir, err := os.ReadDir(u.dir)
	if err != nil {
		return err
	}
	u.mu.Lock()
	before := u.hashed[u.Partition]
	u.mu.Unlock()
	u.Files = make([]file, len(dir))
	infos := make([]os.FileInfo, len(dir))
	index := make([]int, len(dir))
	for i, d := range dir {
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a plain file", filepath.Join(u.dir, d.Name()))
		}
		u.Files[i], infos[i], index[i] = file{Name: d.Name(), Size: info.Size()}, info, i
		if h := before[d.Name()]; h.is(info) {
			u.Files[i].SHA256 = h.sum
		}
	}
	if err := each(ctx, index, func(_ context.Context, i int) error { return u.hashFile(&u.Files[i]) }); err != nil {
		return err
	}
	now := make(map[string]hashed, len(dir))
	for i, f := range u.Files {
		now[f.Name] = hashed{infos[i], f.SHA256}
	}
	u.mu.Lock()
	u.hashed[u.Partition] = now
	u.mu.Unlock()
	return nil
}

// hashFile computes a file's hash if it is unknown, and reads small files.
func (u *upload) hashFile(f *file) error {
	name := filepath.Join(u.dir, f.Name)
	if f.Size <= inlineLimit {
		b, err := os.ReadFile(name)
		if err == nil && int64(len(b)) != f.Size {
			err = fmt.Errorf("%s changed while it was read", name)
		}
		f.Data, f.SHA256 = b, hexSum(b)
		return err
	}
	if f.SHA256 != "" {
		return nil
	}
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, in)
	if err == nil && n != f.Size {
		err = fmt.Errorf("%s changed while it was read", name)
	}
	f.SHA256 = hexOf(sum)
	return err
}

func hexOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
