package table

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// CountRow is a kept count. Writers add to it in the transaction that changes what it counts.
type CountRow struct {
	of                          uint8 // one of the groupings
	queue, jobSet, policy, rule string
	about                       string // a node or a category
	code, kind                  uint8
	hour                        int64
	partition                   int
	n, pruned                   int64 // rows that are there, and that were
}

// The groupings of kept counts. Their numbers are stored: never change one.
const (
	decisionsByHour        uint8 = iota // kind is the effect, as the next three
	decisionsOfQueueByHour              // also by queue
	decisionsOfQueue                    // of all times
	decisionsOfSet                      // by hour, as nodes and categories
	jobsOfQueue                         // kind is the state
	waitingOfQueue                      // jobs with a pending retry
	undecided                           // kind is the reason
	decisionsOfNode                     // that had an effect, as the next
	decisionsOfCategory
	jobsOfSet    // as of a queue
	waitingOfSet // as of a queue
)

// groupings are how rows are counted, in SQL: from which table, and by which columns or other values.
var groupings = []struct{ from, queue, jobSet, policy, rule, code, kind, hour, about, where string }{
	decisionsByHour:        {Decisions.Name, "''", "''", "policy", "rule", "code", effect, inHour, "''", ""},
	decisionsOfQueueByHour: {Decisions.Name, "queue", "''", "policy", "rule", "code", effect, inHour, "''", ""},
	decisionsOfQueue:       {Decisions.Name, "queue", "''", "policy", "rule", "code", effect, "0", "''", ""},
	decisionsOfSet:         {Decisions.Name, "queue", "job_set", "policy", "rule", "code", effect, inHour, "''", ""},
	jobsOfQueue:            {Jobs.Name, "queue", "''", "''", "''", "0", "state", "0", "''", ""},
	waitingOfQueue:         {Jobs.Name, "queue", "''", "''", "''", "0", "0", "0", "''", " AND retry_after > 0"},
	undecided:              {NotDecided.Name, "''", "''", "''", "''", "0", "reason", "0", "''", ""},
	decisionsOfNode:        {Decisions.Name, "''", "''", "''", "''", "0", effect, inHour, keys["node"], " AND acted AND octet_length(" + keys["node"] + ") <= 250"},
	decisionsOfCategory:    {Decisions.Name, "''", "''", "''", "''", "0", effect, inHour, keys["category"], " AND acted AND octet_length(" + keys["category"] + ") <= 250"},
	jobsOfSet:              {Jobs.Name, "queue", "job_set", "''", "''", "0", "state", "0", "''", ""},
	waitingOfSet:           {Jobs.Name, "queue", "job_set", "''", "''", "0", "0", "0", "''", " AND retry_after > 0"},
}

// effect is what effectOf numbers.
const (
	effect = "CASE WHEN requeue THEN 1 ELSE 0 END + CASE WHEN shadow THEN 2 ELSE 0 END + CASE WHEN acted THEN 4 ELSE 0 END"
	inHour = "time / 3600000000000"
	// longestName is the longest name of a node or category that is counted, in bytes: decisions of longer ones are in no count of these.
	longestName = 250
)

func effectOf(requeue, shadow, acted bool) (n uint8) {
	for i, set := range []bool{requeue, shadow, acted} {
		if set {
			n += 1 << i
		}
	}
	return n
}

func (c *CountRow) effect() (requeue, shadow, acted bool) {
	return c.kind&1 > 0, c.kind&2 > 0, c.kind&4 > 0
}

// Counts are kept counts of jobs, of decisions and of what was not decided.
var Counts = Of[CountRow]{
	Name:    "counts",
	Key:     []string{"of", "queue", "job_set", "about", "hour", "policy", "rule", "code", "kind", "partition"},
	Columns: columns("of queue job_set about hour policy rule code kind partition n pruned"),
	Adds:    2,
	Fields: func(c *CountRow, v []any) []any {
		return append(v, &c.of, &c.queue, &c.jobSet, &c.about, &c.hour, &c.policy, &c.rule, &c.code, &c.kind, &c.partition, &c.n, &c.pruned)
	},
}

// CountsOf returns what changes add to kept counts, in the order of their keys.
func CountsOf(c *jobdb.Changes) []*CountRow {
	sums := map[CountRow]int64{}
	runs := decidedRuns(c)
	for _, d := range c.Decisions {
		hour := jobdb.HourOf(d.Time)
		k := CountRow{partition: d.Partition, policy: d.Policy, rule: d.Rule, code: uint8(d.Code), kind: effectOf(d.Requeue, d.Shadow, d.Acted), hour: hour}
		sums[k]++
		k.of, k.queue = decisionsOfQueueByHour, d.Queue
		sums[k]++
		k.of, k.hour = decisionsOfQueue, 0
		sums[k]++
		k.of, k.hour, k.jobSet = decisionsOfSet, hour, d.JobSet
		sums[k]++
		if !d.Acted {
			continue
		}
		var node, category string
		if r := runs[jobdb.RunKey{JobID: d.JobID, RunID: d.RunID}]; r != nil {
			node, category = cmp.Or(r.Error.Node, r.Node), r.Error.Category
		}
		for of, name := range map[uint8]string{decisionsOfNode: node, decisionsOfCategory: category} {
			if len(name) <= longestName {
				sums[CountRow{of: of, partition: d.Partition, about: name, hour: hour, kind: k.kind}]++
			}
		}
	}
	count := func(j *jobdb.CountedJob, n int64) {
		k := CountRow{of: jobsOfQueue, partition: j.Partition, queue: j.Queue, kind: uint8(j.State)}
		sums[k] += n
		k.of, k.jobSet = jobsOfSet, j.JobSet
		sums[k] += n
		if j.Waiting {
			k.of, k.kind = waitingOfSet, 0
			sums[k] += n
			k.of, k.jobSet = waitingOfQueue, ""
			sums[k] += n
		}
	}
	for _, j := range c.Jobs {
		now := j.Counted()
		count(&now, 1)
	}
	for i := range c.Replaced {
		count(&c.Replaced[i], -1)
	}
	for _, n := range c.NotDecided {
		sums[CountRow{of: undecided, partition: n.Partition, kind: uint8(n.Reason)}]++
	}
	rows := make([]*CountRow, 0, len(sums))
	for k, n := range sums {
		if k.n = n; n != 0 {
			rows = append(rows, &k)
		}
	}
	slices.SortFunc(rows, (*CountRow).compare)
	return rows
}

// decidedRuns are the runs that the decisions are about: they change with them.
func decidedRuns(c *jobdb.Changes) map[jobdb.RunKey]*jobdb.Run {
	runs := make(map[jobdb.RunKey]*jobdb.Run, len(c.Decisions))
	for _, d := range c.Decisions {
		runs[jobdb.RunKey{JobID: d.JobID, RunID: d.RunID}] = nil
	}
	for _, r := range c.Runs {
		key := jobdb.RunKey{JobID: r.JobID, RunID: r.RunID}
		if _, decided := runs[key]; decided {
			runs[key] = r
		}
	}
	return runs
}

func (c *CountRow) compare(o *CountRow) int {
	return cmp.Or(cmp.Compare(c.of, o.of), cmp.Compare(c.queue, o.queue), cmp.Compare(c.jobSet, o.jobSet), cmp.Compare(c.about, o.about), cmp.Compare(c.hour, o.hour), cmp.Compare(c.policy, o.policy),
		cmp.Compare(c.rule, o.rule), cmp.Compare(c.code, o.code), cmp.Compare(c.kind, o.kind), cmp.Compare(c.partition, o.partition))
}

// Uncounted returns the statements that take the rows of jobs, which are about to be deleted, out of kept counts: for the tables
// with this prefix. ofJobs is the condition that selects the rows of the jobs, in every statement.
func Uncounted(prefix, ofJobs string) (statements []string) {
	for of := range groupings {
		statements = append(statements, counted(prefix, of, "-count(*), count(*)", ofJobs))
	}
	for _, of := range []int{int(decisionsOfSet), int(decisionsOfNode), int(decisionsOfCategory), int(jobsOfSet), int(waitingOfSet)} { // job sets and hours go by
		g := groupings[of]
		statements = append(statements, inTables(prefix, fmt.Sprintf("DELETE FROM {counts} WHERE of = %d AND n = 0 AND (queue, job_set, about, hour) IN (SELECT %s, %s, %s, %s FROM {%s} AS %[6]s WHERE %s)",
			of, g.queue, g.jobSet, g.about, g.hour, g.from, ofJobs)))
	}
	return statements
}

// Recounted returns the statements that take the decisions on a run out of the counts of nodes and categories, with a minus as the
// sign, or put them in. ofRun is the condition that selects them.
func Recounted(prefix, sign, ofRun string) [2]string {
	return [2]string{counted(prefix, int(decisionsOfNode), sign+"count(*), 0", ofRun), counted(prefix, int(decisionsOfCategory), sign+"count(*), 0", ofRun)}
}

// counted returns the statement that adds rows to the counts of one grouping.
func counted(prefix string, of int, n, where string) string {
	g := groupings[of]
	key := strings.Join([]string{fmt.Sprint(of), g.queue, g.jobSet, g.about, g.hour, g.policy, g.rule, g.code, g.kind, "partition"}, ", ")
	s := fmt.Sprintf("INSERT INTO {counts} (%s) SELECT %s, %s FROM {%s} AS %[4]s WHERE %s%s GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10", strings.Join(Counts.Columns, ", "), key, n, g.from, where, g.where)
	return inTables(prefix, s) + Counts.Replace(prefix+Counts.Name)
}

// inTables completes a statement for the tables with a prefix.
func inTables(prefix, statement string) string {
	return strings.NewReplacer("{", prefix, "}", "", "~", "").Replace(statement)
}

// ofCounts returns a query for kept counts.
func ofCounts(of uint8, c *jobdb.Criteria) Query {
	s := Query{From: Counts.Name}
	s.where("of = ?", int64(of))
	switch {
	case c.Queue != "":
		s.where("queue = ?", c.Queue)
	case of == decisionsByHour:
		s.where("queue = ''")
	}
	for _, c := range concat(inQueues("", c.Queues), equal("", "rule", c.Rule), among("", "code", c.Codes), equal("", "policy", c.Policy), equal("", "job_set", c.JobSet)) {
		s.where(c.where.Where[0], c.where.Args...)
	}
	if of <= decisionsOfQueueByHour {
		s.where("job_set = ''")
	}
	return s
}

// hours adds a condition on the hours from one to before another; 0: no limit.
func (q *Query) hours(from, to int64) {
	if from != 0 {
		q.where("hour >= ?", from)
	}
	if to != 0 {
		q.where("hour < ?", to)
	}
}

// byCounts returns queries that together select what the criteria do, each decision in one of them: one for kept counts, as far
// as there are any, and those for rows. by is a key of keys, or empty, that the rows are to be told apart by.
func byCounts(c *jobdb.Criteria, by string) (all []Query) {
	kept := *c
	kept.Queue, kept.Queues, kept.JobSet, kept.Policy, kept.Rule, kept.Codes, kept.Since, kept.Until = "", nil, "", "", "", nil, 0, 0
	filtered := *c
	filtered.Since, filtered.Until = 0, 0
	timed := c.Since != 0 || c.Until != 0
	from, to, edges, ok := wholeHours(c)
	of := decisionsByHour
	switch {
	case by == "node":
		of = decisionsOfNode
	case by == "category":
		of = decisionsOfCategory
	case by == "set" || c.JobSet != "":
		of = decisionsOfSet
	case !timed:
		of = decisionsOfQueue
	case by == "queue" || c.Queue != "" || len(c.Queues) > 0:
		of = decisionsOfQueueByHour
	}
	if !kept.Empty() || of >= decisionsOfNode && !filtered.Empty() || timed && !ok {
		edges = []jobdb.Criteria{*c}
	} else {
		s := ofCounts(of, c)
		if timed {
			s.hours(from, to)
		}
		all = append(all, s)
	}
	for i := range edges {
		of := decisions(&edges[i])
		s := of.found()
		s.From = Decisions.Name
		all = append(all, s)
	}
	return all
}

// wholeHours splits a time into whole hours, from one to before another, where 0 is no limit, and the rest. ok: there is a whole hour.
func wholeHours(c *jobdb.Criteria) (from, to int64, edges []jobdb.Criteria, ok bool) {
	const hour = int64(3600e9)
	edge := func(since, until int64) {
		one := *c
		one.Since, one.Until = since, until
		edges = append(edges, one)
	}
	from, to = (c.Since+hour-1)/hour, c.Until/hour
	switch {
	case c.Since < 0 || c.Until < 0: // HourOf rounds these up
		return 0, 0, nil, false
	case c.Since == 0 && c.Until != 0: // a time of 0 is none
		from = 1
		edge(0, hour)
	case c.Since%hour != 0:
		edge(c.Since, from*hour)
	}
	if c.Until%hour != 0 {
		edge(to*hour, c.Until)
	}
	return from, to, edges, c.Until == 0 || from < to
}

// Hours implements [jobdb.Queries].
func (q Queries) Hours(f jobdb.HourFilter) (counts []jobdb.HourCount, err error) {
	of := decisionsByHour
	if f.Queue != "" {
		of = decisionsOfQueueByHour
	}
	s := ofCounts(of, &jobdb.Criteria{Queue: f.Queue, Policy: f.Policy})
	s.hours(f.From, f.To)
	s.Columns, s.Rest = []string{"hour", "kind", "CAST(sum(n + pruned) AS BIGINT)"}, " GROUP BY 1, 2 ORDER BY 1, 2 DESC"
	var row CountRow
	err = q.Source.Find(s, func() []any { return []any{&row.hour, &row.kind, &row.n} }, func() error {
		h := jobdb.HourCount{Hour: row.hour, Count: uint64(row.n)}
		h.Requeue, h.Shadow, h.Acted = row.effect()
		counts = append(counts, h)
		return nil
	})
	return counts, err
}

// CountDecisions implements [jobdb.Queries].
func (q Queries) CountDecisions(c *jobdb.Criteria) (counts []jobdb.DecisionCount, err error) {
	sums := map[jobdb.DecisionCount]uint64{}
	for _, s := range byCounts(c, "") {
		kind, n := effect, "count(*)"
		if s.From == Counts.Name {
			kind, n = "kind", "CAST(sum(n) AS BIGINT)"
		}
		s.Columns, s.Rest = []string{kind, "code", "policy", "rule", n}, " GROUP BY 1, 2, 3, 4"
		var row CountRow
		if err := q.Source.Find(s, func() []any { return []any{&row.kind, &row.code, &row.policy, &row.rule, &row.n} }, func() error {
			d := jobdb.DecisionCount{Code: policy.Code(row.code), Policy: row.policy, Rule: row.rule}
			d.Requeue, d.Shadow, d.Acted = row.effect()
			sums[d] += uint64(row.n)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	for d, n := range sums {
		if d.Count = n; n > 0 {
			counts = append(counts, d)
		}
	}
	slices.SortFunc(counts, func(a, b jobdb.DecisionCount) int {
		return cmp.Or(first(a.Requeue, b.Requeue), -first(a.Shadow, b.Shadow), first(a.Acted, b.Acted), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Rule, b.Rule))
	})
	return counts, nil
}

// QueuesInShadow implements [jobdb.Queries].
func (q Queries) QueuesInShadow() (queues []string, err error) {
	s := Query{Columns: []string{"queue"}, From: Counts.Name, Rest: " GROUP BY 1 HAVING sum(n) > 0 ORDER BY 1"}
	s.where("of = ? AND kind IN (2, 3, 6, 7)", int64(decisionsOfQueue))
	var queue string
	err = q.Source.Find(s, func() []any { return []any{&queue} }, func() error {
		queues = append(queues, queue)
		return nil
	})
	return queues, err
}

// first orders what is true first.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// Top implements [jobdb.Queries].
func (q Queries) Top(by string, c *jobdb.Criteria, limit int, jobs bool) (top []jobdb.Top, err error) {
	all := byCounts(c, by)
	if jobs {
		of := decisions(c)
		all = []Query{of.found()}
		all[0].From = Decisions.Name
	}
	sums := map[string]jobdb.Top{}
	for _, s := range all {
		s.Columns = []string{keys[by], "count(*) FILTER (WHERE requeue)", "count(*) FILTER (WHERE NOT requeue)"}
		if s.From == Counts.Name {
			s.where("kind >= 4")
			key := keys[by]
			if by == "node" || by == "category" {
				key = "about"
			}
			s.Columns = []string{key, "CAST(coalesce(sum(n) FILTER (WHERE kind IN (5, 7)), 0) AS BIGINT)", "CAST(coalesce(sum(n) FILTER (WHERE kind IN (4, 6)), 0) AS BIGINT)"}
		} else {
			s.where("acted")
		}
		distinct := "0"
		if jobs {
			distinct = "count(DISTINCT job_id)"
		}
		s.Columns, s.Rest = append(s.Columns, distinct), " GROUP BY 1"
		var row jobdb.Top
		if err := q.Source.Find(s, func() []any { return []any{&row.Key, &row.Retries, &row.Failures, &row.Jobs} }, func() error {
			sum := sums[row.Key]
			sums[row.Key] = jobdb.Top{Key: row.Key, Retries: sum.Retries + row.Retries, Failures: sum.Failures + row.Failures, Jobs: row.Jobs}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	top = slices.Collect(maps.Values(sums))
	top = slices.DeleteFunc(top, func(t jobdb.Top) bool { return t.Retries+t.Failures == 0 })
	slices.SortFunc(top, func(a, b jobdb.Top) int {
		return cmp.Or(cmp.Compare(b.Retries, a.Retries), cmp.Compare(b.Failures, a.Failures), cmp.Compare(a.Key, b.Key))
	})
	if limit > 0 {
		top = top[:min(len(top), limit)]
	}
	return top, nil
}
