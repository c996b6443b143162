package sink_test

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/sink"
)

// lending is a topic that overwrites the payloads of messages when they are committed.
type lending struct {
	*memTopic
	mu   sync.Mutex
	lent []eventlog.Message
}

func (l *lending) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	r, err := l.memTopic.Open(p, after)
	return &lendingReader{r, l}, err
}

func (l *lending) overwrite(to eventlog.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lent = slices.DeleteFunc(l.lent, func(m eventlog.Message) bool {
		over := m.Position.Compare(to) <= 0
		for i := range m.Payload {
			if over {
				m.Payload[i] = '!'
			}
		}
		return over
	})
}

type lendingReader struct {
	eventlog.Reader
	from *lending
}

func (r *lendingReader) Read(dst []eventlog.Message) (int, error) {
	n, err := r.Reader.Read(dst)
	r.from.mu.Lock()
	defer r.from.mu.Unlock()
	for i := range dst[:n] {
		dst[i].Payload = slices.Clone(dst[i].Payload)
		r.from.lent = append(r.from.lent, dst[i])
	}
	return n, err
}

// TestRowsOutliveMessages: rows that the writer keeps hold nothing of the payloads of what is committed.
func TestRowsOutliveMessages(t *testing.T) {
	t.Parallel()
	events, decisions := lives(t, 60, 20)
	lent := &lending{memTopic: events}
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	batches := 0
	w, err := sink.New(sink.Config{Events: lent, Decisions: decisions, DB: db, MaxRows: 40, Hooks: sink.Hooks{Committed: func(b sink.Batch) {
		batches++
		lent.overwrite(b.Positions.Events)
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	drain(t, w, 1)
	mustEqualFold(t, path, events, decisions)
	if batches < 10 || len(lent.lent) > 0 {
		t.Errorf("%d transactions, and %d messages were not overwritten", batches, len(lent.lent))
	}
}
