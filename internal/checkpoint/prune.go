package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
)

// Prune deletes a partition's old checkpoints, and files that no manifest references.
// It returns the number of deleted objects.
//
// Prune keeps the newest Keep intact checkpoints by seq, by time, and by seq among
// those that this program can read. These are the same if all belong to one chain and
// one format; if a chain was started over, the checkpoints of the new chain are not
// mistaken for old ones. While no checkpoint is usable, or a manifest is newer than
// this program, Prune deletes no file.
//
// Prune never deletes a file of an upload, however slow: an upload writes its claim
// first, and then checks that the manifests still exist from which it knows the files
// that it does not upload. Prune lists the files first and then reads the manifests
// twice. A file that is new in the list has its claim in every reading. An old file is
// deleted only if neither reading shows a manifest that references it. If such a
// manifest is deleted between claim and check, the upload starts over; if it is deleted
// later, the second reading, which begins after the first one missed it, sees the
// claim.
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
		// A temporary file in a directory is named like the object that it becomes,
		// plus a dot and more.
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

// kept returns which checkpoints stay, of entries sorted from newest to oldest, and
// whether one of them is usable.
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
	slices.SortStableFunc(all, func(a, b entry) int { return -cmp.Compare(a.taken(), b.taken()) }) // the newest first
	mark(all)
	return keep, len(readable) > 0
}

// forgotten reports whether something that is not an intact checkpoint may be deleted.
// It stays for the grace period: an upload may be writing it, or a read may have failed
// only once.
func (v *Vault) forgotten(e entry) bool {
	return !errors.Is(e.bad, errNewer) && v.now().Sub(e.modified) > v.grace
}
