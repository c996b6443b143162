package table

import (
	"slices"

	"github.com/refloat/refloat/internal/jobdb"
)

// HorizonQuery reads the horizon of the policy generation in force, for the partition in
// the first argument.
const HorizonQuery = "SELECT horizon_ms FROM %sactivations WHERE partition = %s AND semantics = 0 ORDER BY seq DESC, record DESC LIMIT 1"

// LastEndQuery reads the latest end of a job, for the partition in the first argument.
const LastEndQuery = "SELECT ended FROM %sjobs WHERE partition = %s AND ended <> 0 ORDER BY ended DESC LIMIT 1"

// OfJobs are the tables with rows of jobs: all that is deleted with a job.
var OfJobs = []string{Ready.Name, NotDecided.Name, Decisions.Name, Runs.Name, Jobs.Name}

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
