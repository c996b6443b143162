// Package shadow compares what was decided in shadow with what became of the
// jobs: of the failures that we would have retried, how many Armada made the end
// of the job, and of those that we would have made the end, how many jobs it ran
// again, and with what success.
//
// Nobody acts on a decision in shadow, so what the job database says of such a
// job is what Armada did with it. Read takes both from there. Replay makes both
// from an events log alone, by policies that nobody has used yet.
//
// The report counts what happened. Whether a retry that nobody made would have
// succeeded is not in any log, and it does not say so.
package shadow
