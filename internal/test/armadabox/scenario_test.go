package armadabox_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/armadabox"
)

// suite is a directory of testdata: one Armada, in armada.yaml, and what is tried
// on it, in the other files.
type suite struct {
	Name      string `yaml:"-"`
	About     string
	Armada    setup
	Settings  map[string]any // spec of RetrySettings
	Scenarios []scenario     `yaml:"-"`
}

// setup says which Armada a suite runs on.
type setup struct {
	Executors       map[string]armadabox.Executor
	ExecutorTimeout duration `yaml:"executorTimeout"`
	Ingester        string   // ours (the default) or armada: who writes Armada's tables at first
	FollowArmada    bool     `yaml:"followArmada"`
}

// scenario is a row: jobs, what is done to them, and how they end. It has a
// queue of its own, which is called as it is, and a job set.
type scenario struct {
	Name   string
	About  string
	Long   bool           // only in the long tier
	Alone  bool           // it disturbs others: it runs when they have ended
	Known  string         // the bug for which it fails today
	Limit  duration       // for all of it; 90 s unless given
	Policy map[string]any // spec of the queue's RetryPolicy; none: the queue has no policy
	Files  map[string]any // $files/NAME: documents for armadactl and refloatctl
	Queue  map[string]any // more of our document of the queue
	Jobs   []job
	Random *random // more jobs, all called random
	Steps  []step
	Fault  string                 // what $fault stands for in the steps
	Expect map[string]expectation // job name →
}

// job is one job, or many alike.
type job struct {
	Name        string
	Count       int               // 1 unless given
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

// random is many jobs, drawn by a seed.
type random struct {
	Count int
	Seed  uint64
}

// step waits until something is so, and then does something.
type step struct {
	When   *moment
	Do     string // a verb and its arguments: see perform
	Ask    string // the same, again and again until it says what it should
	Query  string // asked of the scheduler's database until its first column says what it should
	Says   string // regular expression that the output must match
	Refuse bool   // it must fail
}

// moment is something that Armada's tables say of all jobs of a name.
type moment struct {
	Job   string
	Is    string   // a state, as seenJob.State
	Run   int      // it has so many runs; 0: any number
	Stays duration // it stays so this long
	Over  int      // instead of Is: so many of the jobs are over
}

// expectation is how all jobs of a name end.
type expectation struct {
	Is         string   // the state
	Runs       []string // how each run ended; empty: not looked at
	Some       string   // at least one run of one of the jobs ended so
	MinRuns    int      `yaml:"minRuns"`
	Decisions  []string // the codes of our decisions, in order; empty: not looked at
	Undecided  bool     // no decision of ours may be there
	OtherNode  bool     `yaml:"otherNode"` // no run is on the node of the one before
	Gap        duration // at least between the end of a run and the next one's lease
	Priority   *int64
	Requested  *bool    `yaml:"preemptRequested"` // of the runs
	RunError   string   `yaml:"runError"`         // regular expression: the last failed run's error
	Executions []string `yaml:"executors"`        // the executor of each run
}

// duration is written as 1m30s.
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

func (d duration) or(other time.Duration) time.Duration { return cmp.Or(time.Duration(d), other) }

// load reads the suites and refuses what can hardly be meant.
func load(t *testing.T) (suites []suite) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.yaml")) // in order
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if len(suites) == 0 || suites[len(suites)-1].Name != name {
			suites = append(suites, suite{Name: name})
		}
		s := &suites[len(suites)-1]
		if filepath.Base(file) == "armada.yaml" {
			read(t, file, s)
			continue
		}
		var rows struct{ Scenarios []scenario }
		read(t, file, &rows)
		for _, sc := range rows.Scenarios {
			if err := sc.check(); err != nil {
				t.Fatalf("%s: %s: %v", file, sc.Name, err)
			}
			if slices.ContainsFunc(s.Scenarios, func(o scenario) bool { return o.Name == sc.Name }) {
				t.Fatalf("%s: there is another scenario %s", file, sc.Name)
			}
			s.Scenarios = append(s.Scenarios, sc)
		}
	}
	return suites
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

var scenarioName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,50}$`)

func (s scenario) check() error {
	if !scenarioName.MatchString(s.Name) {
		return fmt.Errorf("the name must match %s", scenarioName)
	}
	if len(s.Expect) == 0 && !slices.ContainsFunc(s.Steps, func(st step) bool { return st.Says != "" }) {
		return fmt.Errorf("it expects nothing")
	}
	known := func(name string) bool {
		return name == "random" && s.Random != nil || slices.ContainsFunc(s.Jobs, func(j job) bool { return j.Name == name })
	}
	for name, e := range s.Expect {
		if !known(name) {
			return fmt.Errorf("it expects something of %s, which is no job", name)
		}
		if !slices.Contains(states, e.Is) {
			return fmt.Errorf("%s is expected to be %q: want one of %q", name, e.Is, states)
		}
	}
	for i, st := range s.Steps {
		if w := st.When; w != nil && (!known(w.Job) || !slices.Contains(states, w.Is) && w.Over == 0) {
			return fmt.Errorf("step %d waits until job %q is %q: want a job, and one of %q", i+1, w.Job, w.Is, states)
		}
		if _, err := regexp.Compile(st.Says); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		if len(slices.DeleteFunc([]string{st.Do, st.Ask, st.Query}, func(s string) bool { return s == "" })) > 1 {
			return fmt.Errorf("step %d has more than one of do, ask and query", i+1)
		}
	}
	return nil
}

// queues are the queues of a scenario.
func (s scenario) queues() []string {
	names := []string{s.Name}
	for _, j := range s.Jobs {
		if name := s.queueOf(j); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (s scenario) queueOf(j job) string { return s.Name + j.Queue }

// policies writes our policies of all scenarios into a directory.
func (s suite) policies(t *testing.T) string {
	t.Helper()
	docs := []map[string]any{{"kind": "RetrySettings", "spec": s.Settings}}
	for _, sc := range s.Scenarios {
		if sc.Policy != nil {
			docs = append(docs, map[string]any{
				"apiVersion": "armadaproject.io/v1", "kind": "RetryPolicy", "metadata": map[string]any{"name": sc.Name}, "spec": sc.Policy,
			})
		}
		for _, name := range sc.queues() {
			queue := map[string]any{"kind": "Queue", "name": name}
			maps.Copy(queue, sc.Queue)
			if sc.Policy != nil {
				queue["retryPolicies"] = []string{sc.Name}
			}
			if len(queue) > 2 {
				docs = append(docs, queue)
			}
		}
	}
	var b bytes.Buffer
	for _, doc := range docs {
		text, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "suite.yaml"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := policyfile.LoadDir(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	if problems := policyfile.Lint(files); len(problems) > 0 {
		t.Fatalf("%s: the policies of the scenarios: %v", s.Name, problems)
	}
	return dir
}
