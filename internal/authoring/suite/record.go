package suite

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Recorded is a decided run of a real job.
type Recorded struct {
	Decision *chain.Decision
	Run      *jobdb.Run
}

// History is what a job database has about one job and its decided runs, in order. Paths holds the policy files of
// each deciding generation.
type History struct {
	Job   *jobdb.Job
	Runs  []Recorded
	Paths map[uint64][]string
}

// Record turns a history into a test file that expects the recorded decisions.
func Record(h *History) ([]byte, error) {
	var b strings.Builder
	start := h.start()
	fmt.Fprintf(&b, "# Recorded from job %s of job set %s; it expects the decisions made then.\n", oneLine(h.Job.JobID), oneLine(h.Job.JobSet))
	fmt.Fprintf(&b, "kind: %s\n", Kind)
	generation := h.Runs[0].Decision.Generation
	fmt.Fprintf(&b, "policies: %s\n", flow(h.Paths[generation]))
	fmt.Fprintf(&b, "tests:\n- name: %s\n  start: %s\n", quoted(oneLine("job "+h.Job.JobID)), time.Unix(0, start).UTC().Format(time.RFC3339Nano))
	fmt.Fprintf(&b, "  job: {%s}\n  events:\n", strings.Join(jobFields(h.Job), ", "))
	for _, r := range h.Runs {
		d := r.Decision
		at := policyfile.Short(time.Duration(d.Time - start))
		if d.Generation != generation {
			generation = d.Generation
			fmt.Fprintf(&b, "  - policies: %s # generation %d\n", flow(h.Paths[generation]), generation)
		}
		fail, err := failFields(r)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "  - at: %s\n    fail: {%s}\n", at, strings.Join(fail, ", "))
		fmt.Fprintf(&b, "    expect: %s\n", Expectation(&Outcome{Decision: d}, start))
	}
	return []byte(b.String()), nil
}

// start returns when the job was submitted, or first failed if that is earlier.
func (h *History) start() int64 {
	start := h.Job.Times.Submitted
	for _, r := range h.Runs {
		if start == 0 || r.Decision.Time < start {
			start = r.Decision.Time
		}
	}
	return start
}

func jobFields(j *jobdb.Job) []string {
	var fields, names []string
	if j.Queue != "" {
		fields = append(fields, "queue: "+quoted(j.Queue))
	}
	for name := range strings.SplitSeq(j.Submit.RetryPolicies, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	if names != nil {
		fields = append(fields, "retryPolicies: "+flow(names))
	}
	if j.Submit.FailFast == "true" {
		fields = append(fields, "failFast: true")
	}
	if n, err := strconv.Atoi(j.Submit.GangCardinality); err == nil && n >= 2 && j.Submit.GangID != "" {
		fields = append(fields, "gangCardinality: "+strconv.Itoa(min(n, math.MaxInt32)))
	}
	if named := slices.DeleteFunc(slices.Clone(j.Submit.InitContainers), func(name string) bool { return name == "" }); len(named) > 0 {
		fields = append(fields, "initContainers: "+flow(named))
	}
	if j.Submit.GraceSeconds > 0 {
		fields = append(fields, "terminationGracePeriodSeconds: "+strconv.FormatInt(min(j.Submit.GraceSeconds, 1<<31-1), 10))
	}
	return fields
}

func failFields(r Recorded) ([]string, error) {
	var e pb.Error
	if err := proto.Unmarshal(r.Run.Error.Raw, &e); err != nil {
		return nil, fmt.Errorf("error of run %s: %w", r.Run.RunID, err)
	}
	f := failureOf(&e, r.Run.Flags.Preempted)
	if f.Node == "" {
		f.Node = r.Run.Node
	}
	fields := []string{"run: " + quoted(r.Run.RunID)}
	var conditions []string
	for _, c := range f.Conditions {
		conditions = append(conditions, c.String())
	}
	if conditions != nil {
		fields = append(fields, "condition: "+flow(conditions))
	}
	if f.PodOOM {
		fields = append(fields, "podOOM: true")
	}
	var containers []string
	for _, c := range f.Containers {
		containers = append(containers, containerText(c))
	}
	if containers != nil {
		fields = append(fields, "containers: ["+strings.Join(containers, ", ")+"]")
	}
	if f.Category == "" {
		f.Sub = "" // no rule can ask for it alone
	}
	for _, text := range [][2]string{{"category", f.Category}, {"subcategory", f.Sub}, {"node", f.Node}} {
		if text[1] != "" {
			fields = append(fields, text[0]+": "+quoted(text[1]))
		}
	}
	if since := r.Run.Times.Running; since != 0 && f.attempted() {
		fields = append(fields, "runDuration: "+policyfile.Short(time.Duration(max(0, r.Decision.Time-since))))
	}
	return fields, nil
}

func containerText(c policy.Container) string {
	s := "{name: " + quoted(c.Name) + ", exitCode: " + strconv.Itoa(int(c.ExitCode))
	if c.Reason != "" {
		s += ", reason: " + quoted(c.Reason)
	}
	if c.Message != "" {
		s += ", message: " + quoted(c.Message)
	}
	return s + "}"
}

// flow formats a list in YAML's flow style.
func flow(items []string) string {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = quoted(item)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || 0x7f <= r && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}
