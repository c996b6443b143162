package suite

import (
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

// Test is one job and its events.
type Test struct {
	Name         string
	Line, Column int
	Start        int64 // when the job is submitted, Unix nanoseconds
	Job          Job
	Events       []Event
}

// Event is one thing that happens to the job.
type Event struct {
	Line     int
	At       *time.Duration // after the start; nil: when the last retry may start
	Fail     *Failure       // nil: the policies change
	Policies []string
	Expect   []Want

	node, expect *yaml.Node // their nodes; expect nil: nothing is expected
}

// Want is one expected field of an outcome.
type Want struct {
	Field string // such as rule or left.global
	Value string // as written; a list joined by ", "

	accepts func(o *Outcome, start int64) bool
	node    *yaml.Node
}

// Files returns the paths of all policies that the suite names.
func (s *Suite) Files() [][]string {
	all := [][]string{s.Policies}
	for _, t := range s.Tests {
		for _, e := range t.Events {
			if e.Fail == nil {
				all = append(all, e.Policies)
			}
		}
	}
	return all
}

// Policies returns the policies of the paths that a suite names, as it names them.
type Policies func(paths []string) (*policyfile.Set, error)
