// Package writer keeps Armada's own scheduler tables beside ours, in the same
// transactions, so that an unmodified Armada scheduler retries jobs by our
// decisions.
//
// What each event does there is package armadadb's; what is decided, the sink's
// rows say. Between them, by Mode:
//
//   - HoldBack, for an unmodified scheduler: a failed run and its requeue become
//     visible at once, so the scheduler leaves the failure alone. Until the time
//     of the retry, its requirements have a node selector that no node satisfies.
//     A job that the scheduler has failed by itself (a preemption, an expired
//     lease) is put back in a later transaction, when the scheduler has forgotten
//     it, and that is repeated, slowly and so many times only, while it has no
//     newer run (facts/ARMADA.md 0b).
//   - Direct, for a scheduler that honours retry_after in refloat_jobs: requeues
//     and failures are applied as they are.
//   - Passthrough: what Armada's ingester does, and no more.
//
// What waits stands in the table refloat_waits with the time at which something
// is due. Plans are pure; the Mirror loads what they need and writes what they say.
//
// Invariant: what Armada's tables hold follows from the events, the decisions and
// the time at which waits were ended. A transaction that is repeated does the same.
package writer
