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
	// Passed and Failed count the canaries of which the result is new.
	Passed, Failed int
}

// Breakers remembers the canaries. The zero value has none: a guard that starts again sends new ones.
type Breakers struct {
	probes   map[Cause]*probe
	passed   map[string]int64  // by category, when the last canary started of those that closed a breaker, in Unix nanoseconds
	released map[string]uint32 // jobs that were ordered to start when their breaker closed, with their runs
	ramps    map[Cause]int64   // when the first of them were, in Unix nanoseconds
}

// probe is the canaries of one cause that started last.
type probe struct {
	at     int64
	jobs   []string // without a result yet
	sent   int
	passed int
	began  int64 // of those that passed, when the last one started
}

// Look judges the causes of failures at a time: which breakers open, which close because their canaries passed, and which of the
// held retries start. Issued are the openings of the guard, also those that are over; held is what waits, in any order; running
// says since when a job's run has been running, in Unix nanoseconds (0: it is not); room is how many more may open.
func (b *Breakers) Look(w *Window, p *policy.Breakers, issued []Opening, held []Held, running func(job string) int64, room int, now int64) Verdict {
	if b.probes == nil {
		b.probes, b.passed, b.released, b.ramps = map[Cause]*probe{}, map[string]int64{}, map[string]uint32{}, map[Cause]int64{}
	}
	w.trim(KeepStarts(p.Window), now)
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
	v.Open = b.causes(w, p, latest, room, now)
	for i := range v.Open {
		open[v.Open[i].Cause] = true
	}
	var probing []*Opening
	for _, c := range sortedCauses(latest) {
		if !open[c] || latest[c].Until <= now {
			continue
		}
		o, pr := *latest[c], b.results(&v, w, latest[c], p.Window, running, now)
		switch {
		case pr.sent > 0 && 4*pr.passed >= 3*pr.sent:
			o.Reason = fmt.Sprintf("%d of %s that started early did not fail of it", pr.passed, plural.Of(pr.sent, "job"))
			b.passed[c.Category] = max(b.passed[c.Category], pr.began)
		case len(byCause[c]) > 0:
			probing = append(probing, latest[c])
			continue
		case max(o.Since, w.lastOf(c, now)) > now-int64(p.Window):
			continue
		default:
			o.Reason = fmt.Sprintf("no retry is held, and no job failed of it for %v", p.Window)
		}
		o.Until = now
		v.Close = append(v.Close, o)
		open[c] = false
		delete(b.probes, c)
	}
	v.Start = b.canaries(p, probing, byCause, now)
	v.Start = append(v.Start, b.release(p, byCause, open, now)...)
	return v
}

func sortedCauses[T any](of map[Cause]T) []Cause {
	all := make([]Cause, 0, len(of))
	for c := range of { //house:sorted below
		all = append(all, c)
	}
	slices.SortFunc(all, Cause.compare)
	return all
}

// results looks what became of the canaries of a cause that started last. One passed if its run ended otherwise, or has been
// running for longer than any that failed of the cause since a window before its breaker opened.
func (b *Breakers) results(v *Verdict, w *Window, o *Opening, window time.Duration, running func(job string) int64, now int64) *probe {
	c, pr := o.Cause, b.probes[o.Cause]
	if pr == nil {
		return &probe{}
	}
	ends, longest := map[string]*End{}, time.Duration(0)
	for i := range w.ends {
		e := &w.ends[i]
		if e.Category == c.Category && e.Queue == c.Queue && !e.Pending && e.Time > o.Since-int64(window) {
			longest = max(longest, time.Duration(e.Time-e.Started))
		}
		if e.Time > pr.at && e.Time <= now && (ends[e.Job] == nil || ends[e.Job].Time < e.Time) {
			ends[e.Job] = e
		}
	}
	pr.jobs = slices.DeleteFunc(pr.jobs, func(job string) bool {
		if e := ends[job]; e != nil {
			if e.Category == c.Category {
				v.Failed++
				return true
			}
			v.Passed++
			pr.passed, pr.began = pr.passed+1, max(pr.began, e.Started)
			return true
		}
		since := running(job)
		if since == 0 || now-since <= int64(longest) {
			return false
		}
		v.Passed++
		pr.passed, pr.began = pr.passed+1, max(pr.began, since)
		return true
	})
	return pr
}

// lastOf is when a run failed last of a cause; 0: none did.
func (w *Window) lastOf(c Cause, now int64) (last int64) {
	for i := range w.ends {
		if e := &w.ends[i]; e.Category == c.Category && e.Queue == c.Queue && e.Time <= now {
			last = max(last, e.Time)
		}
	}
	return last
}

// patience is for how many times the time between canaries their results are waited for.
const patience = 10

// canaries starts some of the held retries, if it is time: those of the jobs that ran least. The queues of one category take turns,
// until the canaries of one pass: then all of them send theirs.
func (b *Breakers) canaries(p *policy.Breakers, open []*Opening, held map[Cause][]Held, now int64) (starts []Start) {
	since := func(o *Opening) int64 {
		if pr := b.probes[o.Cause]; pr != nil {
			return pr.at
		}
		return o.Since
	}
	last := map[string]int64{}
	for _, o := range open {
		last[o.Category] = max(last[o.Category], since(o))
	}
	slices.SortStableFunc(open, func(x, y *Opening) int { return cmp.Compare(since(x), since(y)) })
	for _, o := range open {
		pr := b.probes[o.Cause]
		turn := now-last[o.Category] >= int64(p.Probe) || b.passed[o.Category] > since(o)
		if !turn || pr != nil && len(pr.jobs) > 0 && now-pr.at < int64(patience*p.Probe) {
			continue
		}
		jobs := held[o.Cause]
		slices.SortFunc(jobs, func(x, y Held) int { return cmp.Or(cmp.Compare(x.Runs, y.Runs), strings.Compare(x.Job, y.Job)) })
		pr = &probe{at: now}
		for _, h := range jobs[:min(len(jobs), int(p.Canaries))] {
			pr.jobs = append(pr.jobs, h.Job)
			starts = append(starts, Start{h, now, true})
		}
		pr.sent, last[o.Category] = len(pr.jobs), now
		b.probes[o.Cause] = pr
	}
	return starts
}

// release starts what is held by no breaker any more, on a ramp: of each cause as many as are due until the next look, so that the
// rest is held again if its breaker opens again.
func (b *Breakers) release(p *policy.Breakers, held map[Cause][]Held, open map[Cause]bool, now int64) (starts []Start) {
	released, ramps := map[string]uint32{}, map[Cause]int64{}
	for _, c := range sortedCauses(held) {
		if open[c] {
			continue
		}
		since, going := b.ramps[c]
		if !going {
			since = now
		}
		ramps[c] = since
		var wait []Held
		for _, h := range held[c] {
			if b.released[h.Job] == h.Runs {
				released[h.Job] = h.Runs
			} else {
				wait = append(wait, h)
			}
		}
		slices.SortFunc(wait, func(x, y Held) int { return strings.Compare(x.Job, y.Job) })
		n := len(wait)
		if left := since + int64(p.Ramp) - now; left > int64(Every) {
			n = int((int64(n)*int64(Every) + left - 1) / left)
		}
		for i, h := range wait[:n] {
			released[h.Job] = h.Runs
			starts = append(starts, Start{Held: h, At: now + int64(Every)*int64(i)/int64(n)})
		}
	}
	b.released, b.ramps = released, ramps
	return starts
}

// blame is what speaks for a cause: the jobs of a queue of which a run started within a window that lies so far back, and those of
// them that it failed last.
type blame struct {
	Cause
	failed, all int
	back        time.Duration
}

// causes returns the breakers that open: of each category that fails enough jobs of enough queues, those of the queues of which it
// fails at least half. Of each queue only so many jobs count that the others must add to them; one that is held already counts so many.
func (b *Breakers) causes(w *Window, p *policy.Breakers, latest map[Cause]*Opening, room int, now int64) (open []Opening) {
	most := int((p.OpenAfter + p.Queues - 1) / p.Queues)
	held := map[string]int{}   // queues by category
	for c, o := range latest { //house:sorted it only counts
		if o.Until > now {
			held[c.Category]++
		}
	}
	for category, queues := range b.blames(w, p, latest, now) { //house:sorted below
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
			why := fmt.Sprintf("of the %s of which a run started between %v and %v ago, %d failed", plural.Of(q.all, "job"), p.Window+q.back, q.back, q.failed)
			if of > 1 {
				why += fmt.Sprintf("; so did most of %s", plural.Of(of-1, "other queue"))
			}
			open = append(open, Opening{q.Cause, now, ceilMillis(now + int64(p.Hold)), why})
		}
	}
	slices.SortFunc(open, func(a, b Opening) int { return a.compare(b.Cause) })
	return open[:min(len(open), max(0, room))]
}

// blames returns by category the queues of which it fails at least half of the jobs, and is not held. It judges the runs that started
// within a window which lies as far back as half of the category's latest failures took: what started since may yet fail of it. Of the
// runs that ended, failures would be most when a cluster begins, and few when an outage does.
func (b *Breakers) blames(w *Window, p *policy.Breakers, latest map[Cause]*Opening, now int64) map[string][]blame {
	took := map[Cause][]time.Duration{}
	for i := range w.ends {
		if e := &w.ends[i]; e.Category != "" && e.Time > now-int64(p.Window) && e.Time <= now {
			c := Cause{e.Category, e.Queue}
			took[c] = append(took[c], time.Duration(e.Time-e.Started))
		}
	}
	if len(took) == 0 {
		return nil
	}
	byQueue := map[string][]*End{}
	for i := range w.ends {
		byQueue[w.ends[i].Queue] = append(byQueue[w.ends[i].Queue], &w.ends[i])
	}
	for _, e := range w.going { //house:sorted it is counted only
		byQueue[e.Queue] = append(byQueue[e.Queue], &e)
	}
	out := map[string][]blame{}
	for c, took := range took { //house:sorted by causes
		slices.Sort(took)
		of := blame{Cause: c, back: took[len(took)/2].Truncate(time.Second)} // a second: it is said
		to := now - int64(of.back)
		from := max(to-int64(p.Window), now-int64(KeepStarts(p.Window))) // what started before is not known
		if was := latest[c]; was != nil {
			from = max(from, was.Until) // what led to it does not count twice; of one that is open, nothing counts
		}
		last := map[string]*End{}
		for _, e := range byQueue[c.Queue] {
			if was := last[e.Job]; e.Started > from && e.Started <= to && (was == nil || cmp.Or(cmp.Compare(was.Started, e.Started), cmp.Compare(was.Time, e.Time)) < 0) {
				last[e.Job] = e
			}
		}
		for _, e := range last { //house:sorted it is counted only
			of.all++
			if e.Category == c.Category && e.Time <= now {
				of.failed++
			}
		}
		if of.failed > 0 && 2*of.failed >= of.all {
			out[c.Category] = append(out[c.Category], of)
		}
	}
	return out
}
