package protection

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/policy"
)

// End is how a run ended on a node, or that it goes on. Runs that say nothing about a node are left out: those that were
// preempted, cancelled or never attempted, and those whose executor was lost.
type End struct {
	Run        string // unique
	Job        string // the job, or the gang that fails with it
	Queue, Set string
	Node       string
	Started    int64 // Unix nanoseconds: when the node got the run
	Time       int64 // Unix nanoseconds: when it ended; 0: it goes on
	Succeeded  bool
	Category   string // of the failure, as Armada names it; "": none
	Pending    bool   // it never began to run, as far as is known
}

// Window holds the latest run ends. The zero value is empty.
type Window struct {
	ends  []End // by time, then run, once it is in order
	going map[string]End
	runs  map[string]bool  // that ended
	nodes map[string]int64 // when a run last ended on each, in Unix nanoseconds
	keep  time.Duration    // the longest for which ends matter to those who look at them
}

const (
	// Every is how often the guard looks for new run ends.
	Every = 2 * time.Second
	// MaxEnds is how many run ends a window holds: beyond it, the oldest are forgotten. It holds as many runs that go on.
	MaxEnds = 1 << 17
	// kept is how much longer than the window ends are kept, to see what became of jobs that failed on a node.
	kept = 6
	// slowest is how long a failure may take to open a breaker.
	slowest = 30 * time.Minute
	// known is how long a node counts as one of the cluster after its last run.
	known = 24 * time.Hour
	// maxNodes limits the nodes that are known.
	maxNodes = 100_000
)

// Tells says whether a failure with a condition may be its node's: not if the scheduler preempted the run, if its executor was
// lost with all of its runs, or if it was never attempted.
func Tells(c policy.Condition) bool {
	return c != policy.Preempted && c != policy.LeaseExpired && c != policy.Unschedulable
}

// Add adds a run end, unless it was added before, or a run that goes on.
func (w *Window) Add(e *End) {
	if w.runs == nil {
		w.runs, w.nodes, w.going = map[string]bool{}, map[string]int64{}, map[string]End{}
	}
	if e.Node == "" || w.runs[e.Run] {
		return
	}
	if e.Time == 0 {
		if len(w.going) < MaxEnds {
			w.going[e.Run] = *e
		}
		return
	}
	delete(w.going, e.Run)
	w.runs[e.Run] = true
	w.ends = append(w.ends, *e)
	if last, ok := w.nodes[e.Node]; ok || len(w.nodes) < maxNodes {
		w.nodes[e.Node] = max(last, e.Time)
	}
}

// Has says whether the end of a run was added and not yet forgotten.
func (w *Window) Has(run string) bool { return w.runs[run] }

// HasStart says so of a run that goes on, or has ended.
func (w *Window) HasStart(run string) bool { return w.runs[run] || w.going[run].Run != "" }

// Forget forgets a run that goes on, which ended in a way that says nothing.
func (w *Window) Forget(run string) { delete(w.going, run) }

// Len is how many run ends the window holds.
func (w *Window) Len() int { return len(w.ends) }

// Keep returns for how long before now run ends matter, at the length of a window.
func Keep(window time.Duration) time.Duration { return kept * window }

// KeepStarts is Keep for what breakers need, also of runs that go on.
func KeepStarts(window time.Duration) time.Duration { return window + slowest }

// trim puts the ends in order, and forgets those that no longer matter.
func (w *Window) trim(keep time.Duration, now int64) {
	slices.SortFunc(w.ends, func(a, b End) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Run, b.Run)) })
	w.keep = max(w.keep, keep)
	old := max(0, len(w.ends)-MaxEnds)
	for old < len(w.ends) && w.ends[old].Time <= now-int64(w.keep) {
		old++
	}
	for i := range w.ends[:old] {
		delete(w.runs, w.ends[i].Run)
	}
	w.ends = slices.Delete(w.ends, 0, old)
	maps.DeleteFunc(w.going, func(_ string, e End) bool { return e.Started <= now-int64(w.keep) })
	for node, last := range w.nodes { //house:sorted each is looked at by itself
		if last <= now-int64(known) {
			delete(w.nodes, node)
		}
	}
}
