package app

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
	"github.com/refloat/refloat/internal/query"
)

// TestPartitionRefused: a partition that this process refuses is listed with the reason, and has no owner, whoever claimed it last.
func TestPartitionRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for partition := range 2 {
		tx, err := db.Begin(t.Context(), partition)
		if err != nil {
			t.Fatal(err)
		}
		from := tx.Positions()
		to := from
		to.Chain.Seq, to.Chain.Epoch, to.Chain.Owner = 1, 1, chain.OwnerID{1}
		if err := errors.Join(tx.Write(t.Context(), &jobdb.Changes{}), tx.Commit(t.Context(), from, to)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := sqlite.OpenReader(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	events, err := filelog.Open(filelog.Config{FS: vfs.NewMem(), Dir: "events", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	n := &node{metrics: NewMetrics(time.Now, 10), backend: &Backend{Events: events}}
	from := query.Source{Partitions: n.partitionsHere, Jobs: reader.View}
	for _, want := range []string{"the log is\ntrimmed", ""} {
		var why error
		if want != "" {
			why = errors.New(want)
		}
		n.metrics.health.refused(evaluatorOf(1), why)
		all, err := from.ListPartitions(t.Context())
		if err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		if all[0].Refused != "" || all[0].Owner == "" {
			t.Errorf("partition 0 is %+v", all[0])
		}
		if got := all[1]; got.Refused != oneLine(want) || (got.Owner == "") != (want != "") {
			t.Errorf("refused with %q: %+v", want, got)
		}
	}
}

// TestJobReaderOpens: while one opens a job database that does not answer, others wait no longer than they want to.
func TestJobReaderOpens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := &node{}
	n.API.JobDB = "postgres://u@" + l.Addr().String() + "/db?sslmode=disable"
	r := newJobReader(n)
	none := func(jobdb.Queries) error { return errors.New("it was read") }
	first, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.view(first, none) }()
	conn, err := l.Accept() // and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	second, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- r.view(second, none) }()
	select {
	case err := <-answered:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second: %v, want %v", err, context.DeadlineExceeded)
		}
	case <-time.After(time.Minute):
		t.Error("the second waits for the first")
	}
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v, want %v", err, context.Canceled)
	}
}
