package sink

import (
	"fmt"
	"time"

	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// ahead reads events beyond those that the chain covers.
type ahead struct {
	reader eventlog.Reader
	after  eventlog.Position  // position of the last message taken
	queue  []eventlog.Message // read and not taken
	chunk  []eventlog.Message
}

const readAtOnce = 256

func openAhead(events eventlog.Topic, partition int, after, origin eventlog.Position) (*ahead, error) {
	open := events.Open
	if after == origin {
		open = func(p int, at eventlog.Position) (eventlog.Reader, error) { return follow.OpenBehind(events, p, at) }
	}
	r, err := open(partition, after)
	if err != nil {
		return nil, wrapAhead(err)
	}
	return &ahead{reader: r, after: after, chunk: make([]eventlog.Message, readAtOnce)}, nil
}

// next returns the message to take next, or nil if there is none yet.
func (a *ahead) next() (*eventlog.Message, error) {
	if len(a.queue) == 0 {
		n, err := a.reader.Read(a.chunk)
		if err != nil || n == 0 {
			return nil, wrapAhead(err)
		}
		a.queue = a.chunk[:n]
	}
	return &a.queue[0], nil
}

// take removes and returns the message that next returned.
func (a *ahead) take() Message {
	m := a.queue[0]
	a.queue[0] = eventlog.Message{} // the chunk must not keep its payload
	a.queue, a.after = a.queue[1:], m.Position
	return Message{Log: m, Events: readable(&m), Released: true}
}

func wrapAhead(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read events that no envelope answers: %w", err)
}

// closeAhead closes the reader if the rows advanced without it.
func (p *part) closeAhead() error {
	if p.ahead == nil || p.ahead.after == p.positions.Events {
		return nil
	}
	a := p.ahead
	p.ahead = nil
	return a.reader.Close()
}

// release puts messages that have waited too long for the chain into the batch. It is
// called with an empty batch, after everything readable of the chain was taken.
//
// The oldest message determines when to check again: younger ones are due later, so almost
// nothing is read while the chain keeps up. While it does not, releases are made at most
// every eighth of the limit, so that they have few rows.
func (w *Writer) release(p *part) error {
	limit := w.cfg.ReleaseAfter
	if limit == 0 {
		return nil
	}
	now := w.cfg.Now()
	if now.Before(p.releaseCheck) {
		return nil
	}
	p.releaseCheck = now.Add(limit / 8)
	if p.ahead == nil {
		a, err := openAhead(w.cfg.Events, p.number, p.positions.Events, p.origin)
		if err != nil {
			return err
		}
		p.ahead = a
	}
	slow, err := w.readerIsSlow(p)
	if err != nil || slow {
		return err
	}
	var messages []Message
	for weight, bytes := 0, 0; ; {
		m, err := p.ahead.next()
		if err != nil {
			return err
		}
		if m == nil {
			break
		}
		if due := time.Unix(0, m.Publish).Add(limit); due.After(now) {
			if len(messages) == 0 {
				p.releaseCheck = earlier(due, now.Add(limit)) // a publisher's clock may be far ahead
			}
			break
		}
		if weight >= w.cfg.MaxRows || bytes >= w.cfg.MaxBytes {
			p.releaseCheck = now
			break
		}
		messages = append(messages, p.ahead.take())
		weight += 1 + messages[len(messages)-1].eventCount()
		bytes += len(messages[len(messages)-1].Log.Payload)
	}
	if len(messages) == 0 {
		return nil
	}
	r := &jobdb.Release{
		Partition: p.number, Seq: p.positions.Chain.Seq, From: p.positions.Events, To: p.ahead.after,
		Messages: uint64(len(messages)), When: now.UnixNano(),
	}
	p.batch.add(piece{release: r, messages: messages})
	p.batch.positions = p.positions
	p.batch.positions.Events = r.To
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// readerIsSlow reports whether the chain may be further ahead than we have read: it
// has an envelope whose input we do not see yet, or messages that we have not processed.
// Then it is not the chain that delays the events. An envelope that arrives after this
// check finds its messages released.
func (w *Writer) readerIsSlow(p *part) (bool, error) {
	if p.follower.Waits() {
		return true, nil
	}
	end, err := w.cfg.Decisions.End(p.number)
	if err != nil {
		return false, fmt.Errorf("find the end of decisions: %w", err)
	}
	return end.Compare(p.follower.Processed()) > 0, nil
}
