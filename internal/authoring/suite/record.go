package suite

import (
	"cmp"
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

// History is what a job database has about one job, or about a group and its members. Paths holds the policy files of each
// deciding generation.
type History struct {
	Group     *jobdb.Group // nil: the only member is a job in no group
	Members   []MemberHistory
	Decisions []*chain.Decision     // on members, in order; at least one
	Changes   []*chain.MemberChange // of members, in order
	Paths     map[uint64][]string
}

// MemberHistory is a member with its runs.
type MemberHistory struct {
	Job  *jobdb.Job
	Runs []*jobdb.Run
}

// Record turns a history into a test file that expects the recorded decisions and changes. What a retry budget held back
// follows from other jobs too, so it is an error.
func Record(h *History) ([]byte, error) {
	for _, d := range h.Decisions {
		if u := d.Budget; u != nil && !u.Noted && u.Effect != policy.BudgetGranted {
			return nil, fmt.Errorf("record: retry budget %s held back the retry after run %s, because of what other jobs did: write a test of it with firstRuns", u.Budget, d.RunID)
		}
	}
	first := h.Members[0].Job
	what, jobSet, job := "job "+first.JobID, first.JobSet, jobFields(first)
	var shape policy.Shape
	if h.Group != nil {
		what, jobSet, job, shape = "group "+h.Group.Name, h.Group.JobSet, memberFields(first), h.Group.Shape
	}
	r := rosterOf(&shape)
	events := h.events()
	start := slices.MinFunc(events, func(a, b recordedEvent) int { return cmp.Compare(a.at, b.at) }).at
	if h.complete() { // the test submits them
		events = slices.DeleteFunc(events, func(e recordedEvent) bool { return e.do == SubmitMembers })
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Recorded from %s of job set %s; it expects the decisions made then.\nkind: %s\n", oneLine(what), oneLine(jobSet), Kind)
	generation := h.Decisions[0].Generation
	fmt.Fprintf(&b, "policies: %s\ntests:\n- name: %s\n  start: %s\n", flow(h.Paths[generation]), quoted(oneLine(what)), time.Unix(0, start).UTC().Format(time.RFC3339Nano))
	if h.Group != nil {
		fmt.Fprintf(&b, "  group: {%s}\n", strings.Join(h.groupFields(r), ", "))
	}
	fmt.Fprintf(&b, "  job: {%s}\n  events:\n", strings.Join(job, ", "))
	for _, e := range events {
		if d := e.by; d != nil && d.Generation != generation {
			generation = d.Generation
			fmt.Fprintf(&b, "  - policies: %s # generation %d\n", flow(h.Paths[generation]), generation)
		}
		if err := h.write(&b, r, &e, start); err != nil {
			return nil, err
		}
	}
	if g := h.Group; g != nil && g.State != policy.GroupActive && !g.Shape.Open() && g.Reason != policy.Exhausted {
		last := GroupOutcome{State: g.State, Reason: g.Reason}
		fmt.Fprintf(&b, "  - at: %s\n    expect: {%s}\n", policyfile.Short(time.Duration(events[len(events)-1].at-start)), strings.Join(last.expectation(), ", "))
	}
	return []byte(b.String()), nil
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

// failFields are the fields of the failure of a run that was decided at a time.
func failFields(run *jobdb.Run, at int64) ([]string, error) {
	var e pb.Error
	if err := proto.Unmarshal(run.Error.Raw, &e); err != nil {
		return nil, fmt.Errorf("error of run %s: %w", run.RunID, err)
	}
	f := failureOf(&e, run.Flags.Preempted)
	f.Node = cmp.Or(f.Node, run.Node)
	fields := []string{"run: " + quoted(run.RunID)}
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
	if since := run.Times.Running; since != 0 && f.attempted() {
		fields = append(fields, "runDuration: "+policyfile.Short(time.Duration(max(0, at-since))))
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
