package policy

import (
	"slices"
	"strconv"
	"strings"
)

// Indexes is a set of indexes of members: intervals in ascending order that do not touch.
type Indexes []interval

type interval struct{ First, Last uint32 }

// ParseIndexes reads what String wrote. Of other text it keeps the intervals that are
// valid and follow those before them.
func ParseIndexes(s string) Indexes {
	set, _ := ReadIndexes(s)
	return set
}

// ReadIndexes is ParseIndexes, and reports whether it kept all.
func ReadIndexes(s string) (set Indexes, all bool) {
	all = true
	for piece := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(piece, "-")
		first, err := strconv.ParseUint(low, 10, 32)
		last := first
		if isRange && err == nil {
			last, err = strconv.ParseUint(high, 10, 32)
		}
		if n := len(set); err != nil || last < first || n > 0 && first <= uint64(set[n-1].Last) {
			all = false
			continue
		}
		if n := len(set); n > 0 && first == uint64(set[n-1].Last)+1 {
			set[n-1].Last = uint32(last)
			continue
		}
		set = append(set, interval{uint32(first), uint32(last)})
	}
	return set, all
}

// String writes the set as Kubernetes does: "0,3-7". An interval of two is written as two
// numbers.
func (s Indexes) String() string {
	var b []byte
	for i, in := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(in.First), 10)
		if in.Last > in.First {
			sep := byte('-')
			if in.Last == in.First+1 {
				sep = ','
			}
			b = strconv.AppendUint(append(b, sep), uint64(in.Last), 10)
		}
	}
	return string(b)
}

// Add adds an index.
func (s *Indexes) Add(index uint32) {
	set := *s
	i, _ := slices.BinarySearchFunc(set, index, func(in interval, n uint32) int {
		if in.Last < n {
			return -1
		}
		return 1
	})
	switch {
	case i < len(set) && set[i].First <= index:
		return
	case i > 0 && set[i-1].Last+1 == index && i < len(set) && set[i].First == index+1:
		set[i-1].Last = set[i].Last
		*s = slices.Delete(set, i, i+1)
	case i > 0 && set[i-1].Last+1 == index:
		set[i-1].Last = index
	case i < len(set) && set[i].First == index+1:
		set[i].First = index
	default:
		*s = slices.Insert(set, i, interval{index, index})
	}
}

// NextFree returns the smallest index that is not in the set.
func (s Indexes) NextFree() uint32 {
	if len(s) == 0 || s[0].First > 0 {
		return 0
	}
	return s[0].Last + 1
}

// Has reports whether the index is in the set.
func (s Indexes) Has(index uint32) bool {
	for _, in := range s {
		if index <= in.Last {
			return in.First <= index
		}
	}
	return false
}

// Len returns how many indexes are in the set.
func (s Indexes) Len() (n uint64) {
	for _, in := range s {
		n += uint64(in.Last) - uint64(in.First) + 1
	}
	return n
}

// Last returns the greatest index of a set that is not empty.
func (s Indexes) Last() uint32 { return s[len(s)-1].Last }
