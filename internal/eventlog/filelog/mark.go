package filelog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/eventlog"
)

const (
	syncedName    = "SYNCED"
	slotBytes     = 56
	slotDistance  = 4096
	formatVersion = 1
)

// mark is the durable end of a partition.
type mark struct {
	segment int64             // ordinal of its first frame
	offset  int64             // in the segment
	next    int64             // ordinal of the next frame
	last    eventlog.Position // of the last durable message
}

func emptyMark() mark { return mark{last: eventlog.Start} }

func (m mark) encode(partition int) []byte {
	b := make([]byte, slotBytes)
	b[0] = formatVersion
	le.PutUint64(b[8:], uint64(m.segment))
	le.PutUint64(b[16:], uint64(m.offset))
	le.PutUint64(b[24:], uint64(m.next))
	putPosition(b[32:], m.last)
	le.PutUint32(b[52:], uint32(partition))
	le.PutUint32(b[4:], checksum(b[8:], b[:4]))
	return b
}

func parseMark(b []byte, partition int) (mark, bool) {
	if len(b) < slotBytes || b[0] != formatVersion || le.Uint32(b[4:]) != checksum(b[8:slotBytes], b[:4]) ||
		le.Uint32(b[52:]) != uint32(partition) {
		return mark{}, false
	}
	return mark{
		segment: int64(le.Uint64(b[8:])),
		offset:  int64(le.Uint64(b[16:])),
		next:    int64(le.Uint64(b[24:])),
		last:    positionAt(b[32:]),
	}, true
}

// syncedFile stores the mark of a partition for other processes and for the next Open.
type syncedFile struct {
	vfs.File
	path      string
	partition int
	slot      int64 // slot of the next write
}

// read returns the larger mark of the intact slots and their number, and selects the
// other slot for the next write. A slot may be torn because a write is in progress.
func (f *syncedFile) read() (best mark, whole int, err error) {
	var b [slotBytes]byte
	for slot := range int64(2) {
		n, err := f.ReadAt(b[:], slot*slotDistance)
		if err != nil && !errors.Is(err, io.EOF) {
			return mark{}, 0, fmt.Errorf("read %s: %w", f.path, err)
		}
		m, ok := parseMark(b[:n], f.partition)
		if !ok {
			continue
		}
		if whole == 0 || m.next >= best.next {
			best = m
			f.slot = 1 - slot
		}
		whole++
	}
	return best, whole, nil
}

// readWhole reads until enough slots are intact, which is immediate unless the file is
// damaged.
func (f *syncedFile) readWhole(enough int) (mark, bool, error) {
	for try := 1; ; try++ {
		m, whole, err := f.read()
		if err != nil || whole >= enough || try == 5 {
			return m, whole >= enough, err
		}
	}
}

func (f *syncedFile) write(m mark) error {
	if _, err := f.WriteAt(m.encode(f.partition), f.slot*slotDistance); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	f.slot = 1 - f.slot
	return nil
}

// rebuild writes both slots and syncs them.
func (f *syncedFile) rebuild(m mark) error {
	for range 2 {
		if err := f.write(m); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", f.path, err)
	}
	return nil
}

func (p *partition) openSynced(readOnly bool) error {
	path := p.fs.PathJoin(p.dir, syncedName)
	var (
		f   vfs.File
		err error
	)
	if readOnly {
		f, err = p.fs.Open(path)
	} else {
		f, err = p.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if readOnly {
			return p.syncedDamage("the file is missing")
		}
		return damage{path: p.dir, what: "the partition directory is missing", advice: "restore it from a copy"}.err()
	}
	if err != nil {
		return fmt.Errorf("open partition %d: %w", p.id, err)
	}
	p.synced = &syncedFile{File: f, path: path, partition: p.id}
	if !readOnly {
		return nil
	}
	// If one slot is damaged, the other can be far behind.
	_, ok, err := p.synced.readWhole(2)
	if err == nil && !ok {
		err = p.syncedDamage("a slot is damaged")
	}
	return err
}

func (p *partition) syncedDamage(what string) error {
	return damage{
		path: p.fs.PathJoin(p.dir, syncedName), what: what,
		advice: "open the log for writing once: the writer rebuilds this file",
	}.err()
}
