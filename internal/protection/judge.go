package protection

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
)

// Suspicion is a node that retries are to avoid.
type Suspicion struct {
	Node    string
	Since   int64 // Unix nanoseconds; it identifies the suspicion, with the node
	Until   int64 // Unix nanoseconds, whole milliseconds
	Certain bool  // at least half of the jobs that failed there and ran again succeeded elsewhere
	Reason  string
}

// evidence is what speaks against a node: failures one after the other, without a success between them.
type evidence struct {
	node          string
	jobs          []string // that failed, each once
	queues        int      // theirs
	again, better int      // jobs of them that ran again elsewhere, and that succeeded there
	first, last   int64    // times of failures
}

// Judge returns the suspicions that begin, or become certain, at a time. Issued are those of the last day, also those that are over;
// settled says of which nodes others have decided. It allows for the share of nodes that may be suspects at once.
func (w *Window) Judge(p *policy.Protection, issued []Suspicion, settled func(node string) bool, now int64) []Suspicion {
	w.trim(Keep(p.Window), now)
	latest, repeats, active := map[string]*Suspicion{}, map[string]int{}, 0
	for i := range issued {
		s := &issued[i]
		if s.Since <= now-int64(day) {
			continue
		}
		repeats[s.Node]++
		if was := latest[s.Node]; was == nil || s.Since > was.Since {
			latest[s.Node] = s
		}
		if s.Until > now {
			active++
		}
	}
	room := max(1, len(w.nodes)*int(p.Share)/1000) - active
	var out []Suspicion
	for _, e := range w.against(p, latest, now) {
		was := latest[e.node]
		open := was != nil && was.Until > now
		s := Suspicion{Node: e.node, Since: now, Certain: e.certain(), Reason: e.text()}
		before := repeats[e.node]
		switch {
		case settled(e.node), !open && room <= 0:
			continue
		case open:
			s.Since, before = was.Since, before-1
		default:
			room--
		}
		s.Until = ceilMillis(s.Since + int64(p.RestAfter(before, s.Certain)))
		if !open || s.Until > was.Until {
			out = append(out, s)
		}
	}
	return out
}

const day = 24 * time.Hour

func ceilMillis(t int64) int64 {
	const ms = int64(time.Millisecond)
	return (t + ms - 1) / ms * ms
}

// against returns the evidence that is enough, the most first.
func (w *Window) against(p *policy.Protection, latest map[string]*Suspicion, now int64) (all []*evidence) {
	byNode, shares, after := map[string][]*End{}, newShares(), map[string][]*End{}
	for i := range w.ends {
		e := &w.ends[i]
		if e.Time > now { // by a clock that is ahead
			continue
		}
		shares.add(e)
		byNode[e.Node] = append(byNode[e.Node], e)
		after[e.Job] = append(after[e.Job], e)
	}
	for node, ends := range byNode { //house:sorted below
		from := now - int64(p.Window)
		if was := latest[node]; was != nil && was.Until <= now {
			from = max(from, was.Since) // what led to it does not count twice
		}
		if e := streak(p, ends, shares, from); e != nil {
			e.elsewhere(after)
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *evidence) int {
		return cmp.Or(cmp.Compare(len(b.jobs), len(a.jobs)), strings.Compare(a.node, b.node))
	})
	return all
}

// streak goes back from the run that started last on a node, of those that ended, to the last that succeeded: what started
// before a node broke, and ends well on it, says nothing of it now. Of each queue, only so many jobs count that the others
// must add to them: who owns one queue cannot make a node a suspect, nor can one who waits for a failure of somebody else.
func streak(p *policy.Protection, ends []*End, shares *shares, from int64) *evidence {
	e := &evidence{}
	most := int((p.SuspectAfter + p.Queues - 1) / p.Queues)
	ofQueue := map[string]int{}
	slices.SortFunc(ends, func(a, b *End) int {
		return cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.Time, b.Time), cmp.Compare(a.Run, b.Run))
	})
	for _, end := range slices.Backward(ends) {
		if end.Succeeded {
			break
		}
		if end.Time <= from || slices.Contains(e.jobs, end.Job) || ofQueue[end.Queue] == most || shares.failsEverywhere(end) {
			continue
		}
		ofQueue[end.Queue]++
		if e.node == "" {
			e.first = end.Time
		}
		e.node, e.jobs, e.first, e.last = end.Node, append(e.jobs, end.Job), min(e.first, end.Time), max(e.last, end.Time)
	}
	if e.queues = len(ofQueue); len(e.jobs) < int(p.SuspectAfter) || e.queues < int(p.Queues) {
		return nil
	}
	return e
}

// elsewhere looks for later ends of the jobs on other nodes.
func (e *evidence) elsewhere(ends map[string][]*End) {
	for _, job := range e.jobs {
		again, better := false, false
		for _, end := range ends[job] {
			if end.Node != e.node && end.Time > e.first {
				again, better = true, better || end.Succeeded
			}
		}
		if again {
			e.again++
		}
		if better {
			e.better++
		}
	}
}

func (e *evidence) certain() bool { return e.better > 0 && 2*e.better >= e.again }

func (e *evidence) text() string {
	s := fmt.Sprintf("%s of %s failed there in %v without a success between", plural.Of(len(e.jobs), "job"), plural.Of(e.queues, "queue"), time.Duration(e.last-e.first).Round(time.Second))
	if e.again > 0 {
		s += fmt.Sprintf("; of %d that ran again, %d succeeded elsewhere", e.again, e.better)
	}
	return s
}

// shares counts on how many nodes job sets and queues ended, and on how many they failed. It counts nodes and not runs, because
// a node that fails what starts there ends more runs than those that do their work.
type shares struct {
	on  map[place]*tally
	all map[string]*tally // of nodes
}

// place is a job set or a queue on a node.
type place struct{ of, node string }

type tally struct{ ends, failures int }

// fails says whether at least half failed.
func (t *tally) fails() bool { return 2*t.failures >= t.ends }

func newShares() *shares { return &shares{map[place]*tally{}, map[string]*tally{}} }

// groupsOf are the set and the queue of an end.
func groupsOf(e *End) [2]string {
	return [2]string{"set " + e.Queue + "\x00" + e.Set, "queue " + e.Queue}
}

func (s *shares) add(e *End) {
	for _, of := range groupsOf(e) {
		on, all := s.on[place{of, e.Node}], s.all[of]
		if all == nil {
			all = &tally{}
			s.all[of] = all
		}
		if on == nil {
			on = &tally{}
			s.on[place{of, e.Node}] = on
			all.ends++
		} else if on.fails() {
			all.failures--
		}
		on.ends++
		if !e.Succeeded {
			on.failures++
		}
		if on.fails() {
			all.failures++
		}
	}
}

// enough is on how many other nodes a job set must have ended to speak for itself.
const enough = 4

// failsEverywhere says whether the end's job set fails on at least half of the other nodes where it ended; its queue, if these
// are few.
func (s *shares) failsEverywhere(e *End) bool {
	for i, of := range groupsOf(e) {
		other := *s.all[of]
		other.ends--
		if s.on[place{of, e.Node}].fails() {
			other.failures--
		}
		if other.ends >= enough || i > 0 {
			return other.ends > 0 && other.fails()
		}
	}
	return false
}
