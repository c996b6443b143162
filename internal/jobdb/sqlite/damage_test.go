package sqlite_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/jobdb/sqlite"
)

// files are the contents of a database's files, by suffix.
type files map[string][]byte

func filesOf(t *testing.T, path string) files {
	t.Helper()
	found := files{}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		b, err := os.ReadFile(path + suffix)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		found[suffix] = b
	}
	return found
}

func (f files) write(t *testing.T, path string) {
	t.Helper()
	for suffix, b := range f {
		if err := os.WriteFile(path+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// answers are the results of queries by key, by index and over everything.
func answers(path string) (string, error) {
	ctx := context.Background()
	r, err := sqlite.OpenReader(ctx, path)
	if err != nil {
		return "", err
	}
	defer r.Close()
	out := ""
	note := func(v any) { out += fmt.Sprintf("%+v\n", v) }
	err = r.View(ctx, func(q jobdb.Queries) error {
		contents, err := q.Contents(0)
		if err != nil {
			return err
		}
		for _, j := range contents.Jobs {
			note(*j)
		}
		for _, r := range contents.Runs {
			note(*r)
		}
		for _, d := range contents.Decisions {
			note(*d)
		}
		note(contents.Positions)
		summary, err := q.Summary()
		if err != nil {
			return err
		}
		note(*summary)
		one := func(j *jobdb.Job) error { note(*j); return nil }
		for _, c := range []jobdb.Criteria{{Queue: "q", JobSet: "s"}, {Waiting: true}, {JobID: "job-17"}} {
			if _, err := q.JobList(&c, jobdb.Page{}, one); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// commit writes one transaction with the rows of one job.
func commit(t *testing.T, db *sqlite.DB, n uint64) {
	t.Helper()
	ctx := context.Background()
	tx, err := db.Begin(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	from := tx.Positions()
	to := from
	to.Chain.Seq = n
	job, run := fmt.Sprintf("job-%d", n), fmt.Sprintf("run-%d", n)
	d := &jobdb.Decision{Where: jobdb.Where{Seq: n}, Acted: true}
	d.Number, d.JobID, d.RunID, d.PodName, d.Requeue = n, job, run, fmt.Sprintf("armada-%s-0-1", job), true
	err = tx.Write(ctx, &jobdb.Changes{
		Jobs:      []*jobdb.Job{{JobID: job, Queue: "q", JobSet: "s", Known: true, State: jobdb.JobQueued, Queueing: jobdb.Queueing{RetryAfter: int64(n)}}, {JobID: "job-1", Queue: "q", JobSet: "s", Queueing: jobdb.Queueing{Version: int64(n)}}},
		Runs:      []*jobdb.Run{{JobID: job, RunID: run, Error: jobdb.RunError{Raw: make([]byte, 5000*int(n%7/6))}}},
		Decisions: []*jobdb.Decision{d},
	})
	if err == nil {
		err = tx.Commit(ctx, from, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDamage: whichever bit is flipped, and wherever a file is truncated, a reader
// returns the same results as before or an error. The database was closed, or its
// process was killed after a checkpoint, or before the first one.
func TestDamage(t *testing.T) {
	t.Parallel()
	for name, checkpoint := range map[string]string{
		"closed": "close", "killed": "none", "killed after a checkpoint": "PASSIVE", "killed after a truncation": "TRUNCATE",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "jobs.db")
			db, err := sqlite.Open(context.Background(), path, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for n := range uint64(40) {
				if commit(t, db, n+1); n == 30 && checkpoint != "close" && checkpoint != "none" {
					exec(t, path, "PRAGMA wal_checkpoint("+checkpoint+")")
				}
			}
			if checkpoint == "PASSIVE" {
				exec(t, path, "PRAGMA wal_checkpoint(PASSIVE)")
			}
			whole := filesOf(t, path)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if checkpoint == "close" {
				whole = filesOf(t, path)
			}
			damageEach(t, whole)
		})
	}
}

// perFile is the number of damaged positions per file: DAMAGES, or a few.
func perFile(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("DAMAGES"), "16"))
	if err != nil {
		t.Fatalf("DAMAGES: %v", err)
	}
	return n
}

func damageEach(t *testing.T, whole files) {
	t.Helper()
	dir, n, noticed := t.TempDir(), 0, 0
	read := func(f files) (string, error) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n), "jobs.db")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(filepath.Dir(path))
		f.write(t, path)
		return answers(path)
	}
	want, err := read(whole)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what, suffix string, b []byte) {
		damaged := maps.Clone(whole)
		damaged[suffix] = b
		got, err := read(damaged)
		if err != nil {
			noticed++
		} else if got != want {
			t.Errorf("jobs.db%s, %s: another answer and no error (-before +after):\n%.600s", suffix, what, gocmp.Diff(want, got))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, suffix := range slices.Sorted(maps.Keys(whole)) {
		b := whole[suffix]
		for i := range perFile(t) {
			at := random.IntN(len(b))
			if i < 8 {
				at = min(i*12, len(b)-1) // the header
			}
			flipped := slices.Clone(b)
			flipped[at] ^= 1 << random.IntN(8)
			try(fmt.Sprintf("byte %d changed", at), suffix, flipped)
			if i%4 == 0 {
				try(fmt.Sprintf("cut at %d", at), suffix, b[:at])
				page := at / 4096 * 4096
				try(fmt.Sprintf("cut at %d", page), suffix, b[:page])
				try(fmt.Sprintf("cut at frame %d", at/4120), suffix, b[:min(len(b), 32+at/4120*4120)])
			}
		}
	}
	t.Logf("%d files damaged, %d noticed", n-1, noticed)
	if noticed == 0 {
		t.Error("no damage was noticed")
	}
}
