// Package writer writes Armada's own scheduler tables beside ours, in the same
// transactions, so that an unmodified Armada scheduler retries jobs by our
// decisions.
//
// Package schedulerdb defines what each event does there, and the sink's rows hold the
// decisions. How the two combine depends on the Mode:
//
//   - HoldBack, for an unmodified scheduler: a failed run and its requeue become
//     visible at the same time, so the scheduler does not act on the failure. Until
//     the retry is due, the job's requirements have a node selector that no node
//     satisfies. A job that the scheduler itself has failed (a preemption, an expired
//     lease) is put back into the queue in a later transaction, 3 s later, when the
//     scheduler has dropped it from memory. Every 5 s, up to five times, the row's
//     version is raised so that the scheduler reads it again, until the job has a
//     newer run (docs/operate.md).
//   - Direct, for a scheduler that honours retry_after in refloat_jobs: requeues
//     and failures are written as decided.
//   - Passthrough: exactly what Armada's ingester writes.
//
// The table refloat_waits holds the pending retries, each with the time at which its
// next step is due; refloat_held holds the rows of members of groups that may not start
// yet. Plans are pure; the Writer loads their input and writes their
// result.
//
// Invariant: Armada's tables follow from the events, the decisions, and the times at
// which runs were written as over and pending retries ended. A transaction can be repeated with the same result.
//
// Where to look: writer.go has the input, plan.go the plans (group.go those of groups), tables.go
// and holds.go the SQL.
package writer
