package archive

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/topiccopy"
)

// Join returns the logs of a deployment with the archived ranges before them: a reader
// gets what is archived from the archive, and the rest from the logs, whether or not
// they still hold what is archived.
func (a *Archive) Join(live audit.Logs) audit.Logs {
	return audit.Logs{
		Events:    a.topic(eventsDir, live.Events),
		Decisions: a.topic(decisionsDir, live.Decisions),
		Policies:  a.topic(policiesDir, live.Policies),
	}
}

// logs returns the archived logs alone.
func (a *Archive) logs() audit.Logs { return a.Join(audit.Logs{}) }

// piece is the part of a partition that one range holds.
type piece struct {
	dir string // of the copy
	to  eventlog.Position
}

// joined is one topic.
type joined struct {
	name       string
	partitions int
	pieces     map[int][]piece
	live       eventlog.Topic // nil: there is none
}

func (a *Archive) topic(name string, live eventlog.Topic) *joined {
	t := &joined{name: name, partitions: a.partitions(), pieces: map[int][]piece{}, live: live}
	if name == policiesDir {
		t.partitions = 1
	}
	if live != nil {
		t.partitions = live.Partitions()
	}
	add := func(p int, after, to string, dir string) {
		if after == to {
			return // it holds no message
		}
		at, _ := eventlog.ParsePosition(to) // decodeManifest checked it
		t.pieces[p] = append(t.pieces[p], piece{dir, at})
	}
	for _, r := range a.ranges {
		dir := filepath.Join(r.dir, name)
		switch name {
		case policiesDir:
			add(0, r.Policies.After, r.Policies.To, dir)
		case eventsDir:
			for _, c := range r.Chains {
				add(c.Partition, c.Begin.Events, c.End.Events, dir)
			}
		default:
			for _, c := range r.Chains {
				add(c.Partition, c.Begin.Decisions, c.End.Decisions, dir)
			}
		}
	}
	return t
}

func (t *joined) Partitions() int { return t.partitions }

// archived returns the position up to which a partition is archived.
func (t *joined) archived(p int) eventlog.Position {
	if n := len(t.pieces[p]); n > 0 {
		return t.pieces[p][n-1].to
	}
	return eventlog.Start
}

func (t *joined) End(p int) (eventlog.Position, error) {
	end := t.archived(p)
	if t.live == nil {
		return end, nil
	}
	at, err := t.live.End(p)
	if err != nil || at.Compare(end) < 0 {
		return end, err
	}
	return at, nil
}

func (t *joined) Beginning(p int) (eventlog.Position, error) {
	if len(t.pieces[p]) == 0 && t.live != nil {
		return t.live.Beginning(p)
	}
	return eventlog.Start, nil
}

func (t *joined) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	r := &joinedReader{topic: t, partition: p, at: after, left: t.pieces[p]}
	for len(r.left) > 0 && r.left[0].to.Compare(after) <= 0 {
		r.left = r.left[1:]
	}
	if len(r.left) == 0 {
		if err := r.openLive(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// openLive continues in the live log. If that no longer holds the last archived message,
// it begins with the first one that it has: whoever follows the chain finds by links and
// counts whether something is missing in between.
func (t *joined) openLive(p int, after eventlog.Position) (eventlog.Reader, error) {
	r, err := t.live.Open(p, after)
	if !errors.Is(err, eventlog.ErrTrimmed) || after == eventlog.Start || after != t.archived(p) || t.name == policiesDir {
		return r, err
	}
	held, begin, heldErr := eventlog.OpenHeld(t.live, p)
	if heldErr != nil {
		return nil, errors.Join(err, heldErr)
	}
	if begin.Compare(after) < 0 {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}

// complete checks that a reader of the archive alone has come to its end. (Where a loss of
// events was accepted, no message is at their end.)
func (t *joined) complete(p int, at eventlog.Position) error {
	if to := t.archived(p); t.name != eventsDir && at.Compare(to) < 0 {
		return fmt.Errorf("the archived %s end at %v, not %v: %w", t.name, at, to, eventlog.ErrCorrupt)
	}
	return nil
}

// joinedReader reads the pieces one after the other, then the live log.
type joinedReader struct {
	topic     *joined
	partition int
	at        eventlog.Position // of the last message read
	left      []piece           // the first one is open if inner is not nil
	inner     eventlog.Reader
	log       *filelog.Log // of the open piece
	live      bool
}

func (r *joinedReader) Read(dst []eventlog.Message) (int, error) {
	for {
		if r.live {
			if r.inner == nil {
				return 0, r.topic.complete(r.partition, r.at)
			}
			return r.inner.Read(dst)
		}
		if len(r.left) == 0 {
			if err := r.openLive(); err != nil {
				return 0, err
			}
			continue
		}
		if err := r.openPiece(); err != nil {
			return 0, err
		}
		n, err := r.inner.Read(dst)
		if err != nil {
			return 0, fmt.Errorf("read the archive: %w", err)
		}
		if n == 0 {
			if err := r.closeInner(); err != nil {
				return 0, err
			}
			r.left = r.left[1:]
			continue
		}
		if n = r.drop(dst[:n]); n > 0 {
			r.at = dst[n-1].Position
			return n, nil
		}
	}
}

// drop removes the messages up to the position.
func (r *joinedReader) drop(read []eventlog.Message) int {
	i := 0
	for i < len(read) && read[i].Position.Compare(r.at) <= 0 {
		i++
	}
	n := copy(read, read[i:])
	clear(read[n:])
	return n
}

func (r *joinedReader) openPiece() error {
	if r.inner != nil {
		return nil
	}
	log, err := filelog.Open(filelog.Config{FS: vfs.Default, Dir: r.left[0].dir, ReadOnly: true, Manual: true})
	if err != nil {
		return fmt.Errorf("open the archive: %w", err)
	}
	copied, err := topiccopy.Topic(log)
	if err == nil {
		r.inner, err = copied.Open(r.partition, eventlog.Start)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open the archive: %w", err), log.Close())
	}
	r.log = log
	return nil
}

func (r *joinedReader) openLive() (err error) {
	if r.topic.live != nil {
		after := r.at
		if to := r.topic.archived(r.partition); after.Compare(to) < 0 {
			after = to // where a loss was accepted, no message is at the end
		}
		if r.inner, err = r.topic.openLive(r.partition, after); err != nil {
			r.inner = nil
			return err
		}
	}
	r.live = true
	return nil
}

func (r *joinedReader) Changed() <-chan struct{} {
	if r.live && r.inner != nil {
		return r.inner.Changed()
	}
	return nil
}

func (r *joinedReader) closeInner() error {
	var errs []error
	if r.inner != nil {
		errs = append(errs, r.inner.Close())
	}
	if r.log != nil {
		errs = append(errs, r.log.Close())
	}
	r.inner, r.log = nil, nil
	return errors.Join(errs...)
}

func (r *joinedReader) Close() error { return r.closeInner() }
