package filelog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/refloat/refloat/internal/eventlog"
)

// Open implements [eventlog.Topic]. A position after the end is an error: the log has
// lost messages that were read from it, or it is another log. In a read-only log it is
// [eventlog.ErrTransient], because SYNCED can lag after a crash of the machine until
// the next writer has recovered the log.
//
// A retained payload keeps alive the chunk of the file that was read with it, up to 512
// KiB.
func (l *Log) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	part, err := l.partition(p)
	if err != nil {
		return nil, err
	}
	r, err := part.open(after)
	if err != nil {
		return nil, fmt.Errorf("filelog: open partition %d after %v: %w", p, after, err)
	}
	if l.cfg.ReadOnly && !l.cfg.Manual {
		l.poll.start(l.parts)
	}
	return r, nil
}

func (p *partition) open(after eventlog.Position) (*reader, error) {
	m, err := p.durable()
	if err != nil {
		return nil, err
	}
	if after.Compare(m.last) > 0 {
		if p.polled {
			return nil, fmt.Errorf("%s is known to be durable only up to %v: %w", p.dir, m.last, eventlog.ErrTransient)
		}
		return nil, damage{
			path: p.segmentPath(m.segment), offset: m.offset, ordinal: m.next,
			what:   fmt.Sprintf("the log ends at %v", m.last),
			advice: "the log has lost messages that were read from it, or is another log",
		}.err()
	}
	r := &reader{part: p, changed: make(chan struct{}, 1), mark: m, skip: after}
	if err := r.seek(after); err != nil {
		_ = r.closeFile()
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		_ = r.closeFile()
		return nil, p.ended
	}
	p.readers[r] = struct{}{}
	return r, nil
}

// seek positions the reader at the first frame with a message after the position.
func (r *reader) seek(after eventlog.Position) error {
	m := r.mark
	begin, err := r.part.beginning()
	if err != nil {
		return err
	}
	if after.Compare(begin) < 0 {
		return fmt.Errorf("%s holds nothing up to %v: %w", r.part.dir, begin, eventlog.ErrTrimmed)
	}
	if after.Compare(m.last) == 0 {
		r.segment, r.offset, r.next = m.segment, m.offset, m.next
		if m.next == 0 {
			r.offset = segmentHeaderBytes // the first segment does not exist yet
		}
		return nil
	}
	segments, err := r.part.segments()
	if err != nil {
		return err
	}
	// The segment of the position, or else the next one.
	i, found := slices.BinarySearch(segments, after.Ledger)
	if found && i+1 < len(segments) && after.Entry >= segments[i+1] {
		i, found = i+1, false
	}
	r.segment, r.offset = m.segment, segmentHeaderBytes
	if i < len(segments) {
		r.segment = segments[i]
	}
	r.next = r.segment
	if err := r.openFile(); err != nil {
		return err
	}
	if found {
		return r.skipTo(after.Entry)
	}
	if previous := r.file.head.previous; previous.Compare(after) > 0 {
		return r.damage(fmt.Sprintf("the previous segment, with %v, is missing", previous)).err()
	}
	return nil
}

// skipTo skips the frames below the ordinal, reading only their headers.
func (r *reader) skipTo(ordinal int64) error {
	r.win.from, r.win.ahead = nil, 64<<10
	for r.next < ordinal && r.next < r.until {
		h, err := r.header()
		if err != nil {
			return err
		}
		r.pass(h)
	}
	r.win = window{file: r.file, limit: r.win.limit, from: &r.chunks, ahead: windowBytes}
	return nil
}

// beginning returns the position of the last trimmed message.
func (p *partition) beginning() (eventlog.Position, error) {
	for {
		segments, err := p.segments()
		if err != nil {
			return eventlog.Position{}, err
		}
		if len(segments) == 0 || segments[0] == 0 {
			return eventlog.Start, nil
		}
		s, err := p.openSegment(segments[0])
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since it was listed
		}
		if err != nil {
			return eventlog.Position{}, err
		}
		return s.head.previous, s.Close()
	}
}
