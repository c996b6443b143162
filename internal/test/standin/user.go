package standin

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// Job is a job to be submitted. What is left empty has a default.
type Job struct {
	Queue, Set   string // default "queue", "set"
	Priority     uint32
	Preemptible  bool // may be preempted by request
	Annotations  map[string]string
	NodeSelector map[string]string
	AvoidNodes   []string // as a required node affinity
	CPU          string   // slots of a node; default "1"
	Grace        time.Duration

	Gang    string // a name within the queue
	Members int    // of the gang

	// Script is what becomes of its pods, one after the other; the last outcome
	// also of all further ones. Default: Succeed.
	Script []Outcome
}

func (j Job) withDefaults() Job {
	if j.Queue == "" {
		j.Queue = "queue"
	}
	if j.Set == "" {
		j.Set = "set"
	}
	if j.CPU == "" {
		j.CPU = "1"
	}
	j.Grace = max(j.Grace, time.Second)
	j.Annotations = maps.Clone(j.Annotations)
	if j.Gang != "" { // as Armada's server does
		if j.Annotations == nil {
			j.Annotations = map[string]string{}
		}
		j.Annotations[gangKey] = j.Gang
		j.Annotations[cardinalityKey] = strconv.Itoa(j.Members)
		j.Annotations[failFastKey] = "true"
	}
	if len(j.Script) == 0 {
		j.Script = []Outcome{Succeed()}
	}
	return j
}

func (j *Job) class() string {
	if j.Preemptible {
		return preemptibleClass
	}
	return defaultClass
}

func (j *Job) affinity() *affinity {
	if len(j.AvoidNodes) == 0 {
		return nil
	}
	return (*affinity)(nil).avoiding(j.AvoidNodes)
}

func (j *Job) requests() map[string]string {
	return map[string]string{"cpu": j.CPU, "memory": "1Gi"}
}

// toleration is one that every job has.
func toleration() msg {
	return msg(nil).str(1, "armadaproject.io/test").str(2, "Exists").str(4, "NoSchedule")
}

// asked are the requirements that the scheduler is to hold the job to.
func (j *Job) asked() *schedulingInfo {
	info := &schedulingInfo{
		class: j.class(), priority: uint64(j.Priority), selector: j.NodeSelector, affinity: j.affinity(),
		tolerations: [][]byte{toleration()}, requests: j.requests(), annotations: map[string]string{},
	}
	for _, key := range []string{gangKey, cardinalityKey, "armadaproject.io/gangNodeUniformityLabel", failFastKey, "armadaproject.io/priceBand"} {
		if v, ok := j.Annotations[key]; ok {
			info.annotations[key] = v
		}
	}
	return info
}

// message is the SubmitJob.
func (j *Job) message(id string) msg {
	var amounts msg
	for _, name := range slices.Sorted(maps.Keys(j.requests())) {
		amounts = amounts.sub(2, msg(nil).str(1, name).sub(2, msg(nil).str(1, j.requests()[name])))
	}
	container := msg(nil).str(1, "main").str(2, "image").sub(8, amounts)
	pod := msg(nil).sub(2, container).num(4, uint64(j.Grace/time.Second)).pairs(7, j.NodeSelector)
	if a := j.affinity(); a != nil {
		pod = pod.sub(18, a.encode())
	}
	pod = pod.sub(22, toleration()).str(24, j.class())
	meta := msg(nil).str(2, namespace).pairs(5, j.Annotations)
	return msg(nil).num(3, uint64(j.Priority)).sub(4, meta).sub(5, msg(nil).sub(2, msg(nil).sub(1, pod))).str(14, id)
}

const user = "alice"

// Submit submits jobs and returns their ids.
func (w *World) Submit(jobs ...Job) []string {
	w.t.Helper()
	now := w.Now()
	var ids []string
	var out []sequence
	for _, j := range jobs {
		j = j.withDefaults()
		id := ulid(w.random, now)
		ids = append(ids, id)
		w.jobs[id] = &record{Record: Record{ID: id, Job: j}, asked: j.asked()}
		out = append(out, userSequence(&j, event{kind: evSubmitJob, created: now, body: j.message(id)}))
	}
	w.publish(out)
	return ids
}

func userSequence(j *Job, e event) sequence {
	return sequence{queue: j.Queue, set: j.Set, user: user, groups: []string{"staff"}, events: []event{e}}
}

// publish publishes what a user does.
func (w *World) publish(all []sequence) {
	w.t.Helper()
	if err := w.out.publish(w.t.Context(), all); err != nil {
		w.t.Fatalf("armadatest: publish for a user: %v", err)
	}
}

func (w *World) request(id string, e event) {
	w.t.Helper()
	e.created = w.Now()
	w.publish([]sequence{userSequence(&w.job(id).Job, e)})
}

// Cancel asks for a job's cancellation.
func (w *World) Cancel(id string) {
	w.t.Helper()
	w.request(id, ev(evCancelJob, msg(nil).str(3, id)))
}

// SetState is a state by which CancelSet is narrowed, with Armada's number.
type SetState byte

// The states.
const (
	SetQueued SetState = iota
	SetPending
	SetRunning
)

// CancelSet asks for the cancellation of the jobs of a job's set: of those in these
// states, or of all.
func (w *World) CancelSet(id string, states ...SetState) {
	w.t.Helper()
	var body, packed msg
	for _, s := range states {
		packed = append(packed, byte(s))
	}
	if len(packed) > 0 {
		body = body.sub(1, packed)
	}
	w.request(id, ev(evCancelJobSet, body))
}

// SubmitAgain publishes a job's SubmitJob once more, as a client's repeat may.
func (w *World) SubmitAgain(id string) {
	w.t.Helper()
	j := w.job(id).Job
	w.request(id, event{kind: evSubmitJob, body: j.message(id)})
}

// Reprioritise asks for another priority of a job.
func (w *World) Reprioritise(id string, priority uint32) {
	w.t.Helper()
	w.request(id, ev(evReprioritiseJob, msg(nil).num(2, uint64(priority)).str(3, id)))
}

// Preempt asks for the preemption of a job.
func (w *World) Preempt(id string) {
	w.t.Helper()
	w.request(id, ev(evJobPreemptionRequested, msg(nil).str(2, id).str(3, "drain")))
}
