package simulate

import (
	"math"
	"time"

	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// Series are what scheduling cycles saw: averages over intervals of equal length, of which the last one may be shorter.
type Series struct {
	// IntervalHours is the length of an interval.
	IntervalHours float64          `json:"intervalHours"`
	Queues        []QueueSeries    `json:"queues"`
	Resources     []ResourceSeries `json:"resources"`
}

// QueueSeries is a queue over time.
type QueueSeries struct {
	Queue string `json:"queue"`
	// Waiting are its jobs that do not run and are not over.
	Waiting []float64 `json:"waiting"`
	// Share is what it had of its dominant resource, FairShare what its weight gives it among the queues with jobs (0 if it
	// has none itself), and Error |Share - FairShare|: all are parts of 1.
	Share     []float64 `json:"share"`
	FairShare []float64 `json:"fairShare"`
	Error     []float64 `json:"fairShareError"`
}

// ResourceSeries is the part of a resource that was in use, of all nodes that were not down.
type ResourceSeries struct {
	Resource string    `json:"resource"`
	Use      []float64 `json:"use"`
}

// maxIntervals bounds the memory of a timeline.
const maxIntervals = 128

// timeline integrates numbers over time in at most maxIntervals intervals: when time passes the last one, each two
// neighbours become one.
type timeline struct {
	width time.Duration // of an interval
	until time.Duration // up to which everything is counted
	now   []float64     // since then
	sums  [][]float64   // seconds × value, by line and interval
}

func newTimeline(lines int, width time.Duration) *timeline {
	return &timeline{width: width, now: make([]float64, lines), sums: make([][]float64, lines)}
}

// advance counts the present numbers up to a time.
func (t *timeline) advance(to time.Duration) {
	for to > t.width*maxIntervals {
		t.merge()
	}
	for t.until < to {
		i := int(t.until / t.width)
		next := min(to, time.Duration(i+1)*t.width)
		seconds := (next - t.until).Seconds()
		for line := range t.sums {
			for len(t.sums[line]) <= i {
				t.sums[line] = append(t.sums[line], 0)
			}
			t.sums[line][i] += t.now[line] * seconds
		}
		t.until = next
	}
}

func (t *timeline) merge() {
	t.width *= 2
	for line, sums := range t.sums {
		for i := range sums {
			if i%2 == 0 {
				sums[i/2] = sums[i]
			} else {
				sums[i/2] += sums[i]
			}
		}
		t.sums[line] = sums[:(len(sums)+1)/2]
	}
}

// averages returns a line, rounded to four digits.
func (t *timeline) averages(line int) []float64 {
	out := make([]float64, 0, len(t.sums[line]))
	for i, sum := range t.sums[line] {
		begins := time.Duration(i) * t.width
		out = append(out, math.Round(1e4*sum/min(t.width, t.until-begins).Seconds())/1e4)
	}
	return out
}

// The lines of a queue in its part of a timeline.
const (
	lineWaiting = iota
	lineShare
	lineFairShare
	lineError
	linesOfQueue
)

// sampler keeps what queues have, and samples it.
type sampler struct {
	lines  *timeline // linesOfQueue for each queue, then one for each resource
	queues []queueState
	total  scheduling.Resources // of the nodes that are not down
	window *window              // for fairShareError
	weigh  func(queue int) float64
}

// queueState is what a queue has now.
type queueState struct {
	waiting, running int
	amounts          scheduling.Resources
	active           time.Duration // for how long it had jobs
	distance         float64       // |share - fair share| × seconds
	furthest         float64
}

func newSampler(c *Cluster, w *window, weigh func(int) float64) *sampler {
	s := &sampler{
		lines: newTimeline(len(c.Queues)*linesOfQueue+len(c.Resources), c.SchedulingInterval), queues: make([]queueState, len(c.Queues)),
		total: make(scheduling.Resources, len(c.Resources)), window: w, weigh: weigh,
	}
	for q := range s.queues {
		s.queues[q].amounts = make(scheduling.Resources, len(c.Resources))
	}
	return s
}

// nodes says which nodes are not down.
func (s *sampler) nodes(up []scheduling.Node) {
	clear(s.total)
	for i := range up {
		for r, amount := range up[i].Total {
			s.total[r] += amount
		}
	}
}

// waits counts a job that waits from now on; again, it changes nothing.
func (s *sampler) waits(j *job) {
	if !j.counted {
		j.counted = true
		s.queues[j.queue].waiting++
	}
}

// waitsNot counts a job that waits no more; again, it changes nothing.
func (s *sampler) waitsNot(j *job) {
	if j.counted {
		j.counted = false
		s.queues[j.queue].waiting--
	}
}

// runs counts a run that begins (1) or ends (-1).
func (s *sampler) runs(j *job, sign int64) {
	q := &s.queues[j.queue]
	q.running += int(sign)
	for r, amount := range j.kind.request {
		q.amounts[r] += sign * amount
	}
}

// advance counts what was sampled last, up to a time.
func (s *sampler) advance(now time.Duration) {
	if now <= s.lines.until {
		return
	}
	passed, _ := s.window.of(s.lines.until, now)
	for q := range s.queues {
		if lines := s.lines.now[q*linesOfQueue:]; lines[lineFairShare] > 0 {
			s.queues[q].active += passed
			s.queues[q].distance += lines[lineError] * passed.Seconds()
		}
	}
	s.lines.advance(now)
}

// sample reads everything as it is from now on.
func (s *sampler) sample(now time.Duration) {
	s.advance(now)
	weights := 0.0
	for q := range s.queues {
		if s.queues[q].waiting+s.queues[q].running > 0 {
			weights += s.weigh(q)
		}
	}
	resources := s.lines.now[len(s.queues)*linesOfQueue:]
	clear(resources)
	for q := range s.queues {
		of, fair, share := &s.queues[q], 0.0, 0.0
		if of.waiting+of.running > 0 {
			fair = s.weigh(q) / weights
		}
		for r, amount := range of.amounts {
			if s.total[r] > 0 {
				part := float64(amount) / float64(s.total[r])
				share, resources[r] = max(share, part), resources[r]+part
			}
		}
		lines := s.lines.now[q*linesOfQueue:]
		lines[lineWaiting], lines[lineShare], lines[lineFairShare], lines[lineError] = float64(of.waiting), share, fair, math.Abs(share-fair)
		if s.window.has(now) {
			of.furthest = max(of.furthest, lines[lineError])
		}
	}
}

// fairShareError is how far a queue was from its fair share while it had jobs: on average, and at most.
func (s *sampler) fairShareError(queue int) (mean, furthest float64) {
	q := &s.queues[queue]
	if q.active > 0 {
		mean = q.distance / q.active.Seconds()
	}
	return mean, q.furthest
}

func (s *sampler) series(c *Cluster) Series {
	out := Series{IntervalHours: s.lines.width.Hours(), Queues: []QueueSeries{}, Resources: []ResourceSeries{}}
	for q := range c.Queues {
		line := q * linesOfQueue
		out.Queues = append(out.Queues, QueueSeries{
			Queue: c.Queues[q].Name, Waiting: s.lines.averages(line + lineWaiting), Share: s.lines.averages(line + lineShare),
			FairShare: s.lines.averages(line + lineFairShare), Error: s.lines.averages(line + lineError),
		})
	}
	for r, name := range c.Resources {
		out.Resources = append(out.Resources, ResourceSeries{Resource: name, Use: s.lines.averages(len(c.Queues)*linesOfQueue + r)})
	}
	return out
}
