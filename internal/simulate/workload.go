package simulate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/simulate/scheduling"
)

// Workload is a generator of jobs.
type Workload struct {
	// Jobs is how many arrive in all.
	Jobs int `yaml:"jobs"`
	// JobsPerHour is the average rate.
	JobsPerHour float64 `yaml:"jobsPerHour"`
	// Arrivals says how submissions follow each other.
	Arrivals Arrivals `yaml:"arrivals"`
	// GiveUp is how long after the last submission the simulation ends, if jobs are still not over.
	GiveUp time.Duration `yaml:"giveUp"`
	Kinds  []Kind        `yaml:"kinds"`
	// Given are the jobs themselves, in order of submission, in place of the above except for GiveUp; nil: they are generated.
	Given []Given `yaml:"-"`
}

// Arrivals is an arrival process.
type Arrivals string

// The arrival processes.
const (
	Poisson Arrivals = "Poisson" // at random, independently
	Even    Arrivals = "Even"    // at equal distances
)

// Kind is a kind of job.
type Kind struct {
	Name string `yaml:"name"`
	// Weight is how often this kind is submitted, relative to the others; 0 stands for 1.
	Weight float64 `yaml:"weight"`
	// Queue is the queue of its jobs; "": each submission draws one of all.
	Queue         string `yaml:"queue"`
	PriorityClass string `yaml:"priorityClass"`
	Priority      int64  `yaml:"priority"` // lower ones come first
	// JobsAtOnce are submitted together; with Gang, they are a gang. 0 stands for 1.
	JobsAtOnce int               `yaml:"jobsAtOnce"`
	Gang       bool              `yaml:"gang"`
	Uniformity string            `yaml:"nodeUniformityLabel"`
	Request    map[string]string `yaml:"request"`
	RunTime    RunTime           `yaml:"runTime"`
	Failures   []Failure         `yaml:"failures"`
}

// RunTime is how long a run takes that does not fail: log-normal, by two of its percentiles.
type RunTime struct {
	P50 time.Duration `yaml:"p50"`
	P95 time.Duration `yaml:"p95"` // 0: all take P50
}

// Failure is a way in which runs fail. A run fails by what comes first.
type Failure struct {
	Cause string `yaml:"cause"`
	// PerJob is the chance that a job has a mistake of its own: every run of it fails.
	PerJob float64 `yaml:"perJob"`
	// PerRun is the chance that a run fails, whatever became of those before it.
	PerRun float64 `yaml:"perRun"`
	// Again is PerRun of a run that follows one that failed in this way.
	Again Again `yaml:"again"`
	// PerHour is the average number of such failures in an hour of running.
	PerHour float64 `yaml:"perHour"`
	// After is how long after its start a run fails (or at its end, if that is earlier); 0: at any time of it. It has
	// no meaning for PerHour.
	After time.Duration `yaml:"after"`

	// Pending says that the run never begins to run, as if its image could not be pulled.
	Pending bool `yaml:"pending"`

	// What is reported, and policies match.
	Condition   string `yaml:"condition"`
	ExitCode    int32  `yaml:"exitCode"`
	Message     string `yaml:"message"`
	Category    string `yaml:"category"`
	Subcategory string `yaml:"subcategory"`

	as *pb.Error // reported as it is, but for the name of the node
}

// Again has the chances that a run fails as the one before it did: of the first run after such a failure, the second one after two
// of them, and so on. The last chance is that of all further ones; without any, it is PerRun.
type Again struct {
	SameNode  []float64 `yaml:"sameNode"`
	OtherNode []float64 `yaml:"otherNode"`
}

// failed is how the runs of a job failed that came last, preempted ones aside.
type failed struct {
	cause, category string
	node            *placed
	times           int // one after the other
	run             int // the last of them
}

// note notes a further one.
func (l *failed) note(f *Failure, j *job) {
	if l.cause != f.Cause {
		l.times = 0
	}
	*l = failed{f.Cause, f.category(), j.node, l.times + 1, j.runs}
}

// perRun is the chance that a run on a node fails in this way.
func (f *Failure) perRun(last *failed, node *placed) float64 {
	if last.cause != f.Cause {
		return f.PerRun
	}
	of := f.Again.OtherNode
	if node == last.node {
		of = f.Again.SameNode
	}
	if len(of) == 0 {
		return f.PerRun
	}
	return of[min(last.times, len(of))-1]
}

func (f *Failure) check() error {
	if f.Cause == "" {
		return errors.New("no cause: give the failure a name")
	}
	for _, p := range slices.Concat([]float64{f.PerJob, f.PerRun}, f.Again.SameNode, f.Again.OtherNode) {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("%v: want a chance between 0 and 1", p)
		}
	}
	if !(f.PerHour >= 0 && f.PerHour <= 1e6) {
		return fmt.Errorf("perHour: %v: want 0 or more", f.PerHour)
	}
	if f.After < 0 {
		return fmt.Errorf("after: %v is negative", f.After)
	}
	if _, ok := policy.ParseCondition(f.Condition); f.Condition != "" && !ok {
		return fmt.Errorf("condition: there is no %q", f.Condition)
	}
	if f.Condition == policy.Preempted.String() {
		return errors.New("condition: the scheduler preempts, not the failure model")
	}
	return nil
}

// warmUp is the first tenth of the time of submissions, in which the cluster fills.
func (w *Workload) warmUp() time.Duration {
	if n := len(w.Given); n > 0 {
		return w.Given[n-1].Submitted / 10
	}
	return time.Duration(float64(w.Jobs) / w.JobsPerHour * float64(time.Hour) / 10)
}

// maxJobs limits what a mistyped number costs.
const maxJobs = 100_000_000

func (w *Workload) check(c *Cluster) error {
	if w.Given != nil {
		return w.checkGiven(c)
	}
	switch {
	case w.Jobs < 1 || w.Jobs > maxJobs:
		return fmt.Errorf("jobs: %d: want 1 to %d", w.Jobs, maxJobs)
	case !(w.JobsPerHour > 0 && w.JobsPerHour <= 1e9):
		return fmt.Errorf("jobsPerHour: %v: want a number above 0", w.JobsPerHour)
	case w.Arrivals != Poisson && w.Arrivals != Even && w.Arrivals != "":
		return fmt.Errorf("arrivals: %q: want %s or %s", w.Arrivals, Poisson, Even)
	case w.GiveUp < 0 || w.GiveUp > maxGiveUp:
		return fmt.Errorf("giveUp: %v: want up to %v", w.GiveUp, maxGiveUp)
	case float64(w.Jobs)/w.JobsPerHour > maxHours:
		return fmt.Errorf("jobs and jobsPerHour: they would arrive over more than %d hours", maxHours)
	case len(w.Kinds) == 0:
		return errors.New("kinds: a workload needs at least one")
	}
	var weights float64
	for i := range w.Kinds {
		k := &w.Kinds[i]
		if err := k.check(c); err != nil {
			return fmt.Errorf("kinds[%d] %s: %w", i, k.Name, err)
		}
		weights += k.weight()
	}
	if math.IsInf(weights, 0) {
		return errors.New("kinds: their weights are too large")
	}
	return nil
}

const (
	maxHours  = 100_000
	maxGiveUp = maxHours * time.Hour
)

func (k *Kind) weight() float64 {
	if k.Weight == 0 {
		return 1
	}
	return k.Weight
}

func (k *Kind) check(c *Cluster) error {
	switch {
	case k.Name == "":
		return errors.New("no name")
	case !(k.Weight >= 0):
		return fmt.Errorf("weight: %v: want a number above 0", k.Weight)
	case k.JobsAtOnce < 0 || k.JobsAtOnce > 50_000:
		return fmt.Errorf("jobsAtOnce: %d: want 1 to 50000", k.JobsAtOnce)
	case k.Gang && k.JobsAtOnce < 2:
		return errors.New("gang: a gang has at least two jobs: set jobsAtOnce")
	case !k.Gang && k.Uniformity != "":
		return errors.New("nodeUniformityLabel: only gangs have one")
	case k.RunTime.P50 <= 0:
		return fmt.Errorf("runTime.p50: %v: want a duration above 0", k.RunTime.P50)
	case k.RunTime.P95 != 0 && k.RunTime.P95 < k.RunTime.P50:
		return fmt.Errorf("runTime.p95: %v is less than p50", k.RunTime.P95)
	case k.RunTime.P50 > maxGiveUp || k.RunTime.P95 > maxGiveUp:
		return fmt.Errorf("runTime: want up to %v", maxGiveUp)
	case k.Queue != "" && !slices.ContainsFunc(c.Queues, func(q Queue) bool { return q.Name == k.Queue }):
		return fmt.Errorf("queue: there is no %q", k.Queue)
	}
	if _, err := c.amounts(k.Request); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	for i := range k.Failures {
		if err := k.Failures[i].check(); err != nil {
			return fmt.Errorf("failures[%d] %s: %w", i, k.Failures[i].Cause, err)
		}
	}
	return nil
}

// fits checks with the scheduler itself that each kind has room on the empty cluster.
func (w *Workload) fits(c *Cluster, config scheduling.Config, nodes []scheduling.Node) error {
	if w.Given != nil {
		return w.fitsGiven(c, config, nodes)
	}
	for i := range w.Kinds {
		k := &w.Kinds[i]
		q := scheduling.Queue{Name: "any", PriorityFactor: 1000}
		request, err := c.amounts(k.Request)
		if err != nil {
			return err
		}
		n := 1
		if k.Gang {
			n = k.JobsAtOnce
		}
		for m := range n {
			q.Jobs = append(q.Jobs, scheduling.Job{ID: fmt.Sprint(m), PriorityClass: k.PriorityClass, Request: request, Gang: k.gang("any")})
		}
		r, err := scheduling.Schedule(config, []scheduling.Queue{q}, nodes, nil)
		switch {
		case err != nil:
			return fmt.Errorf("kinds[%d] %s: %w", i, k.Name, err)
		case len(r.Scheduled) == n:
		case k.Gang:
			return fmt.Errorf("kinds[%d] %s: a gang of %d jobs finds no room even on the empty cluster", i, k.Name, n)
		default:
			return fmt.Errorf("kinds[%d] %s: the job fits no node, even an empty one", i, k.Name)
		}
	}
	return nil
}

func (k *Kind) gang(id string) scheduling.Gang {
	if !k.Gang {
		return scheduling.Gang{}
	}
	return scheduling.Gang{ID: id, Cardinality: k.JobsAtOnce, NodeUniformityLabel: k.Uniformity}
}
