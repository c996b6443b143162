package query

import (
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/jobdb"
)

// Job is a job. Times are RFC 3339 in UTC, omitted if unknown.
type Job struct {
	JobID           string    `json:"jobId"`
	Partition       int       `json:"partition"`
	Queue           string    `json:"queue"`
	JobSet          string    `json:"jobSet"`
	State           string    `json:"state"`
	Final           bool      `json:"final"`
	Submitted       string    `json:"submitted,omitempty"`
	Ended           string    `json:"ended,omitempty"`
	RetryAfter      string    `json:"retryAfter,omitempty"`
	AvoidNodes      []string  `json:"avoidNodes"`
	Runs            uint32    `json:"runs"`
	CancelRequested bool      `json:"cancelRequested"`
	Armada          *Verdict  `json:"armadaVerdict,omitempty"`
	Attempts        []Attempt `json:"attempts,omitempty"`

	Group  string  `json:"group,omitempty"` // the name of its group; "": it is in none
	Member *Member `json:"member,omitempty"`
}

// Member is the place of a job in its group, and its state there, as of a Unit.
type Member struct {
	Part    string `json:"part"`
	Replica uint32 `json:"replica"`
	Index   uint32 `json:"index"`
	State   string `json:"state"` // as jobdb.MemberState names it
}

// String names the member and its state; "" for nil.
func (m *Member) String() string {
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%s/%d %d %s", m.Part, m.Replica, m.Index, m.State)
}

// Due reports whether the job may be leased again at a time, after a wait.
func (j *Job) Due(now time.Time) bool {
	at, err := time.Parse(time.RFC3339Nano, j.RetryAfter)
	return err == nil && !at.After(now)
}

// Waiting says until when a queued job waits for its next run, or since when that has been due; "": it does not wait.
func (j *Job) Waiting(now time.Time) string {
	switch {
	case j.State != jobdb.JobQueued.String() || j.RetryAfter == "":
		return ""
	case j.CancelRequested:
		return "its cancellation is requested: it does not run again, and is cancelled once Armada says so"
	case j.Due(now):
		return "its retry has been due since " + j.RetryAfter + ", but no run was leased"
	}
	return "it waits for its next run, not before " + j.RetryAfter
}

// Verdict is Armada's own verdict on a job that failed.
type Verdict struct {
	At       string `json:"at"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Category string `json:"category,omitempty"`
}

// Attempt is a run of a job.
type Attempt struct {
	RunID     string `json:"runId"`
	Index     uint32 `json:"index"`
	State     string `json:"state"`
	Executor  string `json:"executor,omitempty"`
	Node      string `json:"node,omitempty"`
	Leased    string `json:"leased,omitempty"`
	Running   string `json:"running,omitempty"`
	Ended     string `json:"ended,omitempty"`
	Preempted bool   `json:"preempted"`
	Error     string `json:"error,omitempty"`
	Message   string `json:"message,omitempty"`
	Category  string `json:"category,omitempty"`
	Decision  uint64 `json:"decision,omitempty"`
	Shadow    bool   `json:"shadow,omitempty"`
	// Released reports that its failure went to the job database without a decision.
	Released bool `json:"released,omitempty"`
	// Superseded is the number of the decision that came too late.
	Superseded uint64 `json:"supersededDecision,omitempty"`

	Outcome string `json:"outcome,omitempty"` // what was decided, as jobdb.Outcome names it; "": nothing was
}

// Effect returns the effect of the decision on the run. A run does not know that the end of its job was released before the
// decision came.
func (r *Attempt) Effect() Effect {
	return effectOf(r.Outcome == jobdb.Requeued.String(), r.Shadow, r.Superseded == 0)
}

// Run is a run in a list.
type Run struct {
	JobID     string `json:"jobId"`
	Partition int    `json:"partition"`
	Attempt
}

// JobOf returns a job with its runs.
func JobOf(j *jobdb.Job, runs []jobdb.Run) Job {
	out := Job{
		JobID: j.JobID, Partition: j.Partition, Queue: j.Queue, JobSet: j.JobSet, State: j.State.String(), Final: j.Final,
		Submitted: TimeText(j.Times.Submitted), Ended: TimeText(j.Times.Ended),
		RetryAfter: TimeText(j.Queueing.RetryAfter), AvoidNodes: j.Queueing.AvoidNodes,
		Runs: j.Queueing.Runs, CancelRequested: j.CancelRequested, Group: j.Member.Group,
	}
	if m := &j.Member; m.Group != "" {
		out.Member = &Member{m.Part, m.Replica, m.Index, j.MemberShown().String()}
	}
	if out.AvoidNodes == nil {
		out.AvoidNodes = []string{}
	}
	if v := j.Armada; v.Failed {
		out.Armada = &Verdict{At: TimeText(v.At), Reason: v.Reason, Message: v.Message, Category: v.Category}
	}
	for i := range runs {
		out.Attempts = append(out.Attempts, attemptOf(&runs[i]))
	}
	return out
}

// endUnknown reports whether the end of a run was not reported, although a later run of the job was leased: a group told
// it to stop.
func endUnknown(r *jobdb.Run, runs []jobdb.Run) bool {
	return slices.ContainsFunc(runs, func(later jobdb.Run) bool {
		return later.Index > r.Index && later.Times.Leased > 0 && r.Times.Ended == 0
	})
}

func attemptOf(r *jobdb.Run) Attempt {
	out := Attempt{
		RunID: r.RunID, Index: r.Index, State: r.State.String(), Executor: r.Executor, Node: r.Node,
		Leased: TimeText(r.Times.Leased), Running: TimeText(r.Times.Running), Ended: TimeText(r.Times.Ended),
		Preempted: r.Flags.Preempted, Error: r.Error.Reason, Message: r.Error.Message, Category: r.Error.Category,
		Decision: r.Decision, Shadow: r.Shadow, Released: r.Outcome == jobdb.Released,
	}
	if r.Decision != 0 {
		out.Outcome = r.Outcome.String()
	}
	return out
}
