package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"time"
)

// backoff is the delay of a rule's retries: min(initial × (num/den)^(n-1), max),
// then jitter (semantics.md 6). Times are in milliseconds.
type backoff struct {
	initial, max uint64
	num, den     uint64 // the multiplier, num ≥ den ≥ 1, without common factor
	jitter       uint64 // thousandths, at most 1000
}

// schedule fills in when the n-th retry of a grant may start.
func (s *Set) schedule(v *Verdict, q *queue, g *grant, f *Failure, n uint64) {
	plain := g.backoff.delay(n)
	plain = toDuration(uint64(plain/time.Millisecond) + g.backoff.jitterOf(plain, f.RunID))
	v.Delay, v.Backoff = plain, plain
	if g.waitsForEnd(f) {
		v.Delay = max(plain, time.Duration(addSaturating(int64(f.grace()), int64(s.terminationSlack))))
	}
	v.ReadyAfter = max(addSaturating(f.Time, int64(plain)), q.pausedUntil)
	v.RetryAfter = max(addSaturating(f.Time, int64(v.Delay)), q.pausedUntil)
}

// waitsForEnd reports whether the old run's pod may still be alive (semantics.md 6, 8).
func (g *grant) waitsForEnd(f *Failure) bool {
	return (g.whenTerminated || f.Conditions.Has(Preempted) || f.Conditions.Has(LeaseExpired)) && !f.PodIsOver()
}

// PodIsOver reports whether a failure itself proves that the run's pod is over (semantics.md 8): executors return a lease
// when the pod is gone, and report how containers ended when all have. Of its own findings (category internal), one
// says that there is no pod.
func (f *Failure) PodIsOver() bool {
	switch {
	case f.Unproved:
		return false
	case f.leaseReturned():
		return true
	case f.Category == "internal":
		return f.Subcategory == "job-creation-failed" || f.Subcategory == "pod-missing"
	}
	return slices.ContainsFunc(f.Containers, func(c Container) bool { return c.ExitCode != 0 })
}

func (f *Failure) grace() time.Duration { return boundGrace(f.Grace) }

// Grace returns the termination grace of a pod whose terminationGracePeriodSeconds is this; 0 if
// it is unset.
func Grace(seconds int64) time.Duration {
	return boundGrace(time.Duration(min(max(seconds, 0), int64(maxGrace/time.Second))) * time.Second)
}

func boundGrace(d time.Duration) time.Duration { return min(max(d, minGrace), maxGrace) }

// The bounds of the termination grace (semantics.md 2).
const (
	minGrace = time.Second
	maxGrace = 300 * time.Second
)

// delay returns the delay of the n-th retry, n ≥ 1: exact, rounded down to the
// millisecond once, saturating.
func (b *backoff) delay(n uint64) time.Duration { return toDuration(b.millis(n - 1)) }

// millis returns min(floor(initial × (num/den)^e), max).
func (b *backoff) millis(e uint64) uint64 {
	switch {
	case b.initial == 0 || b.initial >= b.max || b.num == b.den || e == 0:
		return min(b.initial, b.max)
	case b.surelyOver(e):
		return b.max
	}
	// hi:lo = initial × num^k and div = den^k, while they fit.
	hi, lo, div := uint64(0), b.initial, uint64(1)
	for range e {
		carry, newLo := bits.Mul64(lo, b.num)
		over, newHi := bits.Mul64(hi, b.num)
		newHi, c := bits.Add64(newHi, carry, 0)
		overDiv, newDiv := bits.Mul64(div, b.den)
		if over != 0 || c != 0 || overDiv != 0 {
			return b.bigMillis(e)
		}
		hi, lo, div = newHi, newLo, newDiv
	}
	quotient, _ := bits.Div64(hi, lo, div)
	return min(quotient, b.max)
}

// surelyOver reports whether the delay has certainly reached its maximum, despite floating-point error: the
// logarithms differ by more than 1. If not, the delay before its maximum is below 3 × max, which fits in 64 bits
// (maxMillis).
func (b *backoff) surelyOver(e uint64) bool {
	growth := math.Log(float64(b.num)) - math.Log(float64(b.den))
	return float64(e)*growth > math.Log(float64(b.max))-math.Log(float64(b.initial))+1
}

// bigMillis is millis for cases where 128 bits do not suffice.
func (b *backoff) bigMillis(e uint64) uint64 {
	exp := new(big.Int).SetUint64(e)
	num := new(big.Int).Exp(new(big.Int).SetUint64(b.num), exp, nil)
	den := new(big.Int).Exp(new(big.Int).SetUint64(b.den), exp, nil)
	num.Mul(num, new(big.Int).SetUint64(b.initial))
	return min(num.Quo(num, den).Uint64(), b.max)
}

// jitterOf returns floor(delay × jitter × u) in milliseconds, where u is that of the run.
func (b *backoff) jitterOf(delay time.Duration, runID string) uint64 {
	if b.jitter == 0 || delay == 0 {
		return 0
	}
	return part(uint64(delay/time.Millisecond), b.jitter, runID)
}

// part returns floor(n × thousandths ÷ 1000 × u), where u is the first 32 bits of SHA-256 of the run id ÷ 2³². n × thousandths is
// less than 2⁶⁴, and thousandths at most 1000.
func part(n, thousandths uint64, runID string) uint64 {
	var room [64]byte // keeps a run id off the heap
	sum := sha256.Sum256(append(room[:0], runID...))
	u := uint64(binary.BigEndian.Uint32(sum[:4]))
	hi, lo := bits.Mul64(n*thousandths, u)
	extra, _ := bits.Div64(hi, lo, 1000<<32)
	return extra
}

// toDuration converts milliseconds, saturating at a whole millisecond.
func toDuration(ms uint64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
}

// addSaturating adds two non-negative numbers.
func addSaturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
