package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
)

// View calls read with queries that all see one state of the database.
func (r *Reader) View(ctx context.Context, read func(jobdb.Queries) error) error {
	t, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return classify(r.path, err)
	}
	q := &queries{ctx: ctx, path: r.path, tx: t}
	return errors.Join(read(q), classify(r.path, t.Rollback()))
}

// queries lives as long as one View, whose context it carries.
type queries struct {
	ctx  context.Context
	path string
	tx   *sql.Tx
}

// condition is a WHERE clause that grows.
type condition struct {
	terms []string
	args  []any
}

func (c *condition) add(term string, args ...any) {
	c.terms = append(c.terms, term)
	c.args = append(c.args, args...)
}

func (c *condition) where() string {
	if len(c.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.terms, " AND ")
}

func find[T any](q *queries, tab *table[T], c *condition, rest string, visit func(*T) error) error {
	rows, err := q.tx.QueryContext(q.ctx, tab.selects()+c.where()+rest, c.args...)
	if err != nil {
		return classify(q.path, fmt.Errorf("read %s: %w", tab.name, err))
	}
	var stopped error
	err = each(rows, tab, func(row *T) error {
		stopped = visit(row)
		return stopped
	})
	if stopped != nil {
		return stopped
	}
	return classify(q.path, err)
}

// Jobs visits jobs by job id, then partition.
func (q *queries) Jobs(f jobdb.JobFilter, visit func(*jobdb.Job) error) error {
	var c condition
	if f.JobID != "" {
		c.add("job_id = ?", f.JobID)
	}
	if f.Queue != "" {
		c.add("queue = ?", f.Queue)
	}
	if f.JobSet != "" {
		c.add("job_set = ?", f.JobSet)
	}
	if f.After != "" {
		c.add("job_id > ?", f.After)
	}
	rest := " ORDER BY job_id, partition"
	if f.WaitingAt != 0 {
		rest = " ORDER BY +job_id, +partition" // so: by the index of what waits, then sorted
		c.add("retry_after <> 0 AND retry_after > ? AND state = ?", f.WaitingAt, int64(jobdb.JobQueued))
	}
	if len(f.States) > 0 {
		args := make([]any, len(f.States))
		for i, s := range f.States {
			args[i] = int64(s)
		}
		c.add("state IN (?"+strings.Repeat(", ?", len(args)-1)+")", args...)
	}
	if f.Limit > 0 {
		rest += fmt.Sprintf(" LIMIT %d", f.Limit)
	}
	return find(q, &jobTable, &c, rest, visit)
}

// Runs visits the runs of a job in the order in which they became known.
func (q *queries) Runs(partition int, job string, visit func(*jobdb.Run) error) error {
	var c condition
	c.add("partition = ? AND job_id = ?", partition, job)
	return find(q, &runTable, &c, " ORDER BY state = 0, run_index, run_id", visit)
}

// records is the condition for records, and the order.
func records(f jobdb.RecordFilter, order string, named bool) (condition, string) {
	var c condition
	if f.Partition != nil {
		c.add("partition = ?", *f.Partition)
	}
	if f.JobID != "" && named {
		c.add("job_id = ?", f.JobID)
	}
	if f.RunID != "" && named {
		c.add("run_id = ?", f.RunID)
	}
	rest := " ORDER BY " + order
	if f.Last > 0 {
		rest = " ORDER BY " + strings.ReplaceAll(order, ",", " DESC,") + fmt.Sprintf(" DESC LIMIT %d", f.Last)
	}
	return c, rest
}

const byPlace = "partition, seq, record"

// list visits records; the last ones are found from the end and turned round.
func list[T any](q *queries, tab *table[T], c condition, rest string, last bool, visit func(*T) error) error {
	if !last {
		return find(q, tab, &c, rest, visit)
	}
	var rows []*T
	err := find(q, tab, &c, rest, func(row *T) error {
		rows = append(rows, row)
		return nil
	})
	for i := len(rows) - 1; i >= 0 && err == nil; i-- {
		err = visit(rows[i])
	}
	return err
}

// Decisions visits decisions in partition and log order.
func (q *queries) Decisions(f jobdb.RecordFilter, visit func(*jobdb.Decision) error) error {
	c, rest := records(f, "partition, number", true)
	if f.From > 0 {
		c.add("number >= ?", clamp(f.From))
	}
	if f.To > 0 {
		c.add("number <= ?", clamp(f.To))
	}
	return list(q, &decisionTable, c, rest, f.Last > 0, visit)
}

func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// NotDecided visits in partition and log order.
func (q *queries) NotDecided(f jobdb.RecordFilter, visit func(*jobdb.NotDecided) error) error {
	c, rest := records(f, byPlace, true)
	return list(q, &notDecidedTable, c, rest, f.Last > 0, visit)
}

// Ready visits in partition and log order.
func (q *queries) Ready(f jobdb.RecordFilter, visit func(*jobdb.Ready) error) error {
	c, rest := records(f, byPlace, true)
	return list(q, &readyTable, c, rest, f.Last > 0, visit)
}

// Parked visits in partition and log order.
func (q *queries) Parked(f jobdb.RecordFilter, visit func(*jobdb.Parked) error) error {
	c, rest := records(f, byPlace, false)
	return list(q, &parkedTable, c, rest, f.Last > 0, visit)
}

// Activations visits in partition and log order.
func (q *queries) Activations(f jobdb.RecordFilter, visit func(*jobdb.Activation) error) error {
	c, rest := records(f, byPlace, false)
	return list(q, &activationTable, c, rest, f.Last > 0, visit)
}

// Releases visits in partition and log order.
func (q *queries) Releases(f jobdb.RecordFilter, visit func(*jobdb.Release) error) error {
	c, rest := records(f, "partition, from_ledger, from_entry, from_batch", false)
	return list(q, &releaseTable, c, rest, f.Last > 0, visit)
}

// Places are those of all partitions that were ever written.
func (q *queries) Places() ([]jobdb.PartitionPlace, error) {
	var places []jobdb.PartitionPlace
	err := find(q, &placeTable, &condition{}, " ORDER BY partition", func(p *placeRow) error {
		places = append(places, jobdb.PartitionPlace{Partition: p.partition, Place: p.Place})
		return nil
	})
	return places, err
}

// Summary counts.
func (q *queries) Summary() (*jobdb.Summary, error) {
	s := &jobdb.Summary{}
	err := errors.Join(
		q.count("SELECT requeue, shadow, code, policy, rule, count(*) FROM decisions GROUP BY 1, 2, 3, 4, 5 ORDER BY 1 DESC, 2, 3, 4, 5", func() []any {
			s.Decisions = append(s.Decisions, jobdb.DecisionCount{})
			c := &s.Decisions[len(s.Decisions)-1]
			return []any{&c.Requeue, &c.Shadow, &c.Code, &c.Policy, &c.Rule, &c.Count}
		}),
		q.count("SELECT state, count(*) FROM jobs GROUP BY 1 ORDER BY 1", func() []any {
			s.Jobs = append(s.Jobs, jobdb.JobCount{})
			c := &s.Jobs[len(s.Jobs)-1]
			return []any{&c.State, &c.Count}
		}),
		q.count("SELECT reason, count(*) FROM not_decided GROUP BY 1 ORDER BY 1", func() []any {
			s.NotDecided = append(s.NotDecided, jobdb.NotDecidedCount{})
			c := &s.NotDecided[len(s.NotDecided)-1]
			return []any{&c.Reason, &c.Count}
		}),
		q.count("SELECT reason, count(*) FROM parked GROUP BY 1 ORDER BY 1", func() []any {
			s.Parked = append(s.Parked, jobdb.ParkedCount{})
			c := &s.Parked[len(s.Parked)-1]
			return []any{&c.Reason, &c.Count}
		}),
		q.count(`SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM ready), (SELECT count(*) FROM releases),
			(SELECT count(*) FROM decisions WHERE superseded <> 0)`, func() []any { return []any{&s.Runs, &s.Ready, &s.Releases, &s.Superseded} }),
	)
	return s, err
}

func (q *queries) count(query string, row func() []any) error {
	rows, err := q.tx.QueryContext(q.ctx, query)
	if err != nil {
		return classify(q.path, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(row()...); err != nil {
			return err
		}
	}
	return classify(q.path, rows.Err())
}

// Contents are all rows of one partition.
func (q *queries) Contents(partition int) (*jobdb.Contents, error) {
	c := &jobdb.Contents{Partition: partition, Place: jobdb.Beginning}
	err := errors.Join(
		all(q, &jobTable, partition, "job_id", &c.Jobs),
		all(q, &runTable, partition, "job_id, run_id", &c.Runs),
		all(q, &decisionTable, partition, "number", &c.Decisions),
		all(q, &notDecidedTable, partition, "seq, record", &c.NotDecided),
		all(q, &readyTable, partition, "seq, record", &c.Ready),
		all(q, &parkedTable, partition, "seq, record", &c.Parked),
		all(q, &activationTable, partition, "seq, record", &c.Activations),
		all(q, &releaseTable, partition, "from_ledger, from_entry, from_batch", &c.Releases),
	)
	places, perr := q.Places()
	for _, p := range places {
		if p.Partition == partition {
			c.Place = p.Place
		}
	}
	return c, errors.Join(err, perr)
}

func all[T any](q *queries, tab *table[T], partition int, order string, into *[]*T) error {
	var c condition
	c.add("partition = ?", partition)
	return find(q, tab, &c, " ORDER BY "+order, func(row *T) error {
		*into = append(*into, row)
		return nil
	})
}
