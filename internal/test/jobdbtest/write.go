package jobdbtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/jobdb"
)

func testEmpty(t *testing.T, db Database) {
	equal(t, "the positions of a new database", jobdb.Beginning, positionsOf(t, db.Writer, 2))
	equal(t, "its rows", &jobdb.Contents{Partition: 2, Positions: jobdb.Beginning}, contents(t, db.Reader, 2))
	view(t, db.Reader, func(q jobdb.Queries) error {
		positions, err := q.Positions()
		equal(t, "its positions", []jobdb.PartitionPositions(nil), positions)
		return err
	})
}

// testPositions checks that a commit with a stale position, in any of its parts, writes nothing.
func testPositions(t *testing.T, db Database) {
	commit(t, db.Writer, 0, at(0), at(1), everything(0, 1))
	commit(t, db.Writer, 0, at(1), at(2), &jobdb.Changes{})
	equal(t, "the positions", at(2), positionsOf(t, db.Writer, 0))
	want := contents(t, db.Reader, 0)

	seq, link, input, events := at(2), at(2), at(2), at(2)
	seq.Chain.Seq++
	link.Chain.Link[31]++
	input.Chain.InTo.Batch++
	events.Events.Batch++
	for name, from := range map[string]jobdb.Positions{"beginning": at(0), "older": at(1), "newer": at(3), "seq": seq, "link": link, "input": input, "events": events} {
		if err := try(db.Writer, 0, from, at(4), everything(0, 2)); !errors.Is(err, jobdb.ErrMoved) {
			t.Errorf("from %s: error %v, want ErrMoved", name, err)
		}
	}
	equal(t, "the rows after refused transactions", want, contents(t, db.Reader, 0))
	commit(t, db.Writer, 0, at(2), at(3), everything(0, 2))
}

// testReleasePositions checks that a release advances the position without an envelope, also before the first one, and
// that a writer that has not seen it writes nothing.
func testReleasePositions(t *testing.T, db Database) {
	released := jobdb.Beginning
	released.Events = at(1).Events
	commit(t, db.Writer, 0, jobdb.Beginning, released, &jobdb.Changes{Releases: everything(0, 1).Releases})
	equal(t, "the positions after a release", released, positionsOf(t, db.Other, 0))
	for name, to := range map[string]jobdb.Positions{"a release": at(2), "an envelope": at(1)} {
		if err := try(db.Other, 0, jobdb.Beginning, to, everything(0, 2)); !errors.Is(err, jobdb.ErrMoved) {
			t.Errorf("%s from before the release: error %v, want ErrMoved", name, err)
		}
	}
	again := released
	again.Events = at(2).Events
	commit(t, db.Other, 0, released, again, &jobdb.Changes{Releases: everything(0, 2).Releases})
	if err := try(db.Writer, 0, released, at(3), everything(0, 3)); !errors.Is(err, jobdb.ErrMoved) {
		t.Errorf("an envelope from the first release: error %v, want ErrMoved", err)
	}
	commit(t, db.Writer, 0, again, at(3), &jobdb.Changes{})
	equal(t, "the positions after the envelope", at(3), positionsOf(t, db.Writer, 0))
	want := append(everything(0, 1).Releases, everything(0, 2).Releases...)
	equal(t, "the rows", &jobdb.Contents{Positions: at(3), Changes: jobdb.Changes{Releases: want}}, contents(t, db.Reader, 0))
}

func testPositionsApart(t *testing.T, db Database) {
	commit(t, db.Writer, 0, at(0), at(1), everything(0, 1))
	commit(t, db.Writer, 7, at(0), at(2), everything(7, 1))
	equal(t, "partition 0", at(1), positionsOf(t, db.Writer, 0))
	equal(t, "partition 7", at(2), positionsOf(t, db.Writer, 7))
	for _, p := range []int{0, 7} {
		c := contents(t, db.Reader, p)
		equal(t, fmt.Sprintf("the rows of partition %d", p), *everything(p, 1), c.Changes)
	}
	view(t, db.Reader, func(q jobdb.Queries) error {
		positions, err := q.Positions()
		equal(t, "the positions", []jobdb.PartitionPositions{{Partition: 0, Positions: at(1)}, {Partition: 7, Positions: at(2)}}, positions)
		return err
	})
}

// testTwoWriters checks that a transaction has the partition to itself: a second writer finds the position moved,
// and cannot write from the old one.
func testTwoWriters(t *testing.T, db Database) {
	ctx := context.Background()
	first, err := db.Writer.Begin(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() { second <- try(db.Other, 0, at(0), at(1), &jobdb.Changes{Jobs: []*jobdb.Job{job(0, "second")}}) }()
	if err := first.Write(ctx, &jobdb.Changes{Jobs: []*jobdb.Job{job(0, "first")}}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-second:
		if !errors.Is(err, jobdb.ErrUnavailable) {
			t.Fatalf("the second writer did not wait: %v", err)
		}
		second <- jobdb.ErrMoved
	default:
	}
	if err := first.Commit(ctx, at(0), at(1)); err != nil {
		t.Fatal(err)
	}
	if err := <-second; !errors.Is(err, jobdb.ErrMoved) && !errors.Is(err, jobdb.ErrUnavailable) {
		t.Fatalf("the second writer: error %v, want ErrMoved", err)
	}
	equal(t, "the jobs", []*jobdb.Job{job(0, "first")}, contents(t, db.Reader, 0).Jobs)
	equal(t, "the positions as the second writer sees it", at(1), positionsOf(t, db.Other, 0))
	commit(t, db.Other, 0, at(1), at(2), &jobdb.Changes{Jobs: []*jobdb.Job{job(0, "second")}})
	commit(t, db.Writer, 0, at(2), at(3), &jobdb.Changes{})
}

func testRollback(t *testing.T, db Database) {
	ctx := context.Background()
	tx, err := db.Writer.Begin(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Write(ctx, everything(0, 1)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "the rows", &jobdb.Contents{Positions: jobdb.Beginning}, contents(t, db.Reader, 0))
	commit(t, db.Writer, 0, at(0), at(1), everything(0, 1))
}

// testCancelled checks that a cancelled context leaves nothing behind and blocks no other writer.
func testCancelled(t *testing.T, db Database) {
	ctx, cancel := context.WithCancel(context.Background())
	tx, err := db.Writer.Begin(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Write(ctx, everything(0, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := tx.Commit(ctx, at(0), at(1)); err == nil {
		t.Fatal("a cancelled transaction was committed")
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Writer.Begin(ctx, 0); err == nil {
		t.Fatal("began with a cancelled context")
	}
	commit(t, db.Writer, 0, at(0), at(1), everything(0, 2))
	equal(t, "the rows", *everything(0, 2), contents(t, db.Reader, 0).Changes)
}

func testEveryField(t *testing.T, db Database) {
	commit(t, db.Writer, 0, at(0), at(1), everything(0, 1))
	equal(t, "rows with every field set", *everything(0, 1), contents(t, db.Reader, 0).Changes)
}

// testReplace checks that jobs and runs replace the row of their key, in all columns.
func testReplace(t *testing.T, db Database) {
	first, second := everything(0, 1), everything(0, 2)
	second.Jobs[0].JobID = first.Jobs[0].JobID
	second.Runs[0].JobID, second.Runs[0].RunID = first.Runs[0].JobID, first.Runs[0].RunID
	other := run(0, first.Runs[0].JobID, "zz", 9)
	commit(t, db.Writer, 0, at(0), at(1), first)
	commit(t, db.Writer, 0, at(1), at(2), &jobdb.Changes{Jobs: second.Jobs, Runs: append(second.Runs, other)})
	c := contents(t, db.Reader, 0)
	equal(t, "the job", second.Jobs, c.Jobs)
	equal(t, "the runs", []*jobdb.Run{second.Runs[0], other}, c.Runs)
	empty := &jobdb.Job{JobID: first.Jobs[0].JobID}
	commit(t, db.Writer, 0, at(2), at(3), &jobdb.Changes{Jobs: []*jobdb.Job{empty}})
	equal(t, "the job, emptied", []*jobdb.Job{empty}, contents(t, db.Reader, 0).Jobs)
}

// testAddedOnce: a record that is there already is an error, and rolls back.
func testAddedOnce(t *testing.T, db Database) {
	commit(t, db.Writer, 0, at(0), at(1), everything(0, 1))
	want := contents(t, db.Reader, 0)
	again := everything(0, 1)
	for name, c := range map[string]*jobdb.Changes{
		"decision":   {Decisions: again.Decisions},
		"NotDecided": {NotDecided: again.NotDecided},
		"Parked":     {Parked: again.Parked},
		"RetryReady": {Ready: again.Ready},
		"activation": {Activations: again.Activations},
		"release":    {Releases: again.Releases},
	} {
		c.Jobs = []*jobdb.Job{job(0, "beside it")}
		if err := try(db.Writer, 0, at(1), at(2), c); err == nil {
			t.Errorf("a %s was added twice", name)
		}
	}
	equal(t, "the rows", want, contents(t, db.Reader, 0))
}

func testTexts(t *testing.T, db Database) {
	texts := []string{
		"", "\x00", "a\x00b", "\xff\xfe", "ends in half a rune \xe2\x82", "\xed\xa0\x80", strings.Repeat("long ", 1<<15),
		"'; DROP TABLE jobs; --", "%_\\", "line\nline\r\n\t", "Ünïcôdé 漢字 🚢", " spaces ", "{}", "null", `{"base64":"AA=="}`, "\u2028\ufffd",
	}
	want := &jobdb.Changes{}
	for i, s := range texts {
		id := fmt.Sprintf("%02d", i)
		j := job(0, id+s)
		j.Queue, j.JobSet, j.Queueing.AvoidNodes, j.Armada.Message = s, s, []string{s, "n", s}, s
		j.Submit.InitContainers = []string{s}
		r := run(0, id+s, s, 0)
		r.Node = s
		r.Error = jobdb.RunError{Message: s, Raw: []byte(s), Containers: []jobdb.Container{{Name: s, ExitCode: -1, Reason: s, Message: s}}}
		d := sample[jobdb.Decision](i)
		d.Partition, d.Number, d.Rule, d.Skipped, d.AvoidNodes = 0, uint64(i), s, []string{s}, []string{s}
		want.Jobs, want.Runs, want.Decisions = append(want.Jobs, j), append(want.Runs, r), append(want.Decisions, d)
	}
	commit(t, db.Writer, 0, at(0), at(1), want)
	equal(t, "the rows", *want, contents(t, db.Reader, 0).Changes)
	tx, err := db.Writer.Begin(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing is written
	for i, j := range want.Jobs {
		found, err := tx.Load(context.Background(), jobdb.Keys{
			Jobs: []string{j.JobID}, Runs: []jobdb.RunKey{{JobID: j.JobID, RunID: want.Runs[i].RunID}}, Sets: []jobdb.SetKey{{Queue: j.Queue, JobSet: j.JobSet}},
		})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprintf("what is found under text %d", i), &jobdb.Found{Jobs: []jobdb.Job{*j, *j}, Runs: []jobdb.Run{*want.Runs[i]}}, found)
	}
}

func testNumbers(t *testing.T, db Database) {
	j, d := job(0, "j"), sample[jobdb.Decision](1)
	j.Times.Submitted, j.Queueing.RetryAfter, j.Submit.GraceSeconds = math.MinInt64, math.MaxInt64, -1
	j.Queueing.Runs, j.Queueing.Decision = math.MaxUint32, math.MaxUint64
	d.Partition, d.Number, d.Generation, d.RuleLimit, d.Time = 0, math.MaxUint64, math.MaxUint64, math.MaxUint32, math.MinInt64
	positions := at(1)
	positions.Chain.Seq, positions.Chain.Epoch, positions.Chain.InTo.Ledger, positions.Events.Ledger = math.MaxUint64, math.MaxUint64, math.MaxInt64, math.MaxInt64
	commit(t, db.Writer, 0, at(0), positions, &jobdb.Changes{Jobs: []*jobdb.Job{j}, Decisions: []*jobdb.Decision{d}})
	c := contents(t, db.Reader, 0)
	equal(t, "the job", []*jobdb.Job{j}, c.Jobs)
	equal(t, "the decision", []*jobdb.Decision{d}, c.Decisions)
	equal(t, "the positions", positions, positionsOf(t, db.Writer, 0))
}

// testAlike writes rows that differ in their key alone, and in one more column of the first or last of them.
func testAlike(t *testing.T, db Database) {
	c := &jobdb.Changes{}
	for batch, of := range []int{-1, 0, 2} {
		for i := range 3 {
			r := sample[jobdb.Run](1)
			r.Partition, r.JobID, r.RunID, r.Index, r.Error.Raw = 0, fmt.Sprintf("job %d", batch), fmt.Sprintf("run %d", i), uint32(i), nil
			if i == of {
				r.Node, r.Times.Leased, r.Shadow, r.Error.Containers, r.Error.Raw = "", 0, !r.Shadow, nil, []byte("raw")
			}
			c.Runs = append(c.Runs, r)
		}
		commit(t, db.Writer, 0, at(batch), at(batch+1), &jobdb.Changes{Runs: c.Runs[3*batch:]})
	}
	equal(t, "the runs", c.Runs, contents(t, db.Reader, 0).Runs)
}

func testLargeBatch(t *testing.T, db Database) {
	const n = 5000
	c := &jobdb.Changes{}
	for i := range n {
		id := fmt.Sprintf("job %05d", i)
		c.Jobs, c.Runs = append(c.Jobs, job(0, id)), append(c.Runs, run(0, id, "r", 0))
		d := sample[jobdb.Decision](1)
		d.Partition, d.Number = 0, uint64(i+1)
		c.Decisions = append(c.Decisions, d)
	}
	commit(t, db.Writer, 0, at(0), at(1), c)
	equal(t, "the rows", *c, contents(t, db.Reader, 0).Changes)
}
