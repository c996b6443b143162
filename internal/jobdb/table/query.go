package table

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
)

// Query is one SELECT, as a Source runs it. Every text argument is a job id, a run id,
// a queue, a job set, or the name or id of a group.
type Query struct {
	With    string // of a table before the statement, with ? for the first ones of Args, and braces as in Where
	Columns []string
	From    string // a table's name
	// Where are conditions that must all hold, with ? for arguments, {table} for the name of another table, and a tilde before a
	// column (or before the first one of an order, in Rest) whose index is not to be used.
	Where []string
	Args  []any  // int, int64 or string
	Rest  string // the clauses after the conditions
	Rows  bool   // Columns are all those of the table
	Index bool   // only an index may find the rows, one after another
	// Of is what the rows are selected from; nil: the table. Its arguments are the first ones of Args.
	Of *Query
}

func (q *Query) where(term string, args ...any) {
	q.Where = append(q.Where, term)
	q.Args = append(q.Args, args...)
}

// Conditions returns the WHERE clause, empty or with a leading space.
func (q *Query) Conditions() string {
	if len(q.Where) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(q.Where, " AND ")
}

// SQL returns the statement for tables whose names begin with prefix. hint takes the place of each tilde.
func (q *Query) SQL(prefix, hint string) string {
	return strings.NewReplacer("{", prefix, "}", "", "~", hint).Replace(q.text())
}

// text is the statement with braces and tildes.
func (q *Query) text() string {
	from := "{" + q.From + "}"
	if q.Of != nil {
		from = "(" + q.Of.text() + ")"
	}
	with := ""
	if q.With != "" {
		with = "WITH " + q.With + " "
	}
	return with + "SELECT " + strings.Join(q.Columns, ", ") + " FROM " + from + " AS " + q.From + q.Conditions() + q.Rest
}

// Source runs queries for Queries, all on one snapshot of a database.
type Source interface {
	// Find scans each row into the pointers that fields returns, as Of.Fields does,
	// then calls found. It returns found's error unwrapped.
	Find(q Query, fields func() []any, found func() error) error
}

// Queries implements the queries of a job database over a Source.
type Queries struct{ Source Source }

func find[T any](s Source, t *Of[T], q Query, visit func(*T) error) error {
	q.Columns, q.From, q.Rows = t.Columns, t.Name, true
	var row *T
	var fields []any
	return s.Find(q, func() []any {
		row = new(T)
		fields = t.Fields(row, fields[:0])
		return fields
	}, func() error { return visit(row) })
}

// Runs visits the runs of a job in the order in which they became known.
func (q Queries) Runs(partition int, job string, visit func(*jobdb.Run) error) error {
	c := Query{Rest: " ORDER BY state = 0, run_index, run_id"}
	c.where("partition = ? AND job_id = ?", partition, job)
	return find(q.Source, &Runs, c, visit)
}

// Units visits the units of a group.
func (q Queries) Units(g *jobdb.Group, visit func(*jobdb.Unit) error) error {
	c := Query{Rest: " ORDER BY part, replica"}
	c.where("partition = ? AND group_id = ? AND binding = ?", g.Partition, g.ID, int64(g.Binding))
	return find(q.Source, &Units, c, visit)
}

// Members visits the members of a group by job id.
func (q Queries) Members(g *jobdb.Group, visit func(*jobdb.Job) error) error {
	c := Query{Rest: " ORDER BY job_id"}
	c.where("partition = ? AND group_id = ? AND group_id <> '' AND binding = ?", g.Partition, g.ID, int64(g.Binding))
	return find(q.Source, &Jobs, c, visit)
}

// GroupRecords visits them in partition and log order.
func (q Queries) GroupRecords(f jobdb.RecordFilter, visit func(*jobdb.GroupRecord) error) error {
	return list(q.Source, &GroupRecords, f, byRecord, visit)
}

const (
	byRecord = "partition, seq, record"
	byNumber = "partition, number"
	byFrom   = "partition, from_ledger, from_entry, from_batch"
)

// list visits records. It finds the last ones from the end and reverses them.
func list[T any](s Source, t *Of[T], f jobdb.RecordFilter, order string, visit func(*T) error) error {
	c := Query{Rest: " ORDER BY " + order}
	ofJob := f.JobID != "" && slices.Contains(t.Columns, "job_id")
	ofGroup := f.Group != nil && slices.Contains(t.Columns, "group_id")
	inEnvelope := ofGroup && f.Seq > 0 && order == byRecord // the key of the rows finds it
	switch {
	case f.Partition != nil && (ofJob || ofGroup && !inEnvelope): // the index of jobs, or of groups, is the only choice
		c.where("~partition = ?", *f.Partition)
	case f.Partition != nil:
		c.where("partition = ?", *f.Partition)
	}
	if ofJob {
		c.where("job_id = ?", f.JobID)
	}
	if f.RunID != "" && slices.Contains(t.Columns, "run_id") {
		c.where("run_id = ?", f.RunID)
	}
	switch {
	case inEnvelope:
		c.where("seq = ? AND ~group_id = ?", clamp(f.Seq), f.Group.ID)
	case ofGroup && f.Seq > 0:
		c.where("group_id = ? AND group_id <> '' AND ~seq = ?", f.Group.ID, clamp(f.Seq))
	case ofGroup:
		c.where("group_id = ? AND group_id <> ''", f.Group.ID)
	}
	if ofGroup {
		c.where("~seq >= ?", int64(f.Group.Binding)) // not an earlier one of its name
	}
	if f.From > 0 && order == byNumber {
		c.where("number >= ?", clamp(f.From))
	}
	if f.To > 0 && order == byNumber {
		c.where("number <= ?", clamp(f.To))
	}
	if f.Last <= 0 {
		return find(s, t, c, visit)
	}
	c.Rest = " ORDER BY " + strings.ReplaceAll(order, ",", " DESC,") + fmt.Sprintf(" DESC LIMIT %d", f.Last)
	var rows []*T
	err := find(s, t, c, func(row *T) error {
		rows = append(rows, row)
		return nil
	})
	for i := len(rows) - 1; i >= 0 && err == nil; i-- {
		err = visit(rows[i])
	}
	return err
}

func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// Decisions visits decisions in partition and log order.
func (q Queries) Decisions(f jobdb.RecordFilter, visit func(*jobdb.Decision) error) error {
	return list(q.Source, &Decisions, f, byNumber, visit)
}

// NotDecided visits them in partition and log order.
func (q Queries) NotDecided(f jobdb.RecordFilter, visit func(*jobdb.NotDecided) error) error {
	return list(q.Source, &NotDecided, f, byRecord, visit)
}

// Ready visits them in partition and log order.
func (q Queries) Ready(f jobdb.RecordFilter, visit func(*jobdb.Ready) error) error {
	return list(q.Source, &Ready, f, byRecord, visit)
}

// Parked visits them in partition and log order.
func (q Queries) Parked(f jobdb.RecordFilter, visit func(*jobdb.Parked) error) error {
	return list(q.Source, &Parked, f, byRecord, visit)
}

// Activations visits them in partition and log order.
func (q Queries) Activations(f jobdb.RecordFilter, visit func(*jobdb.Activation) error) error {
	return list(q.Source, &Activations, f, byRecord, visit)
}

// Releases visits them in partition and log order.
func (q Queries) Releases(f jobdb.RecordFilter, visit func(*jobdb.Release) error) error {
	return list(q.Source, &Releases, f, byFrom, visit)
}

// Positions returns the positions of all partitions that were ever written.
func (q Queries) Positions() ([]jobdb.PartitionPositions, error) {
	var positions []jobdb.PartitionPositions
	err := find(q.Source, &Positions, Query{Rest: " ORDER BY partition"}, func(p *jobdb.PartitionPositions) error {
		positions = append(positions, *p)
		return nil
	})
	return positions, err
}

// Contents returns all rows of one partition.
func (q Queries) Contents(partition int) (*jobdb.Contents, error) {
	c := &jobdb.Contents{Partition: partition, Positions: jobdb.Beginning}
	err := errors.Join(
		all(q.Source, &Jobs, partition, "job_id", &c.Jobs),
		all(q.Source, &Runs, partition, "job_id, run_id", &c.Runs),
		all(q.Source, &Decisions, partition, byNumber, &c.Decisions),
		all(q.Source, &NotDecided, partition, byRecord, &c.NotDecided),
		all(q.Source, &Ready, partition, byRecord, &c.Ready),
		all(q.Source, &Parked, partition, byRecord, &c.Parked),
		all(q.Source, &Activations, partition, byRecord, &c.Activations),
		all(q.Source, &Releases, partition, byFrom, &c.Releases),
		all(q.Source, &Groups, partition, "group_id", &c.Groups),
		all(q.Source, &Units, partition, "unit_id", &c.Units),
		all(q.Source, &GroupRecords, partition, byRecord, &c.GroupRecords),
	)
	// A database that does not store every text unchanged may sort differently.
	slices.SortFunc(c.Jobs, func(a, b *jobdb.Job) int { return strings.Compare(a.JobID, b.JobID) })
	slices.SortFunc(c.Runs, func(a, b *jobdb.Run) int {
		if n := strings.Compare(a.JobID, b.JobID); n != 0 {
			return n
		}
		return strings.Compare(a.RunID, b.RunID)
	})
	slices.SortFunc(c.Units, func(a, b *jobdb.Unit) int { return strings.Compare(a.ID, b.ID) })
	positions, perr := q.Positions()
	for _, p := range positions {
		if p.Partition == partition {
			c.Positions = p.Positions
		}
	}
	c.Miscounted, err = q.miscounted(partition, &c.Changes, errors.Join(err, perr))
	return c, err
}

// miscounted compares kept counts with the rows of a partition.
func (q Queries) miscounted(partition int, c *jobdb.Changes, err error) (wrong []jobdb.Miscount, _ error) {
	if err != nil {
		return nil, err
	}
	differ := map[CountRow]jobdb.Miscount{}
	for _, row := range CountsOf(c) {
		key := *row
		key.n = 0
		differ[key] = jobdb.Miscount{Want: row.n}
	}
	s := Query{}
	s.where("partition = ? AND n <> 0", partition)
	err = find(q.Source, &Counts, s, func(row *CountRow) error {
		key := *row
		key.n, key.pruned = 0, 0
		differ[key] = jobdb.Miscount{Want: differ[key].Want, Got: row.n}
		return nil
	})
	keys := slices.Collect(maps.Keys(differ))
	slices.SortFunc(keys, func(a, b CountRow) int { return a.compare(&b) })
	for _, k := range keys {
		if m := differ[k]; m.Want != m.Got {
			m.Of = fmt.Sprintf("%d/%s/%s/%s/%d/%s/%s/%d/%d", k.of, k.queue, k.jobSet, k.about, k.hour, k.policy, k.rule, k.code, k.kind)
			wrong = append(wrong, m)
		}
	}
	return wrong, err
}

func all[T any](s Source, t *Of[T], partition int, order string, into *[]*T) error {
	c := Query{Rest: " ORDER BY " + order}
	c.where("partition = ?", partition)
	return find(s, t, c, func(row *T) error {
		*into = append(*into, row)
		return nil
	})
}
