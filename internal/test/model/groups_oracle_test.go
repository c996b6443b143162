package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
)

// This file runs rows of the tests of JobSet and of Kubernetes' Job controller
// (testdata/oracles) where GROUPS shares their meaning. testdata/groups/left-out.txt says which
// it does not run, and why.

// leftOut returns the rows of a file that are not run: ids, or prefixes that end in *.
func leftOut(t *testing.T, file string) (rows []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "groups", "left-out.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); f[0] == file {
			rows = append(rows, f[1])
		}
	}
	return rows
}

// oracle reads the rows of a file into a type of rows, by id.
func oracle[T any](t *testing.T, file string, run func(t *testing.T, id string, row T)) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "oracles", file))
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Rows []json.RawMessage
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	left, used := leftOut(t, file), map[string]bool{}
	ran := 0
	for _, raw := range all.Rows {
		var id struct{ ID string }
		var row T
		if err := json.Unmarshal(raw, &id); err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(left, func(pattern string) bool {
			prefix, is := strings.CutSuffix(pattern, "*")
			return pattern == id.ID || is && strings.HasPrefix(id.ID, prefix)
		})
		if at >= 0 {
			used[left[at]] = true
			continue
		}
		if err := json.Unmarshal(raw, &row); err != nil {
			t.Fatalf("%s: %v", id.ID, err)
		}
		ran++
		t.Run(id.ID, func(t *testing.T) { run(t, id.ID, row) })
	}
	if ran == 0 || len(used) < len(left) {
		t.Fatalf("%d rows ran; of %q, left out were only %v", ran, left, used)
	}
}

// trial is a group that runs under a policy, event by event.
type trial struct {
	t    *testing.T
	m    *Model
	at   int
	runs map[string]int
	all  []Record
	said *Trial
}

func newTrial(t *testing.T, p Policies) *trial {
	t.Helper()
	m := New(p)
	m.UseVersion(GroupsVersion)
	r := &trial{t: t, m: m, runs: map[string]int{}, said: &Trial{Policies: p.YAML(false)}}
	trials.Lock()
	defer trials.Unlock()
	r.said.Name = fmt.Sprintf("%s/%d", t.Name(), trialsOf(t.Name()))
	trials.list = append(trials.list, r.said)
	return r
}

// trialsOf counts the trials of a test so far.
func trialsOf(test string) (n int) {
	for _, other := range trials.list {
		if strings.HasPrefix(other.Name, test+"/") {
			n++
		}
	}
	return n
}

func (r *trial) say(events ...*pb.Event) []Record {
	r.at++
	payload, err := (proto.MarshalOptions{Deterministic: true}).Marshal(&pb.EventSequence{Queue: "ml", JobSetName: "set-a", Events: events})
	if err != nil {
		r.t.Fatal(err)
	}
	message := Message{Ledger: 7, Entry: int64(r.at), Batch: -1, Publish: base + int64(r.at)*600e9, Payload: payload}
	records := r.m.Step(message)
	r.said.Messages, r.said.Records = append(r.said.Messages, message), append(r.said.Records, records)
	r.all = append(r.all, records...)
	return records
}

// run names the next run of a job.
func (r *trial) run(job string) string {
	r.runs[job]++
	return fmt.Sprintf("%s-%d", job, r.runs[job])
}

// exit fails the next run of a job with an exit code and a message.
func (r *trial) exit(job string, code int32, message string) []Record {
	return r.say(fails(job, r.run(job), podError("node-1", exited("main", code, "Error", message))))
}

// JobSet.

type jobSetRule struct {
	Name                        string
	Action                      string
	OnJobFailureReasons         []string
	OnJobFailureMessagePatterns []string
	TargetReplicatedJobs        []string
}

type failurePolicy struct {
	MaxRestarts *int
	Rules       []jobSetRule
}

func (r jobSetRule) rule(name string) GroupRule {
	actions := map[string]string{
		"FailJobSet": "FailGroup", "RestartJobSet": "RestartGroup", "RestartJobSetAndIgnoreMaxRestarts": "RestartGroup",
		"RestartJob": "RestartUnit", "RestartJobAndIgnoreMaxRestarts": "RestartUnit",
	}
	rule := GroupRule{Name: name, Action: actions[r.Action], OnReasons: r.OnJobFailureReasons}
	for _, target := range r.TargetReplicatedJobs {
		rule.Parts = append(rule.Parts, strings.ToLower(target))
	}
	if strings.HasSuffix(r.Action, "IgnoreMaxRestarts") {
		rule.CountsTowardMax = new(false)
	}
	if len(r.OnJobFailureMessagePatterns) > 0 {
		rule.OnMessage = strings.Join(r.OnJobFailureMessagePatterns, "|")
	}
	return rule
}

// policy is the group policy of a failure policy.
func (f *failurePolicy) policy() GroupPolicy {
	var p GroupPolicy
	if f == nil {
		return p
	}
	p.MaxRestarts = new(or(f.MaxRestarts, 0))
	for i, r := range f.Rules {
		p.Rules = append(p.Rules, r.rule(fmt.Sprint(i)))
	}
	return p
}

// failJob fails a unit of one member for a reason of JobSet's child jobs.
func (r *trial) failJob(job, reason, message string) []Record {
	r.t.Helper()
	switch reason {
	case PodFailurePolicy:
		return r.exit(job, 3, message)
	case "", BackoffLimitExceeded, FailedIndexes: // of a part that continues, it is FailedIndexes
		return r.exit(job, 1, message)
	case DeadlineExceeded:
		return r.say(fails(job, r.run(job), podReasonError(pb.KubernetesReason_DEADLINE_EXCEEDED, exited("main", 1, "Error", message))))
	}
	r.t.Fatalf("no way to fail by %q", reason)
	return nil
}

// verdictOf is the record of the unit's failure among the records of a message.
func verdictOf(t *testing.T, records []Record) Record {
	t.Helper()
	for _, r := range records {
		if r.GroupAction != "" {
			return r
		}
	}
	t.Fatalf("no unit failed: %+v", records)
	return Record{}
}

func ended(records []Record) *Record {
	for i := range records {
		if records[i].Kind == GroupEnded {
			return &records[i]
		}
	}
	return nil
}

func TestJobSetIntegration(t *testing.T) {
	t.Parallel()
	type row struct {
		Policy struct {
			FailurePolicy  *failurePolicy
			ReplicatedJobs []struct {
				Name     string
				Replicas int
			}
		}
		Steps []struct {
			Observe struct {
				JobFailed struct{ ReplicatedJob, Reason, Message string }
			}
			Expect struct {
				State                             string
				Restarts, RestartsCountTowardsMax *int
				JobRestarts                       []int
				JobRestartsCountTowardsMax        []int
			}
		}
	}
	oracle(t, "jobset_integration.json", func(t *testing.T, _ string, row row) {
		p := row.Policy.FailurePolicy.policy()
		var events []*pb.Event
		for _, rj := range row.Policy.ReplicatedJobs {
			part := GroupPart{Name: rj.Name, Replicas: new(rj.Replicas)}
			if row.Steps[0].Observe.JobFailed.Reason == FailedIndexes {
				part.OnMemberFailure = "Continue"
			}
			p.Parts = append(p.Parts, part)
			for i := range rj.Replicas {
				events = append(events, inPart(fmt.Sprintf("%s-%d", rj.Name, i), rj.Name, annotationReplica, strconv.Itoa(i)))
			}
		}
		r := newTrial(t, grouped(p))
		r.say(events...)
		for i, step := range row.Steps {
			name := step.Observe.JobFailed.ReplicatedJob
			if strings.HasPrefix(name, "any") {
				name = row.Policy.ReplicatedJobs[0].Name
			}
			records := r.failJob(name+"-0", step.Observe.JobFailed.Reason, step.Observe.JobFailed.Message)
			state := "Active"
			if end := ended(records); end != nil {
				state = end.State
			}
			if state != step.Expect.State {
				t.Errorf("step %d: state %s, want %s", i, state, step.Expect.State)
			}
			group, unit := 0, 0
			for _, rec := range r.all {
				switch rec.GroupAction {
				case "RestartGroup":
					group++
				case "RestartUnit":
					unit++
				}
			}
			counted := 0
			for _, n := range step.Expect.JobRestartsCountTowardsMax {
				counted += n
			}
			units := 0
			for _, n := range step.Expect.JobRestarts {
				units += n
			}
			want := step.Expect
			if want.Restarts != nil && group != *want.Restarts || unit != units {
				t.Errorf("step %d: %d restarts and %d of units, want %d and %d", i, group, unit, or(want.Restarts, 0), units)
			}
			if v := verdictOf(t, records); want.RestartsCountTowardsMax != nil && v.RestartsUsed != *want.RestartsCountTowardsMax+counted {
				t.Errorf("step %d: %d restarts used, want %d", i, v.RestartsUsed, *want.RestartsCountTowardsMax+counted)
			}
		}
	})
}

func TestJobSetActions(t *testing.T) {
	t.Parallel()
	type row struct {
		Policy struct {
			FailurePolicy failurePolicy
			Action        string
			Rule          *jobSetRule
		}
		Prior struct {
			RestartsCountTowardsMax int
			ReplicatedJobsStatus    []struct{ JobRestartsCountTowardsMax []int }
		}
		Expected struct {
			Status struct {
				Conditions              []struct{ Reason, Type string }
				RestartsCountTowardsMax int
				ReplicatedJobsStatus    []struct{ JobRestartsCountTowardsMax []int }
			}
		}
	}
	oracle(t, "jobset_actions.json", func(t *testing.T, _ string, row row) {
		p := row.Policy.FailurePolicy.policy()
		rule := jobSetRule{Action: row.Policy.Action}
		if row.Policy.Rule != nil {
			rule.Name = row.Policy.Rule.Name
		}
		// What came before happens by rules of its own.
		p.Rules = []GroupRule{
			{Name: "prior-group", Action: "RestartGroup", OnMessage: "prior group"},
			{Name: "prior-unit", Action: "RestartUnit", OnMessage: "prior unit"},
			rule.rule("row"), // JobSet allows names that we do not
		}
		p.Parts = []GroupPart{{Name: "rjob"}, {Name: "other"}}
		r := newTrial(t, grouped(p))
		r.say(inPart("rjob", "rjob"), inPart("other", "other"))
		for range row.Prior.RestartsCountTowardsMax {
			r.exit("rjob", 1, "prior group")
		}
		used := 0
		for _, s := range row.Prior.ReplicatedJobsStatus {
			for _, n := range s.JobRestartsCountTowardsMax {
				for range n {
					r.exit("rjob", 1, "prior unit")
				}
			}
		}
		for _, s := range row.Expected.Status.ReplicatedJobsStatus {
			for _, n := range s.JobRestartsCountTowardsMax {
				used += n
			}
		}
		records := r.exit("rjob", 1, "")
		v := verdictOf(t, records)
		want := row.Expected.Status
		if v.RestartsUsed != want.RestartsCountTowardsMax+used {
			t.Errorf("%d restarts used, want %d", v.RestartsUsed, want.RestartsCountTowardsMax+used)
		}
		if end := ended(records); want.Conditions[0].Type == "Failed" {
			if end == nil || end.Reason != want.Conditions[0].Reason {
				t.Errorf("the group ended as %+v, want %s", end, want.Conditions[0].Reason)
			}
		} else if end != nil || "FailurePolicy_"+strings.Replace(v.GroupRule, "row", rule.Name, 1) != want.Conditions[0].Reason {
			t.Errorf("rule %q, ended %+v, want %s", v.GroupRule, end, want.Conditions[0].Reason)
		}
	})
}

func TestJobSetRules(t *testing.T) {
	t.Parallel()
	type job struct {
		Name, Reason, ParentReplicatedJob string
	}
	type row struct {
		Policy struct {
			Rule  *jobSetRule
			Rules []jobSetRule
		}
		Observed struct {
			Job             *job
			Jobs            []job
			Reason, Message string
		}
		Expected struct {
			RuleMatches      bool
			MatchedRuleIndex *int
			MatchedJob       *string
		}
	}
	oracle(t, "jobset_rule_matching.json", func(t *testing.T, _ string, row row) {
		jobs, rules := row.Observed.Jobs, row.Policy.Rules
		want := row.Expected.MatchedRuleIndex
		if row.Observed.Job != nil {
			row.Observed.Job.Reason = row.Observed.Reason
			jobs, rules = []job{*row.Observed.Job}, []jobSetRule{*row.Policy.Rule}
			rules[0].Action = "FailJobSet"
			if row.Expected.RuleMatches {
				want = new(0)
			}
		}
		p := GroupPolicy{MaxRestarts: new(9)}
		for i, rule := range rules {
			p.Rules = append(p.Rules, rule.rule(fmt.Sprint(i)))
		}
		var events []*pb.Event
		for _, j := range jobs { // each job is a unit of its parent
			j.ParentReplicatedJob = strings.ToLower(cmp.Or(j.ParentReplicatedJob, "main")) // as names are here
			i := slices.IndexFunc(p.Parts, func(part GroupPart) bool { return part.Name == j.ParentReplicatedJob })
			if i < 0 {
				i = len(p.Parts)
				p.Parts = append(p.Parts, GroupPart{Name: j.ParentReplicatedJob, Replicas: new(0)})
			}
			events = append(events, inPart(j.Name, j.ParentReplicatedJob, annotationReplica, strconv.Itoa(*p.Parts[i].Replicas)))
			*p.Parts[i].Replicas++
			if j.Reason == FailedIndexes {
				p.Parts[i].OnMemberFailure = "Continue"
			}
		}
		for _, rule := range p.Rules { // a policy declares every part that it names
			for _, part := range rule.Parts {
				if !slices.ContainsFunc(p.Parts, func(p GroupPart) bool { return p.Name == part }) {
					p.Parts = append(p.Parts, GroupPart{Name: part})
				}
			}
		}
		r := newTrial(t, grouped(p))
		r.say(events...)
		// The one that failed first comes first in the log: in these rows, the last named.
		first := jobs[len(jobs)-1]
		v := verdictOf(t, r.failJob(first.Name, first.Reason, row.Observed.Message))
		switch {
		case want == nil && v.GroupRule != "":
			t.Errorf("rule %q matched, want none", v.GroupRule)
		case want != nil && v.GroupRule != strconv.Itoa(*want):
			t.Errorf("rule %q matched, want %d", v.GroupRule, *want)
		case row.Expected.MatchedJob != nil && v.JobID != *row.Expected.MatchedJob:
			t.Errorf("job %s, want %s", v.JobID, *row.Expected.MatchedJob)
		}
	})
}

// TestLeftOut asks that each line of left-out.txt is about rows that there are, or about a file
// that is not here.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "..", "testdata")
	data, err := os.ReadFile(filepath.Join(dir, "groups", "left-out.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 4 {
			t.Fatalf("no reason: %s", line)
		}
		raw, err := os.ReadFile(filepath.Join(dir, "oracles", f[0]))
		if f[2]+f[3] == "nothere:" {
			if err == nil {
				t.Errorf("it is here: %s", line)
			}
			continue
		}
		var all struct{ Rows []struct{ ID string } }
		if err := cmp.Or(err, json.Unmarshal(raw, &all)); err != nil {
			t.Errorf("%s: %v", f[0], err)
			continue
		}
		prefix, is := strings.CutSuffix(f[1], "*")
		if !slices.ContainsFunc(all.Rows, func(row struct{ ID string }) bool { return row.ID == f[1] || is && strings.HasPrefix(row.ID, prefix) }) {
			t.Errorf("no such row: %s", line)
		}
	}
}
