package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/test/model"
)

// recordedFacts are the facts of a record and of the run that it is about, in the words of
// readBack. must names those that an explanation has to state.
func recordedFacts(partition int, d *chain.Decision, run *jobdb.Run) (all facts, must []string) {
	all = facts{}
	state := func(name string, value any) {
		if all[name] = fmt.Sprint(value); all[name] != "" {
			all[name] = query.OneLine(all[name])
		}
	}
	need := func(name string, value any) {
		state(name, value)
		must = append(must, name)
	}
	when := func(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.999999999Z07:00") }
	need("number", d.Number)
	need("partition", partition)
	need("position", d.Position)
	need("queue", d.Queue)
	need("jobSet", d.JobSet)
	need("jobId", d.JobID)
	need("runId", d.RunID)
	need("runIndex", d.RunIndex)
	need("eventTime", when(d.Time))
	need("code", d.Code)
	need("generation", d.Generation)
	need("policySet", hex.EncodeToString(d.PolicySet[:6]))
	need("globalUsed", d.GlobalUsed)
	need("globalLimit", d.GlobalLimit)
	need("globalBefore", d.GlobalUsed-uint32(btoi(countsRetry(d))))
	need("decision", map[bool]string{true: "JobRequeued", false: "JobFailed"}[d.Requeue])
	if d.Policy != "" {
		need("policy", d.Policy)
		need("rule", d.Rule)
		state("matchedPolicy", d.Policy)
		state("matchedRule", d.Rule)
	}
	if d.LimitFrom != policy.FromNowhere {
		need("limitFrom", d.LimitFrom)
		need("ruleUsed", d.RuleUsed)
		need("ruleLimit", d.RuleLimit)
		need("ruleBefore", d.RuleUsed-uint32(btoi(d.Requeue && d.Code != policy.BreakerHeld && d.RuleUsed > 0)))
	}
	if len(d.Skipped) > 0 {
		need("skippedPolicies", strings.Join(d.Skipped, ", "))
	}
	if d.Shadow {
		need("shadow", true)
	}
	if d.Requeue {
		recordedRetry(d, state, need, when)
	}
	if d.Budget != nil {
		recordedBudget(d, need, when)
	}
	if m := d.Member; m != nil {
		need("group", m.Group)
		need("part", m.Part)
		need("replica", m.Replica)
		need("index", m.Index)
		need("unitGeneration", m.Generation)
	}
	if v := d.Group; v != nil {
		recordedVerdict(v, state, need)
	}
	recordedFailure(run, d.Time, need)
	return all, must
}

// recordedRetry are the facts of a retry.
func recordedRetry(d *chain.Decision, state, need func(string, any), when func(int64) string) {
	delay, after := time.Duration(d.DelayMS)*time.Millisecond, d.RetryAfter-d.Time
	need("delay", delay)
	need("retryAfter", when(d.RetryAfter))
	need("podName", d.PodName)
	switch later := after > delay.Nanoseconds(); {
	case d.Budget != nil && d.Budget.Effect == policy.BudgetDelayed && !d.Budget.Noted && d.Budget.At == d.RetryAfter:
		need("budgetWaits", true)
	case later && d.Code == policy.GangRetry:
		need("gangWaits", "when all of the gang may start again")
	case later && d.Code == policy.BreakerHeld:
		need("breaker", "when no breaker holds it any more")
	case later && (d.Code != policy.GroupRestart || d.Group != nil): // what is left of a restart's delay is cut to milliseconds
		need("paused", "when the pause of retries ends")
	case after <= 0:
		need("atOnce", "at once")
	}
	if len(d.AvoidNodes) > 0 {
		need("avoidNodes", strings.Join(d.AvoidNodes, ", "))
	}
	if d.NodesLeftOut > 0 {
		need("nodesLeftOut", d.NodesLeftOut)
	}
}

// recordedBudget are the facts of what budgets said (semantics.md, section 14).
func recordedBudget(d *chain.Decision, need func(string, any), when func(int64) string) {
	u := d.Budget
	need("budget", u.Budget)
	need("budgetEffect", u.Effect)
	need("budgetLeft", u.Left)
	need("budgetFirsts", u.Firsts)
	if u.Effect != policy.BudgetGranted {
		need("budgetAt", when(u.At))
	}
	if u.Noted {
		need("budgetInShadow", true)
	}
	if u.Effect == policy.BudgetExhausted && !u.Noted {
		need("budgetRefuses", true)
	}
	if u.Noted && u.Effect != policy.BudgetGranted {
		need("budgetNoted", true)
	}
}

// recordedVerdict are the facts of what a group did.
func recordedVerdict(v *chain.GroupVerdict, state, need func(string, any)) {
	need("unitReason", v.Reason)
	if v.Action == policy.NoGroupAction {
		return
	}
	need("groupAction", v.Action)
	need("groupRule", v.Rule)
	state("restartsUsed", v.RestartsUsed)
	state("maxRestarts", v.MaxRestarts)
	if v.Refused || v.Action.Restarts() && v.Rule != policy.RestartsRule {
		need("restartsUsed", v.RestartsUsed)
		need("maxRestarts", v.MaxRestarts)
	}
	if v.Keep && v.Action.Restarts() {
		need("keep", true)
	}
	if v.Noted {
		need("noted", true)
	}
}

// recordedFailure are the facts of a failure (semantics.md, section 2).
func recordedFailure(run *jobdb.Run, t int64, need func(string, any)) {
	if run.Node != "" {
		need("node", run.Node)
	}
	e, held := &run.Error, map[string]bool{}
	held["Preempted"] = run.Flags.Preempted
	held["DeadlineExceeded"] = e.Category == "internal" && e.Subcategory == "active-deadline"
	switch e.Reason {
	case "PodError":
		held[map[string]string{"OOM": "OOMKilled", "Evicted": "Evicted", "DeadlineExceeded": "DeadlineExceeded"}[e.KubernetesReason]] = true
		for i, c := range e.Containers {
			need(fmt.Sprint("container", i), c.Name)
			need(fmt.Sprint("exitCode", i), c.ExitCode)
		}
	case "PodLeaseReturned":
		held[map[bool]string{true: "LeaseReturned", false: "Unschedulable"}[run.Flags.Attempted]] = true
	case "LeaseExpired":
		held["LeaseExpired"] = true
	}
	conditions := ""
	for _, c := range []string{"OOMKilled", "Evicted", "DeadlineExceeded", "Preempted", "Unschedulable", "LeaseReturned", "LeaseExpired"} {
		if held[c] {
			conditions += c + " "
		}
	}
	if conditions != "" {
		need("conditions", conditions)
	}
	if e.Category != "" {
		need("category", strings.TrimSuffix(e.Category+"/"+e.Subcategory, "/"))
	}
	if since := run.Times.Running; since != 0 {
		need("running", time.Duration(max(0, t-since)))
	}
}

// countsRetry reports whether a decision counts a retry of the job (semantics.md, section 5).
func countsRetry(d *chain.Decision) bool {
	return d.Code == policy.RuleRetry || d.Code == policy.DefaultRetry || d.Code == policy.GangRetry && d.LimitFrom != policy.FromNowhere
}

func btoi(b bool) int { return map[bool]int{true: 1}[b] }

// unstated are facts that readBack derives from others, and that a record has in another form.
var unstated = []string{"sort0", "sort1", "sort2", "sort3", "succeeded"}

// differences says where what an explanation states is not what was recorded.
func differences(text string, partition int, d *chain.Decision, run *jobdb.Run) (all []string) {
	got, err := readBack(text)
	if err != nil {
		return []string{err.Error()}
	}
	if got["refused"] == "true" != (d.Group != nil && d.Group.Refused) {
		all = append(all, "refused: "+got["refused"])
	}
	delete(got, "refused")
	want, must := recordedFacts(partition, d, run)
	if d.Code == policy.GroupRestart && d.Group == nil { // says the rule of the restart, and no delay of a policy
		want["delay"] = time.Duration((d.RetryAfter - d.Time) / 1e6 * 1e6).String()
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if slices.Contains(unstated, name) {
			continue
		}
		if value, ok := want[name]; !ok || value != got[name] {
			all = append(all, fmt.Sprintf("%s: explained as %q, recorded as %q", name, got[name], value))
		}
	}
	for _, name := range must {
		if _, ok := got[name]; !ok {
			all = append(all, fmt.Sprintf("%s: not explained, recorded as %q", name, want[name]))
		}
	}
	return all
}

// foreign are the parts of an explanation that are not of the record: the rules that were
// tried, messages, and who changed the policies.
var foreign = regexp.MustCompile(`(?m)^  [✗✓·] .*$|^Policies .*$|^Now .*$|^Armada's own verdict .*$|^  [A-Za-z]*: [^0-9 ].*$|^  [A-Za-z]+: [0-9].*$| \([^)]*\)$| = min.*$`)

// numbers are the numbers of an explanation that are of the record.
func numbers(text string) (at [][]int) {
	var not [][]int
	for _, span := range foreign.FindAllStringIndex(text, -1) {
		line := text[span[0]:span[1]]
		if strings.HasPrefix(line, "  rule: ") || strings.HasPrefix(line, "  budget: ") || strings.HasPrefix(line, "  job:  ") || line == " (globalMaxRetries)" {
			continue
		}
		not = append(not, span)
	}
	for _, n := range regexp.MustCompile(`[0-9]+`).FindAllStringIndex(text, -1) {
		if !slices.ContainsFunc(not, func(span []int) bool { return n[0] >= span[0] && n[1] <= span[1] }) {
			at = append(at, n)
		}
	}
	return at
}

// oneMore is a decimal number plus 1, with its zeros in front.
func oneMore(digits string) string {
	b := []byte(digits)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i]++; b[i] <= '9' {
			return string(b)
		}
		b[i] = '0'
	}
	return "1" + string(b)
}

// readingBack counts what TestReadBack did.
type readingBack struct {
	decisions, facts, planted, missed int
	codes                             map[policy.Code]int
	groups, budgets                   map[string]int
}

// check reads an explanation back, and plants an error in each of its numbers.
func (x *readingBack) check(t *testing.T, e *query.Explanation, plant bool) {
	t.Helper()
	var out bytes.Buffer
	text.Case(&out, e)
	text, b := out.String(), &e.Basis
	if wrong := differences(text, b.Job.Partition, b.Decision, b.Run); len(wrong) > 0 {
		t.Errorf("run %d of job %s: %s\n%s", b.Decision.RunIndex, b.Decision.JobID, strings.Join(wrong, "\n"), text)
		return
	}
	x.decisions++
	stated, _ := readBack(text)
	x.facts += len(stated)
	x.codes[b.Decision.Code]++
	if v := b.Decision.Group; v != nil {
		x.groups[v.Action.String()]++
	}
	if u := b.Decision.Budget; u != nil {
		x.budgets[u.Effect.String()+map[bool]string{true: ", in shadow"}[u.Noted]]++
	}
	if !plant {
		return
	}
	for _, n := range numbers(text) {
		changed := text[:n[0]] + oneMore(text[n[0]:n[1]]) + text[n[1]:]
		x.planted++
		if len(differences(changed, b.Job.Partition, b.Decision, b.Run)) == 0 {
			x.missed++
			t.Errorf("run %d of job %s: nobody notices %q instead of %q", b.Decision.RunIndex, b.Decision.JobID,
				changed[max(0, n[0]-20):min(len(changed), n[1]+20)], text[max(0, n[0]-20):min(len(text), n[1]+20)])
			return
		}
	}
}

func newReadingBack() *readingBack {
	return &readingBack{codes: map[policy.Code]int{}, groups: map[string]int{}, budgets: map[string]int{}}
}

func (x *readingBack) report(t *testing.T) {
	t.Helper()
	t.Logf("%d decisions read back, with %d facts; %d planted errors, %d not noticed; codes %v; actions of groups %v; effects of budgets %v",
		x.decisions, x.facts, x.planted, x.missed, x.codes, x.groups, x.budgets)
}

// TestReadBackHistories reads back the explanation of every decision of random histories,
// also of groups and with budgets, by all versions of the semantics.
func TestReadBackHistories(t *testing.T) {
	t.Parallel()
	histories := 400
	if testing.Short() {
		histories = 60
	}
	x := newReadingBack()
	for seed := range uint64(histories) {
		h := model.Generate(seed, model.Options{Versions: seed%4 == 0, Republished: seed%3 == 0, Budgets: seed%5 == 0})
		switch {
		case seed%2 == 0:
			h = model.GenerateGroups(seed, model.GroupOptions{Drain: seed%4 == 0, Budgets: seed%5 == 0, Newest: model.SuccessorsVersion + int(seed%3/2)})
		case seed%7 == 0:
			h = model.GenerateBudgets(seed)
		}
		for i, e := range explained(t, h) {
			x.check(t, e, i%4 == 0)
		}
	}
	x.report(t)
	for c := policy.UnknownCode + 1; ; c++ {
		if _, ok := policy.ParseCode(c.String()); !ok {
			break
		}
		if x.codes[c] == 0 && !testing.Short() {
			t.Errorf("no decision %v was read back", c)
		}
	}
	for a := policy.FailGroup; a <= policy.Halt; a++ {
		if x.groups[a.String()] == 0 && !testing.Short() {
			t.Errorf("no decision with %v of a group was read back", a)
		}
	}
	for e := policy.BudgetGranted; e <= policy.BudgetExhausted; e++ {
		for _, name := range []string{e.String(), e.String() + ", in shadow"} {
			if x.budgets[name] == 0 && !testing.Short() {
				t.Errorf("no decision with %s was read back", name)
			}
		}
	}
}

// explained decides a history, and explains each decision by the rows that a job database
// would have of it, without the policies.
func explained(t *testing.T, h model.History) (all []*query.Explanation) {
	t.Helper()
	state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, evaluator.DefaultHorizon)
	if err != nil {
		t.Fatal(err)
	}
	p, generation := &evaluator.Processor{State: state}, uint64(0)
	p.Activate([]chain.Record{&chain.OwnerClaim{Partitions: uint32(h.Divided)}})
	version := func(number uint32) {
		p.Activate([]chain.Record{&chain.SemanticsActivated{Version: number}, evaluator.Activation(generation, p.Rules.Set, number)})
	}
	use := func(policies model.Policies) {
		var files []policyfile.File
		for _, f := range policies.YAML(false) {
			files = append(files, policyfile.File{Name: f.Name, Data: f.Data})
		}
		set, err := policyfile.Parse(files)
		if err != nil {
			t.Fatalf("seed %d: %v", h.Seed, err)
		}
		generation++
		p.Rules = evaluator.Rules{Generation: generation, Set: set.Set}
		p.Activate([]chain.Record{evaluator.Activation(generation, set.Set, p.Progress.Semantics)})
	}
	use(h.Policies)
	if len(h.Versions) == 0 {
		version(evaluator.SemanticsVersion)
	}
	for i, m := range h.Messages {
		for _, c := range h.Changes {
			if c.Before == i {
				use(c.Policies)
			}
		}
		for _, v := range h.Versions {
			if v.Before == i {
				version(uint32(v.Number))
			}
		}
		out, err := p.Step(&eventlog.Message{Position: eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}, Publish: m.Publish, Payload: m.Payload})
		if err != nil {
			t.Fatalf("seed %d: %v", h.Seed, err)
		}
		for j, r := range out.Records {
			if _, ok := r.(*chain.Decision); !ok {
				continue
			}
			r, err := chain.DecodeRecord(bytes.Clone(out.Bytes[j])) // the next Step uses the other one again
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, explainedAlone(t, r.(*chain.Decision), int(h.Seed%7)))
		}
	}
	return all
}

// explainedAlone explains a decision as that of a job with as many retries before it as it says.
func explainedAlone(t *testing.T, d *chain.Decision, partition int) *query.Explanation {
	t.Helper()
	run := &jobdb.Run{Partition: partition, JobID: d.JobID, RunID: d.RunID, Index: d.RunIndex, Node: "node-" + strconv.Itoa(int(d.Number%5))}
	found := query.History{
		Job:  &jobdb.Job{Partition: partition, JobID: d.JobID, Queue: d.Queue, JobSet: d.JobSet},
		Runs: []*jobdb.Run{run}, FromLogs: true,
	}
	for range d.GlobalUsed - uint32(btoi(countsRetry(d))) {
		found.Decisions = append(found.Decisions, &jobdb.Decision{Decision: chain.Decision{
			JobID: d.JobID, RunID: "earlier", RunIndex: d.RunIndex + 1, Requeue: true, Code: policy.RuleRetry, Policy: "p", Rule: "r",
		}})
	}
	found.Decisions = append(found.Decisions, &jobdb.Decision{Acted: !d.Shadow, Decision: *d})
	e, err := (&query.Source{}).ExplainRun(context.Background(), d.JobID, []query.History{found}, int(d.RunIndex))
	if err != nil {
		t.Fatalf("decision %d: %v", d.Number, err)
	}
	return e
}
