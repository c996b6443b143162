package simulate

import "time"

// due is something that happens at a time.
type due struct {
	at     time.Duration
	number uint64
	job    *job  // of ends and cancels
	of     int32 // the run that ends, or the fault's place in the cluster
	what   what
}

type what uint8

// In the order in which they happen at the same time.
const (
	ends what = iota
	cancels
	faultBegins
	faultEnds
	arrive
	cycle
	guards
)

// dueHeap is a binary heap, the earliest first. (container/heap would allocate memory for each element that comes or goes.)
type dueHeap []due

func (d *due) before(o *due) bool {
	switch {
	case d.at != o.at:
		return d.at < o.at
	case d.what != o.what:
		return d.what < o.what
	}
	return d.number < o.number
}

func (h *dueHeap) push(d due) {
	*h = append(*h, d)
	all := *h
	i := len(all) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !d.before(&all[parent]) {
			break
		}
		all[i], i = all[parent], parent
	}
	all[i] = d
}

// pop removes the first one; there must be one.
func (h *dueHeap) pop() due {
	all := *h
	first, last := all[0], all[len(all)-1]
	all[len(all)-1] = due{}
	all = all[:len(all)-1]
	*h = all
	i := 0
	for 2*i+1 < len(all) {
		child := 2*i + 1
		if child+1 < len(all) && all[child+1].before(&all[child]) {
			child++
		}
		if !all[child].before(&last) {
			break
		}
		all[i], i = all[child], child
	}
	if len(all) > 0 {
		all[i] = last
	}
	return first
}
