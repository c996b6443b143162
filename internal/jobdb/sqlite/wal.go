package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/refloat/refloat/internal/jobdb"
)

// SQLite ends its write-ahead log at the first frame that does not match its checksum.
// After a crash, that frame belongs to a transaction that was never reported as
// committed. After damage, it may hide committed transactions, of which a checkpoint
// may have copied parts into the file. So we check the log before SQLite does.

const (
	walHeaderBytes      = 32
	walFrameHeaderBytes = 24
	walMagic            = 0x377f0682 // its last bit: checksums are big-endian
	shmHeaderBytes      = 48
)

// checkFiles returns jobdb.ErrDamaged if the write-ahead log beside a database has lost
// committed data. A writer may run meanwhile.
func checkFiles(path string) error {
	for range 100 { // repeat if a writer restarts the log while we read it
		settled, err := checkWAL(path)
		if settled || err != nil {
			return err
		}
	}
	return nil // it changes all the time, so a live writer uses it
}

// wal is the valid part of a write-ahead log.
type wal struct {
	header    [walHeaderBytes]byte
	order     binary.ByteOrder
	pageBytes int64
	valid     int64            // frames before the first invalid one
	committed int64            // of them, those up to the last commit
	pages     uint32           // of the database after that commit
	has       map[uint32]int64 // first frame of each page
	sum       [2]uint32        // running checksum
}

func checkWAL(path string) (settled bool, err error) {
	index := readShm(path + "-shm") // read before the log, so that it is not ahead of it
	f, err := os.Open(path + "-wal")
	if errors.Is(err, fs.ErrNotExist) && index.frames == 0 {
		return true, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(path); err != nil || readShm(path+"-shm") != index {
			return errors.Is(err, fs.ErrNotExist), nil // no database, or one that is being closed
		}
		return true, fmt.Errorf("%w: write-ahead log %s-wal is missing; it had %d committed frames", jobdb.ErrDamaged, path, index.frames)
	}
	if err != nil {
		return false, fmt.Errorf("check the write-ahead log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("check the write-ahead log: %w", err)
	}
	w := wal{has: map[uint32]int64{}}
	damage, err := w.read(f, info.Size(), index)
	if err != nil {
		return false, fmt.Errorf("check the write-ahead log: %w", err)
	}
	if damage == "" {
		damage = w.covers(path)
	}
	if damage == "" {
		return true, nil
	}
	var again [walHeaderBytes]byte
	_, _ = f.ReadAt(again[:], 0)
	if now, err := f.Stat(); err != nil || again != w.header || now.Size() < info.Size() {
		return false, nil //nolint:nilerr // it changed: check again
	}
	if later := readShm(path + "-shm"); later != index {
		return false, nil
	}
	return true, fmt.Errorf("%w: write-ahead log %s-wal: %s", jobdb.ErrDamaged, path, damage)
}

// walIndex is what SQLite's shared memory knows of the log.
type walIndex struct {
	salt   [8]byte
	frames uint32 // committed frames
}

// readShm reads the header of the shared memory that the last writer left behind; the
// zero value means unknown.
func readShm(path string) (i walIndex) {
	f, err := os.Open(path)
	if err != nil {
		return i
	}
	defer f.Close()
	var b [2 * shmHeaderBytes]byte
	if _, err := io.ReadFull(f, b[:]); err != nil || !bytes.Equal(b[:shmHeaderBytes], b[shmHeaderBytes:]) {
		return i
	}
	var sum [2]uint32
	addChecksum(&sum, binary.NativeEndian, b[:40])
	if b[12] != 1 || sum[0] != binary.NativeEndian.Uint32(b[40:]) || sum[1] != binary.NativeEndian.Uint32(b[44:]) {
		return i
	}
	i.frames = binary.NativeEndian.Uint32(b[16:])
	copy(i.salt[:], b[32:40])
	return i
}

// addChecksum continues SQLite's checksum of its log over more bytes.
func addChecksum(sum *[2]uint32, order binary.ByteOrder, b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		sum[0] += order.Uint32(b) + sum[1]
		sum[1] += order.Uint32(b[4:]) + sum[0]
	}
}

// read reads the log's frames and describes the damage, if any.
func (w *wal) read(f io.ReaderAt, size int64, index walIndex) (damage string, err error) {
	if size == 0 && index.frames == 0 {
		return "", nil
	}
	if _, err := f.ReadAt(w.header[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if !w.parseHeader() {
		if size <= walHeaderBytes && index.frames == 0 {
			return "", nil // a crash came before its first frame
		}
		return "its header is damaged", nil
	}
	if err := w.walk(io.NewSectionReader(f, walHeaderBytes, size-walHeaderBytes)); err != nil {
		return "", err
	}
	if bytes.Equal(index.salt[:], w.header[16:24]) {
		if int64(index.frames) > w.committed {
			return fmt.Sprintf("frame %d is damaged or missing, but %d frames were committed", w.valid+1, index.frames), nil
		}
		return "", nil
	}
	return w.laterCommits(f, size)
}

func (w *wal) parseHeader() bool {
	magic := binary.BigEndian.Uint32(w.header[:])
	if magic&^1 != walMagic {
		return false
	}
	if w.order = binary.LittleEndian; magic&1 == 1 {
		w.order = binary.BigEndian
	}
	addChecksum(&w.sum, w.order, w.header[:24])
	w.pageBytes = int64(binary.BigEndian.Uint32(w.header[8:]))
	return w.sum[0] == binary.BigEndian.Uint32(w.header[24:]) && w.sum[1] == binary.BigEndian.Uint32(w.header[28:]) &&
		w.pageBytes >= 512 && w.pageBytes <= 65536
}

// walk reads frames until the first invalid one.
func (w *wal) walk(r io.Reader) error {
	frame := make([]byte, walFrameHeaderBytes+w.pageBytes)
	for {
		if _, err := io.ReadFull(r, frame); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return err
		}
		if !bytes.Equal(frame[8:16], w.header[16:24]) {
			return nil
		}
		sum := w.sum
		addChecksum(&sum, w.order, frame[:8])
		addChecksum(&sum, w.order, frame[walFrameHeaderBytes:])
		if sum[0] != binary.BigEndian.Uint32(frame[16:]) || sum[1] != binary.BigEndian.Uint32(frame[20:]) {
			return nil
		}
		w.sum = sum
		w.valid++
		if page := binary.BigEndian.Uint32(frame); w.has[page] == 0 {
			w.has[page] = w.valid
		}
		if pages := binary.BigEndian.Uint32(frame[4:]); pages != 0 {
			w.committed, w.pages = w.valid, pages
		}
	}
}

// laterCommits searches for commits after the first invalid frame. Each commit is
// synced before the next one is written, so a crash can tear one transaction, but not
// two.
func (w *wal) laterCommits(f io.ReaderAt, size int64) (damage string, err error) {
	var h [walFrameHeaderBytes]byte
	commits := 0
	for at := walHeaderBytes + w.valid*(walFrameHeaderBytes+w.pageBytes); at+walFrameHeaderBytes <= size; at += walFrameHeaderBytes + w.pageBytes {
		if _, err := f.ReadAt(h[:], at); err != nil {
			return "", err
		}
		if bytes.Equal(h[8:16], w.header[16:24]) && binary.BigEndian.Uint32(h[4:]) != 0 {
			commits++
		}
	}
	if commits < 2 {
		return "", nil
	}
	return fmt.Sprintf("frame %d is damaged, but committed transactions follow it", w.valid+1), nil
}

// covers reports a problem if the file is shorter than the database and the log does
// not have the missing pages.
func (w *wal) covers(path string) (damage string) {
	info, err := os.Stat(path)
	if err != nil || w.committed == 0 {
		return ""
	}
	for page := info.Size()/w.pageBytes + 1; page <= int64(w.pages); page++ {
		if at := w.has[uint32(page)]; (at == 0 || at > w.committed) && page != lockPage(w.pageBytes) {
			return fmt.Sprintf("the database has %d pages, but page %d is neither in the file nor in the log", w.pages, page)
		}
	}
	return ""
}

// lockPage is the page that SQLite never writes.
func lockPage(pageBytes int64) int64 { return 1<<30/pageBytes + 1 }
