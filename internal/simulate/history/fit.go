package history

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	"gonum.org/v1/gonum/stat/combin"

	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/simulate"
)

// enough is how many observations a fit needs.
const enough = 20

// z is the 97.5th percentile of the normal distribution, z95 the 95th.
const (
	z   = 1.959963984540054
	z95 = 1.6448536269514722
)

// model is what the history says about a run that it does not show.
type model struct {
	ended    int // runs whose end is shown, without preempted ones
	runTime  simulate.RunTime
	times    lengths
	failures []simulate.Failure
	of       []tally        // for each failure, of the runs that none of those before it has ended
	again    [][2][]tally   // for each failure, of the runs that follow such a failure: on the same node, on another
	counts   map[string]int // by cause
	written  bool           // into the file, with anchors
}

// end is how a run ended, and what it followed.
type end struct {
	cause string // "": it succeeded
	after string // the cause of the failure of the run before it; "": none
	same  bool   // on the same node
	times int    // how many runs before it failed by that cause, one after the other
}

// tally is how many of some runs failed.
type tally struct{ failed, all int }

func (t *tally) add(failed bool) {
	if t.all++; failed {
		t.failed++
	}
}

func (t *tally) chance() float64 {
	if t.all == 0 {
		return 0
	}
	return round(float64(t.failed) / float64(t.all))
}

// model fits the runs of a queue; "": of all.
func (h *History) model(queue string) *model {
	m := &model{counts: map[string]int{}}
	examples := map[string]*simulate.Failure{}
	after := map[string]lengths{}
	var left []end // of runs that no failure above has ended: in the simulator the first one decides
	for _, j := range h.order {
		if queue != "" && j.queue != queue {
			continue
		}
		var last end
		node := ""
		for _, r := range j.runs {
			this := end{after: last.cause, same: r.node == node, times: last.times}
			switch {
			case r.ended == 0:
				continue
			case r.succeeded:
				m.times = append(m.times, r.took())
			case r.err != nil && r.err.GetJobRunPreemptedError() == nil:
				f := failureOf(r.err)
				this.cause = f.Cause
				m.counts[f.Cause]++
				after[f.Cause] = append(after[f.Cause], r.took())
				if examples[f.Cause] == nil {
					examples[f.Cause] = f
				}
			default:
				continue
			}
			m.ended++
			left = append(left, this)
			if last.cause != this.cause {
				last.times = 0
			}
			last, node = end{cause: this.cause, times: last.times + 1}, r.node
		}
	}
	causes := slices.SortedFunc(maps.Keys(m.counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(after[a].median(), after[b].median()), cmp.Compare(a, b))
	})
	for _, cause := range causes {
		f := *examples[cause]
		again, of := againOf(cause, left), tally{}
		for i := range left {
			if o := &left[i]; o.after != cause || again[where(o.same)] == nil {
				of.add(o.cause == cause)
			}
		}
		f.PerRun, f.Again = of.chance(), simulate.Again{SameNode: chances(again[0]), OtherNode: chances(again[1])}
		f.After = max(after[cause].median().Round(time.Millisecond), time.Millisecond)
		m.failures, m.of, m.again = append(m.failures, f), append(m.of, of), append(m.again, again)
		left = slices.DeleteFunc(left, func(o end) bool { return o.cause == cause })
	}
	m.runTime = simulate.RunTime{P50: time.Minute}
	if len(m.times) > 0 {
		m.runTime, _ = m.times.logNormal()
	}
	return m
}

func where(same bool) int {
	if same {
		return 0
	}
	return 1
}

// againOf counts the runs that follow a failure by a cause, on the same node and on another: first those that follow one such
// failure, then two, and so on as long as there are enough of each; the last ones count all further ones. nil: there are too few in all.
func againOf(cause string, all []end) (out [2][]tally) {
	for i := range all {
		o := &all[i]
		if o.after != cause {
			continue
		}
		of := &out[where(o.same)]
		for len(*of) < o.times {
			*of = append(*of, tally{})
		}
		(*of)[o.times-1].add(o.cause == cause)
	}
	for i := range out {
		of := out[i]
		single, rest := 0, tally{}
		for single < len(of) && of[single].all >= enough {
			single++
		}
		for _, t := range of[single:] {
			rest.failed, rest.all = rest.failed+t.failed, rest.all+t.all
		}
		out[i] = of[:single]
		switch {
		case rest.all >= enough:
			out[i] = append(out[i], rest)
		case single > 0:
			last := &out[i][single-1]
			last.failed, last.all = last.failed+rest.failed, last.all+rest.all
		default:
			out[i] = nil
		}
	}
	return out
}

func chances(of []tally) (out []float64) {
	for i := range of {
		out = append(out, of[i].chance())
	}
	return out
}

func (m *model) describe() string {
	if len(m.times) == 0 {
		return "no run succeeded: p50 1m0s is a guess"
	}
	return fmt.Sprintf("of all: p50 %v, p95 %v", m.runTime.P50, max(m.runTime.P50, m.runTime.P95))
}

// lengths are durations of runs.
type lengths []time.Duration

func (l lengths) median() time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[(len(sorted)-1)/2]
}

// between is a 95% confidence interval.
type between struct{ low, high float64 }

// logNormal fits the distribution by mean and standard deviation of the logarithms, with intervals for both percentiles by the
// normal approximation.
func (l lengths) logNormal() (simulate.RunTime, [2]between) {
	n := float64(len(l))
	var mean, squares float64
	for _, d := range l {
		mean += math.Log(float64(max(d, time.Millisecond))) / n
	}
	for _, d := range l {
		x := math.Log(float64(max(d, time.Millisecond))) - mean
		squares += x * x
	}
	sigma := math.Sqrt(squares / max(n-1, 1))
	at := func(deviations float64) time.Duration {
		return time.Duration(min(math.Exp(mean+deviations*sigma), float64(365*24*time.Hour))).Round(time.Millisecond)
	}
	t := simulate.RunTime{P50: max(at(0), time.Millisecond), P95: at(z95)}
	if t.P95 <= t.P50 {
		t.P95 = 0
	}
	interval := func(deviations float64) between {
		half := z * sigma * math.Sqrt(1/n+deviations*deviations/(2*max(n-1, 1)))
		center := mean + deviations*sigma
		return between{math.Exp(center - half), math.Exp(center + half)}
	}
	return t, [2]between{interval(0), interval(z95)}
}

// wilson is the score interval of a chance that was observed k times of n.
func wilson(k, n int) between {
	p, m := float64(k)/float64(n), float64(n)
	center, half := (p+z*z/(2*m))/(1+z*z/m), z/(1+z*z/m)*math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return between{max(0, center-half), min(1, center+half)}
}

// byar is Byar's approximation of the exact interval of a Poisson count.
func byar(k int) between {
	low, n := 0.0, float64(k)
	if k > 0 {
		low = n * math.Pow(1-1/(9*n)-z/(3*math.Sqrt(n)), 3)
	}
	return between{max(0, low), (n + 1) * math.Pow(1-1/(9*(n+1))+z/(3*math.Sqrt(n+1)), 3)}
}

func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// Fit returns a workload file with the intervals as comments. It refuses what has too few observations.
func (h *History) Fit() (string, error) {
	all := h.model("")
	submissions, first, last := h.submissions()
	hours := time.Duration(last - first).Hours()
	switch {
	case len(all.times) < enough:
		return "", fmt.Errorf("%s: %d runs succeeded, and a fit of run times needs %d: give a longer history", h.name, len(all.times), enough)
	case submissions < enough:
		return "", fmt.Errorf("%s: %d submissions, and a fit of the arrivals needs %d: give a longer history", h.name, submissions, enough)
	case hours <= 0:
		return "", fmt.Errorf("%s: all jobs are submitted at the same time, so the rate of arrivals is unknown: give a longer history", h.name)
	}
	var b bytes.Buffer
	jobs := 0
	for _, j := range h.order {
		if !j.rejected {
			jobs++
		}
	}
	rate := byar(submissions - 1)
	perSubmission := float64(jobs) / float64(submissions)
	fmt.Fprintf(&b, "# A workload fitted to %q: %d jobs in %d submissions, %d runs that ended. Intervals are 95%% confidence intervals.\n", h.name, jobs, submissions, all.ended)
	fmt.Fprintf(&b, "# %s\n", "Chances by Wilson's score interval, the rate of arrivals by Byar's approximation, percentiles by the normal approximation of logarithms.")
	fmt.Fprintf(&b, "# Assumed: chances do not depend on earlier runs but where `again` says so, and a queue's jobs of one request are of one kind. Preemptions are left to the scheduler.\n")
	h.poison(&b, all)
	fmt.Fprintf(&b, "jobs: %d\njobsPerHour: %.6g  # %.6g to %.6g\narrivals: Poisson\ngiveUp: 48h\nkinds:\n",
		jobs, float64(submissions-1)/hours*perSubmission, rate.low/hours*perSubmission, rate.high/hours*perSubmission)
	for _, k := range h.kinds() {
		if err := k.write(&b, all); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// submissions counts submissions, of a job or a gang each, and returns the times of the first and last one.
func (h *History) submissions() (n int, first, last int64) {
	gangs := map[[3]string]bool{}
	first, last = math.MaxInt64, math.MinInt64
	for _, j := range h.order {
		if j.rejected {
			continue
		}
		first, last = min(first, j.submitted), max(last, j.submitted)
		key := [3]string{j.queue, j.set, j.gang.ID}
		if j.gang.Cardinality > 1 && gangs[key] {
			continue
		}
		gangs[key] = true
		n++
	}
	return n, first, last
}

// kind is jobs that are alike.
type kind struct {
	name string
	of   *job
	jobs []*job
	subs int
}

func (h *History) kinds() (out []*kind) {
	known := map[string]*kind{}
	gangs := map[string]bool{}
	for _, j := range h.order {
		if j.rejected {
			continue
		}
		key := fmt.Sprint(j.queue, "\x00", j.class, "\x00", j.priority, "\x00", j.request.texts(), "\x00", j.gang.Cardinality, "\x00", j.gang.NodeUniformityLabel)
		k := known[key]
		if k == nil {
			k = &kind{name: fmt.Sprintf("kind-%d", len(out)+1), of: j}
			known[key] = k
			out = append(out, k)
		}
		k.jobs = append(k.jobs, j)
		if gang := fmt.Sprint(key, "\x00", j.set, "\x00", j.gang.ID); j.gang.Cardinality <= 1 || !gangs[gang] {
			gangs[gang] = true
			k.subs++
		}
	}
	return out
}

// write writes the kind, fitted by itself, or as all where it has too few runs.
func (k *kind) write(b *bytes.Buffer, all *model) error {
	fmt.Fprintf(b, "- name: %s\n", k.name)
	m := (&History{order: k.jobs}).model("")
	if len(m.times) < enough {
		m = all
		fmt.Fprintf(b, "  # %s: too few runs of its own; run time and failures are those of all kinds\n", plural.Of(len(k.jobs), "job"))
	}
	gang := k.of.gang.Cardinality > 1
	field := func(name string, value any) error {
		text, err := yaml.Dump(map[string]any{name: value})
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		for line := range strings.Lines(string(text)) {
			b.WriteString("  " + line)
		}
		return nil
	}
	fields := []struct {
		name  string
		value any
		skip  bool
	}{
		{"weight", k.subs, false},
		{"queue", k.of.queue, false},
		{"priorityClass", k.of.class, k.of.class == ""},
		{"priority", k.of.priority, k.of.priority == 0},
		{"jobsAtOnce", k.of.gang.Cardinality, !gang},
		{"gang", true, !gang},
		{"nodeUniformityLabel", k.of.gang.NodeUniformityLabel, !gang || k.of.gang.NodeUniformityLabel == ""},
		{"request", k.of.request.texts(), false},
	}
	for _, f := range fields {
		if f.skip {
			continue
		}
		if err := field(f.name, f.value); err != nil {
			return err
		}
	}
	if m == all && all.written {
		b.WriteString("  runTime: *all-times\n")
		if len(m.failures) > 0 {
			b.WriteString("  failures: *all-failures\n")
		}
		return nil
	}
	times, failures := "", ""
	if m == all {
		times, failures, all.written = " &all-times", " &all-failures", true
	}
	return m.write(b, times, failures)
}

// write writes run time and failures, each with an anchor, with which further kinds can refer to them.
func (m *model) write(b *bytes.Buffer, times, failures string) error {
	t, intervals := m.times.logNormal()
	second := func(x float64) time.Duration { return time.Duration(x).Round(time.Millisecond) }
	fmt.Fprintf(b, "  runTime:%s  # of %d runs that succeeded\n    p50: %v  # %v to %v\n", times, len(m.times), t.P50, second(intervals[0].low), second(intervals[0].high))
	if t.P95 != 0 {
		fmt.Fprintf(b, "    p95: %v  # %v to %v\n", t.P95, second(intervals[1].low), second(intervals[1].high))
	}
	if len(m.failures) == 0 {
		fmt.Fprintf(b, "  # none of %d runs failed: the chance is at most %.4f\n", m.ended, wilson(0, m.ended).high)
		return nil
	}
	fmt.Fprintf(b, "  failures:%s\n", failures)
	for i := range m.failures {
		f := &m.failures[i]
		fmt.Fprintf(b, "  # %s that none of the above ended\n", m.of[i].text())
		one := map[string]any{"cause": f.Cause, "perRun": f.PerRun, "after": f.After.String()}
		again := map[string]any{}
		for k, name := range []string{"sameNode", "otherNode"} {
			if of := m.again[i][k]; of != nil {
				again[name] = chances(of)
				for n := range of {
					fmt.Fprintf(b, "  # again, %s, retry %d: %s\n", name, n+1, of[n].text())
				}
				one["again"] = again
			}
		}
		for name, text := range map[string]string{"condition": f.Condition, "message": f.Message, "category": f.Category, "subcategory": f.Subcategory} {
			if text != "" {
				one[name] = text
			}
		}
		if f.ExitCode != 0 {
			one["exitCode"] = f.ExitCode
		}
		text, err := yaml.Dump(one)
		if err != nil {
			return fmt.Errorf("write failure %s: %w", f.Cause, err)
		}
		lead := "  - "
		for line := range strings.Lines(string(text)) {
			b.WriteString(lead + line)
			lead = "    "
		}
	}
	return nil
}

func (t *tally) text() string {
	w := wilson(t.failed, max(1, t.all))
	return fmt.Sprintf("%d of %d runs (%.4f to %.4f)", t.failed, t.all, w.low, w.high)
}

// poison lists, as comments, the nodes whose runs fail significantly more often than those of the others, by as many tests as there
// are nodes and causes.
func (h *History) poison(b *bytes.Buffer, all *model) {
	runs, failed := map[string]int{}, map[string]map[string]int{}
	for _, j := range h.order {
		for _, r := range j.runs {
			if r.ended == 0 || r.node == "" || r.err.GetJobRunPreemptedError() != nil {
				continue
			}
			runs[r.node]++
			if r.err != nil {
				if failed[r.node] == nil {
					failed[r.node] = map[string]int{}
				}
				failed[r.node][failureOf(r.err).Cause]++
			}
		}
	}
	type row struct {
		node, cause string
		k, n        int
	}
	var found []row
	for _, node := range slices.Sorted(maps.Keys(failed)) {
		for _, cause := range slices.Sorted(maps.Keys(failed[node])) {
			k, n := failed[node][cause], runs[node]
			others, of := all.counts[cause]-k, all.ended-n
			if surplus(k, n, others, of, len(runs)*len(all.counts)) {
				found = append(found, row{node, cause, k, n})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b row) int { return cmp.Compare(b.k*a.n, a.k*b.n) })
	if len(found) == 0 {
		fmt.Fprintf(b, "# No node's runs fail significantly more often than those of the others (%d nodes).\n", len(runs))
		return
	}
	b.WriteString("# Nodes whose runs fail significantly more often (they are part of the chances below, too); as faults for the cluster file:\n# faults:\n")
	for _, f := range found {
		w := wilson(f.k, f.n)
		fmt.Fprintf(b, "# - {cause: %q, nodes: [%q], perRun: %v}  # %d of %d runs: %.4f to %.4f\n", f.cause, f.node, round(float64(f.k)/float64(f.n)), f.k, f.n, w.low, w.high)
	}
}

// surplus says whether k of n, two at least, is significantly more than others of so many, by Fisher's exact test, one-sided at 2.5%
// divided by the number of tests.
func surplus(k, n, others, of, tests int) bool {
	if k < 2 {
		return false
	}
	all, chance := combin.LogGeneralizedBinomial(float64(n+of), float64(k+others)), 0.0
	for i := k; i <= min(n, k+others); i++ {
		if k+others-i <= of {
			chance += math.Exp(combin.LogGeneralizedBinomial(float64(n), float64(i)) + combin.LogGeneralizedBinomial(float64(of), float64(k+others-i)) - all)
		}
	}
	return chance < 0.025/float64(max(1, tests))
}
