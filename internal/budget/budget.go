// Package budget keeps what one partition has of a retry budget (semantics.md 14): how many first runs and retries there were
// in its window, and when its floor grants the next. It is pure: whole numbers and times of events only.
package budget

import (
	"cmp"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/policy"
)

// Slices is the number of slices of a window. The window of a moment is the slice that it is in, and those before it.
const Slices = 10

// Account is one partition's part of a budget. Its size is bounded by Slices and the floor.
type Account struct {
	policy.Budget
	Counts []Count // by slice, ascending, of the last window
	// Floor are the last times at which the floor granted a retry, ascending, as many as it grants in a window at most. They
	// may be ahead: retries that are delayed.
	Floor []int64
}

// Count is what happened in one slice of a window.
type Count struct {
	Slice   int64  // its time, in slices since 1970
	Firsts  uint32 // first runs of jobs
	Retries uint32 // granted for these
}

// Answer is what an account says about a retry.
type Answer struct {
	At     int64 // when it is granted, Unix nanoseconds; the time of the question if that is at once
	Paid   bool  // by first runs, else by the floor
	Firsts uint32
	Left   uint32 // retries that it would grant at once, this one included
}

func (a *Account) slice(now int64) int64 {
	width := int64(a.Window / Slices)
	n := now / width
	if now%width < 0 {
		n-- // before 1970
	}
	return n
}

// Ask returns when the account grants a retry that is asked for at a time; the floor is that of one of so many partitions.
// What can never be granted, because there is no floor, has the time of the question and nothing left.
func (a *Account) Ask(now int64, partitions uint32) Answer {
	var firsts, retries uint64
	oldest := a.slice(now) - Slices
	for _, c := range a.Counts {
		if c.Slice > oldest {
			firsts, retries = firsts+uint64(c.Firsts), retries+uint64(c.Retries)
		}
	}
	out := Answer{At: now, Firsts: saturated(firsts)}
	share := int(a.Share(partitions))
	if share > 0 {
		out.At = a.floorAt(now, share)
	}
	if out.At == now {
		over, _ := slices.BinarySearchFunc(a.Floor, now, func(at, now int64) int {
			if plus(at, a.Window) > now {
				return 1
			}
			return -1
		})
		out.Left = uint32(max(0, share-(len(a.Floor)-over)))
	}
	if earned := firsts * uint64(a.Ratio) / 1000; earned > retries {
		out.At, out.Paid, out.Left = now, true, saturated(uint64(out.Left)+earned-retries)
	}
	return out
}

// floorAt returns when the floor grants the next retry: no more than its share in any window, and those that must wait one
// after the other, so that they do not start all at once.
func (a *Account) floorAt(now int64, share int) int64 {
	at, n := now, len(a.Floor)
	if n >= share {
		at = max(at, plus(a.Floor[n-share], a.Window))
	}
	if n > 0 && (at > now || a.Floor[n-1] > now) {
		at = max(at, plus(a.Floor[n-1], a.Window/time.Duration(share)))
	}
	return at
}

// Exhausted says whether the budget does not grant the retry at once.
func (a Answer) Exhausted(now int64) bool { return a.Left == 0 || a.At > now }

// First counts a first run.
func (a *Account) First(now int64) { a.count(now).Firsts++ }

// Spend counts a retry as it was answered. One that the budget refuses counts nothing.
func (a *Account) Spend(now int64, partitions uint32) {
	answer := a.Ask(now, partitions)
	switch {
	case answer.Paid:
		a.count(now).Retries++
	case a.Refuse && answer.Exhausted(now):
	default:
		a.Floor = append(a.Floor, answer.At)
		if more := len(a.Floor) - int(a.Share(partitions)); more > 0 {
			a.Floor = slices.Delete(a.Floor, 0, more)
		}
	}
}

// count returns the count of the slice of a moment, without those that no window has any more.
func (a *Account) count(now int64) *Count {
	at := a.slice(now)
	if n := len(a.Counts); n > 0 && a.Counts[n-1].Slice == at && a.Counts[0].Slice > at-Slices { // nearly always
		return &a.Counts[n-1]
	}
	a.Counts = slices.DeleteFunc(a.Counts, func(c Count) bool { return c.Slice <= at-Slices })
	i, found := slices.BinarySearchFunc(a.Counts, at, func(c Count, at int64) int { return cmp.Compare(c.Slice, at) })
	if !found {
		a.Counts = slices.Insert(a.Counts, i, Count{Slice: at})
	}
	return &a.Counts[i]
}

func saturated(n uint64) uint32 { return uint32(min(n, 1<<32-1)) }

// plus adds a delay to a time, saturating.
func plus(t int64, d time.Duration) int64 {
	if sum := t + int64(d); sum >= t {
		return sum
	}
	return 1<<63 - 1
}
