package model

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/test/oracle"
)

// TestOracle runs rows of the tests of JobSet and of Kubernetes' Job controller (testdata/oracles) through the model. What
// they say to it, and what it answers, is held against the engine: internal/evaluator, TestGroupRows.
func TestOracle(t *testing.T) {
	t.Parallel()
	jobs, sets := oracle.Jobs(startJob), oracle.JobSets(startJobSet)
	for name, suite := range map[string]*oracle.Suite{
		"k8s_sync_backoff_limit_per_index.json": jobs.PerIndex(),
		"k8s_sync_pod_failure_policy.json":      jobs.PodFailurePolicy(),
		"k8s_backoff_limit.json":                jobs.BackoffLimit(),
		"k8s_failed_indexes.json":               jobs.FailedIndexes(),
		"k8s_completed_indexes.json":            jobs.CompletedIndexes(),
		"jobset_integration.json":               sets.Integration(),
		"jobset_actions.json":                   sets.Actions(),
		"jobset_rule_matching.json":             sets.RuleMatching(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite.Test(t)
		})
	}
}

// trial is a group that runs under a policy, event by event.
type trial struct {
	*oracle.Check
	m       *Model
	at      int
	jobs    []oracle.Member
	runs    map[string]int
	running map[string]bool
	all     []Record
	row     *Trial
}

// newTrial is a trial of members that are submitted together.
func newTrial(c *oracle.Check, p Policies, members []oracle.Member) *trial {
	m := New(p)
	m.UseVersion(GroupsVersion)
	r := &trial{Check: c, m: m, jobs: members, runs: map[string]int{}, running: map[string]bool{}, row: &Trial{Policies: p.YAML(false)}}
	if c.AsWritten() {
		trials.Lock()
		defer trials.Unlock()
		r.row.Name = fmt.Sprintf("%s/%d", c.Name(), trialsOf(c.Name()))
		trials.list = append(trials.list, r.row)
	}
	var events []*pb.Event
	for _, m := range members {
		events = append(events, inPart(id(m), m.Part, annotationReplica, strconv.Itoa(m.Replica), annotationIndex, strconv.Itoa(m.Index)))
	}
	r.send(events...)
	return r
}

// trialsOf counts the trials of a row so far.
func trialsOf(row string) (n int) {
	for _, other := range trials.list {
		if strings.HasPrefix(other.Name, row+"/") {
			n++
		}
	}
	return n
}

func id(m oracle.Member) string { return fmt.Sprintf("%s-%d-%d", m.Part, m.Replica, m.Index) }

func (r *trial) send(events ...*pb.Event) {
	r.at++
	payload, err := (proto.MarshalOptions{Deterministic: true}).Marshal(&pb.EventSequence{Queue: "ml", JobSetName: "set-a", Events: events})
	if err != nil {
		r.Fatalf("%v", err)
	}
	message := Message{Ledger: 7, Entry: int64(r.at), Batch: -1, Publish: base + int64(r.at)*600e9, Payload: payload}
	records := r.m.Step(message)
	r.row.Messages, r.row.Records = append(r.row.Messages, message), append(r.row.Records, records)
	r.all = append(r.all, records...)
}

// member returns the model's member, nil where there is none.
func (r *trial) member(m oracle.Member) *member {
	part := r.m.groups[0].part(m.Part)
	if part == nil || m.Replica >= len(part.units) {
		return nil
	}
	return part.units[m.Replica].member(m.Index)
}

// Jobs implements oracle.Group.
func (r *trial) Jobs() []oracle.Member { return r.jobs }

// State implements oracle.Group.
func (r *trial) State(m oracle.Member) oracle.State {
	mem := r.member(m)
	switch {
	case mem == nil:
		return ""
	case mem.over != "":
		return map[string]oracle.State{succeededWell: oracle.Succeeded, failedForGood: oracle.Failed}[mem.over] + map[bool]oracle.State{true: oracle.Stopped}[mem.over == wasStopped]
	case r.running[id(m)]:
		return oracle.Running
	}
	return oracle.Waiting
}

// Runs implements oracle.Group.
func (r *trial) Runs(m oracle.Member) int { return r.runs[id(m)] }

// Start implements oracle.Group.
func (r *trial) Start(m oracle.Member) {
	if job := id(m); !r.running[job] {
		r.runs[job]++
		r.running[job] = true
		r.send(lease(job, r.run(m)))
	}
}

func (r *trial) run(m oracle.Member) string { return fmt.Sprintf("%s-%d", id(m), r.runs[id(m)]) }

// Fail implements oracle.Group.
func (r *trial) Fail(m oracle.Member, f oracle.Failure) {
	r.Start(m)
	var containers []*pb.ContainerError
	for _, exit := range f.Containers {
		containers = append(containers, exited(cmp.Or(exit.Container, mainContainer), exit.Code, "Error", exit.Message))
	}
	why := podError("node-1", containers...)
	switch f.Condition {
	case "Evicted":
		why = podReasonError(pb.KubernetesReason_EVICTED, containers...)
	case DeadlineExceeded:
		why = podReasonError(pb.KubernetesReason_DEADLINE_EXCEEDED, containers...)
	}
	r.running[id(m)] = false
	r.send(fails(id(m), r.run(m), why))
}

const mainContainer = "main"

// Succeed implements oracle.Group.
func (r *trial) Succeed(m oracle.Member) {
	r.Start(m)
	r.running[id(m)] = false
	r.send(succeeded(id(m), r.run(m)))
}

// Decisions implements oracle.Group.
func (r *trial) Decisions(m oracle.Member) (all []oracle.Decision) {
	for _, rec := range r.all {
		if rec.JobID != id(m) || rec.Kind != JobRequeued && rec.Kind != JobFailed {
			continue
		}
		d := oracle.Decision{Code: rec.Code, Rule: -1, Used: rec.GlobalUsed, UnitReason: rec.UnitReason, GroupRule: rec.GroupRule}
		if named, ok := strings.CutPrefix(rec.Rule, "rule-"); ok {
			rule, container, _ := strings.Cut(named, "-")
			d.Rule, _ = strconv.Atoi(rule)
			d.Container = container
		}
		all = append(all, d)
	}
	return all
}

// UnitReason implements oracle.Group.
func (r *trial) UnitReason(part string) (reason string) {
	for _, rec := range r.all {
		switch {
		case rec.Part != part || rec.Replica != 0:
		case rec.Kind == UnitEnded && rec.State == StateFailed:
			reason = cmp.Or(reason, rec.Reason)
		case rec.UnitReason != "":
			reason = cmp.Or(reason, rec.UnitReason)
		}
	}
	return reason
}

// Status implements oracle.Group.
func (r *trial) Status() (s oracle.Status) {
	for _, rec := range r.all {
		switch rec.GroupAction {
		case "":
		case "RestartGroup":
			s.Restarts, s.Counted = s.Restarts+1, rec.RestartsUsed
		case "RestartUnit", "RestartPart":
			s.UnitRestarts, s.Counted = s.UnitRestarts+1, rec.RestartsUsed
		}
		if rec.Kind != GroupEnded {
			continue
		}
		if s.State = "Failed"; rec.State == StateSucceeded {
			s.State = string(oracle.Succeeded)
		}
		s.Reason = rec.Reason
	}
	return s
}

// startJob starts a Job of Kubernetes.
func startJob(c *oracle.Check, j *oracle.Job) oracle.Group {
	part := GroupPart{Name: "main", Members: j.Completions, MaxFailedMembers: j.MaxFailedIndexes}
	if j.BackoffLimitPerIndex != nil {
		part.OnMemberFailure = "Continue"
	}
	if j.BackoffLimit != nil && *j.BackoffLimit < 1<<20 {
		part.RetryLimit = j.BackoffLimit
	}
	member := Policy{Name: "pods", DefaultAction: "Retry", RetryLimit: j.BackoffLimitPerIndex}
	actions := map[string]string{"FailJob": "FailUnit", "FailIndex": "Fail", "Ignore": "Ignore", "Count": "Retry"}
	for i, r := range j.Rules() {
		name := fmt.Sprintf("rule-%d", i)
		if e := r.OnExitCodes; e != nil { // Kubernetes looks at every container, a rule without one at the first that failed
			for _, container := range append(slices.Clone(j.Containers), mainContainer) {
				if e.ContainerName == "" || e.ContainerName == container {
					member.Rules = append(member.Rules, Rule{
						Name: name + "-" + container, Action: actions[r.Action], ContainerName: container, OnExitCodes: &ExitCodes{e.Operator, e.Values},
					})
				}
			}
		} else if slices.ContainsFunc(r.OnPodConditions, func(on oracle.PodCondition) bool { return on.Type == oracle.Disruption }) {
			member.Rules = append(member.Rules, Rule{Name: name, Action: actions[r.Action], OnConditions: []string{"Preempted", "Evicted", "LeaseExpired"}})
		}
	}
	set := ml(Settings{GlobalMaxRetries: new(1000)}, member)
	set.Groups = []GroupPolicy{{Name: "p", Parts: []GroupPart{part}}}
	var members []oracle.Member
	for i := range *j.Completions {
		members = append(members, oracle.Member{Part: "main", Index: i})
	}
	return newTrial(c, set, members)
}

// startJobSet starts a JobSet.
func startJobSet(c *oracle.Check, s *oracle.JobSet) oracle.Group {
	p := GroupPolicy{}
	if f := s.FailurePolicy; f != nil {
		p.MaxRestarts = new(or(f.MaxRestarts, 0))
		for i, r := range f.Rules {
			p.Rules = append(p.Rules, groupRule(r, i))
		}
	}
	var members []oracle.Member
	for i := range s.ReplicatedJobs {
		j := &s.ReplicatedJobs[i]
		part := GroupPart{Name: j.Name, Replicas: new(j.Number())}
		if slices.ContainsFunc(j.Reasons, func(reason string) bool { return strings.Contains(reason, FailedIndexes) }) {
			part.OnMemberFailure = "Continue"
		}
		size := 1
		if slices.Contains(j.Reasons, MaxFailedIndexesExceeded) {
			size, part.MaxFailedMembers = 2, new(0)
		}
		part.Members = new(size)
		p.Parts = append(p.Parts, part)
		for replica := range j.Number() {
			for index := range size {
				members = append(members, oracle.Member{Part: j.Name, Replica: replica, Index: index})
			}
		}
	}
	return newTrial(c, grouped(p), members)
}

func groupRule(r oracle.JobSetRule, i int) GroupRule {
	actions := map[string]string{
		"FailJobSet": "FailGroup", "RestartJobSet": "RestartGroup", "RestartJobSetAndIgnoreMaxRestarts": "RestartGroup",
		"RestartJob": "RestartUnit", "RestartJobAndIgnoreMaxRestarts": "RestartUnit", "RestartReplicatedJob": "RestartPart",
	}
	name := strings.ToLower(cmp.Or(r.Name, oracle.DefaultRuleName(i))) // JobSet allows names that we do not
	rule := GroupRule{Name: name, Action: actions[r.Action], OnReasons: r.OnJobFailureReasons, Parts: r.TargetReplicatedJobs}
	if strings.HasSuffix(r.Action, "IgnoreMaxRestarts") {
		rule.CountsTowardMax = new(false)
	}
	if len(r.OnJobFailureMessagePatterns) > 0 {
		rule.OnMessage = strings.Join(r.OnJobFailureMessagePatterns, "|")
	}
	return rule
}
