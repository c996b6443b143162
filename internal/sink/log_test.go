package sink_test

import (
	"sync"
	"testing"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// memTopic is a topic in memory.
type memTopic struct {
	mu    sync.Mutex
	parts []memPart
}

type memPart struct {
	messages []eventlog.Message
	trimmed  int // messages at the beginning that are deleted
	changed  chan struct{}
}

func newTopic(partitions int) *memTopic {
	t := &memTopic{parts: make([]memPart, partitions)}
	for i := range t.parts {
		t.parts[i].changed = make(chan struct{})
	}
	return t
}

func (t *memTopic) append(p int, m eventlog.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	part := &t.parts[p]
	part.messages = append(part.messages, m)
	close(part.changed)
	part.changed = make(chan struct{})
}

func (t *memTopic) Partitions() int { return len(t.parts) }

// trim deletes the first n messages of a partition.
func (t *memTopic) trim(p, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.parts[p].trimmed = n
}

func (t *memTopic) Beginning(p int) (eventlog.Position, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	part := &t.parts[p]
	if part.trimmed == 0 {
		return eventlog.Start, nil
	}
	at := part.messages[part.trimmed-1].Position
	at.Batch++ // behind it: a log does not know a deleted message, as Pulsar does not
	return at, nil
}

func (t *memTopic) End(p int) (eventlog.Position, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ms := t.parts[p].messages; len(ms) > t.parts[p].trimmed {
		return ms[len(ms)-1].Position, nil
	}
	return eventlog.Start, nil
}

func (t *memTopic) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	part := &t.parts[p]
	if n := part.trimmed; n > 0 && after.Compare(part.messages[n-1].Position) <= 0 {
		return nil, eventlog.ErrTrimmed
	}
	return &memReader{topic: t, p: p, after: after}, nil
}

type memReader struct {
	topic   *memTopic
	p       int
	after   eventlog.Position
	next    int
	changed chan struct{}
}

func (r *memReader) Read(dst []eventlog.Message) (int, error) {
	r.topic.mu.Lock()
	defer r.topic.mu.Unlock()
	part := &r.topic.parts[r.p]
	n := 0
	for ; r.next < len(part.messages) && n < len(dst); r.next++ {
		if m := part.messages[r.next]; m.Position.Compare(r.after) > 0 {
			dst[n] = m
			n++
		}
	}
	r.changed = part.changed
	return n, nil
}

func (r *memReader) Changed() <-chan struct{} { return r.changed }
func (r *memReader) Close() error             { return nil }

// chainWriter writes one partition's chain.
type chainWriter struct {
	t         *testing.T
	decisions *memTopic
	p         int
	end       chain.End
	next      int64 // entry in the decisions log
	number    uint64
}

func newChain(t *testing.T, decisions *memTopic, p int) *chainWriter {
	w := &chainWriter{t: t, decisions: decisions, p: p, end: chain.Beginning}
	w.claim(byte(p + 1))
	return w
}

func (w *chainWriter) put(raw []byte) {
	w.next++
	w.decisions.append(w.p, eventlog.Message{Position: eventlog.Position{Ledger: 1, Entry: w.next, Batch: -1}, Payload: raw})
}

// claim opens a new epoch.
func (w *chainWriter) claim(owner byte) {
	id := chain.OwnerID{owner, byte(w.end.Epoch + 1)}
	w.add(chain.Envelope{Epoch: w.end.Epoch + 1, Owner: id, InTo: w.end.InTo},
		&chain.OwnerClaim{Epoch: w.end.Epoch + 1, Owner: id, LastSeq: w.end.Seq, LastLink: w.end.Link})
}

// answer covers the input up to a position.
func (w *chainWriter) answer(to eventlog.Position, count int, records ...chain.Record) {
	for _, r := range records {
		if d, ok := r.(*chain.Decision); ok && d.Number == 0 {
			w.number++
			d.Number = w.number
		}
	}
	w.add(chain.Envelope{Epoch: w.end.Epoch, Owner: w.end.Owner, InTo: to, InCount: uint64(count)}, records...)
}

func (w *chainWriter) add(e chain.Envelope, records ...chain.Record) {
	w.t.Helper()
	e.Seq, e.Link, e.InFrom = w.end.Seq+1, w.end.Link, w.end.InTo
	for _, r := range records {
		e.Records = append(e.Records, chain.AppendRecord(nil, r))
	}
	raw := e.Append(nil)
	acc, why, err := w.end.Offer(raw)
	if err != nil || acc == nil {
		w.t.Fatalf("the test's own envelope %d is not accepted: %v, %v", e.Seq, why, err)
	}
	w.put(raw)
	w.end = acc.End
}
