package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config configures a Vault. Storage, Scratch and Now are required.
type Config struct {
	Storage Storage
	Prefix  string // of all objects; empty: none
	// Scratch is a directory for local copies before their upload, used by this process
	// alone. It should be on the file system of the states; otherwise each file is
	// copied instead of linked.
	Scratch string
	// Keep is the number of checkpoints per partition that Prune keeps (3).
	Keep int
	// Format is the state format that this program writes, and the newest that it
	// reads. Checkpoints in newer formats are listed as unusable.
	Format int
	// Grace is how long a claim or a damaged manifest is kept (4 h). An upload is
	// cancelled after half of it. Clocks may differ by a quarter of it.
	Grace time.Duration
	Now   func() time.Time
}

// Vault keeps checkpoints of partitions in shared storage. It is safe for concurrent
// use, also by several processes, except that only one goroutine at a time may save a
// partition.
type Vault struct {
	storage Storage
	prefix  string
	scratch string
	keep    int
	format  int
	grace   time.Duration
	now     func() time.Time

	mu     sync.Mutex
	hashed map[int]map[string]hashed // by partition and file name
}

// ErrDamaged reports that a checkpoint cannot be restored, now or later: an object is
// missing or does not match its hash. An older checkpoint may be intact.
var ErrDamaged = errors.New("checkpoint is damaged")

// ErrOvertaken reports that other processes saved newer checkpoints and pruned this one
// during its upload. No action is needed.
var ErrOvertaken = errors.New("another process saved newer checkpoints and pruned this one")

// New returns a Vault.
func New(c Config) (*Vault, error) {
	if c.Storage == nil || c.Scratch == "" || c.Now == nil {
		return nil, errors.New("checkpoint: Storage, Scratch and Now are required")
	}
	prefix := strings.Trim(c.Prefix, "/")
	if prefix != "" {
		if path.Clean(prefix) != prefix || prefix == ".." || strings.HasPrefix(prefix, "../") {
			return nil, fmt.Errorf("invalid checkpoint prefix %q: use names between single slashes, and neither . nor .. as a name", c.Prefix)
		}
		prefix += "/"
	}
	return &Vault{
		storage: c.Storage, prefix: prefix, scratch: c.Scratch, format: c.Format, now: c.Now,
		keep: max(1, cmp.Or(c.Keep, 3)), grace: cmp.Or(c.Grace, 4*time.Hour), hashed: map[int]map[string]hashed{},
	}, nil
}

func (v *Vault) partition(p int) string     { return v.prefix + strconv.Itoa(p) + "/" }
func (v *Vault) manifests(p int) string     { return v.partition(p) + "manifests/" }
func (v *Vault) files(p int) string         { return v.partition(p) + "files/" }
func (v *Vault) local(partition int) string { return filepath.Join(v.scratch, strconv.Itoa(partition)) }

// List returns a partition's complete checkpoints, newest first: by seq, then by time.
// Damaged ones are listed as unusable.
func (v *Vault) List(ctx context.Context, partition int) ([]Info, error) {
	entries, err := v.survey(ctx, partition, nil)
	if err != nil {
		return nil, err
	}
	files, err := v.list(ctx, v.files(partition)) // list after the manifests, so that their files exist
	if err != nil {
		return nil, err
	}
	var infos []Info
	for _, e := range entries {
		switch {
		case e.stray:
		case e.manifest == nil:
			infos = append(infos, Info{At: At{Seq: seqOf(e.id)}, Partition: partition, ID: e.id, Unusable: e.bad.Error()})
		case e.manifest.Complete:
			info := e.manifest.info(e.id)
			info.Unusable = v.unusable(e.manifest, partition, files)
			infos = append(infos, info)
		}
	}
	return infos, nil
}

// Newest returns the newest usable checkpoint of a partition, if there is one.
func (v *Vault) Newest(ctx context.Context, partition int) (Info, bool, error) {
	infos, err := v.List(ctx, partition)
	for _, info := range infos {
		if info.Unusable == "" {
			return info, true, nil
		}
	}
	return Info{}, false, err
}

func (v *Vault) unusable(m *manifest, partition int, files map[string]*Object) string {
	switch {
	case m.Partition != partition:
		return fmt.Sprintf("belongs to partition %d", m.Partition)
	case m.Format > v.format:
		return fmt.Sprintf("state has format %d, but this program reads formats up to %d", m.Format, v.format)
	}
	return lacking(m, files)
}

// lacking names a file of a manifest that is missing or incomplete; empty: there is
// none.
func lacking(m *manifest, files map[string]*Object) string {
	for _, f := range m.Files {
		if f.Object == "" {
			continue
		}
		if o := files[f.Object]; o == nil {
			return fmt.Sprintf("file %s is missing", f.Name)
		} else if o.Size != f.Size {
			return fmt.Sprintf("file %s has %d bytes, not %d", f.Name, o.Size, f.Size)
		}
	}
	return ""
}

// entry is one manifest in the storage, valid or not.
type entry struct {
	id       string
	modified time.Time // by the storage's clock
	manifest *manifest // nil: cannot be read
	bad      error     // why
	stray    bool      // not a manifest, but a temporary file of a directory
}

// survey reads a partition's manifests, including claims, newest first. It does not
// read manifests again that are in known, by id.
func (v *Vault) survey(ctx context.Context, partition int, known map[string]*manifest) ([]entry, error) {
	objects, err := v.list(ctx, v.manifests(partition))
	if err != nil {
		return nil, err
	}
	var entries []entry
	for id, o := range objects {
		e := entry{id: id, modified: o.Modified, manifest: known[id]}
		if e.stray = !isID(id); !e.stray && e.manifest == nil {
			e.manifest, e.bad, err = v.readManifest(ctx, partition, id)
			if isNotFound(err) {
				continue // deleted meanwhile
			}
			if err != nil {
				return nil, err
			}
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return -cmp.Or(cmp.Compare(seqOf(a.id), seqOf(b.id)), cmp.Compare(a.taken(), b.taken()), cmp.Compare(a.id, b.id))
	})
	return entries, nil
}

func (e *entry) taken() int64 {
	if e.manifest == nil {
		return e.modified.UnixNano()
	}
	return e.manifest.Taken
}

// readManifest distinguishes a bad manifest from an error of the storage.
func (v *Vault) readManifest(ctx context.Context, partition int, id string) (m *manifest, bad, err error) {
	var b bytes.Buffer
	if err := v.fetch(ctx, v.manifests(partition)+id, manifestLimit, &b); err != nil {
		return nil, nil, err
	}
	m, bad = decodeManifest(b.Bytes())
	if bad == nil && idSeq(m.Seq) != id[:min(len(id), seqDigits)] {
		bad = fmt.Errorf("%w: it has seq %d", errBroken, m.Seq)
	}
	if bad != nil {
		return nil, bad, nil
	}
	return m, nil, nil
}

const seqDigits = 20

func idSeq(seq uint64) string { return fmt.Sprintf("%0*d", seqDigits, seq) }

// isID reports whether a name consists of seq, dash and random text.
func isID(name string) bool { return len(name) > seqDigits && !strings.Contains(name, ".") }

// seqOf returns the seq in an id; 0 for an invalid name.
func seqOf(id string) uint64 {
	seq, err := strconv.ParseUint(id[:min(len(id), seqDigits)], 10, 64)
	if err != nil {
		return 0
	}
	return seq
}
