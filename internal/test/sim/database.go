package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
)

// database is a job database in memory. A transaction holds its partition's row
// lock from its beginning to its end.
type database struct {
	w     *world
	parts []*dbPart
}

type dbPart struct {
	number    int
	jobs      map[string]jobdb.Job
	runs      map[jobdb.RunKey]jobdb.Run
	groups    map[string]jobdb.Group
	units     map[string]jobdb.Unit
	rest      jobdb.Changes
	positions jobdb.Positions
	holder    *tx // of the row lock
	limbo     *limbo
	waits     map[uint64]wait // decisions to copy, by number
	copied    map[uint64]int  // how often events hold a copy of a decision
	done      map[uint64]bool // decisions that a transaction copied and took effect
}

// limbo is a commit whose client is gone, while the server still works on it.
type limbo struct {
	until int64
	tx    *tx
	to    jobdb.Positions
	done  bool // it will have taken effect
}

type tx struct {
	db      *database
	p       *dbPart
	changes []*jobdb.Changes
	deleted []string // jobs
	emptied []string // groups that may have lost their last member
	broken  bool
	began   int64
	covered eventlog.Position // what the chain answered then
	waits   map[uint64]wait
	copied  []uint64
}

func newDatabase(w *world, partitions int) *database {
	d := &database{w: w}
	for p := range partitions {
		d.add(p)
	}
	return d
}

func (d *database) add(p int) {
	d.parts = append(d.parts, &dbPart{number: p, jobs: map[string]jobdb.Job{}, runs: map[jobdb.RunKey]jobdb.Run{}, groups: map[string]jobdb.Group{}, units: map[string]jobdb.Unit{}, positions: jobdb.Beginning})
}

// disconnect breaks all open connections: their transactions are rolled back.
func (d *database) disconnect() {
	for _, p := range d.parts {
		if p.holder != nil {
			p.holder.broken = true
			p.holder = nil
		}
	}
}

func (p *dbPart) String() string { return fmt.Sprintf("the job database's partition %d", p.number) }

var errLocked = fmt.Errorf("%w: row is locked", jobdb.ErrUnavailable)

var errConnection = fmt.Errorf("%w: connection cut", jobdb.ErrUnavailable)

// Begin opens a transaction. If the lock is taken, it returns an error instead of waiting.
func (d *database) Begin(_ context.Context, partition int) (jobdb.Tx, error) {
	p := d.parts[partition]
	if l := p.limbo; l != nil {
		if d.w.now < l.until {
			d.w.saw(SawLocked)
			return nil, errLocked
		}
		p.limbo = nil
		if l.done {
			p.apply(d.w, l.tx, l.to)
		}
	}
	if p.holder != nil {
		d.w.saw(SawLocked)
		return nil, errLocked
	}
	p.holder = &tx{db: d, p: p, began: d.w.now, covered: d.w.chains[partition].inTo}
	return p.holder, nil
}

func (t *tx) Positions() jobdb.Positions { return t.p.positions }

func (t *tx) Origin(context.Context) (eventlog.Position, error) {
	return jobdb.Origin(t.p.rest.Releases), nil
}

// Load gives exactly what is asked for.
func (t *tx) Load(_ context.Context, keys jobdb.Keys) (*jobdb.Found, error) {
	if t.broken {
		return nil, errConnection
	}
	found := &jobdb.Found{}
	for _, id := range keys.Jobs {
		if j, ok := t.p.jobs[id]; ok {
			found.Jobs = append(found.Jobs, j)
		}
	}
	for _, k := range keys.Runs {
		if r, ok := t.p.runs[k]; ok {
			found.Runs = append(found.Runs, r)
		}
	}
	for _, id := range keys.Groups {
		if g, ok := t.p.groups[id]; ok {
			found.Groups = append(found.Groups, g)
		}
	}
	for _, id := range keys.Units {
		if u, ok := t.p.units[id]; ok {
			found.Units = append(found.Units, u)
		}
	}
	if len(keys.Sets) > 0 {
		jobs := t.p.sortedJobs()
		for _, k := range keys.Sets {
			for _, j := range jobs {
				if j.Queue == k.Queue && j.JobSet == k.JobSet && j.Known && !j.State.Terminal() {
					found.Jobs = append(found.Jobs, *j)
				}
			}
		}
	}
	if len(keys.OpenRunsOf) > 0 {
		runs := t.p.sortedRuns()
		for _, id := range keys.OpenRunsOf {
			for _, r := range runs {
				if r.JobID == id && !r.State.Ended() {
					found.Runs = append(found.Runs, *r)
				}
			}
		}
	}
	return found, nil
}

// Send implements [jobdb.Sender].
func (t *tx) Send(ctx context.Context, c *jobdb.Changes) (wait func() error) {
	err := t.Write(ctx, c)
	return func() error { return err }
}

func (t *tx) Write(_ context.Context, c *jobdb.Changes) error {
	if t.broken {
		return errConnection
	}
	frozen := *c
	frozen.Jobs, frozen.Runs, frozen.Groups, frozen.Units = nil, nil, nil, nil
	for _, g := range c.Groups {
		row := *g
		frozen.Groups = append(frozen.Groups, &row)
	}
	for _, u := range c.Units {
		row := *u
		frozen.Units = append(frozen.Units, &row)
	}
	for _, j := range c.Jobs {
		row := *j
		frozen.Jobs = append(frozen.Jobs, &row)
	}
	for _, r := range c.Runs {
		row := *r
		frozen.Runs = append(frozen.Runs, &row)
	}
	t.changes = append(t.changes, &frozen)
	return nil
}

func (t *tx) Commit(_ context.Context, from, to jobdb.Positions) error {
	w := t.db.w
	if t.broken {
		return errConnection
	}
	t.release()
	if t.p.positions != from {
		return jobdb.ErrMoved
	}
	if w.has(UnknownTx) && w.one(12) {
		w.logf("a commit to envelope %d ends with an unknown result", to.Chain.Seq)
		switch w.rng.IntN(3) {
		case 0:
			w.saw(SawUnknownDone)
			t.p.apply(w, t, to)
		case 1:
			w.saw(SawUnknownNot)
		case 2:
			w.saw(SawUnknownLater)
			t.p.limbo = &limbo{until: w.now + w.rng.Int64N(1000*millisecond), tx: t, to: to, done: w.one(2)}
		}
		return errConnection
	}
	t.p.apply(w, t, to)
	return nil
}

func (t *tx) release() {
	if t.p.holder == t {
		t.p.holder = nil
	}
}

func (t *tx) Rollback() error {
	t.release()
	return nil
}

func (p *dbPart) apply(w *world, t *tx, to jobdb.Positions) {
	if to.Chain.Seq < p.positions.Chain.Seq || to.Events.Compare(p.positions.Events) < 0 {
		w.fail("%v goes back from envelope %d to %d", p, p.positions.Chain.Seq, to.Chain.Seq)
	}
	w.mustBeInChain(p, p.number, to.Chain)
	p.checkCopied(w, t)
	for _, c := range t.changes {
		for _, r := range c.Releases {
			w.checkRelease(r, t)
		}
		for _, j := range c.Jobs {
			p.jobs[j.JobID] = *j
		}
		for _, r := range c.Runs {
			p.runs[jobdb.RunKey{JobID: r.JobID, RunID: r.RunID}] = *r
		}
		for _, g := range c.Groups {
			p.groups[g.ID] = *g
		}
		for _, u := range c.Units {
			p.units[u.ID] = *u
		}
		p.rest.GroupRecords = append(p.rest.GroupRecords, c.GroupRecords...)
		p.rest.Decisions = append(p.rest.Decisions, c.Decisions...)
		p.rest.NotDecided = append(p.rest.NotDecided, c.NotDecided...)
		p.rest.Parked = append(p.rest.Parked, c.Parked...)
		p.rest.Ready = append(p.rest.Ready, c.Ready...)
		p.rest.Activations = append(p.rest.Activations, c.Activations...)
		p.rest.Releases = append(p.rest.Releases, c.Releases...)
	}
	for _, job := range t.deleted {
		p.delete(job)
	}
	for _, group := range t.emptied {
		p.deleteGroup(group)
	}
	p.positions = to
}

func (p *dbPart) sortedJobs() []*jobdb.Job {
	jobs := make([]*jobdb.Job, 0, len(p.jobs))
	for _, j := range p.jobs {
		jobs = append(jobs, &j)
	}
	sort.Slice(jobs, func(a, b int) bool { return jobs[a].JobID < jobs[b].JobID })
	return jobs
}

func (p *dbPart) sortedRuns() []*jobdb.Run {
	runs := make([]*jobdb.Run, 0, len(p.runs))
	for _, r := range p.runs {
		runs = append(runs, &r)
	}
	sort.Slice(runs, func(a, b int) bool {
		return runs[a].JobID < runs[b].JobID || runs[a].JobID == runs[b].JobID && runs[a].RunID < runs[b].RunID
	})
	return runs
}

// contents are all rows of a partition.
func (p *dbPart) contents() *jobdb.Contents {
	c := &jobdb.Contents{Partition: p.number, Positions: p.positions, Changes: p.rest}
	c.Jobs, c.Runs = p.sortedJobs(), p.sortedRuns()
	for _, id := range slices.Sorted(maps.Keys(p.groups)) {
		g := p.groups[id]
		c.Groups = append(c.Groups, &g)
	}
	for _, id := range slices.Sorted(maps.Keys(p.units)) {
		u := p.units[id]
		c.Units = append(c.Units, &u)
	}
	return c
}
