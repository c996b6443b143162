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
	decisionsByHour        = 0  // kind is the effect, about the category if there was one
	decisionsOfQueueByHour = 1  // also by queue
	decisionsOfQueue       = 2  // of all times
	decisionsOfSet         = 3  // by hour
	jobsOfQueue            = 4  // kind is the state
	waitingOfQueue         = 5  // jobs with a pending retry
	undecided              = 6  // of a queue; kind is the reason
	nodesByDay             = 7  // decisions that had an effect; hour is the first of the day, kind the effect, about the node
	jobsOfSet              = 9  // of a job set
	waitingOfSet           = 10 // of a job set
	nodesByHour            = 11
	nodesOfQueueByDay      = 13
)

// groupings are how rows are counted, in SQL: from which table, and by which columns or other values.
var groupings = map[uint8]struct{ from, queue, jobSet, hour, about, policy, rule, code, kind, where string }{
	decisionsByHour:        {Decisions.Name, none, none, inHour, ofCategory, "policy", "rule", "code", effect, ""},
	decisionsOfQueueByHour: {Decisions.Name, "queue", none, inHour, ofCategory, "policy", "rule", "code", effect, ""},
	decisionsOfQueue:       {Decisions.Name, "queue", none, "0", ofCategory, "policy", "rule", "code", effect, ""},
	decisionsOfSet:         {Decisions.Name, "queue", "job_set", inHour, ofCategory, "policy", "rule", "code", effect, ""},
	jobsOfQueue:            {Jobs.Name, "queue", none, "0", none, none, none, "0", "state", ""},
	waitingOfQueue:         {Jobs.Name, "queue", none, "0", none, none, none, "0", "0", " AND retry_after > 0"},
	undecided:              {NotDecided.Name, "queue", none, "0", none, none, none, "0", "reason", ""},
	nodesByDay:             {Decisions.Name, none, none, inDay, onNode, none, none, "0", effect, " AND acted"},
	jobsOfSet:              {Jobs.Name, "queue", "job_set", "0", none, none, none, "0", "state", ""},
	waitingOfSet:           {Jobs.Name, "queue", "job_set", "0", none, none, none, "0", "0", " AND retry_after > 0"},
	nodesByHour:            {Decisions.Name, none, none, inHour, onNode, none, none, "0", effect, " AND acted"},
	nodesOfQueueByDay:      {Decisions.Name, "queue", none, inDay, onNode, none, none, "0", effect, " AND acted"},
}

// byRun are the groupings by what a run may still change. Counts of nothing are deleted of those in passing.
var (
	byRun   = []uint8{decisionsByHour, decisionsOfQueueByHour, decisionsOfQueue, decisionsOfSet, nodesByDay, nodesByHour, nodesOfQueueByDay}
	passing = []uint8{decisionsOfSet, jobsOfSet, waitingOfSet, nodesByDay, nodesByHour, nodesOfQueueByDay}
)

const (
	none       = "''"
	inHour     = "time / 3600000000000"
	inDay      = "time / 86400000000000 * 24"
	onNode     = "CASE WHEN octet_length(" + nodeKey + ") <= 250 THEN " + nodeKey + " ELSE '" + tooLong + "' END"
	ofCategory = "CASE WHEN NOT acted THEN '' WHEN octet_length(" + categoryKey + ") <= 250 THEN " + categoryKey + " ELSE '" + tooLong + "' END"
	tooLong    = "…" // in place of names of nodes and categories of more than 250 bytes
)

// named is how a node or category is counted.
func named(name string) string {
	if len(name) > 250 {
		return tooLong
	}
	return name
}

// effect is what effectOf numbers.
const effect = "CASE WHEN requeue THEN 1 ELSE 0 END + CASE WHEN shadow THEN 2 ELSE 0 END + CASE WHEN acted THEN 4 ELSE 0 END"

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
	Key:     []string{"of", "queue", "job_set", "hour", "about", "policy", "rule", "code", "kind", "partition"},
	Columns: columns("of queue job_set hour about policy rule code kind partition n pruned"),
	Adds:    2,
	Fields: func(c *CountRow, v []any) []any {
		return append(v, &c.of, &c.queue, &c.jobSet, &c.hour, &c.about, &c.policy, &c.rule, &c.code, &c.kind, &c.partition, &c.n, &c.pruned)
	},
}

// CountsOf returns what changes add to kept counts, in the order of their keys.
func CountsOf(c *jobdb.Changes) []*CountRow {
	sums := map[CountRow]int64{}
	runs := decidedRuns(c)
	for _, d := range c.Decisions {
		k := CountRow{of: decisionsOfSet, partition: d.Partition, queue: d.Queue, jobSet: d.JobSet, hour: jobdb.HourOf(d.Time), policy: d.Policy, rule: d.Rule, code: uint8(d.Code), kind: effectOf(d.Requeue, d.Shadow, d.Acted)}
		node := CountRow{of: nodesByHour, partition: d.Partition, hour: k.hour, kind: k.kind}
		if r := runs[jobdb.RunKey{JobID: d.JobID, RunID: d.RunID}]; r != nil && d.Acted {
			k.about, node.about = named(r.Error.Category), named(cmp.Or(r.Error.Node, r.Node))
		}
		sums[k]++
		if d.Acted {
			sums[node]++
			node.of, node.hour = nodesByDay, jobdb.DayOf(d.Time)*24
			sums[node]++
			node.of, node.queue = nodesOfQueueByDay, d.Queue
			sums[node]++
		}
	}
	count := func(j *jobdb.CountedJob, n int64) {
		k := CountRow{of: jobsOfSet, partition: j.Partition, queue: j.Queue, jobSet: j.JobSet, kind: uint8(j.State)}
		sums[k] += n
		if j.Waiting {
			k.of, k.kind = waitingOfSet, 0
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
		sums[CountRow{of: undecided, partition: n.Partition, queue: n.Queue, kind: uint8(n.Reason)}]++
	}
	for k, n := range sums { // the coarser groupings
		hour := k.hour
		switch k.jobSet = ""; k.of {
		case decisionsOfSet:
			k.of = decisionsOfQueueByHour
			sums[k] += n
			k.of, k.hour = decisionsOfQueue, 0
			sums[k] += n
			k.of, k.hour, k.queue = decisionsByHour, hour, ""
			sums[k] += n
		case jobsOfSet, waitingOfSet:
			k.of -= jobsOfSet - jobsOfQueue
			sums[k] += n
		}
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
	return cmp.Or(cmp.Compare(c.of, o.of), cmp.Compare(c.queue, o.queue), cmp.Compare(c.jobSet, o.jobSet), cmp.Compare(c.hour, o.hour), cmp.Compare(c.about, o.about), cmp.Compare(c.policy, o.policy),
		cmp.Compare(c.rule, o.rule), cmp.Compare(c.code, o.code), cmp.Compare(c.kind, o.kind), cmp.Compare(c.partition, o.partition))
}

// Uncounted returns the statements that take the rows of jobs, which are about to be deleted, out of kept counts: for the tables
// with this prefix. ofJobs is the condition that selects the rows of the jobs, in every statement.
func Uncounted(prefix, ofJobs string) (statements []string) {
	for _, of := range slices.Sorted(maps.Keys(groupings)) {
		statements = append(statements, counted(prefix, of, "-count(*), count(*)", ofJobs))
	}
	for _, of := range passing {
		g := groupings[of]
		statements = append(statements, inTables(prefix, fmt.Sprintf("DELETE FROM {counts} WHERE of = %d AND n = 0 AND (queue, job_set, hour, about) IN (SELECT %s, %s, %s, %s FROM {%s} AS %[6]s WHERE %s)",
			of, g.queue, g.jobSet, g.hour, g.about, g.from, ofJobs)))
	}
	return statements
}

// Recounted returns the statements that take the decisions on a run out of the counts of nodes and categories, with a minus as the
// sign, or put them in. ofRun is the condition that selects them.
func Recounted(prefix, sign, ofRun string) (statements []string) {
	for _, of := range byRun {
		statements = append(statements, counted(prefix, of, sign+"count(*), 0", ofRun))
	}
	return statements
}

// Recount returns the statements with which a migration ends that changes what is counted, and only the last of them: it counts all
// rows again. What was pruned stays, where there still are such counts.
func Recount(prefix string) string {
	all := []string{inTables(prefix, "UPDATE {counts} SET n = 0")}
	for _, of := range slices.Sorted(maps.Keys(groupings)) {
		all = append(all, counted(prefix, of, "count(*), 0", "true"))
	}
	return strings.Join(append(all, inTables(prefix, "DELETE FROM {counts} WHERE n = 0 AND (pruned = 0 OR of > 1)")), ";\n")
}

// counted returns the statement that adds rows to the counts of one grouping.
func counted(prefix string, of uint8, n, where string) string {
	g := groupings[of]
	key := strings.Join([]string{fmt.Sprint(of), g.queue, g.jobSet, g.hour, g.about, g.policy, g.rule, g.code, g.kind, "partition"}, ", ")
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
	case groupings[of].queue == none:
		s.where("queue = ''")
	case c.Queue != "":
		s.where("queue = ?", c.Queue)
	}
	if groupings[of].jobSet == none {
		s.where("job_set = ''")
	}
	for _, c := range concat(inQueues("", c.Queues), equal("", "rule", c.Rule), among("", "code", c.Codes), equal("", "policy", c.Policy), equal("", "job_set", c.JobSet)) {
		s.where(c.where.Where[0], c.where.Args...)
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
	rest := []jobdb.Criteria{*c}
	for _, k := range keptOf(c, by) {
		var edges []jobdb.Criteria
		for i := range rest {
			from, to, of, ok := whole(&rest[i], k.hours)
			if !ok {
				edges = append(edges, rest[i])
				continue
			}
			s := ofCounts(k.of, c)
			s.hours(from, to)
			all, edges = append(all, s), append(edges, of...)
		}
		rest = edges
	}
	for i := range rest {
		of := decisions(&rest[i])
		s := of.found()
		s.From = Decisions.Name
		all = append(all, s)
	}
	return all
}

// keptIn is a grouping of decisions, each of its counts of so many hours; 0: of all times.
type keptIn struct {
	of    uint8
	hours int64
}

// keptOf returns the groupings that have what the criteria select, told apart by a key, the coarsest first.
func keptOf(c *jobdb.Criteria, by string) []keptIn {
	kept := *c
	kept.Queue, kept.Queues, kept.JobSet, kept.Policy, kept.Rule, kept.Codes, kept.Since, kept.Until = "", nil, "", "", "", nil, 0, 0
	inQueues, inRule := c.Queue != "" || len(c.Queues) > 0, c.Policy != "" || c.Rule != "" || len(c.Codes) > 0
	switch {
	case !kept.Empty(), by == "node" && (c.JobSet != "" || inRule):
		return nil
	case by == "node" && inQueues:
		return []keptIn{{nodesOfQueueByDay, 24}}
	case by == "node":
		return []keptIn{{nodesByDay, 24}, {nodesByHour, 1}}
	case by == "set" || c.JobSet != "":
		return []keptIn{{decisionsOfSet, 1}}
	case c.Since == 0 && c.Until == 0:
		return []keptIn{{decisionsOfQueue, 0}}
	case by == "queue" || inQueues:
		return []keptIn{{decisionsOfQueueByHour, 1}}
	}
	return []keptIn{{decisionsByHour, 1}}
}

// whole splits a time into whole steps of hours, from one hour to before another, where 0 is no limit, and the rest. ok: there is a whole one.
func whole(c *jobdb.Criteria, hours int64) (from, to int64, edges []jobdb.Criteria, ok bool) {
	if c.Since == 0 && c.Until == 0 {
		return 0, 0, nil, true
	}
	step := hours * 3600e9
	edge := func(since, until int64) {
		one := *c
		one.Since, one.Until = since, until
		edges = append(edges, one)
	}
	from, to = (c.Since+step-1)/step, c.Until/step
	switch {
	case c.Since < 0 || c.Until < 0: // HourOf rounds these up
		return 0, 0, nil, false
	case c.Since == 0: // a time of 0 is none
		from = 1
		edge(0, step)
	case c.Since%step != 0:
		edge(c.Since, from*step)
	}
	if c.Until%step != 0 {
		edge(to*step, c.Until)
	}
	return from * hours, to * hours, edges, c.Until == 0 || from < to
}

// Hours implements [jobdb.Queries].
func (q Queries) Hours(f jobdb.HourFilter) (counts []jobdb.HourCount, err error) {
	of := uint8(decisionsByHour)
	if f.Queue != "" {
		of = decisionsOfQueueByHour
	}
	s := ofCounts(of, &jobdb.Criteria{Queue: f.Queue, Policy: f.Policy, Rule: f.Rule})
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
