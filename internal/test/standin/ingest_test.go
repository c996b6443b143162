package standin

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/schedulerdb"
	"github.com/refloat/refloat/internal/schedulerdb/pgstore"
)

// ingester is Armada's own, as far as these tests need it: one transaction for all
// that is new in a partition. A test may change what it does by hand.
type ingester struct {
	t       testing.TB
	conn    *pgx.Conn
	convert *schedulerdb.Converter
	readers []eventlog.Reader

	// instead, if set, says whether to leave an operation out, and may add to
	// after, which runs in the same transaction once all else is written.
	instead func(op schedulerdb.Op) bool
	after   []func(tx pgx.Tx)
}

func newIngester(t testing.TB, w *World) *ingester {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	if err := pgstore.Check(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	i := &ingester{t: t, conn: conn, convert: schedulerdb.NewConverter()}
	for p := range w.Log().Partitions() {
		r, err := w.Log().Open(p, eventlog.Start)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		i.readers = append(i.readers, r)
	}
	return i
}

func (i *ingester) step() {
	i.t.Helper()
	for _, r := range i.readers {
		var ops []schedulerdb.Op
		msgs := make([]eventlog.Message, 100)
		for {
			n, err := r.Read(msgs)
			if err != nil {
				i.t.Fatal(err)
			}
			if n == 0 {
				break
			}
			for m := range n {
				ops = append(ops, i.take(&msgs[m])...)
			}
		}
		if len(ops)+len(i.after) > 0 {
			i.write(ops)
		}
	}
}

func (i *ingester) take(m *eventlog.Message) []schedulerdb.Op {
	i.t.Helper()
	effects, findings := i.convert.Convert(m, nil)
	if len(findings) > 0 {
		i.t.Fatalf("message %v: %v", m.Position, findings)
	}
	var ops []schedulerdb.Op
	for _, e := range effects {
		if i.instead == nil || !i.instead(e.Op) {
			ops = append(ops, e.Op)
		}
	}
	return ops
}

func (i *ingester) write(ops []schedulerdb.Op) {
	i.t.Helper()
	err := pgx.BeginFunc(i.t.Context(), i.conn, func(tx pgx.Tx) error {
		if err := pgstore.In(tx).Apply(i.t.Context(), ops); err != nil {
			return err
		}
		for _, f := range i.after {
			f(tx)
		}
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	i.after = nil
}

// add runs SQL in the transaction that is being written.
func (i *ingester) add(query string, args ...any) {
	i.after = append(i.after, func(tx pgx.Tx) {
		if _, err := tx.Exec(i.t.Context(), query, args...); err != nil {
			i.t.Errorf("%s: %v", query, err)
		}
	})
}

// now runs SQL in a transaction of its own.
func (i *ingester) now(query string, args ...any) {
	i.t.Helper()
	i.add(query, args...)
	i.write(nil)
}
