package table

import (
	"fmt"
	"slices"

	"github.com/refloat/refloat/internal/jobdb"
)

// HorizonQuery reads the horizon of the policy generation in force, for the partition in
// the first argument.
const HorizonQuery = "SELECT horizon_ms FROM %sactivations WHERE partition = %s AND semantics = 0 ORDER BY seq DESC, record DESC LIMIT 1"

// LastEndQuery reads the latest end of a job, for the partition in the first argument.
const LastEndQuery = "SELECT ended FROM %sjobs WHERE partition = %s AND ended <> 0 ORDER BY ended DESC LIMIT 1"

// OfJobs are the tables with rows of jobs: all that is deleted with a job.
var OfJobs = []string{GroupRecords.Name, Ready.Name, NotDecided.Name, Decisions.Name, Runs.Name, Jobs.Name}

// Candidates returns the query for jobs that may be pruned. The partition is its first
// argument.
func Candidates(partition int, which jobdb.Candidates) Query {
	c := Query{Columns: Jobs.Columns, From: Jobs.Name, Rows: true}
	c.where("partition = ?", int64(partition))
	if which.Unsubmitted {
		c.where("NOT known AND job_id > ?", which.AfterJob)
		c.Rest = " ORDER BY job_id LIMIT ?"
	} else {
		c.where("ended <> 0 AND ended <= ? AND (ended, job_id) > (?, ?)", which.EndedBy, which.AfterEnd, which.AfterJob)
		c.Rest = " ORDER BY ended, job_id LIMIT ?"
	}
	c.Args = slices.Clip(append(c.Args, int64(which.Limit)))
	return c
}

// alone holds for jobs that are in no group, and for members of groups of which every
// member ended by the time in the argument: a group may start any of its members again.
// %[1]s is the prefix of tables.
const alone = `(group_id = '' OR NOT EXISTS (SELECT 1 FROM %[1]sjobs o WHERE o.group_id = %[1]sjobs.group_id AND o.group_id <> '' AND o.partition = %[1]sjobs.partition AND o.ended = 0)
	AND NOT EXISTS (SELECT 1 FROM %[1]sjobs o WHERE o.group_id = %[1]sjobs.group_id AND o.group_id <> '' AND o.partition = %[1]sjobs.partition AND o.ended > ?))`

// Alone adds the condition to a query for Candidates by their end.
func (q *Query) Alone(prefix string, which jobdb.Candidates) {
	if !which.Unsubmitted {
		last := len(q.Args) - 1
		q.Where = append(q.Where, fmt.Sprintf(alone, prefix))
		q.Args = append(q.Args[:last:last], which.EndedBy, q.Args[last])
	}
}

// OfGroups are the tables with rows of groups. EmptyGroup is the condition under which a
// group has lost its last member.
var OfGroups = []string{GroupRecords.Name, Units.Name, Groups.Name}

// EmptyGroup returns it for a table with rows of groups.
func EmptyGroup(prefix, table string) string {
	return fmt.Sprintf("NOT EXISTS (SELECT 1 FROM %[1]sjobs o WHERE o.group_id = %[1]s%[2]s.group_id AND o.group_id <> '' AND o.partition = %[1]s%[2]s.partition)", prefix, table)
}
