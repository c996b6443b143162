package sink_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/postgres"
	"github.com/refloat/refloat/internal/sink"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// still is a mirror of tables that still have some jobs.
type still struct{ jobs map[string]bool }

func (s *still) Reset()                                             {}
func (s *still) Read(*sink.Message)                                 {}
func (s *still) Collect(*sink.Message, func(string) *jobdb.Job)     {}
func (s *still) Write(context.Context, jobdb.Tx, sink.Moment) error { return nil }
func (s *still) Due() time.Time                                     { return time.Time{} }
func (s *still) Keeps(context.Context, jobdb.Tx, []string) (map[string]bool, error) {
	return s.jobs, nil
}

// TestPruneFollowsArmada: a job is kept while Armada's tables have it, and for the horizon
// in any case.
func TestPruneFollowsArmada(t *testing.T) {
	t.Parallel()
	events, decisions := newTopic(1), newTopic(1)
	c := newChain(t, decisions, 0)
	publish := func(i int, at int64, lines ...string) {
		m, _ := build("q", "s", lines, steadyAt(i), at*second)
		events.append(0, m)
	}
	publish(0, 100, "submit a", "succeeded a", "submit b", "succeeded b")
	publish(1, 101, "submit c", "submit open")
	publish(2, 110, "succeeded c")
	publish(3, 111, "submit d", "succeeded d")
	c.answer(steadyAt(3), 4, inForce) // the horizon is 3 s
	armada, store, clock := &still{map[string]bool{"b": true}}, newMemStore(), int64(1000)
	w, err := sink.New(sink.Config{
		Events: events, Decisions: decisions, DB: store, Retain: sink.Retention{FollowArmada: true},
		Now: func() time.Time { return time.Unix(clock, 0) }, Mirror: func(int) sink.Mirror { return armada },
	})
	if err != nil {
		t.Fatal(err)
	}
	left := func() (ids string) {
		for range 4 {
			clock += 1000
			drain(t, w, 1)
		}
		for _, j := range store.contents(0).Jobs {
			ids += j.JobID + " "
		}
		return ids
	}
	if got := left(); got != "b c d open " {
		t.Errorf("left: %s", got)
	}
	armada.jobs = nil
	if got := left(); got != "c d open " {
		t.Errorf("left when Armada has pruned b: %s", got)
	}
	want, err := sink.Want(events, decisions, store.contents(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range sink.Compare(want, store.contents(0)) {
		t.Error(d)
	}
}

// TestPruneOnPostgreSQL: two ingesters prune at once; they crash before and after a
// transaction that prunes, and the server dies there and comes back.
func TestPruneOnPostgreSQL(t *testing.T) {
	t.Parallel()
	ctx, server := context.Background(), pgtest.Start(t, true)
	events, decisions := newTopic(1), newTopic(1)
	c := newChain(t, decisions, 0)
	front := []chain.Record{inForce}
	for i := range 60 {
		job, old := fmt.Sprintf("j%d", i), fmt.Sprintf("j%d", i-20)
		lines := []string{"submit " + job, "leased " + job + " r node=n", "run-succeeded " + job + " r", "succeeded " + job}
		if i%7 == 6 && i > 20 {
			lines = append(lines, "terminated "+old+" r", "reprioritised "+old+"  priority=7")
		}
		m, _ := build("q", "s", lines, steadyAt(i), int64(100+i)*second)
		events.append(0, m)
		c.answer(steadyAt(i), 1, front...)
		front = nil
	}
	at := server.Database(t)
	stores := []jobdb.Store{openPostgres(t, at), openPostgres(t, at)}
	clock, hits, crashes, deaths, lost := int64(1000), 0, 0, 0, 0
	open := func(i int) *sink.Writer {
		w, err := sink.New(sink.Config{
			Events: events, Decisions: decisions, DB: stores[i], MaxRows: 10, KeepRows: 10,
			Retain: sink.Retention{For: time.Second}, Now: func() time.Time { clock++; return time.Unix(clock, 0) },
			Hit: func(label string) error {
				if label != "pruning" && label != "pruned" {
					return nil
				}
				hits++
				switch {
				case hits%6 == 1 || hits%6 == 4:
					crashes++
					return errCrash
				case hits%9 == 2 && deaths < 3:
					deaths++
					server.Kill(t)
					server.Restart(t)
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	writers := []*sink.Writer{open(0), open(1)}
	for n := range 300 {
		i := n / 3 % 2
		_, err := writers[i].Advance(ctx, 0)
		switch {
		case errors.Is(err, errCrash):
			writers[i] = open(i)
		case errors.Is(err, jobdb.ErrUnavailable):
			lost++
		case err != nil:
			t.Fatal(err)
		}
	}
	got := pgContents(t, at)
	want, err := sink.Want(events, decisions, got)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range sink.Compare(want, got) {
		t.Error(d)
	}
	t.Logf("%d jobs pruned, %d left, %d crashes, %d deaths of the server, %d errors", got.Positions.Pruned.Jobs, len(got.Jobs), crashes, deaths, lost)
	if got.Positions.Pruned.Jobs < 50 || crashes < 2 || deaths == 0 || lost == 0 {
		t.Error("too little was pruned, or nothing went wrong")
	}
}

func pgContents(t *testing.T, at string) (c *jobdb.Contents) {
	t.Helper()
	reader, err := postgres.OpenReader(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := reader.View(t.Context(), func(q jobdb.Queries) (err error) { c, err = q.Contents(0); return err }); err != nil {
		t.Fatal(err)
	}
	return c
}
