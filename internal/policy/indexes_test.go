package policy_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/oracle"
)

func TestOracleK8sCompletedIndexes(t *testing.T) {
	t.Parallel()
	completedSuite().Test(t)
}

// completedSuite: what was completed before, and the pods that succeeded. Indexes that no member can have are left out by
// the engine, not here.
func completedSuite() *oracle.Suite {
	return &oracle.Suite{
		File: "k8s_completed_indexes.json",
		Run: func(c *oracle.Check) {
			var prior struct{ CompletedIndexes string }
			var observed struct {
				Completions int64
				Pods        []struct {
					Index any
					Phase string

					UID, Name, Namespace, Containers, InitContainers, Conditions, RestartPolicy any
					CreationTimestamp, DeletionTimestamp, DeletionGracePeriodSeconds            any
					IndexFailureCount, IndexIgnoredFailureCount, HasTrackingFinalizer           any
				}
			}
			if !c.Inputs(map[string]any{"prior": &prior, "observed": &observed}) {
				return
			}
			var expected struct {
				Intervals, FromStatusIntervals []oracle.Interval
				IntervalsAsString              string `json:"intervalsAsString_derived"`
			}
			if !c.Expected(&expected) {
				return
			}
			before := below(policy.ParseIndexes(prior.CompletedIndexes), observed.Completions)
			oracle.Equal(c, "from the status", before.String(), setOf(expected.FromStatusIntervals).String())
			set := policy.ParseIndexes(prior.CompletedIndexes)
			for _, p := range observed.Pods {
				if index, err := strconv.ParseUint(fmt.Sprint(p.Index), 10, 32); err == nil && p.Phase == "Succeeded" {
					set.Add(uint32(index))
				}
			}
			set = below(set, observed.Completions)
			oracle.Equal(c, "intervals", set.String(), setOf(expected.Intervals).String())
			oracle.Equal(c, "completed", set.String(), expected.IntervalsAsString)
		},
	}
}

// numbers lists the indexes of a set.
func numbers(set policy.Indexes) (list []int64) {
	for piece := range strings.SplitSeq(set.String(), ",") {
		low, high, isRange := strings.Cut(piece, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.ParseInt(low, 10, 64)
		last, err2 := strconv.ParseInt(high, 10, 64)
		for i := first; err == nil && err2 == nil && i <= last; i++ {
			list = append(list, i)
		}
	}
	return list
}

// below are the indexes that a Job of so many completions can have.
func below(set policy.Indexes, completions int64) (out policy.Indexes) {
	for _, i := range numbers(set) {
		if i < completions {
			out.Add(uint32(i))
		}
	}
	return out
}

func setOf(intervals []oracle.Interval) (set policy.Indexes) {
	for _, in := range intervals {
		for i := in[0]; i <= in[1]; i++ {
			set.Add(uint32(i))
		}
	}
	return set
}

func TestOracleK8sIndexStrings(t *testing.T) {
	t.Parallel()
	stringsSuite().Test(t)
}

// stringsSuite: strings that Kubernetes accepts keep their indexes. Of others, the first interval that we do not read is
// the one that Kubernetes names, and what is valid is kept, as Kubernetes skips corrupted intervals.
func stringsSuite() *oracle.Suite {
	return &oracle.Suite{
		File:     "k8s_index_string_format.json",
		Optional: []string{"expected.wantError"},
		Run: func(c *oracle.Check) {
			var observed struct {
				Completions                                          int64
				IndexesString, CompletedIndexesStr, FailedIndexesStr *string
			}
			if !c.Inputs(map[string]any{"observed": &observed}) {
				return
			}
			var expected struct {
				WantTotal int64
				WantError string
			}
			if !c.Expected(&expected) {
				return
			}
			if s := observed.IndexesString; s != nil {
				if c.LeaveOut(oracle.Reason{Holds: ofOne(*s), Why: "a range of one index, as 3-3: we read it"}) {
					return
				}
				total, refused := refusal(c, *s, observed.Completions)
				oracle.Equal(c, "total", total, expected.WantTotal)
				oracle.Equal(c, "error", refused, expected.WantError)
				return
			}
			if c.CannotRun(oracle.Reason{Holds: observed.CompletedIndexesStr == nil || observed.FailedIndexesStr == nil, Why: "no indexes"}) {
				return
			}
			oracle.Equal(c, "total", 0, expected.WantTotal)
			completed, refused := numbers(policy.ParseIndexes(*observed.CompletedIndexesStr)), ""
			for _, i := range numbers(policy.ParseIndexes(*observed.FailedIndexesStr)) {
				if slices.Contains(completed, i) && refused == "" {
					refused = fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", i)
				}
			}
			oracle.Equal(c, "error", refused, expected.WantError)
		},
	}
}

// ofOne says whether a range of a string has one index.
func ofOne(s string) bool {
	return slices.ContainsFunc(strings.Split(s, ","), func(piece string) bool {
		low, high, isRange := strings.Cut(piece, "-")
		return isRange && low == high && low != ""
	})
}

// refusal returns how many indexes a string has, or what Kubernetes says of the first interval that we do not read, or
// that the Job cannot have.
func refusal(c *oracle.Check, s string, completions int64) (total int64, refused string) {
	if s == "" {
		return 0, ""
	}
	pieces, so := strings.Split(s, ","), policy.Indexes{}
	for i, piece := range pieces {
		now := policy.ParseIndexes(strings.Join(pieces[:i+1], ","))
		added := len(numbers(below(now, completions))) - len(numbers(below(so, completions)))
		read := added > 0 && added == len(numbers(now))-len(numbers(so))
		if why := wrong(piece, numbers(so), completions); why != "" || !read {
			if read || why == "" {
				c.Errorf("%q: %t that we read %q", s, read, piece)
			}
			return 0, why
		}
		so = now
	}
	return int64(len(numbers(so))), ""
}

// wrong is what Kubernetes says of an interval after these indexes.
func wrong(interval string, before []int64, completions int64) string {
	var limits []int64
	words := strings.Split(interval, "-")
	if len(words) > 2 {
		return fmt.Sprintf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", interval)
	}
	if len(before) > 0 {
		limits = append(limits, before[len(before)-1])
	}
	for _, word := range words {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return fmt.Sprintf("cannot convert string to integer for index: %q", word)
		}
		if n >= completions {
			return fmt.Sprintf("too large index: %q", word)
		}
		limits = append(limits, n)
	}
	for i := len(limits) - 1; i > 0; i-- { // the interval by itself, then with what is before it
		if limits[i] <= limits[i-1] {
			return fmt.Sprintf("non-increasing order, previous: %d, current: %d", limits[i-1], limits[i])
		}
	}
	return ""
}

func TestOracleK8sIndexIntervals(t *testing.T) {
	t.Parallel()
	intervalsSuite().Test(t)
}

// intervalsSuite: sets of indexes. Which pods a controller creates, removes or keeps is no question here.
func intervalsSuite() *oracle.Suite {
	return &oracle.Suite{
		File: "k8s_index_intervals.json",
		Run: func(c *oracle.Check) {
			var row struct {
				Observed struct {
					Intervals []oracle.Interval
					Index     *int64
				}
				Expected struct {
					Has                        *bool
					FirstPendingIndexes        any
					PodsKept, WantLeft, WantRm any
				}
			}
			if !c.Read(&row) {
				return
			}
			in, want := row.Observed, row.Expected
			if c.CannotRun(
				oracle.Reason{Holds: want.FirstPendingIndexes != nil, Why: "for which index the controller creates the next pod: our jobs are submitted with their indexes"},
				oracle.Reason{Holds: want.WantLeft != nil || want.WantRm != nil, Why: "two pods of one index: a second job of an index is a GroupFinding (semantics.md 12.1), and none is removed"},
				oracle.Reason{Holds: want.PodsKept != nil, Why: "which failed pod carries the counts of its index: ours are in the job's state"},
				oracle.Reason{Holds: in.Index == nil, Why: "no index to look for"},
			) {
				return
			}
			set := setOf(in.Intervals)
			all := len(numbers(set))
			set.Add(uint32(*in.Index))
			if want.Has == nil {
				c.Fatalf("the row does not say whether the set has the index")
			}
			oracle.Equal(c, "has", len(numbers(set)) == all, *want.Has)
		},
	}
}

func TestIndexes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var set policy.Indexes
		in := map[uint32]bool{}
		for range rapid.IntRange(0, 30).Draw(r, "n") {
			i := rapid.Uint32Range(0, 20).Draw(r, "index")
			set.Add(i)
			in[i] = true
		}
		free := uint32(0)
		for in[free] {
			free++
		}
		if set.NextFree() != free {
			r.Fatalf("the next free index of %v is %d, want %d", set, set.NextFree(), free)
		}
		var want policy.Indexes
		for i := range uint32(21) {
			if in[i] {
				want.Add(i)
			}
		}
		if set.String() != want.String() || policy.ParseIndexes(set.String()).String() != set.String() {
			r.Fatalf("%v, in order %v, read again %v", set, want, policy.ParseIndexes(set.String()))
		}
	})
}
