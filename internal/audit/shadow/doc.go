// Package shadow compares decisions made in shadow with what became of the jobs. Of
// the failures that we would have retried, it counts for how many Armada failed the
// job; of those that we would have failed, how many jobs Armada ran again, and how
// many of these succeeded.
//
// Nobody acts on a decision in shadow, so the job database shows what Armada did
// with such a job. Read takes both from there. Replay derives both from an events log
// alone, by policies that have not been deployed yet.
//
// The report counts what happened. Whether a retry would have succeeded that never
// took place is in no log, and the report does not guess.
package shadow
