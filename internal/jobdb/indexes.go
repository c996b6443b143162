package jobdb

import (
	"slices"
	"strconv"
	"strings"
)

// Indexes is a set of indexes of members: intervals in ascending order that do not touch.
type Indexes []interval

type interval struct{ first, last uint32 }

// ParseIndexes reads what String wrote. Of other text it keeps the intervals that are
// valid and follow those before them.
func ParseIndexes(s string) Indexes {
	var set Indexes
	for piece := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(piece, "-")
		first, err := strconv.ParseUint(low, 10, 32)
		last := first
		if isRange && err == nil {
			last, err = strconv.ParseUint(high, 10, 32)
		}
		if n := len(set); err != nil || last < first || n > 0 && first <= uint64(set[n-1].last) {
			continue
		}
		if n := len(set); n > 0 && first == uint64(set[n-1].last)+1 {
			set[n-1].last = uint32(last)
			continue
		}
		set = append(set, interval{uint32(first), uint32(last)})
	}
	return set
}

// String writes the set as Kubernetes does: "0,3-7". An interval of two is written as two
// numbers.
func (s Indexes) String() string {
	var b []byte
	for i, in := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(in.first), 10)
		if in.last > in.first {
			sep := byte('-')
			if in.last == in.first+1 {
				sep = ','
			}
			b = strconv.AppendUint(append(b, sep), uint64(in.last), 10)
		}
	}
	return string(b)
}

// Add adds an index.
func (s *Indexes) Add(index uint32) {
	set := *s
	i, _ := slices.BinarySearchFunc(set, index, func(in interval, n uint32) int {
		if in.last < n {
			return -1
		}
		return 1
	})
	switch {
	case i < len(set) && set[i].first <= index:
		return
	case i > 0 && set[i-1].last+1 == index && i < len(set) && set[i].first == index+1:
		set[i-1].last = set[i].last
		*s = slices.Delete(set, i, i+1)
	case i > 0 && set[i-1].last+1 == index:
		set[i-1].last = index
	case i < len(set) && set[i].first == index+1:
		set[i].first = index
	default:
		*s = slices.Insert(set, i, interval{index, index})
	}
}

// NextFree returns the smallest index that is not in the set.
func (s Indexes) NextFree() uint32 {
	if len(s) == 0 || s[0].first > 0 {
		return 0
	}
	return s[0].last + 1
}
