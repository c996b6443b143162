package scenario

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Suite is a directory of testdata: one Armada, in armada.yaml, and what is tried
// on it, in the other files.
type Suite struct {
	Name      string `yaml:"-"`
	About     string
	Armada    Setup
	Settings  map[string]any // spec of RetrySettings
	Scenarios []Scenario     `yaml:"-"`
}

// Setup says which Armada a suite runs on.
type Setup struct {
	Executors       map[string]Executor
	ExecutorTimeout Duration `yaml:"executorTimeout"`
	Ingester        string   // which ingester writes Armada's tables at first: ours (the default) or armada
	FollowArmada    bool     `yaml:"followArmada"`
	Manifests       string   // directory of the converter's tests: Armada accepts what their manifests become
}

// Executor is a stand-in for a cluster.
type Executor struct {
	Nodes int
	Pool  string // "": default
}

// Scenario is one row: jobs, the actions on them, and their expected ends. It has its own queue, named like it,
// and its own job set.
type Scenario struct {
	Name   string
	About  string
	Long   bool           // only in the long tier
	Alone  bool           // it disturbs others: it runs when they have ended
	Known  string         // the bug for which it fails today
	Limit  Duration       // for all of it; 90 s unless given
	Policy map[string]any // spec of the queue's RetryPolicy; none: the queue has no policy
	Group  map[string]any // spec of the GroupPolicy that is named like the scenario; none: there is none
	// Manifest is of another system. It is converted, and its jobs and policies are submitted: Jobs say what happens to
	// them, by Member.
	Manifest string
	Files    map[string]any // $files/NAME: documents for armadactl and refloatctl
	Queue    map[string]any // more of our document of the queue
	Jobs     []Job
	Random   *Random // more jobs, all called random
	Steps    []Step
	Fault    string                 // what $fault in the steps is replaced by
	Expect   map[string]Expectation // job name →
}

// Job is one job, or many alike.
type Job struct {
	Name        string
	Count       int               // 1 unless given
	Member      string            // of a manifest: PART, PART/REPLICA or PART/REPLICA/INDEX; the first job that names a member counts
	Later       bool              // a step submits it
	Queue       string            // of the scenario's queue with this behind its name, another one
	Sim         map[string]string // annotations sim/…, for the stand-in executor
	Annotations map[string]string
	Executor    string // only there, or on those; "any": anywhere; main unless given
	Class       string // priority class
	Priority    int
	CPU         string
	Memory      string
	Grace       int // terminationGracePeriodSeconds
}

// Random is many jobs, drawn by a seed.
type Random struct {
	Count int
	Seed  uint64
}

// Step waits until something is so, and then does something.
type Step struct {
	When   *Moment
	Do     string // a verb and its arguments: what runs it says which
	Ask    string // a command, repeated until its output matches
	Query  string // a query of the scheduler's database, repeated until its first column matches
	Output string // regular expression that the output must match
	Refuse bool   // it must fail
}

// Moment is something that Armada's tables say of all jobs of a name.
type Moment struct {
	Job   string
	Is    string   // a state, as Seen.State
	Run   int      // it has so many runs; 0: any number
	Stays Duration // it stays so this long
	Over  int      // instead of Is: so many of the jobs are over
}

// Expectation is how all jobs of a name end.
type Expectation struct {
	Is        string   // the state
	Runs      []string // how each run ended; empty: not looked at
	Some      string   // at least one run of one of the jobs ended so
	MinRuns   int      `yaml:"minRuns"`
	Decisions []string // the codes of our decisions, in order; empty: not looked at
	Undecided bool     // no decision of ours may be there
	OtherNode bool     `yaml:"otherNode"` // no run is on the node of the one before
	Gap       Duration // at least between the end of a run and the next one's lease
	Priority  *int64
	Requested *bool    `yaml:"preemptRequested"` // of the runs
	Executors []string // the executor of each run
}

// Duration is written as 1m30s.
type Duration time.Duration

// UnmarshalText reads it.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Or is another duration where none is given.
func (d Duration) Or(other time.Duration) time.Duration { return cmp.Or(time.Duration(d), other) }

// Load reads the suites in a directory, and rejects likely mistakes.
func Load(dir string) (suites []Suite, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.yaml")) // in order
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if len(suites) == 0 || suites[len(suites)-1].Name != name {
			suites = append(suites, Suite{Name: name})
		}
		if err := suites[len(suites)-1].read(file); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return suites, nil
}

func (s *Suite) read(file string) error {
	if filepath.Base(file) == "armada.yaml" {
		return decode(file, s)
	}
	var rows struct{ Scenarios []Scenario }
	if err := decode(file, &rows); err != nil {
		return err
	}
	for _, sc := range rows.Scenarios {
		if err := sc.check(); err != nil {
			return fmt.Errorf("%s: %w", sc.Name, err)
		}
		if slices.ContainsFunc(s.Scenarios, func(o Scenario) bool { return o.Name == sc.Name }) {
			return fmt.Errorf("there is another scenario %s", sc.Name)
		}
		s.Scenarios = append(s.Scenarios, sc)
	}
	return nil
}

func decode(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return d.Decode(into)
}

var scenarioName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,50}$`)

func (s Scenario) check() error {
	if !scenarioName.MatchString(s.Name) {
		return fmt.Errorf("the name must match %s", scenarioName)
	}
	if len(s.Expect) == 0 && !slices.ContainsFunc(s.Steps, func(st Step) bool { return st.Output != "" }) {
		return fmt.Errorf("it expects nothing")
	}
	known := func(name string) bool {
		return name == "random" && s.Random != nil || slices.ContainsFunc(s.Jobs, func(j Job) bool { return j.Name == name })
	}
	if s.Manifest != "" {
		if _, err := s.Convert(); err != nil {
			return err
		}
	}
	for name, e := range s.Expect {
		if !known(name) {
			return fmt.Errorf("it expects something of %s, which is no job", name)
		}
		if !slices.Contains(States, e.Is) {
			return fmt.Errorf("%s is expected to be %q: want one of %q", name, e.Is, States)
		}
	}
	for i, st := range s.Steps {
		if w := st.When; w != nil && (!known(w.Job) || !slices.Contains(States, w.Is) && w.Over == 0) {
			return fmt.Errorf("step %d waits until job %q is %q: want a job, and one of %q", i+1, w.Job, w.Is, States)
		}
		if _, err := regexp.Compile(st.Output); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		if len(slices.DeleteFunc([]string{st.Do, st.Ask, st.Query}, func(s string) bool { return s == "" })) > 1 {
			return fmt.Errorf("step %d has more than one of do, ask and query", i+1)
		}
	}
	return nil
}

// Queues are the queues of a scenario.
func (s Scenario) Queues() []string {
	names := []string{s.Name}
	for _, j := range s.Jobs {
		if name := s.QueueOf(j); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// QueueOf is the queue of a job.
func (s Scenario) QueueOf(j Job) string { return s.Name + j.Queue }

// Set is the job set of the scenario's jobs.
func (s Scenario) Set() string { return s.Name + "-set" }

// Policies are our policies, queues and settings of all scenarios, as a file.
func (s Suite) Policies() ([]byte, error) {
	docs := []map[string]any{{"kind": "RetrySettings", "spec": s.Settings}}
	for _, sc := range s.Scenarios {
		docs = append(docs, sc.documents()...)
	}
	var b bytes.Buffer
	for _, doc := range docs {
		text, err := yaml.Marshal(doc)
		if err != nil {
			return nil, err
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	for _, sc := range s.Scenarios {
		if sc.Manifest == "" {
			continue
		}
		c, err := sc.Convert()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sc.Name, err)
		}
		files, err := c.policies()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sc.Name, err)
		}
		for _, text := range files {
			b.WriteString("---\n")
			b.Write(text)
		}
	}
	if problems := policyfile.Lint([]policyfile.File{{Name: s.Name, Data: b.Bytes()}}); len(problems) > 0 {
		return nil, fmt.Errorf("the policies of the scenarios: %w", problems)
	}
	return b.Bytes(), nil
}

// documents are the policies and the queues of a scenario.
func (s Scenario) documents() (docs []map[string]any) {
	if s.Policy != nil {
		docs = append(docs, map[string]any{
			"apiVersion": "armadaproject.io/v1", "kind": "RetryPolicy", "metadata": map[string]any{"name": s.Name}, "spec": s.Policy,
		})
	}
	if s.Group != nil {
		docs = append(docs, map[string]any{
			"apiVersion": "refloat.github.io/v1", "kind": "GroupPolicy", "metadata": map[string]any{"name": s.Name}, "spec": s.Group,
		})
	}
	for _, name := range s.Queues() {
		queue := map[string]any{"kind": "Queue", "name": name}
		maps.Copy(queue, s.Queue)
		if s.Policy != nil {
			queue["retryPolicies"] = []string{s.Name}
		}
		if len(queue) > 2 {
			docs = append(docs, queue)
		}
	}
	return docs
}
