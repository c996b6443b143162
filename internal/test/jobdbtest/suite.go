package jobdbtest

import (
	"context"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// Database is one new, empty job database.
type Database struct {
	Writer jobdb.Store
	Other  jobdb.Store // a second writer of the same database, as another process has it
	Reader jobdb.Reader
}

// Run runs the suite. Each test asks for a database of its own.
func Run(t *testing.T, open func(t *testing.T) Database) {
	tests := []struct {
		name string
		run  func(*testing.T, Database)
	}{
		{"Empty", testEmpty},
		{"PositionsByCompareAndSet", testPositions},
		{"PositionsMovedByReleases", testReleasePositions},
		{"PositionsApart", testPositionsApart},
		{"TwoWriters", testTwoWriters},
		{"Rollback", testRollback},
		{"Cancelled", testCancelled},
		{"EveryField", testEveryField},
		{"Replace", testReplace},
		{"AddedOnce", testAddedOnce},
		{"Load", testLoad},
		{"Texts", testTexts},
		{"Numbers", testNumbers},
		{"Alike", testAlike},
		{"LargeBatch", testLargeBatch},
		{"ReadWhileWriting", testReadWhileWriting},
		{"Runs", testRuns},
		{"Lists", testLists},
		{"ForgedPlaces", testForgedPlaces},
		{"Records", testRecords},
		{"Summary", testSummary},
		{"Hours", testHours},
		{"Costs", testCosts},
		{"HeldRuns", testHeldRuns},
		{"Retries", testRetries},
		{"Candidates", testCandidates},
		{"Delete", testDelete},
		{"DeleteGroups", testGroups},
		{"PrunedElsewhere", testPrunedElsewhere},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(t, open(t))
		})
	}
}

// at returns a position.
func at(n int) jobdb.Positions {
	if n == 0 {
		return jobdb.Beginning
	}
	return jobdb.Positions{
		Chain: chain.End{
			Seq: uint64(n), Link: chain.Hash{byte(n)}, Epoch: 3, Owner: chain.OwnerID{7, byte(n)},
			InTo: eventlog.Position{Ledger: 5, Entry: int64(n), Batch: -1},
		},
		Decisions: eventlog.Position{Ledger: 6, Entry: int64(n) * 2, Batch: 4},
		Events:    eventlog.Position{Ledger: 7, Entry: int64(n) * 3, Batch: 1},
	}
}

// commit writes changes in one transaction.
func commit(t *testing.T, db jobdb.Store, partition int, from, to jobdb.Positions, c *jobdb.Changes) {
	t.Helper()
	if err := try(db, partition, from, to, c); err != nil {
		t.Fatal(err)
	}
}

func try(db jobdb.Store, partition int, from, to jobdb.Positions, c *jobdb.Changes) error {
	ctx := context.Background()
	tx, err := db.Begin(ctx, partition)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after an error there is one already
	if err := tx.Write(ctx, c); err != nil {
		return err
	}
	return tx.Commit(ctx, from, to)
}

// placeOf is where a writer finds a partition.
func positionsOf(t *testing.T, db jobdb.Store, partition int) jobdb.Positions {
	t.Helper()
	tx, err := db.Begin(context.Background(), partition)
	if err != nil {
		t.Fatal(err)
	}
	positions := tx.Positions()
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	return positions
}

func view(t *testing.T, r jobdb.Reader, read func(jobdb.Queries) error) {
	t.Helper()
	if err := r.View(context.Background(), read); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, r jobdb.Reader, partition int) *jobdb.Contents {
	t.Helper()
	var c *jobdb.Contents
	view(t, r, func(q jobdb.Queries) (err error) {
		c, err = q.Contents(partition)
		return err
	})
	return c
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if reflect.DeepEqual(want, got) { // much faster, where it says yes
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
