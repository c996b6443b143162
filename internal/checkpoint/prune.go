package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
)

// Prune deletes a partition's old checkpoints, and files that no manifest names.
// It returns how many objects it deleted.
//
// It keeps the newest Keep intact ones by seq, by time, and by seq of those that
// this program can read. Where all are of one chain and one format these are the
// same ones; where a chain was begun anew, its first checkpoints are not taken
// for old. While there is no usable one, or a manifest that this program cannot
// judge, no file is deleted.
//
// Why no file of an upload is deleted, however slow it is: an upload writes its
// claim first, and then looks whether the manifests are still there by which it
// knows the files that it does not upload. Prune lists the files first and reads
// the manifests after that, twice. A file that is new in the list has its claim
// in every reading. An old file is deleted only if no reading showed a manifest
// that names it. Had its base been deleted between claim and look, the upload
// would have begun again; had it been deleted later, then the second reading,
// which begins after the first one missed the base, sees the claim.
func (v *Vault) Prune(ctx context.Context, partition int) (int, error) {
	first, err := v.survey(ctx, partition, nil)
	if err != nil {
		return 0, err
	}
	files, err := v.list(ctx, v.files(partition))
	if err != nil {
		return 0, err
	}
	intact := func(m *manifest) bool { return m.Complete && m.Partition == partition && lacking(m, files) == "" }
	keep, usable := v.kept(first, intact)
	if !usable {
		return 0, nil
	}
	deleted := 0
	known := map[string]*manifest{}
	for _, e := range first {
		if whole := e.manifest != nil && intact(e.manifest); keep[e.id] || !whole && !v.forgotten(e) {
			known[e.id] = e.manifest
			continue
		}
		if err := v.remove(ctx, v.manifests(partition)+e.id); err != nil {
			return deleted, err
		}
		deleted++
	}
	named := map[string]bool{}
	for range 2 {
		entries, err := v.survey(ctx, partition, known)
		if err != nil {
			return deleted, err
		}
		for _, e := range entries {
			if e.stray {
				continue
			}
			if e.manifest == nil {
				return deleted, nil
			}
			known[e.id] = e.manifest
			for _, f := range e.manifest.Files {
				named[f.Object] = true
			}
		}
	}
	for name := range files {
		// A file that is being written to a directory has the name of the
		// object that it becomes, a dot, and more.
		if object, _, _ := strings.Cut(name, "."); named[object] {
			continue
		}
		if err := v.remove(ctx, v.files(partition)+name); err != nil {
			return deleted, err
		}
		deleted++
	}
	return deleted, nil
}

// kept says which checkpoints stay, of entries from the newest to the oldest,
// and whether one of them is usable.
func (v *Vault) kept(entries []entry, intact func(*manifest) bool) (keep map[string]bool, usable bool) {
	var all, readable []entry
	for _, e := range entries {
		if e.manifest == nil || !intact(e.manifest) {
			continue
		}
		all = append(all, e)
		if e.manifest.Format <= v.format {
			readable = append(readable, e)
		}
	}
	keep = map[string]bool{}
	mark := func(entries []entry) {
		for _, e := range entries[:min(v.keep, len(entries))] {
			keep[e.id] = true
		}
	}
	mark(all)
	mark(readable)
	sortByTime(all)
	mark(all)
	return keep, len(readable) > 0
}

// forgotten says whether something that is not a whole checkpoint goes. It is
// left alone for the grace period: an upload may be at it, or what looks damaged
// was only read badly.
func (v *Vault) forgotten(e entry) bool {
	return !errors.Is(e.bad, errNewer) && v.now().Sub(e.modified) > v.grace
}

// sortByTime puts the one that was taken last first.
func sortByTime(entries []entry) {
	slices.SortStableFunc(entries, func(a, b entry) int { return -cmp.Compare(a.taken(), b.taken()) })
}
