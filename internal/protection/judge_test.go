package protection_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/protection"
)

// begin is the time 0 of the tests' ends.
const begin = int64(1_800_000_000_000_000_000)

func at(d time.Duration) int64 { return begin + int64(d) }

// world is a window, and what was issued from it.
type world struct {
	t      *testing.T
	w      protection.Window
	p      policy.Protection
	issued []protection.Suspicion
	other  map[string]bool // nodes of which others have decided
	runs   int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{t: t, p: policy.DefaultProtection(), other: map[string]bool{}}
	for i := range 40 { // healthy nodes
		w.ends(-time.Minute, fmt.Sprintf("q%d", i%2), "ok", fmt.Sprintf("healthy-%d", i))
	}
	return w
}

// ends adds the end of a run that began at that time: queue/set/job, ok or failed, and the node.
func (w *world) ends(d time.Duration, job, how, node string) { w.ran(d, d, job, how, node) }

// ran adds the end of a run that began some time before.
func (w *world) ran(from, d time.Duration, job, how, node string) {
	w.runs++
	parts := strings.Split(job+"///", "/")
	w.w.Add(&protection.End{
		Run: fmt.Sprint(w.runs), Job: job, Queue: parts[0], Set: parts[1], Node: node, Started: at(from), Time: at(d), Succeeded: how == "ok",
	})
}

// judge returns the nodes that are suspects from now on, and notes them as issued.
func (w *world) judge(d time.Duration) (nodes []string) {
	for _, s := range w.w.Judge(&w.p, w.issued, func(n string) bool { return w.other[n] }, at(d)) {
		nodes = append(nodes, fmt.Sprintf("%s certain=%t for %v", s.Node, s.Certain, time.Duration(s.Until-at(d))))
		w.issued = slices.DeleteFunc(w.issued, func(was protection.Suspicion) bool { return was.Node == s.Node && was.Since == s.Since })
		w.issued = append(w.issued, s)
	}
	return nodes
}

func (w *world) want(d time.Duration, want ...string) {
	w.t.Helper()
	if got := w.judge(d); !slices.Equal(got, want) {
		w.t.Errorf("after %v: %q, want %q", d, got, want)
	}
}

// hole fails four jobs of two queues on a node.
func (w *world) hole(d time.Duration, node string) {
	for i := range 4 {
		w.ends(d+time.Duration(i)*time.Second, fmt.Sprintf("q%d/set-%s-%v-%d/job", i%2, node, d, i), "failed", node)
	}
}

// TestSuspect: the fourth failure makes a suspect, success elsewhere makes it certain, and each time takes twice as long.
func TestSuspect(t *testing.T) {
	w := newWorld(t)
	for i, job := range []string{"a/s/1", "b/s/2", "a/s/3"} {
		w.ends(time.Duration(i)*time.Minute, job, "failed", "bad")
		w.want(time.Duration(i) * time.Minute)
	}
	w.ends(3*time.Minute, "a/s/1", "failed", "bad") // again the same job
	w.want(3 * time.Minute)
	w.ends(4*time.Minute, "c/s/4", "failed", "bad")
	w.want(4*time.Minute, "bad certain=false for 5m0s")
	if s := w.issued[0]; s.Reason != "4 jobs of 3 queues failed there in 3m0s without a success between" {
		t.Errorf("because %s", s.Reason)
	}
	w.want(4 * time.Minute)
	w.ends(5*time.Minute, "a/s/1", "ok", "healthy-1")
	w.want(5*time.Minute, "bad certain=true for 29m0s") // since it became a suspect
	if s := w.issued[0]; s.Since != at(4*time.Minute) || !strings.HasSuffix(s.Reason, "; of 1 that ran again, 1 succeeded elsewhere") {
		t.Errorf("%+v", s)
	}
	w.want(40 * time.Minute) // what led to it does not count twice
	w.hole(40*time.Minute, "bad")
	w.want(41*time.Minute, "bad certain=false for 10m0s")
	w.hole(60*time.Minute, "bad")
	w.want(61*time.Minute, "bad certain=false for 20m0s")
	w.hole(26*time.Hour, "bad") // a day later, it is as if new
	w.want(26*time.Hour+time.Minute, "bad certain=false for 5m0s")
}

// TestBeforeItBroke: a run that began before those that fail, and succeeds after them, does not speak for the node.
func TestBeforeItBroke(t *testing.T) {
	w := newWorld(t)
	w.hole(0, "bad")
	w.ran(-time.Hour, 10*time.Second, "e/s/5", "ok", "bad")
	w.want(time.Minute, "bad certain=false for 5m0s")
}

// TestNoSuspect: what is no evidence against a node.
func TestNoSuspect(t *testing.T) {
	four := []string{"a/s/1", "b/s/2", "c/s/3", "d/s/4"}
	for name, add := range map[string]func(w *world){
		"a success between": func(w *world) {
			for i, job := range four {
				w.ends(time.Duration(2*i)*time.Second, job, "failed", "n")
			}
			w.ends(5*time.Second, "e/s/5", "ok", "n")
		},
		"a success that began last": func(w *world) {
			for i, job := range four {
				w.ran(0, time.Duration(2*i)*time.Second, job, "failed", "n")
			}
			w.ran(time.Second, 5*time.Second, "e/s/5", "ok", "n")
		},
		"over a longer time": func(w *world) {
			for i, job := range four {
				w.ends(time.Duration(i-3)*4*time.Minute, job, "failed", "n")
			}
		},
		"one queue": func(w *world) {
			for i := range 50 {
				w.ends(time.Duration(i)*time.Second, fmt.Sprintf("a/s%d/%d", i, i), "failed", "n")
			}
		},
		// The attack: jobs of one queue that fail on this node alone, around one or two honest failures.
		"one queue that waits for others": func(w *world) {
			for i := range 50 {
				w.ends(time.Duration(i)*time.Second, fmt.Sprintf("a/s/%d", i), "failed", "n")
				w.ends(time.Duration(i)*time.Second, fmt.Sprintf("a/s/%d", 100+i), "ok", "healthy-1")
			}
			w.ends(10*time.Second, "b/s/1", "failed", "n")
		},
		// Broken images: their jobs fail wherever they run.
		"two queues that fail everywhere": func(w *world) {
			for i := range 40 {
				w.ends(time.Duration(i)*time.Second, fmt.Sprintf("%c/s/%d", 'a'+rune(i%2), i), "failed", fmt.Sprintf("healthy-%d", i%5))
			}
		},
		"a set of a healthy queue that fails everywhere": func(w *world) {
			for i := range 8 {
				w.ends(time.Duration(i)*time.Second, fmt.Sprintf("%c/good/%d", 'a'+rune(i%2), i), "ok", fmt.Sprintf("healthy-%d", 10+i))
				w.ends(time.Duration(i)*time.Second, fmt.Sprintf("%c/broken/%d", 'a'+rune(i%2), i), "failed", fmt.Sprintf("healthy-%d", i))
				w.ends(time.Duration(i)*time.Second, fmt.Sprintf("%c/broken/x%d", 'a'+rune(i%2), i), "failed", "n")
			}
		},
		"a clock that is ahead": func(w *world) {
			for _, job := range four {
				w.ends(time.Hour, job, "failed", "n")
			}
		},
		"one job again": func(w *world) {
			for i, job := range []string{"a/s/1", "b/s/2", "c/s/3", "c/s/3"} {
				w.ends(time.Duration(i)*time.Second, job, "failed", "n")
			}
		},
		"others have decided": func(w *world) { w.other["n"] = true; w.hole(0, "n") },
		"no node":             func(w *world) { w.hole(0, "") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			add(w)
			w.want(time.Minute)
		})
	}
}

// TestShare: of more nodes than may be suspects, those with the most evidence are; at least one always may.
func TestShare(t *testing.T) {
	w := newWorld(t)
	for i := range 10 {
		w.hole(time.Duration(i)*time.Second, fmt.Sprintf("bad-%d", i))
	}
	w.ends(20*time.Second, "c/s/1", "failed", "bad-7")
	if got := w.judge(time.Minute); len(got) != 5 || got[0] != "bad-7 certain=false for 5m0s" { // of 50
		t.Errorf("%q", got)
	}
	w.want(2 * time.Minute)
	w.p.Share = 0
	w.want(2 * time.Minute)
	w.issued = nil
	w.want(3*time.Minute, "bad-7 certain=false for 5m0s")
}

// TestBounded: a window holds so many ends at most, and forgets what is old.
func TestBounded(t *testing.T) {
	w := newWorld(t)
	for i := range protection.MaxEnds + 1000 {
		w.ends(time.Second, fmt.Sprintf("q%d/s/%d", i%3, i), "ok", "n")
	}
	w.judge(time.Minute)
	if n := w.w.Len(); n != protection.MaxEnds {
		t.Errorf("%d ends", n)
	}
	w.judge(time.Second + protection.Keep(w.p.Window))
	if n := w.w.Len(); n != 0 {
		t.Errorf("%d ends later", n)
	}
}

// TestAgainSoon: a suspicion that is over says nothing more of its node, and makes room for another.
func TestAgainSoon(t *testing.T) {
	w := newWorld(t)
	w.p.Share = 0 // one at a time
	w.hole(0, "bad")
	w.want(4*time.Second, "bad certain=false for 5m0s")
	w.hole(time.Minute, "worse")
	w.want(2 * time.Minute)
	w.want(6*time.Minute, "worse certain=false for 5m0s")
}

// TestUncertain: most of the jobs that ran again failed elsewhere too.
func TestUncertain(t *testing.T) {
	w := newWorld(t)
	w.hole(0, "bad")
	for i, how := range []string{"failed", "failed", "ok"} {
		w.ends(10*time.Second, fmt.Sprintf("q%d/set-bad-0s-%d/job", i%2, i), how, fmt.Sprintf("healthy-%d", i))
	}
	w.want(time.Minute, "bad certain=false for 5m0s")
}

// TestTells: what says nothing of a node.
func TestTells(t *testing.T) {
	t.Parallel()
	for _, c := range []policy.Condition{policy.Preempted, policy.LeaseExpired, policy.Unschedulable} {
		if protection.Tells(c) {
			t.Errorf("%v", c)
		}
	}
	if !protection.Tells(policy.OOMKilled) || !protection.Tells(policy.LeaseReturned) {
		t.Error("a failure of the node's does not tell")
	}
}

// TestOnce: an end counts once.
func TestOnce(t *testing.T) {
	t.Parallel()
	var w protection.Window
	for range 3 {
		w.Add(&protection.End{Run: "r", Job: "j", Node: "n", Time: at(0)})
	}
	if w.Len() != 1 {
		t.Errorf("%d ends", w.Len())
	}
}

// TestManyNodes: of a million nodes, a window knows so many at most, of which the share is, and holds what fits.
func TestManyNodes(t *testing.T) {
	w := newWorld(t)
	w.p.Share = 1 // one of a thousand
	for i := range 1_000_000 {
		w.ends(0, fmt.Sprintf("q%d/s/%d", i%2, i), "ok", fmt.Sprintf("node-%d", i))
	}
	for i := range 120 {
		w.hole(time.Second, fmt.Sprintf("bad-%03d", i))
	}
	if got := w.judge(time.Minute); len(got) != 100 {
		t.Errorf("%d suspects of at most 100,000 nodes", len(got))
	}
	if w.w.Len() != protection.MaxEnds {
		t.Errorf("%d ends", w.w.Len())
	}
}

// TestForgottenNodes: of a node that has had no run for a day, no share is taken.
func TestForgottenNodes(t *testing.T) {
	w := newWorld(t)
	w.p.Share = 100 // one of ten
	for i := range 100 {
		w.ends(0, fmt.Sprintf("q%d/s/%d", i%2, i), "ok", fmt.Sprintf("node-%d", i))
	}
	for i := range 20 {
		w.ends(25*time.Hour, fmt.Sprintf("q%d/s/again-%d", i%2, i), "ok", fmt.Sprintf("good-%d", i%6))
	}
	for _, node := range []string{"bad-1", "bad-2"} {
		w.hole(25*time.Hour, node)
	}
	if got := w.judge(25*time.Hour + time.Minute); len(got) != 1 {
		t.Errorf("%d suspects of eight nodes", len(got))
	}
}

// TestClocks: ends that a clock dates years ahead or back say nothing, and do not keep the guard from seeing what is true.
func TestClocks(t *testing.T) {
	const years = 3 * 365 * 24 * time.Hour
	for _, by := range []time.Duration{years, -years} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			w := newWorld(t)
			w.hole(by, "odd")
			w.want(time.Minute)
			w.hole(2*time.Minute, "bad")
			w.want(3*time.Minute, "bad certain=false for 5m0s")
		})
	}
	t.Run("the guard's own", func(t *testing.T) {
		w := newWorld(t)
		w.hole(0, "bad")
		w.want(years) // all of that is long ago
		if n := w.w.Len(); n != 0 {
			t.Errorf("%d ends", n)
		}
		w.hole(time.Minute, "bad") // read again
		w.want(2*time.Minute, "bad certain=false for 5m0s")
	})
}
