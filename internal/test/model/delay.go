package model

import (
	"crypto/sha256"
	"encoding/binary"
	"math/big"
)

// when sets the delay and retryAfter of a requeue (§6), and the time for its RetryReady (§8).
func (m *Model) when(r *run, v verdict, rec *Record) {
	t := r.failure.t
	if !v.ofPolicy {
		// §9: "The requeue … has no delay", and "neither the kill switch nor
		// grace touches it". Nor does the pause: no policy grants it.
		rec.DelayMs, rec.RetryAfter = 0, t
		r.readyAfter = t
		return
	}
	delay := backoff(v.backoff, m.nth(r.job, v), r.id)
	long := new(big.Int).Set(delay)

	// §6: "Runs whose pod may still be alive (Preempted, LeaseExpired, and every
	// cause when the effective replacement is WhenTerminated): delay = max(delay,
	// grace + terminationSlack)".
	alive := (r.failure.isPreempted() || r.failure.err.GetLeaseExpired() != nil || v.replacement == "WhenTerminated") && !m.provesEnd(r.failure)
	if alive {
		m.Seen["pod may be alive"]++
		// §2: the grace is "1 s when unset; held within 1 s and 300 s".
		if wait := big.NewInt(m.graceMs(r.job)); long.Cmp(wait) < 0 {
			m.Seen["delay raised to the grace"]++
			long = wait
		}
	}
	// §6: "retryAfter = t + delay", and while retries are paused "a retry that a
	// policy grants has retryAfter no earlier than that time, also after proof;
	// delay does not include it".
	// READING: an ignored failure is a retry that a policy grants. (Otherwise:
	// only a counted one.) With both a pause of the settings and one of the
	// queue the later counts. (Otherwise: the queue's.)
	rec.DelayMs = saturate(long)
	rec.RetryAfter = m.paused(r.job.queue, t, after(t, long))
	r.unpaused = after(t, delay)
	r.readyAfter = m.paused(r.job.queue, t, r.unpaused)
	if rec.RetryAfter != after(t, long) {
		m.Seen["paused"]++
	}
	if v.heldUntil != 0 {
		spread := jitter(new(big.Int).Div(new(big.Int).Sub(big.NewInt(v.heldUntil), big.NewInt(t)), big.NewInt(1e6)), 100, r.id)
		held := after(v.heldUntil, spread)
		rec.RetryAfter, r.readyAfter = max(rec.RetryAfter, held), max(r.readyAfter, held)
	}
	if v.asked != nil {
		rec.RetryAfter, r.readyAfter = max(rec.RetryAfter, v.asked.from), max(r.readyAfter, v.asked.from)
	}
}

// provesEnd: §8, from version 4 on, "a returned lease, a PodError with a container that did not
// exit with 0 and another category than internal, and internal/job-creation-failed and
// internal/pod-missing".
func (m *Model) provesEnd(f *failure) bool {
	if !m.has(proof) {
		return false
	}
	over := f.returnedLease()
	switch e := f.err; {
	case e.GetFailureCategory() == "internal":
		over = over || e.GetFailureSubcategory() == "job-creation-failed" || e.GetFailureSubcategory() == "pod-missing"
	default:
		for _, c := range e.GetPodError().GetContainerErrors() {
			over = over || c.ExitCode != 0
		}
	}
	if over {
		m.Seen["a failure proves the end of its pod"]++
	}
	return over
}

// graceMs is the termination grace of a job and the settings' slack.
func (m *Model) graceMs(j *job) int64 {
	return min(max(j.grace, 1), 300)*1000 + m.policies.terminationSlackMs()
}

// after is t + delay.
// READING: a time later than the last that int64 nanoseconds can say is that
// one. (Otherwise: unsaid; §6 has "saturating" of the delay only.)
func after(t int64, delayMs *big.Int) int64 {
	sum := new(big.Int).Mul(delayMs, big.NewInt(1_000_000))
	return saturate(sum.Add(sum, big.NewInt(t)))
}

// paused is retryAfter, or the end of a pause (one "later than t") when that is
// later.
func (m *Model) paused(queue string, t, retryAfter int64) int64 {
	for _, until := range []int64{m.policies.settings().PausedUntil, m.policies.queue(queue).PausedUntil} {
		if until != 0 && until > t {
			retryAfter = max(retryAfter, until)
		}
	}
	return retryAfter
}

// nth is n (§6): "this rule's granted retries including this one (for Ignore,
// its ignored ones)". The decision is among those of the job already.
func (m *Model) nth(j *job, v verdict) int {
	if v.heldUntil != 0 {
		return v.nth
	}
	if v.ignored {
		return j.ignoredBy(v.identity)
	}
	return j.grantedBy(v.identity)
}

// backoff is the delay of the nth retry in milliseconds (§6), without the grace.
// The levels are the most specific first; each field is inherited by itself,
// "rule, policy, the settings' defaultBackoff, then 0 s, 10 min, 2, 0".
func backoff(levels []Backoff, n int, runID string) *big.Int {
	defaults := Backoff{InitialDelayMs: new(int64(0)), MaxDelayMs: new(int64(600_000)), MultiplierMilli: new(int64(2000)), JitterMilli: new(int64(0))}
	var initial, limit, multiplier, jitterMilli *int64
	for _, level := range append(append([]Backoff{}, levels...), defaults) {
		if initial == nil {
			initial = level.InitialDelayMs
		}
		if limit == nil {
			limit = level.MaxDelayMs
		}
		if multiplier == nil {
			multiplier = level.MultiplierMilli
			if level.Constant {
				multiplier = new(int64(1000))
			}
		}
		if jitterMilli == nil {
			jitterMilli = level.JitterMilli
		}
	}

	// "delay = min(initialDelay × multiplier^(n−1), maxDelay) … Exact fractions,
	// rounded down to the millisecond once".
	exact := new(big.Rat).SetInt64(*initial)
	for range n - 1 {
		exact.Mul(exact, big.NewRat(*multiplier, 1000))
	}
	if highest := new(big.Rat).SetInt64(*limit); exact.Cmp(highest) > 0 {
		exact = highest
	}
	delay := floor(exact)

	return delay.Add(delay, jitter(delay, *jitterMilli, runID))
}

// jitter: "delay += floor(delay × j × u) in ms, u = the first 32 bits of SHA-256 of
// the run id, big-endian, ÷ 2³²".
func jitter(delay *big.Int, milli int64, runID string) *big.Int {
	sum := sha256.Sum256([]byte(runID))
	more := new(big.Rat).SetInt(delay)
	more.Mul(more, big.NewRat(milli, 1000))
	more.Mul(more, big.NewRat(int64(binary.BigEndian.Uint32(sum[:4])), 1<<32))
	return floor(more)
}

func floor(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom())
}
