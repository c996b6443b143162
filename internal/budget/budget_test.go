package budget_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/budget"
	"github.com/refloat/refloat/internal/policy"
)

const t0 = int64(1_800_000_000_000_000_000)

func at(d time.Duration) int64 { return t0 + int64(d) }

// TestFloor: a burst of the floor is granted at once, what follows when the window has room, one after the other.
func TestFloor(t *testing.T) {
	t.Parallel()
	a := budget.Account{Budget: policy.Budget{Floor: 4, Window: 10 * time.Minute}}
	var got []time.Duration
	for range 10 {
		got = append(got, time.Duration(a.Ask(t0, 1).At-t0))
		a.Spend(t0, 1)
	}
	want := []time.Duration{0, 0, 0, 0, 600 * time.Second, 750 * time.Second, 900 * time.Second, 1050 * time.Second, 1200 * time.Second, 1350 * time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("granted after %v, want %v", got, want)
	}
	if len(a.Floor) != 4 {
		t.Errorf("%d times are kept, want 4", len(a.Floor))
	}
}

// TestRatio: first runs pay for retries while they are in the window, also while others wait for the floor.
func TestRatio(t *testing.T) {
	t.Parallel()
	a := budget.Account{Budget: policy.Budget{Ratio: 200, Floor: 1, Window: 10 * time.Minute}}
	for range 14 {
		a.First(t0)
	}
	for i, want := range []budget.Answer{
		{At: t0, Paid: true, Firsts: 14, Left: 3}, {At: t0, Paid: true, Firsts: 14, Left: 2}, {At: t0, Firsts: 14, Left: 1}, {At: at(10 * time.Minute), Firsts: 14},
	} {
		if got := a.Ask(t0, 1); got != want {
			t.Errorf("retry %d: %+v, want %+v", i, got, want)
		}
		a.Spend(t0, 1)
	}
	a.First(at(time.Minute))
	if got := a.Ask(at(time.Minute), 1); !got.Paid || got.Left != 1 {
		t.Errorf("after a fifteenth first run: %+v, want it to pay for one", got)
	}
	if got := a.Ask(at(10*time.Minute+30*time.Second), 1); got.Paid || got.Firsts != 1 {
		t.Errorf("half a minute before it leaves the window: %+v, want one first run, which pays for nothing", got)
	}
}

// TestShare: partitions divide the floor, rounded up.
func TestShare(t *testing.T) {
	t.Parallel()
	b := policy.Budget{Floor: 10}
	for n, want := range map[uint32]uint32{0: 10, 1: 10, 3: 4, 10: 1, 16: 1, 64: 1} {
		if got := b.Share(n); got != want {
			t.Errorf("of %d partitions: %d, want %d", n, got, want)
		}
	}
}

// TestLaws: in every window that ends with a grant, the floor has granted no more than its share, and first runs have paid for
// no more than they can; and what is kept is bounded.
func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.Int64Range(10_000, 100_000).Draw(t, "window")) * time.Millisecond
		a := budget.Account{Budget: policy.Budget{
			Ratio: rapid.Uint32Range(0, 1000).Draw(t, "ratio"), Floor: rapid.Uint32Range(1, 5).Draw(t, "floor"),
			Window: window, Refuse: rapid.Bool().Draw(t, "refuse"),
		}}
		partitions := rapid.Uint32Range(0, 4).Draw(t, "partitions")
		share := int(a.Share(partitions))
		width := int64(window / budget.Slices)
		now := rapid.Int64Range(-1<<40, 1<<40).Draw(t, "begin")
		slice := func(at int64) int64 { return (at - ((at%width)+width)%width) / width }
		var firsts, paid, floor []int64
		for range rapid.IntRange(0, 80).Draw(t, "events") {
			now += rapid.Int64Range(0, int64(window)/3).Draw(t, "elapsed")
			if rapid.Bool().Draw(t, "first") {
				a.First(now)
				firsts = append(firsts, slice(now))
				continue
			}
			answer := a.Ask(now, partitions)
			a.Spend(now, partitions)
			recent := func(times []int64) (n uint64) {
				for _, s := range times {
					if s > slice(now)-budget.Slices {
						n++
					}
				}
				return n
			}
			switch {
			case answer.Paid:
				if paid = append(paid, slice(now)); recent(paid)*1000 > recent(firsts)*uint64(a.Ratio) {
					t.Fatalf("%d first runs paid for %d retries", recent(firsts), recent(paid))
				}
			case a.Refuse && answer.Exhausted(now):
			default:
				if n := len(floor); n > 0 && answer.At < floor[n-1] {
					t.Fatalf("granted at %d, after one at %d", answer.At, floor[n-1])
				}
				if floor = append(floor, answer.At); len(floor) > share && floor[len(floor)-1-share] > answer.At-int64(window) {
					t.Fatalf("more than %d grants in the window before %d", share, answer.At)
				}
			}
			if len(a.Counts) > budget.Slices || len(a.Floor) > share {
				t.Fatalf("%d slices and %d times are kept", len(a.Counts), len(a.Floor))
			}
		}
	})
}
