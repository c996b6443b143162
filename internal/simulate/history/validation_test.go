package history_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/simulate"
	"github.com/refloat/refloat/internal/simulate/history"
)

// tale is what became of a job.
type tale struct {
	gang      string
	runs      []*ran
	cancelled bool
}

// ran is a run: how it ended, and what was decided.
type ran struct {
	id      string
	cause   string // of its failure
	success bool
	verdict string // code of the decision, reason for none, or what its gang did
	decided int    // the number of the decision, of all; 0: there is none
	again   bool   // it is to retry
}

// tales are what became of all jobs, by their ids.
type tales struct {
	jobs      map[string]*tale
	decisions int
}

func (all *tales) run(job, run string) *ran {
	j := all.jobs[job]
	if j == nil {
		return nil
	}
	for _, r := range j.runs {
		if r.id == run {
			return r
		}
	}
	r := &ran{id: strings.Clone(run)}
	j.runs = append(j.runs, r)
	return r
}

// fold adds a message and what was decided about it.
func (all *tales) fold(t *testing.T, m *eventlog.Message, out *evaluator.Output) {
	t.Helper()
	message, err := events.Read(m.Payload)
	if err != nil {
		return // a partition marker
	}
	for i := range message.Events {
		e := &message.Events[i]
		switch e.Kind { //nolint:exhaustive // the others change nothing here
		case events.SubmitJob:
			if all.jobs[e.JobID] == nil {
				all.jobs[strings.Clone(e.JobID)] = &tale{gang: strings.Clone(e.Submit.GangID)}
			}
		case events.RunLeased:
			all.run(e.JobID, e.RunID)
		case events.RunSucceeded:
			if r := all.run(e.JobID, e.RunID); r.cause == "" {
				r.success = true
			}
		case events.CancelledJob:
			all.jobs[e.JobID].cancelled = true
		case events.RunPreempted:
			all.run(e.JobID, e.RunID).cause = simulate.Preempted
		case events.RunErrors:
			if e.Error == nil {
				continue
			}
			if r := all.run(e.JobID, e.RunID); r != nil && r.cause == "" {
				errs := message.Full(i).GetJobRunErrors().GetErrors()
				r.cause = history.CauseOf(errs[slices.IndexFunc(errs, func(e *pb.Error) bool { return e.Terminal })])
			}
		}
	}
	for _, r := range out.Records {
		switch r := r.(type) {
		case *chain.Decision:
			of := all.run(r.JobID, r.RunID)
			all.decisions++
			of.verdict, of.decided, of.again = r.Code.String(), all.decisions, r.Requeue
		case *chain.NotDecided:
			if of := all.run(r.JobID, r.RunID); of != nil && of.verdict == "" {
				of.verdict = r.Reason.String()
			}
		case *chain.MemberChange:
			j := all.jobs[r.JobID]
			if n := len(j.runs); n > 0 && j.runs[n-1].verdict == "" {
				j.runs[n-1].verdict = r.Change.String()
			}
		}
	}
}

func happened(t *testing.T, name string, set *policyfile.Set) *tales {
	t.Helper()
	path := filepath.Join(recordings, name+".jsonl.gz")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := recording.NewReader(bytes.NewReader(text), path)
	if err != nil {
		t.Fatal(err)
	}
	all, processors := &tales{jobs: map[string]*tale{}}, map[int]*evaluator.Processor{}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		p := processors[e.Partition]
		if p == nil {
			state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, set.Horizon().Nanoseconds())
			if err != nil {
				t.Fatal(err)
			}
			p = &evaluator.Processor{State: state, Rules: evaluator.Rules{Generation: 1, Set: set.Set}}
			p.Activate([]chain.Record{
				&chain.SemanticsActivated{Version: simulate.Semantics},
				&chain.PolicyActivated{Generation: 1, Digest: set.Digest(), HorizonMS: set.Horizon().Milliseconds()},
			})
			processors[e.Partition] = p
		}
		out, err := p.Step(&e.Message)
		if err != nil {
			t.Fatal(err)
		}
		all.fold(t, &e.Message, out)
	}
}

// outcome is what became of a job, as far as it is known.
type outcome string

const (
	done         outcome = "done"
	lost         outcome = "lost"
	wasCancelled outcome = "cancelled"
	open         outcome = "open" // a retry was decided that the history does not hold, or the history ends
)

// ended returns the runs that ended, up to the one that was not to be retried, and what became of the job.
func (j *tale) ended() ([]*ran, outcome) {
	for i, r := range j.runs {
		switch {
		case r.success && !r.again && r.verdict == "":
			return j.runs[:i+1], done
		case r.decided > 0 && !r.again:
			return j.runs[:i+1], lost
		case r.cause == "" && !r.success && r.verdict == "":
			if j.cancelled {
				return j.runs[:i], wasCancelled
			}
			return j.runs[:i], open
		}
	}
	if n := len(j.runs); n > 0 && j.runs[n-1].verdict == chain.MemberStopped.String() {
		return j.runs, lost
	}
	if j.cancelled {
		return j.runs, wasCancelled
	}
	return j.runs, open
}

// class says how a simulated job differs from what happened, and why.
type class string

const (
	asHappened     class = "as happened"       // the same decisions, and the same end
	beyond         class = "beyond the record" // the same decisions as far as the history goes; the rest is drawn
	cancelledFirst class = "cancelled first"   // its retries wait as decided, where Armada requeued at once: the cancellation comes first
	cancelledLater class = "cancelled later"   // more of its runs than Armada's were over when it was cancelled: a cycle takes a second
	byScheduler    class = "by the scheduler"  // which preempted other runs than Armada's; apart from that, it is one of the first two
	unexplained    class = "unexplained"
)

// compare compares a job that is in no gang with what happened. It counts the decisions to retry by cause into retries, apart for runs
// that the history holds and runs that were drawn.
func compare(happened, simulated *tale, recorded, drawn map[string]int) class {
	past, end := happened.ended()
	runs, now := simulated.ended()
	n, other := 0, false // recorded runs so far, whether a preemption differs
	for _, r := range runs {
		into := drawn
		switch {
		case n < len(past) && past[n].cause == r.cause && past[n].success == r.success:
			if past[n].verdict == chain.Cancelled.String() && end == wasCancelled {
				return cancelledLater
			}
			if past[n].verdict != r.verdict {
				return unexplained
			}
			into = recorded
			n++
		case r.cause == simulate.Preempted:
			other = true
		case n < len(past) && past[n].cause == simulate.Preempted: // spared
			other = true
			n++
		case n < len(past):
			return unexplained
		}
		if r.again {
			into[r.cause]++
		}
	}
	switch {
	case n < len(past) && now == wasCancelled:
		return cancelledFirst
	case n < len(past):
		return unexplained
	case other:
		return byScheduler
	case end == open:
		return beyond
	case end != now:
		return unexplained
	}
	return asHappened
}

// first returns the first decision on a gang's first runs, and the member that it is about.
func first(all *tales, members []string) (member string, r *ran) {
	for _, id := range members {
		if runs := all.jobs[id].runs; len(runs) > 0 && runs[0].decided > 0 && (r == nil || runs[0].decided < r.decided) {
			member, r = id, runs[0]
		}
	}
	return member, r
}

// validation is how a simulation of a recording relates to what happened. It leaves out what no history can show: what retries beyond
// the record would have done.
type validation struct {
	ends    map[outcome]int // of jobs outside of gangs, as they happened
	classes map[class]int   // of jobs outside of gangs
	// gangs whose first decision is the same, is about another member, or is there only once.
	gangs map[string]int
	// Decisions to retry by cause, of jobs outside of gangs: as they happened, those of them that the simulation has not, and
	// preemptions that it has in addition.
	retries, missing map[string]int
	preemptions      int
}

// TestValidation compares simulations of the recordings with what happened: the decisions on the runs that took place. Each job that differs has a
// reason, and their numbers are those of docs/reference/simulate.md. They do not depend on the seed, since none of that is drawn; but under seed 2 the
// scheduler preempts two drawn runs, too.
func TestValidation(t *testing.T) {
	t.Parallel()
	files, err := policyfile.LoadDir(os.DirFS(filepath.Join("..", "..", "..", "examples", "policies")))
	if err != nil {
		t.Fatal(err)
	}
	set, err := policyfile.Parse(files)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range wanted() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			past, h := happened(t, name, set), read(t, name)
			w, _ := h.Workload()
			c, _ := h.Cluster()
			for seed := range uint64(5) {
				simulated := &tales{jobs: map[string]*tale{}}
				_, err := simulate.Run(t.Context(), simulate.Options{
					Candidate: simulate.Candidate{Set: set}, Cluster: c, Workload: w, Seed: seed + 1,
					Observe: func(m *eventlog.Message, out *evaluator.Output) { simulated.fold(t, m, out) },
				})
				if err != nil {
					t.Fatal(err)
				}
				got, drawn := validate(t, w, past, simulated)
				if name == "preempted" && seed == 1 {
					got.classes[beyond], got.classes[byScheduler], got.preemptions = got.classes[beyond]+2, got.classes[byScheduler]-2, got.preemptions-2
				}
				if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
					t.Errorf("seed %d:\n got %s\nwant %s", seed+1, g, w)
				}
				t.Logf("seed %d, beyond the record: %v", seed+1, drawn)
			}
		})
	}
}

func validate(t *testing.T, w *simulate.Workload, past, simulated *tales) (v validation, beyondRecord map[string]int) {
	t.Helper()
	v = validation{ends: map[outcome]int{}, classes: map[class]int{}, gangs: map[string]int{}, retries: map[string]int{}, missing: map[string]int{}}
	recorded, drawn, gangs := map[string]int{}, map[string]int{}, map[string][]string{}
	beyondRecord = map[string]int{}
	for i := range w.Given {
		g := &w.Given[i]
		if g.Gang != "" {
			gangs[g.Gang] = append(gangs[g.Gang], g.ID)
			continue
		}
		runs, end := past.jobs[g.ID].ended()
		v.ends[end]++
		for _, r := range runs {
			if r.again {
				v.retries[r.cause]++
			}
		}
		of := compare(past.jobs[g.ID], simulated.jobs[g.ID], recorded, drawn)
		if v.classes[of]++; of == unexplained {
			t.Errorf("job %s is unexplained", g.ID)
		}
		if end == open {
			_, now := simulated.jobs[g.ID].ended()
			beyondRecord["jobs "+string(now)]++
		}
	}
	for cause, n := range v.retries {
		if n != recorded[cause] {
			v.missing[cause] = n - recorded[cause]
		}
	}
	for cause, n := range drawn {
		beyondRecord["retries"] += n
		if cause == simulate.Preempted {
			v.preemptions = n
		}
	}
	for _, members := range gangs {
		member, happened := first(past, members)
		other, now := first(simulated, members)
		switch {
		case happened == nil && now == nil:
			v.gangs["no decision"]++
		case happened == nil || now == nil:
			v.gangs["one decision"]++
		case member == other && happened.cause == now.cause && happened.verdict == now.verdict:
			v.gangs["same"]++
		default:
			v.gangs["another member"]++
		}
	}
	return v, beyondRecord
}

func wanted() map[string]validation {
	return map[string]validation{
		"plain": {
			ends:    map[outcome]int{wasCancelled: 1, done: 121, lost: 79, open: 99},
			classes: map[class]int{asHappened: 197, beyond: 99, cancelledFirst: 3, cancelledLater: 1},
			retries: map[string]int{
				"DeadlineExceeded": 13, "Evicted": 23, "ExitCode143": 2, "ExitCode2": 1, "ExitCode255": 1, "LeaseReturned": 48, "OOMKilled": 21, "Unschedulable": 48,
				"infrastructure/gpu": 11, "infrastructure/network": 13, "infrastructure/storage": 9, "oom": 5,
			},
			missing: map[string]int{"Unschedulable": 5}, // of the three that are cancelled first
		},
		"chaos": {
			ends:    map[outcome]int{lost: 30, open: 54},
			classes: map[class]int{asHappened: 30, beyond: 53, byScheduler: 1},
			gangs:   map[string]int{"same": 21, "another member": 1, "no decision": 1},
			retries: map[string]int{
				"DeadlineExceeded": 2, "Evicted": 9, "ExitCode1": 2, "LeaseExpired": 4, "LeaseReturned": 8, "OOMKilled": 9, "Preempted": 1,
				"infrastructure/gpu": 8, "infrastructure/network": 6, "infrastructure/storage": 8, "oom": 5,
			},
			missing: map[string]int{"Preempted": 1},
		},
		"preempted": {
			ends:        map[outcome]int{wasCancelled: 19, done: 14, lost: 3, open: 52},
			classes:     map[class]int{asHappened: 34, beyond: 46, byScheduler: 8},
			retries:     map[string]int{"Evicted": 9, "ExitCode1": 2, "ExitCode137": 7, "OOMKilled": 8, "Preempted": 26},
			missing:     map[string]int{"Preempted": 6},
			preemptions: 2,
		},
		"retried": {
			ends:    map[outcome]int{done: 27, lost: 123, open: 10},
			classes: map[class]int{asHappened: 150, beyond: 10},
			retries: map[string]int{
				"DeadlineExceeded": 8, "Evicted": 38, "ExitCode1": 2, "ExitCode134": 1, "ExitCode255": 1, "LeaseReturned": 28, "OOMKilled": 32,
				"infrastructure/gpu": 62, "infrastructure/network": 39, "infrastructure/storage": 67, "oom": 6,
			},
		},
	}
}
