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

// Cause is what a breaker of the guard holds: failures of one category, of one queue.
type Cause struct{ Category, Queue string }

func (c Cause) compare(d Cause) int {
	return cmp.Or(strings.Compare(c.Category, d.Category), strings.Compare(c.Queue, d.Queue))
}

// Opening is a breaker that the guard opened, or is to open.
type Opening struct {
	Cause
	Since  int64 // Unix nanoseconds
	Until  int64 // Unix nanoseconds, whole milliseconds; of one that was closed, when
	Reason string
}

// Held is a retry that a breaker holds: it starts when it is ordered to, or when the breaker would have ended.
type Held struct {
	Cause
	Job  string
	Runs uint32 // of the job so far
}

// Start is an order to start a held retry.
type Start struct {
	Held
	At     int64 // Unix nanoseconds
	Canary bool  // else its breaker is closed
}

// Verdict is what the guard does about breakers.
type Verdict struct {
	Open  []Opening
	Close []Opening // with the reason
	Start []Start
}

// Breakers remembers the canaries. The zero value has none: a guard that starts again sends new ones.
type Breakers struct {
	probes   map[Cause]*probe
	released map[string]uint32 // jobs that were ordered to start when their breaker closed, with their runs
}

// probe is the canaries of one cause that started last.
type probe struct {
	at     int64
	jobs   []string // without a result yet
	sent   int
	passed int
}

// Look judges the causes of failures at a time: which breakers open, which close because their canaries passed, and which of the
// held retries start. Issued are the openings of the guard, also those that are over; held is what waits, in any order; running
// says since when a job's run has been running, in Unix nanoseconds (0: it is not); room is how many more may open.
func (b *Breakers) Look(w *Window, p *policy.Breakers, issued []Opening, held []Held, running func(job string) int64, room int, now int64) Verdict {
	w.trim(p.Window, now)
	if b.probes == nil {
		b.probes, b.released = map[Cause]*probe{}, map[string]uint32{}
	}
	latest := map[Cause]*Opening{}
	for i := range issued {
		if o := &issued[i]; latest[o.Cause] == nil || latest[o.Cause].Since < o.Since {
			latest[o.Cause] = o
		}
	}
	open := map[Cause]bool{}
	for c, o := range latest { //house:sorted each is looked at by itself
		open[c] = o.Until > now
	}
	byCause := map[Cause][]Held{}
	for _, h := range held {
		byCause[h.Cause] = append(byCause[h.Cause], h)
	}
	var v Verdict
	v.Open = w.causes(p, latest, room, now)
	for i := range v.Open {
		open[v.Open[i].Cause] = true
	}
	for _, c := range sortedCauses(latest) {
		if !open[c] || latest[c].Until <= now {
			continue
		}
		if passed, sent := b.results(w, p, c, running, now); passed > 0 && 2*passed >= sent {
			o := *latest[c]
			o.Until, o.Reason = now, fmt.Sprintf("%d of %s that started early did not fail of it", passed, plural.Of(sent, "job"))
			v.Close = append(v.Close, o)
			open[c] = false
			delete(b.probes, c)
		} else {
			v.Start = append(v.Start, b.canaries(p, latest[c], byCause[c], now)...)
		}
	}
	v.Start = append(v.Start, b.release(p, held, open, now)...)
	return v
}

func sortedCauses(of map[Cause]*Opening) []Cause {
	all := make([]Cause, 0, len(of))
	for c := range of { //house:sorted below
		all = append(all, c)
	}
	slices.SortFunc(all, Cause.compare)
	return all
}

// results says how many canaries of a cause started last, and how many of them passed: their run ended otherwise, or has been
// running for longer than any that failed of the cause.
func (b *Breakers) results(w *Window, p *policy.Breakers, c Cause, running func(job string) int64, now int64) (passed, sent int) {
	pr := b.probes[c]
	if pr == nil {
		return 0, 0
	}
	ends, longest := map[string]*End{}, time.Duration(0)
	for i := range w.ends {
		e := &w.ends[i]
		if e.Category == c.Category && e.Queue == c.Queue {
			longest = max(longest, time.Duration(e.Time-e.Started))
		}
		if e.Time > pr.at && e.Time <= now && (ends[e.Job] == nil || ends[e.Job].Time < e.Time) {
			ends[e.Job] = e
		}
	}
	pr.jobs = slices.DeleteFunc(pr.jobs, func(job string) bool {
		if e := ends[job]; e != nil {
			if e.Category != c.Category {
				pr.passed++
			}
			return true
		}
		since := running(job)
		if since == 0 || now-since <= int64(longest) {
			return false
		}
		pr.passed++
		return true
	})
	return pr.passed, pr.sent
}

// patience is for how many times the time between canaries their results are waited for.
const patience = 10

// canaries starts some of the held retries, if it is time: those of the jobs that ran least.
func (b *Breakers) canaries(p *policy.Breakers, o *Opening, held []Held, now int64) (starts []Start) {
	pr, since := b.probes[o.Cause], o.Since
	if pr != nil {
		since = pr.at
	}
	age := time.Duration(now - since)
	if age < p.Probe || pr != nil && len(pr.jobs) > 0 && age < patience*p.Probe || len(held) == 0 {
		return nil
	}
	slices.SortFunc(held, func(x, y Held) int { return cmp.Or(cmp.Compare(x.Runs, y.Runs), strings.Compare(x.Job, y.Job)) })
	pr = &probe{at: now}
	for _, h := range held[:min(len(held), int(p.Canaries))] {
		pr.jobs = append(pr.jobs, h.Job)
		starts = append(starts, Start{h, now, true})
	}
	pr.sent = len(starts)
	b.probes[o.Cause] = pr
	return starts
}

// release starts what is held by no breaker any more, one after the other.
func (b *Breakers) release(p *policy.Breakers, held []Held, open map[Cause]bool, now int64) (starts []Start) {
	waiting := map[string]uint32{}
	for _, h := range held {
		if open[h.Cause] {
			continue
		}
		if b.released[h.Job] != h.Runs {
			starts = append(starts, Start{Held: h})
		}
		waiting[h.Job] = h.Runs
	}
	b.released = waiting
	slices.SortFunc(starts, func(x, y Start) int { return strings.Compare(x.Job, y.Job) })
	for i := range starts {
		starts[i].At = now + int64(p.Ramp)*int64(i)/int64(len(starts))
	}
	return starts
}

// blame is what speaks for a cause: the jobs of a queue that failed last of it, of those of which a run ended within the window.
type blame struct {
	Cause
	failed, all int
}

// causes returns the breakers that open: of each category that fails enough jobs of enough queues, those of the queues of which it
// fails at least half. Of each queue only so many jobs count that the others must add to them; one that is held already counts so many.
func (w *Window) causes(p *policy.Breakers, latest map[Cause]*Opening, room int, now int64) (open []Opening) {
	most := int((p.OpenAfter + p.Queues - 1) / p.Queues)
	held := map[string]int{}   // queues by category
	for c, o := range latest { //house:sorted it only counts
		if o.Until > now {
			held[c.Category]++
		}
	}
	for category, queues := range w.blames(p, latest, now) { //house:sorted below
		jobs, failed := held[category]*most, 0
		for _, q := range queues {
			jobs += min(q.failed, most)
			failed += q.failed
		}
		of := len(queues) + held[category]
		if jobs < int(p.OpenAfter) || of < int(p.Queues) {
			continue
		}
		for _, q := range queues {
			why := fmt.Sprintf("of the %s of which a run ended within %v, %d failed", plural.Of(q.all, "job"), p.Window, q.failed)
			if of > 1 {
				why += fmt.Sprintf("; so did most of %s", plural.Of(of-1, "other queue"))
			}
			open = append(open, Opening{q.Cause, now, ceilMillis(now + int64(p.Hold)), why})
		}
	}
	slices.SortFunc(open, func(a, b Opening) int { return a.Cause.compare(b.Cause) })
	return open[:min(len(open), max(0, room))]
}

// blames returns by category the queues of which it fails at least half of the jobs, and is not held.
func (w *Window) blames(p *policy.Breakers, latest map[Cause]*Opening, now int64) map[string][]blame {
	last := map[string]*End{}
	for i := range w.ends {
		e := &w.ends[i]
		if was := last[e.Job]; e.Time > now-int64(p.Window) && e.Time <= now && (was == nil || was.Time < e.Time) {
			last[e.Job] = e
		}
	}
	byQueue, causes := map[string][]*End{}, map[Cause]bool{}
	for _, e := range last { //house:sorted it is counted only
		byQueue[e.Queue] = append(byQueue[e.Queue], e)
		if e.Category != "" {
			causes[Cause{e.Category, e.Queue}] = true
		}
	}
	out := map[string][]blame{}
	for c := range causes { //house:sorted by causes
		b, after := blame{Cause: c}, int64(0)
		if was := latest[c]; was != nil {
			after = was.Until // what led to it does not count twice; of one that is open, nothing counts
		}
		for _, e := range byQueue[c.Queue] {
			if e.Time > after {
				b.all++
				if e.Category == c.Category {
					b.failed++
				}
			}
		}
		if b.failed > 0 && 2*b.failed >= b.all {
			out[c.Category] = append(out[c.Category], b)
		}
	}
	return out
}
