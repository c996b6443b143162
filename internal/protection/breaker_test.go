package protection_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/protection"
)

// outage is a guard of breakers, and what it sees.
type outage struct {
	t       *testing.T
	b       protection.Breakers
	w       protection.Window
	p       policy.Breakers
	issued  []protection.Opening
	held    []protection.Held
	running map[string]int64
	room    int
	runs    int
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	t.Parallel()
	o := &outage{t: t, p: policy.DefaultBreakers(), running: map[string]int64{}, room: 100}
	o.p.OpenAfter, o.p.Window, o.p.Canaries = 4, 2*time.Minute, 2
	return o
}

// ends adds the end of a run that took ten seconds; category "": it succeeded.
func (o *outage) ends(d time.Duration, queue, job, category string) {
	o.runs++
	o.w.Add(&protection.End{
		Run: fmt.Sprint(o.runs), Job: job, Queue: queue, Node: "n", Started: at(d - 10*time.Second), Time: at(d), Succeeded: category == "", Category: category,
	})
}

// goes adds so many runs of a queue that started at once, and go on.
func (o *outage) goes(d time.Duration, queue string, n int) {
	for range n {
		o.runs++
		o.w.Add(&protection.End{Run: fmt.Sprint(o.runs), Job: fmt.Sprint("going-", o.runs), Queue: queue, Node: "n", Started: at(d)})
	}
}

// fail fails so many jobs of a queue, at once.
func (o *outage) fail(d time.Duration, queue string, n int) {
	for i := range n {
		o.ends(d, queue, fmt.Sprintf("%s-%v-%d", queue, d, i), "pull")
	}
}

func (o *outage) hold(queue string, jobs ...string) {
	for _, j := range jobs {
		o.held = append(o.held, protection.Held{Cause: protection.Cause{Category: "pull", Queue: queue}, Job: j, Runs: 1})
	}
}

// look looks, carries out the verdict, and returns it in words.
func (o *outage) look(d time.Duration) (did []string) {
	v := o.b.Look(&o.w, &o.p, o.issued, o.held, func(j string) int64 { return o.running[j] }, o.room, at(d))
	for _, x := range v.Open {
		o.issued = append(o.issued, x)
		did = append(did, fmt.Sprintf("open %s %s for %v", x.Category, x.Queue, time.Duration(x.Until-at(d))))
	}
	for _, x := range v.Close {
		i := slices.IndexFunc(o.issued, func(was protection.Opening) bool { return was.Cause == x.Cause && was.Since == x.Since })
		o.issued[i] = x
		did = append(did, fmt.Sprintf("close %s %s: %s", x.Category, x.Queue, x.Reason))
	}
	for _, s := range v.Start {
		if s.Canary {
			o.held = slices.DeleteFunc(o.held, func(h protection.Held) bool { return h.Job == s.Job })
		}
		did = append(did, fmt.Sprintf("start %s canary=%t in %v", s.Job, s.Canary, time.Duration(s.At-at(d))))
	}
	return did
}

func (o *outage) want(d time.Duration, want ...string) {
	o.t.Helper()
	if got := o.look(d); !slices.Equal(got, want) {
		o.t.Errorf("after %v: %q, want %q", d, got, want)
	}
}

// TestOutage: jobs of two queues fail, both are held; canaries fail and are sent again, pass, and the rest starts on a ramp.
func TestOutage(t *testing.T) {
	o := newOutage(t)
	o.fail(0, "a", 3)
	o.want(0)
	o.fail(time.Second, "b", 1)
	o.want(time.Second) // of a, two count
	o.fail(2*time.Second, "b", 1)
	o.want(2*time.Second, "open pull a for 1h0m0s", "open pull b for 1h0m0s")
	if r := o.issued[0].Reason; r != "of the 3 jobs of which a run started between 2m10s and 10s ago, 3 failed; so did most of 1 other queue" {
		t.Errorf("because %s", r)
	}
	o.hold("a", "a1", "a2", "a3", "a4", "a5")
	o.want(30 * time.Second)
	o.want(32*time.Second, "start a1 canary=true in 0s", "start a2 canary=true in 0s")
	o.want(63 * time.Second) // no result yet
	o.ends(64*time.Second, "a", "a1", "pull")
	o.want(64 * time.Second)
	o.ends(65*time.Second, "a", "a2", "pull")
	for _, j := range []string{"a1", "a2"} {
		o.held = append(o.held, protection.Held{Cause: protection.Cause{Category: "pull", Queue: "a"}, Job: j, Runs: 2})
	}
	o.want(65*time.Second, "start a3 canary=true in 0s", "start a4 canary=true in 0s")
	o.running["a3"] = at(70 * time.Second)
	o.ends(71*time.Second, "a", "a4", "pull")
	o.held = append(o.held, protection.Held{Cause: protection.Cause{Category: "pull", Queue: "a"}, Job: "a4", Runs: 2})
	o.want(94 * time.Second) // one of two is not enough
	o.want(95*time.Second, "start a5 canary=true in 0s", "start a1 canary=true in 0s")
	o.running["a5"], o.running["a1"] = at(96*time.Second), at(97*time.Second)
	o.want(107 * time.Second) // a1 runs for as long as those that failed
	o.want(108*time.Second, "close pull a: 2 of 2 jobs that started early did not fail of it", "start a2 canary=false in 0s")
	o.want(109*time.Second, "start a4 canary=false in 0s")
	o.want(110 * time.Second)       // once
	o.fail(117*time.Second, "a", 2) // they started before it closed
	o.want(117 * time.Second)
	o.fail(119*time.Second, "a", 2)
	o.want(119*time.Second, "open pull a for 1h0m0s") // b is held, so it counts
	o.want(122*time.Second, "close pull b: no retry is held, and no job failed of it for 2m0s")
}

// TestRamp: what is released starts one after the other, and the rest is held again when the breaker opens again.
func TestRamp(t *testing.T) {
	o := newOutage(t)
	o.issued = []protection.Opening{{Cause: protection.Cause{Category: "pull", Queue: "a"}, Since: at(0), Until: at(time.Minute)}}
	for i := range 90 {
		o.hold("a", fmt.Sprintf("a%02d", i))
	}
	started := 0
	for d := time.Minute; d < 75*time.Second; d += protection.Every {
		for _, did := range o.look(d) {
			if want := fmt.Sprintf("start a%02d canary=false in %v", started, protection.Every*time.Duration(started%3)/3); did != want {
				t.Fatalf("after %v: %s, want %s", d, did, want)
			}
			started++
		}
	}
	if started != 24 { // three in 2 s, of 90 in a minute
		t.Errorf("%d started", started)
	}
	o.fail(75*time.Second, "a", 2)
	o.fail(75*time.Second, "b", 2)
	if did := o.look(76 * time.Second); len(did) != 2 {
		t.Errorf("%q", did)
	}
	if did := o.look(100 * time.Second); len(did) != 0 {
		t.Errorf("while it is open: %q", did)
	}
}

// TestTurns: the queues of a category take turns with their canaries, until those of one pass.
func TestTurns(t *testing.T) {
	o := newOutage(t)
	o.fail(0, "a", 2)
	o.fail(0, "b", 2)
	o.want(0, "open pull a for 1h0m0s", "open pull b for 1h0m0s")
	o.hold("a", "a1", "a2", "a3", "a4")
	o.hold("b", "b1", "b2", "b3")
	o.want(29 * time.Second)
	o.want(30*time.Second, "start a1 canary=true in 0s", "start a2 canary=true in 0s")
	o.ends(32*time.Second, "a", "a1", "pull")
	o.ends(32*time.Second, "a", "a2", "pull")
	o.want(59 * time.Second)
	o.want(60*time.Second, "start b1 canary=true in 0s", "start b2 canary=true in 0s")
	o.ends(75*time.Second, "b", "b1", "")
	o.ends(75*time.Second, "b", "b2", "crash")
	o.want(76*time.Second, "close pull b: 2 of 2 jobs that started early did not fail of it", "start a3 canary=true in 0s", "start a4 canary=true in 0s", "start b3 canary=false in 0s")
}

// TestAllTurns: once the canaries of one queue pass, the others do not wait for their turn.
func TestAllTurns(t *testing.T) {
	o := newOutage(t)
	for _, q := range []string{"a", "b", "c"} {
		o.fail(0, q, 2)
	}
	o.want(0, "open pull a for 1h0m0s", "open pull b for 1h0m0s", "open pull c for 1h0m0s")
	o.hold("a", "a1", "a2", "a3", "a4")
	o.hold("b", "b1", "b2")
	o.hold("c", "c1", "c2", "c3")
	o.want(30*time.Second, "start a1 canary=true in 0s", "start a2 canary=true in 0s")
	o.ends(32*time.Second, "a", "a1", "pull")
	o.ends(32*time.Second, "a", "a2", "pull")
	o.want(60*time.Second, "start b1 canary=true in 0s", "start b2 canary=true in 0s")
	o.want(90*time.Second, "start c1 canary=true in 0s", "start c2 canary=true in 0s")
	o.ends(94*time.Second, "b", "b1", "")
	o.ends(94*time.Second, "b", "b2", "")
	o.want(95*time.Second, "close pull b: 2 of 2 jobs that started early did not fail of it", "start a3 canary=true in 0s", "start a4 canary=true in 0s")
}

// TestPending: what never began to run says nothing of how long a canary must run.
func TestPending(t *testing.T) {
	o := newOutage(t)
	o.p.Queues, o.p.OpenAfter = 1, 1
	o.w.Add(&protection.End{Run: "r", Job: "a0", Queue: "a", Node: "n", Started: at(-29 * time.Minute), Time: at(0), Category: "pull", Pending: true})
	o.want(0, "open pull a for 1h0m0s")
	o.hold("a", "a1")
	o.want(30*time.Second, "start a1 canary=true in 0s")
	o.running["a1"] = at(40 * time.Second)
	o.want(41*time.Second, "close pull a: 1 of 1 job that started early did not fail of it")
}

// TestNoOutage: what opens no breaker.
func TestNoOutage(t *testing.T) {
	for name, add := range map[string]func(o *outage){
		"one queue": func(o *outage) { o.fail(0, "a", 100) },
		// The attack: one queue that always fails, around honest failures of another that mostly succeeds.
		"one queue, and a few of another": func(o *outage) {
			o.fail(0, "a", 100)
			o.fail(0, "b", 5)
			for i := range 11 {
				o.ends(0, "b", fmt.Sprint("b", i), "")
			}
		},
		// The attack on a cluster that has just begun, of which only failures have ended so far.
		"one queue, and a few of another that runs": func(o *outage) {
			o.fail(0, "a", 100)
			o.fail(0, "b", 5)
			o.goes(-10*time.Second, "b", 6)
		},
		"one queue, and the quick failures of what has just started": func(o *outage) {
			for i := range 10 {
				o.w.Add(&protection.End{Run: fmt.Sprint("slow-", i), Job: fmt.Sprint("slow-", i), Queue: "b", Node: "n", Started: at(-50 * time.Second), Time: at(0), Category: "pull"})
			}
			o.fail(0, "a", 100)
			o.fail(0, "b", 5)
			o.goes(-50*time.Second, "b", 11)
			o.goes(-10*time.Second, "b", 50)
		},
		"they took longer than what is known": func(o *outage) {
			for i := range 8 {
				o.w.Add(&protection.End{Run: fmt.Sprint(i), Job: fmt.Sprint(i), Queue: string(rune('a' + i%2)), Node: "n", Started: at(-33 * time.Minute), Time: at(0), Category: "pull"})
			}
		},
		"too few of another":    func(o *outage) { o.fail(0, "a", 100); o.fail(0, "b", 1) },
		"two long ago":          func(o *outage) { o.fail(0, "a", 2); o.fail(-2*time.Minute, "b", 2) },
		"one job, many times":   func(o *outage) { o.fail(0, "a", 2); o.ends(0, "b", "b", "pull"); o.ends(1, "b", "b", "pull") },
		"it succeeded after":    func(o *outage) { o.fail(0, "a", 2); o.fail(0, "b", 2); o.ends(1, "b", "b-0s-0", "") },
		"different categories":  func(o *outage) { o.fail(0, "a", 2); o.ends(0, "b", "b1", "x"); o.ends(0, "b", "b2", "y") },
		"no category":           func(o *outage) { o.fail(0, "a", 2); o.ends(0, "b", "b1", ""); o.ends(0, "b", "b2", "") },
		"a clock that is ahead": func(o *outage) { o.fail(0, "a", 2); o.fail(time.Hour, "b", 2) },
		"no room":               func(o *outage) { o.room = 0; o.fail(0, "a", 2); o.fail(0, "b", 2) },
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t)
			add(o)
			o.want(time.Second)
		})
	}
}

// TestJoins: while a category is held of enough queues, one more failing queue is.
func TestJoins(t *testing.T) {
	o := newOutage(t)
	o.fail(0, "a", 2)
	o.fail(0, "b", 2)
	o.want(0, "open pull a for 1h0m0s", "open pull b for 1h0m0s")
	o.fail(time.Minute, "c", 1)
	o.want(time.Minute, "open pull c for 1h0m0s")
	o.want(time.Hour + 2*time.Minute)
}

// TestBegan: what started before the outage and goes on, or ends well in it, hides nothing once enough have started since.
func TestBegan(t *testing.T) {
	o := newOutage(t)
	for _, queue := range []string{"a", "b"} {
		o.goes(-10*time.Minute, queue, 50)
		for i := range 20 {
			o.w.Add(&protection.End{Run: fmt.Sprint(queue, i), Job: fmt.Sprint(queue, i), Queue: queue, Node: "n", Started: at(-time.Hour), Time: at(0), Succeeded: true})
		}
		o.fail(0, queue, 2)
		o.goes(-5*time.Second, queue, 50) // they may fail yet
	}
	o.want(0, "open pull a for 1h0m0s", "open pull b for 1h0m0s")
}

// TestForgotten: a run that goes on counts once, not beside its end, and not when it was preempted.
func TestForgotten(t *testing.T) {
	o := newOutage(t)
	for _, queue := range []string{"a", "b"} {
		for i := range 2 {
			run := &protection.End{Run: fmt.Sprint(queue, i), Job: fmt.Sprint(queue, i), Queue: queue, Node: "n", Started: at(-10 * time.Second)}
			o.w.Add(run)
			run.Time, run.Category = at(0), "pull"
			o.w.Add(run)
		}
		for i := range 5 {
			run := &protection.End{Run: fmt.Sprint("preempted", queue, i), Job: fmt.Sprint("preempted", queue, i), Queue: queue, Node: "n", Started: at(-10 * time.Second)}
			o.w.Add(run)
			o.w.Forget(run.Run)
		}
	}
	o.want(0, "open pull a for 1h0m0s", "open pull b for 1h0m0s")
}

// TestThreeQuarters: a breaker closes when so many of its canaries passed, not fewer.
func TestThreeQuarters(t *testing.T) {
	for passed, want := range map[int][]string{2: nil, 3: {"close pull a: 3 of 4 jobs that started early did not fail of it"}} {
		t.Run(fmt.Sprint(passed), func(t *testing.T) {
			o := newOutage(t)
			o.p.Canaries = 4
			o.issued = []protection.Opening{{Cause: protection.Cause{Category: "pull", Queue: "a"}, Since: at(0), Until: at(time.Hour)}}
			o.hold("a", "a1", "a2", "a3", "a4")
			o.look(30 * time.Second)
			o.hold("a", "a5")
			for i := range 4 {
				category := "pull"
				if i < passed {
					category = ""
				}
				o.ends(45*time.Second, "a", fmt.Sprint("a", i+1), category)
			}
			if want != nil {
				want = append(want, "start a5 canary=false in 0s")
			}
			o.want(46*time.Second, want...)
		})
	}
}
