package jobdbtest

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"testing"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// testLoad checks that exactly the requested keys are found.
func testLoad(t *testing.T, db Database) {
	var c jobdb.Changes
	for i := range 200 {
		c.Jobs = append(c.Jobs, job(0, fmt.Sprintf("%03d", i)))
	}
	c.Jobs[1].State, c.Jobs[2].Known, c.Jobs[3].JobSet, c.Jobs[4].Queue = jobdb.JobFailed, false, "other", "other"
	c.Runs = []*jobdb.Run{run(0, "000", "a", 0), run(0, "000", "b", 1), run(0, "000", "c", 2), run(0, "000", "d", 3), run(0, "001", "a", 0)}
	c.Runs[1].State, c.Runs[2].State, c.Runs[3].State = jobdb.RunSucceeded, jobdb.RunFailed, jobdb.RunCancelled
	commit(t, db.Writer, 0, at(0), at(1), &c)
	commit(t, db.Writer, 1, at(0), at(1), &jobdb.Changes{Jobs: []*jobdb.Job{job(1, "000")}, Runs: []*jobdb.Run{run(1, "000", "a", 0)}})

	load := func(keys jobdb.Keys) (jobs, runs []string) {
		tx, err := db.Writer.Begin(context.Background(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback() //nolint:errcheck // nothing is written
		found, err := tx.Load(context.Background(), keys)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range found.Jobs {
			jobs = append(jobs, fmt.Sprint(j.Partition, j.JobID))
		}
		for _, r := range found.Runs {
			runs = append(runs, fmt.Sprint(r.Partition, r.JobID, r.RunID))
		}
		sort.Strings(jobs)
		sort.Strings(runs)
		return jobs, runs
	}
	jobs, runs := load(jobdb.Keys{})
	equal(t, "nothing", []string(nil), append(jobs, runs...))
	jobs, runs = load(jobdb.Keys{Jobs: []string{"000", "unknown", "001"}})
	equal(t, "jobs", []string{"0000", "0001"}, append(jobs, runs...))
	_, runs = load(jobdb.Keys{Runs: []jobdb.RunKey{{JobID: "000", RunID: "b"}, {JobID: "000", RunID: "z"}, {JobID: "001", RunID: "a"}, {JobID: "001", RunID: "b"}}})
	equal(t, "runs", []string{"0000b", "0001a"}, runs)
	_, runs = load(jobdb.Keys{OpenRunsOf: []string{"000", "unknown"}})
	equal(t, "open runs", []string{"0000a", "0000d"}, runs)
	jobs, _ = load(jobdb.Keys{Sets: []jobdb.SetKey{{Queue: "q", JobSet: "s"}}})
	if len(jobs) != 196 || jobs[0] != "0000" || jobs[1] != "0005" {
		t.Errorf("a set: %d jobs, %v…", len(jobs), jobs[:2])
	}
	jobs, _ = load(jobdb.Keys{Sets: []jobdb.SetKey{{Queue: "other", JobSet: "s"}, {Queue: "q", JobSet: "other"}, {Queue: "s", JobSet: "q"}}})
	equal(t, "small sets", []string{"0003", "0004"}, jobs)
	var all []string
	for _, j := range c.Jobs {
		all = append(all, j.JobID)
	}
	jobs, _ = load(jobdb.Keys{Jobs: all})
	if len(jobs) != 200 {
		t.Errorf("200 jobs at once: %d", len(jobs))
	}
}

// testReadWhileWriting: a reader never waits, sees only what is committed, and
// within a View one state.
func testReadWhileWriting(t *testing.T, db Database) {
	ctx := context.Background()
	commit(t, db.Writer, 0, at(0), at(1), &jobdb.Changes{Jobs: []*jobdb.Job{job(0, "a")}})
	tx, err := db.Writer.Begin(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // committed below
	if err := tx.Write(ctx, &jobdb.Changes{Jobs: []*jobdb.Job{job(0, "b")}}); err != nil {
		t.Fatal(err)
	}
	view(t, db.Reader, func(q jobdb.Queries) error {
		for _, step := range []string{"before the commit", "after it, in the same view"} {
			c, err := q.Contents(0)
			if err != nil {
				return err
			}
			equal(t, step, []*jobdb.Job{job(0, "a")}, c.Jobs)
			equal(t, "the positions "+step, at(1), c.Positions)
			if step == "before the commit" {
				if err := tx.Commit(ctx, at(1), at(2)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	equal(t, "after it", []*jobdb.Job{job(0, "a"), job(0, "b")}, contents(t, db.Reader, 0).Jobs)
}

// testRuns: the runs of a job come in their order, and a visitor's error comes back.
func testRuns(t *testing.T, db Database) {
	commit(t, db.Writer, 0, at(0), at(1), &jobdb.Changes{
		Jobs: []*jobdb.Job{job(0, "a")},
		Runs: []*jobdb.Run{run(0, "a", "x", 2), run(0, "a", "y", 0), run(0, "a", "z", 1), run(0, "b", "x", 0)},
	})
	view(t, db.Reader, func(q jobdb.Queries) error {
		got := ""
		err := q.Runs(0, "a", func(r *jobdb.Run) error {
			got += r.RunID
			return nil
		})
		equal(t, "the runs in their order", "yzx", got)
		return err
	})
	stop := errors.New("stop")
	err := db.Reader.View(context.Background(), func(q jobdb.Queries) error {
		_, err := q.JobList(&jobdb.Criteria{}, jobdb.Page{}, func(*jobdb.Job) error { return stop })
		return err
	})
	if !errors.Is(err, stop) {
		t.Errorf("a visitor's error came back as %v", err)
	}
}

// testRecords: filters and order are the same for all kinds of records.
func testRecords(t *testing.T, db Database) {
	for _, p := range []int{1, 0} {
		all := &jobdb.Changes{}
		for i := range 5 {
			c := everything(p, 1)
			d, n, r, k, a, l := c.Decisions[0], c.NotDecided[0], c.Ready[0], c.Parked[0], c.Activations[0], c.Releases[0]
			d.Number, d.Seq, n.Seq, r.Seq, k.Seq, a.Seq = uint64(10+i), uint64(i+1), uint64(i+1), uint64(i+1), uint64(i+1), uint64(i+1)
			l.Seq, l.From.Ledger, l.From.Entry, l.From.Batch = uint64(i+1), int64(i/4), int64(i/2), int32(i)
			d.GroupID = "g"
			d.JobID = fmt.Sprint("job ", i%2)
			d.RunID, n.JobID, r.JobID, n.RunID, r.RunID = fmt.Sprint("run ", i), d.JobID, d.JobID, fmt.Sprint("run ", i), fmt.Sprint("run ", i)
			all.Decisions, all.NotDecided, all.Ready = append(all.Decisions, d), append(all.NotDecided, n), append(all.Ready, r)
			all.Parked, all.Activations, all.Releases = append(all.Parked, k), append(all.Activations, a), append(all.Releases, l)
		}
		commit(t, db.Writer, p, at(0), at(1), all)
	}
	one := 1
	tests := map[string]struct {
		filter       jobdb.RecordFilter
		named, other string // partition and seq of what is found
	}{
		"all":       {jobdb.RecordFilter{}, " 01 02 03 04 05 11 12 13 14 15", " 01 02 03 04 05 11 12 13 14 15"},
		"partition": {jobdb.RecordFilter{Partition: &one}, " 11 12 13 14 15", " 11 12 13 14 15"},
		"job":       {jobdb.RecordFilter{JobID: "job 1"}, " 02 04 12 14", " 01 02 03 04 05 11 12 13 14 15"},
		"run":       {jobdb.RecordFilter{JobID: "job 1", RunID: "run 3"}, " 04 14", " 01 02 03 04 05 11 12 13 14 15"},
		"last":      {jobdb.RecordFilter{Partition: &one, Last: 2}, " 14 15", " 14 15"},
		"group":     {jobdb.RecordFilter{Partition: &one, Group: &jobdb.Group{ID: "g", Binding: 3}}, " 13 14 15", " 11 12 13 14 15"},
		"envelope":  {jobdb.RecordFilter{Partition: &one, Group: &jobdb.Group{ID: "g", Binding: 3}, Seq: 4}, " 14", " 11 12 13 14 15"},
		"last, all": {jobdb.RecordFilter{Last: 6}, " 05 11 12 13 14 15", " 05 11 12 13 14 15"},
	}
	for name, tt := range tests {
		view(t, db.Reader, func(q jobdb.Queries) error {
			var d, n, r, k, a, l string
			err := errors.Join(
				q.Decisions(tt.filter, func(v *jobdb.Decision) error { return note(&d, v.Partition, v.Seq) }),
				q.NotDecided(tt.filter, func(v *jobdb.NotDecided) error { return note(&n, v.Partition, v.Seq) }),
				q.Ready(tt.filter, func(v *jobdb.Ready) error { return note(&r, v.Partition, v.Seq) }),
				q.Parked(tt.filter, func(v *jobdb.Parked) error { return note(&k, v.Partition, v.Seq) }),
				q.Activations(tt.filter, func(v *jobdb.Activation) error { return note(&a, v.Partition, v.Seq) }),
				q.Releases(tt.filter, func(v *jobdb.Release) error { return note(&l, v.Partition, v.Seq) }),
			)
			if tt.filter.Group != nil { // these know no group
				n, r = d, d
			}
			equal(t, name, []string{tt.named, tt.named, tt.named, tt.other, tt.other, tt.other}, []string{d, n, r, k, a, l})
			return err
		})
	}
	view(t, db.Reader, func(q jobdb.Queries) error {
		got := ""
		err := q.Decisions(jobdb.RecordFilter{Partition: &one, From: 11, To: 13}, func(v *jobdb.Decision) error { return note(&got, v.Partition, v.Seq) })
		equal(t, "a range of numbers", " 12 13 14", got)
		return err
	})
}

func note(to *string, partition int, seq uint64) error {
	*to += fmt.Sprintf(" %d%d", partition, seq)
	return nil
}

func testSummary(t *testing.T, db Database) {
	c := &jobdb.Changes{Jobs: []*jobdb.Job{job(0, "a"), job(0, "b"), job(0, "c")}, Runs: []*jobdb.Run{run(0, "a", "r", 0)}}
	c.Jobs[1].State = jobdb.JobFailed
	for i := range 4 {
		e := everything(0, 1)
		d, n, k, r := e.Decisions[0], e.NotDecided[0], e.Parked[0], e.Ready[0]
		d.Number, n.Seq, k.Seq, r.Seq = uint64(i), uint64(i), uint64(i), uint64(i)
		d.Acted = i != 2
		d.Queue, n.Queue = "q", "q"
		d.Requeue, d.Shadow, d.Code, d.Policy, d.Rule = i < 3, i == 0, policy.RuleRetry, "p", "r"
		n.Reason, k.Reason = chain.StaleRun, events.NoJob
		if i == 3 {
			d.Code, n.Reason, k.Reason = policy.GlobalLimit, chain.Ended, events.NoRun
		}
		c.Decisions, c.NotDecided, c.Parked, c.Ready = append(c.Decisions, d), append(c.NotDecided, n), append(c.Parked, k), append(c.Ready, r)
	}
	c.Releases = append(everything(0, 1).Releases, everything(0, 2).Releases...)
	commit(t, db.Writer, 0, at(0), at(1), c)
	view(t, db.Reader, func(q jobdb.Queries) error {
		s, err := q.Summary()
		equal(t, "the summary", &jobdb.Summary{
			Counted: jobdb.Counted{
				Decisions: []jobdb.DecisionCount{
					{Requeue: true, Acted: true, Code: policy.RuleRetry, Policy: "p", Rule: "r", Count: 1},
					{Requeue: true, Code: policy.RuleRetry, Policy: "p", Rule: "r", Count: 1},
					{Requeue: true, Shadow: true, Acted: true, Code: policy.RuleRetry, Policy: "p", Rule: "r", Count: 1},
					{Acted: true, Code: policy.GlobalLimit, Policy: "p", Rule: "r", Count: 1},
				},
				Jobs:       []jobdb.JobCount{{State: jobdb.JobQueued, Count: 2}, {State: jobdb.JobFailed, Count: 1}},
				NotDecided: []jobdb.NotDecidedCount{{Reason: chain.StaleRun, Count: 3}, {Reason: chain.Ended, Count: 1}},
			},
			Parked: []jobdb.ParkedCount{{Reason: events.NoJob, Count: 3}, {Reason: events.NoRun, Count: 1}},
			Runs:   1, Ready: 4, Releases: 2,
		}, s)
		for queue, want := range map[string]jobdb.Counted{"q": s.Counted, "none": {}} {
			got, failed := jobdb.Within(q, []string{queue, "other"}).Counted(nil)
			equal(t, "what those see who see queue "+queue, want, got)
			err = errors.Join(err, failed)
		}
		return err
	})
}

// testRetries checks the counts of retries that have no run yet, by queue.
func testRetries(t *testing.T, db Database) {
	for partition := range 3 {
		c := &jobdb.Changes{}
		for i, after := range []int64{0, 1, 5, 6, 7} {
			j := job(partition, fmt.Sprint(i))
			j.Queueing.RetryAfter = after
			if i == 4 {
				j.Queue = "other"
			}
			c.Jobs = append(c.Jobs, j)
		}
		commit(t, db.Writer, partition, at(0), at(1), c)
	}
	for _, tt := range []struct {
		partitions []int
		want       string
	}{
		{nil, "[]"},
		{[]int{9}, "[]"},
		{[]int{1}, "[{q 3 1 6} {other 1 1 7}]"},
		{[]int{0, 2}, "[{q 6 2 6} {other 2 2 7}]"},
	} {
		view(t, db.Reader, func(q jobdb.Queries) error {
			all := []jobdb.QueueRetries{}
			err := q.Retries(tt.partitions, 5, func(r *jobdb.QueueRetries) error { all = append(all, *r); return nil })
			equal(t, "retries", tt.want, fmt.Sprint(all))
			return err
		})
	}
}
