package suite

import (
	"cmp"
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Kind is the kind of a test file.
const Kind = "RetryPolicyTest"

// Suite is a file of tests.
type Suite struct {
	File     string
	Policies []string // paths relative to the file's directory; none: that directory
	Tests    []Test

	data []byte
}

// Test is one job, or a group of jobs, and its events.
type Test struct {
	Name         string
	Line, Column int
	Start        int64  // when the jobs are submitted, Unix nanoseconds
	Job          Job    // of a group: what its members are like, unless Group.Jobs says otherwise
	Group        *Group // nil: the test is about one job
	Events       []Event
}

// Group is the group of a test.
type Group struct {
	Policy string   // "": the test is about a gang in no group
	Gangs  []string // parts whose units are gangs
	Jobs   []MemberJob
}

// MemberJob is what the jobs of some members are like; of several about a member, the last counts.
type MemberJob struct {
	Members Members
	Job     Job
}

// jobOf returns what the job of a member is like.
func (t *Test) jobOf(m place) Job {
	job := t.Job
	if t.Group == nil {
		job.ID = cmp.Or(job.ID, "job")
		return job
	}
	for i := range t.Group.Jobs {
		if of := &t.Group.Jobs[i]; of.Members.has(m) {
			job = of.Job
			job.Queue, job.Set = t.Job.Queue, t.Job.Set
		}
	}
	job.ID = m.String()
	return job
}

// Verb is what happens in an event.
type Verb uint8

// What happens. In a test of one job, it is one of the first two.
const (
	FailRun Verb = iota
	UsePolicies
	SubmitMembers
	StartRuns
	SucceedRuns
	CancelMembers
	PassTime
	FirstRuns // of other jobs of the queue, for retry budgets
)

// verbs are the fields of an event that say what happens.
var verbs = [...]string{
	FailRun: "fail", UsePolicies: "policies", SubmitMembers: "submit", StartRuns: "start", SucceedRuns: "succeed", CancelMembers: "cancel",
	PassTime: "time passes", FirstRuns: "firstRuns",
}

// Event is one thing that happens to the job or group.
type Event struct {
	Line     int
	At       *time.Duration // after the start; nil: when the last retry may start
	Do       Verb
	Fail     *Failure
	Policies []string
	Runs     int // of FirstRuns
	Expect   []Want

	// In a test of a group.
	Members Members // to which it happens
	Run     string  // id of the run that starts; "": any
	Late    bool    // it happens to the run that was told to stop

	node, expect *yaml.Node // their nodes; expect nil: nothing is expected
}

// String describes the event in one line.
func (e *Event) String() string {
	of := list(e.Members.texts())
	switch {
	case e.Do == PassTime:
		return verbs[PassTime]
	case e.Do == FirstRuns:
		return fmt.Sprintf("%d first runs of other jobs", e.Runs)
	case e.Do != FailRun:
		return verbs[e.Do] + " " + of
	case e.Late:
		return of + ": late: " + e.Fail.String()
	case of != "":
		return of + ": " + e.Fail.String()
	}
	return e.Fail.String()
}

// Want is one expected field of an outcome.
type Want struct {
	Field string // such as rule or left.global
	Value string // as written; a list joined by ", "

	Members Members // that it names, in a test of a group
	accepts func(o *Outcome, start int64) bool
	node    *yaml.Node
}

// Files returns the paths of all policies that the suite names.
func (s *Suite) Files() [][]string {
	all := [][]string{s.Policies}
	for _, t := range s.Tests {
		for _, e := range t.Events {
			if e.Do == UsePolicies {
				all = append(all, e.Policies)
			}
		}
	}
	return all
}

// Policies returns the policies of the paths that a suite names, as it names them.
type Policies func(paths []string) (*policyfile.Set, error)
