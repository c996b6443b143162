package scheduling

// hopeless remembers requests for which no node was found, so that jobs that request as much or more need not be
// tried. It forgets everything when a job loses what it had on a node.
type hopeless struct {
	version  int       // of the cycle, for which the rest holds
	requests [][]int32 // jobs that failed, by level; first those that failed to find free room
}

// mostHopeless bounds the requests that are compared with each job.
const mostHopeless = 32

// knows says whether a job finds no node: neither free (level none), nor by displacement.
func (h *hopeless) knows(c *cycle, j, level int32) bool {
	if h.version != c.version {
		return false
	}
	// What a more urgent job cannot find, this one cannot.
	for _, jobs := range h.requests[level+1:] {
		for _, failed := range jobs {
			if atLeast(c.request(j), c.request(failed)) {
				return true
			}
		}
	}
	return false
}

// add remembers that a job that avoids no nodes found none.
func (h *hopeless) add(c *cycle, j, level int32) {
	if h.version != c.version {
		h.version = c.version
		for i := range h.requests {
			h.requests[i] = h.requests[i][:0]
		}
	}
	if list := &h.requests[level+1]; len(*list) < mostHopeless {
		*list = append(*list, j)
	} else {
		(*list)[int(j)%mostHopeless] = j
	}
}

// atLeast says whether a request asks for as much as another, of each resource of which that one asks for some.
func atLeast(request, other []int64) bool {
	for r, amount := range other {
		if request[r] < amount {
			return false
		}
	}
	return true
}
