package postgres

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/test/pgtest"
)

// odd draws text of every kind, some of it long.
func odd(r *rapid.T, label string) string {
	switch rapid.IntRange(0, 4).Draw(r, "kind of "+label) {
	case 0:
		return rapid.StringMatching(`[ -~]*`).Draw(r, label)
	case 1:
		return rapid.String().Draw(r, label)
	case 2:
		return strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"\x1a", "\x00", "=", "1a", "ü", "\xff", "\xe2\x82", "🚢", "a"})).Draw(r, label), "")
	case 3:
		return strings.Repeat(rapid.SampledFrom([]string{"\x1a", "\x00x", "ü", "🚢", "ab", "\xff"}).Draw(r, label), rapid.IntRange(100, 1200).Draw(r, "times"))
	}
	return string(rapid.SliceOf(rapid.Byte()).Draw(r, label))
}

// TestEscape: any text round-trips, its stored form is valid for PostgreSQL and short
// enough for an index, and ordinary text is stored unchanged.
func TestEscape(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s, other := odd(r, "text"), odd(r, "other")
		stored := escape(s)
		if !utf8.ValidString(stored) || strings.Contains(stored, "\x00") || isName(stored) {
			r.Fatalf("%q is stored as %q", s, stored)
		}
		if back, err := unescape(stored); err != nil || back != s {
			r.Fatalf("%q was stored as %q and came back as %q, %v", s, stored, back, err)
		}
		if utf8.ValidString(s) && !strings.ContainsAny(s, "\x00\x1a") && stored != s {
			r.Fatalf("the ordinary text %q is stored as %q", s, stored)
		}
		k, long := key(s)
		if len(k) > longest || !utf8.ValidString(k) || strings.Contains(k, "\x00") || long != isName(k) || !long && k != stored {
			r.Fatalf("the key %q is stored as %q, long: %v", s, k, long)
		}
		if _, err := unescape(strings.SplitN(k, "\x1a=", 2)[0]); err != nil {
			r.Fatalf("the key %q is stored as %q: %v", s, k, err)
		}
		if same, _ := key(other); (same == k) != (s == other) {
			r.Fatalf("the keys %q and %q are stored as %q and %q", s, other, k, same)
		}
	})
}

// TestUnescapeRefuses: text that escape never produces is an error.
func TestUnescapeRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"\x1a", "a\x1a0", "\x1azz", "\x1a=00"} {
		if back, err := unescape(s); err == nil {
			t.Errorf("%q is read as %q", s, back)
		}
	}
}

// incompressible is text that PostgreSQL cannot compress enough for an index.
func incompressible(n int) string {
	b, state := make([]byte, n), uint32(1)
	for i := range b {
		state = state*1664525 + 1013904223
		b[i] = '!' + byte(state>>24)%90
	}
	return string(b)
}

// TestLongKeys: ids, queues and job sets of any length are stored, replaced, found and
// listed; an operator finds ordinary ones by their plain text.
func TestLongKeys(t *testing.T) {
	t.Parallel()
	ctx, at := context.Background(), pgtest.Database(t)
	db, err := Open(ctx, at, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	long := incompressible(50_000)
	ids := []string{"plain", long, long + "x", long[:1000], long[:1001], strings.Repeat("\x00", 600)}
	for round := range 2 {
		tx, err := db.Begin(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		c := &jobdb.Changes{}
		for i, id := range ids {
			c.Jobs = append(c.Jobs, &jobdb.Job{JobID: id, Queue: id, JobSet: id, Known: true, Queueing: jobdb.Queueing{Runs: uint32(10*round + i), LatestRun: id}})
			c.Runs = append(c.Runs, &jobdb.Run{JobID: id, RunID: id, Index: uint32(10*round + i), Node: id})
			d := &jobdb.Decision{}
			d.Number, d.JobID, d.RunID, d.Queue, d.JobSet = uint64(10*round+i), id, id, id, id
			c.Decisions = append(c.Decisions, d)
		}
		if err := tx.Write(ctx, c); err != nil {
			t.Fatal(err)
		}
		next := tx.Positions()
		next.Chain.Seq++
		if err := tx.Commit(ctx, tx.Positions(), next); err != nil {
			t.Fatal(err)
		}
	}
	r, err := OpenReader(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	err = r.View(ctx, func(q jobdb.Queries) error {
		all, err := q.Contents(0)
		if err != nil {
			return err
		}
		if len(all.Jobs) != len(ids) || len(all.Runs) != len(ids) || len(all.Decisions) != 2*len(ids) {
			t.Errorf("%d jobs, %d runs, %d decisions", len(all.Jobs), len(all.Runs), len(all.Decisions))
		}
		for i, id := range ids {
			jobs, decisions := 0, 0
			_, err := q.JobList(&jobdb.Criteria{JobID: id, Queue: id, JobSet: id}, jobdb.Page{}, func(j *jobdb.Job) error {
				jobs++
				if j.JobID != id || j.Queue != id || j.JobSet != id || j.Queueing.LatestRun != id || j.Queueing.Runs != uint32(10+i) {
					t.Errorf("job %d came back as %.30q, %.30q, %.30q, runs %d", i, j.JobID, j.Queue, j.JobSet, j.Queueing.Runs)
				}
				return nil
			})
			if err != nil {
				return err
			}
			err = q.Decisions(jobdb.RecordFilter{JobID: id, RunID: id}, func(d *jobdb.Decision) error {
				decisions++
				if d.JobID != id || d.RunID != id || d.Queue != id || d.JobSet != id {
					t.Errorf("a decision on job %d came back as one on %.30q", i, d.JobID)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if jobs != 1 || decisions != 2 {
				t.Errorf("job %d: %d rows, %d decisions", i, jobs, decisions)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var queue, beside string
	err = conn.QueryRow(ctx, "SELECT queue, long_keys FROM refloat_jobs WHERE job_id = 'plain'").Scan(&queue, &beside)
	if err != nil || queue != "plain" || beside != "" {
		t.Errorf("an ordinary job stands as %q beside %q, %v", queue, beside, err)
	}
}

// TestAnyTexts: rows with any texts round-trip.
func TestAnyTexts(t *testing.T) {
	t.Parallel()
	ctx, at := context.Background(), pgtest.Database(t)
	db, err := Open(ctx, at, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rapid.Check(t, func(r *rapid.T) {
		tx, err := db.Begin(ctx, 0)
		if err != nil {
			r.Fatal(err)
		}
		defer tx.Rollback() //nolint:errcheck // nothing is to stay
		job := &jobdb.Job{JobID: odd(r, "id"), Queue: odd(r, "queue"), JobSet: odd(r, "set"), Known: true, Submit: jobdb.Submit{Namespace: odd(r, "namespace")}}
		run := &jobdb.Run{JobID: job.JobID, RunID: odd(r, "run"), Node: odd(r, "node"), Error: jobdb.RunError{Message: odd(r, "message")}}
		if err := tx.Write(ctx, &jobdb.Changes{Jobs: []*jobdb.Job{job}, Runs: []*jobdb.Run{run}}); err != nil {
			r.Fatal(err)
		}
		found, err := tx.Load(ctx, jobdb.Keys{
			Jobs: []string{job.JobID}, OpenRunsOf: []string{job.JobID},
			Runs: []jobdb.RunKey{{JobID: run.JobID, RunID: run.RunID}}, Sets: []jobdb.SetKey{{Queue: job.Queue, JobSet: job.JobSet}},
		})
		if err != nil || len(found.Jobs) != 2 || len(found.Runs) != 2 {
			r.Fatalf("found %+v, %v", found, err)
		}
		for i := range 2 {
			j, f := found.Jobs[i], found.Runs[i]
			if j.JobID != job.JobID || j.Queue != job.Queue || j.JobSet != job.JobSet || j.Submit.Namespace != job.Submit.Namespace {
				r.Fatalf("%+v came back as %+v", job, j)
			}
			if f.JobID != run.JobID || f.RunID != run.RunID || f.Node != run.Node || f.Error.Message != run.Error.Message {
				r.Fatalf("%+v came back as %+v", run, f)
			}
		}
	})
}
