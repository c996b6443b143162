package oracle

import (
	"fmt"
	"slices"
	"strconv"
)

// Job is the spec of a Kubernetes Job, as rows write it.
type Job struct {
	Spec                       map[string]any // as the row has it
	Containers, InitContainers []string       // of its pods

	BackoffLimit, BackoffLimitPerIndex, MaxFailedIndexes *int
	Completions, Parallelism                             *int
	CompletionMode, RestartPolicy, ManagedBy             string
	PodReplacementPolicy                                 string
	Suspend                                              bool
	ActiveDeadlineSeconds                                *int
	PodFailurePolicy                                     *struct{ Rules []PodFailureRule }
	SuccessPolicy                                        map[string]any
}

// PodFailureRule is a rule of a Job's podFailurePolicy.
type PodFailureRule struct {
	Action          string
	OnExitCodes     *ExitCodes
	OnPodConditions []PodCondition
}

// PodCondition is a condition of a pod, or what a rule asks of one.
type PodCondition struct{ Type, Status string }

// ExitCodes is what a rule asks of a container.
type ExitCodes struct {
	ContainerName, Operator string
	Values                  []int32
}

// Rules are those of the podFailurePolicy.
func (j *Job) Rules() []PodFailureRule {
	if j.PodFailurePolicy == nil {
		return nil
	}
	return j.PodFailurePolicy.Rules
}

// mainPart is the part of a Job's group; its members are the Job's indexes.
const mainPart = "main"

// Disruption is the only condition of a pod that is a fact of Armada's.
const Disruption = "DisruptionTarget"

func index(i int) Member { return Member{Part: mainPart, Index: i} }

// Pod is a pod as rows of Kubernetes describe it.
type Pod struct {
	Name, Phase                string
	Index                      any
	IndexFailureCount          int
	IndexIgnoredFailureCount   int
	DeletionTimestamp          *string
	Containers, InitContainers []struct {
		Name, State, Message string
		ExitCode             int32
	}
	Conditions []PodCondition
}

// Failed are the containers of the pod that failed, in Kubernetes' order.
func (p *Pod) Failed() (all []Exit) {
	for _, c := range slices.Concat(p.Containers, p.InitContainers) {
		if c.ExitCode != 0 && c.State != "waiting" && c.State != "running" {
			all = append(all, Exit{Container: c.Name, Message: c.Message, Code: c.ExitCode})
		}
	}
	return all
}

func (p *Pod) failure() Failure {
	f := Failure{Containers: p.Failed()}
	for _, c := range p.Conditions {
		if c.Type == Disruption && c.Status == "True" {
			f.Condition = "Evicted"
		}
	}
	if f.Containers == nil && f.Condition == "" {
		f.Containers = []Exit{{Code: 1}}
	}
	return f
}

// Jobs starts a Job as a group; after it left the row out or reported an error it returns nil.
type Jobs func(c *Check, j *Job) Group

// start reads the Job of a row, and starts it.
func (start Jobs) start(c *Check, j *Job, pods []Pod) Group {
	var read struct{ Policy map[string]any }
	if !c.Read(&read) {
		return nil
	}
	j.Spec = read.Policy
	j.name(pods)
	gone := slices.ContainsFunc(pods, func(p Pod) bool { return p.DeletionTimestamp != nil })
	other, absent := false, false
	for _, r := range j.Rules() {
		for _, on := range r.OnPodConditions {
			other = other || on.Type != Disruption
			absent = absent || on.Status != "True" && on.Status != ""
		}
	}
	if c.LeaveOut(
		Reason{j.RestartPolicy == "OnFailure", "restarts of a container in its pod are no runs; conversion says that restartPolicy OnFailure is lost"},
		Reason{j.Suspend, "a suspended Job: nothing runs"},
		Reason{j.ManagedBy != "", "a Job of another controller: Kubernetes decides nothing about it"},
		Reason{gone, "a pod that is being deleted and has not ended: Armada reports the end of a run, not what comes before it"},
		Reason{other, "only the pod condition DisruptionTarget has a meaning in Armada; conversion says that others are lost (semantics.md 12.12)"},
		Reason{absent, "a rule asks for a condition that does not hold: our conditions hold or are absent"},
		Reason{j.Completions == nil && j.CompletionMode != "Indexed" && j.Parallelism != nil, "a work queue ends with its first success; our groups have a size"},
	) || c.CannotRun(
		Reason{or(j.Completions, 1) > maxMembers || or(j.Completions, 1) < 1, "as many completions as no test runs"},
		Reason{j.SuccessPolicy != nil && len(pods) > 0, "which successes end a Job: k8s_success_policy.json"},
	) {
		return nil
	}
	return start(c, j)
}

// name collects the containers that pods and rules of the row name.
func (j *Job) name(pods []Pod) {
	add := func(list []string, name string) []string {
		if name == "" || slices.Contains(slices.Concat(j.Containers, j.InitContainers), name) {
			return list
		}
		return append(list, name)
	}
	for _, p := range pods {
		for _, c := range p.Containers {
			j.Containers = add(j.Containers, c.Name)
		}
		for _, c := range p.InitContainers {
			j.InitContainers = add(j.InitContainers, c.Name)
		}
	}
	for _, r := range j.Rules() {
		if r.OnExitCodes != nil {
			j.Containers = add(j.Containers, r.OnExitCodes.ContainerName)
		}
	}
	if len(j.Containers) == 0 {
		j.Containers = []string{"main-container"}
	}
}

// maxMembers and maxFailures bound what a row makes a test do.
const (
	maxMembers  = 1000
	maxFailures = 1000
)

func or(n *int, missing int) int {
	if n == nil {
		return missing
	}
	return *n
}

// observe lets the pods of a row come to where they are.
func (j *Job) observe(c *Check, g Group, pods []Pod) {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b Pod) int { return a.IndexFailureCount - b.IndexFailureCount })
	for i := range pods {
		p := &pods[i]
		m := index(i) // a Job that is not indexed
		if p.Index != nil {
			n, err := strconv.Atoi(fmt.Sprint(p.Index))
			if err != nil || n < 0 || fmt.Sprint(n) != fmt.Sprint(p.Index) {
				continue // Kubernetes ignores a pod without a valid index
			}
			m = index(n)
		}
		if g.State(m) == "" {
			continue // the Job does not have this index
		}
		counted, canCount := j.exit("Count", "")
		ignored, canIgnore := j.exit("Ignore")
		if c.CannotRun(
			Reason{p.IndexFailureCount+p.IndexIgnoredFailureCount > maxFailures, "more failures than a test lets fail"},
			Reason{p.IndexFailureCount > 0 && !canCount || p.IndexIgnoredFailureCount > 0 && !canIgnore, "failures before that no exit code of one container makes"},
		) {
			panic(stopped{})
		}
		for before := g.Runs(m); g.State(m) == Waiting && before < p.IndexFailureCount+p.IndexIgnoredFailureCount; before++ {
			code := counted
			if before < p.IndexIgnoredFailureCount {
				code = ignored
			}
			g.Fail(m, Failure{Containers: []Exit{{Code: code}}})
		}
		switch waits := g.State(m) == Waiting || g.State(m) == Running; {
		case !waits: // it is over
		case p.Phase == "Failed":
			g.Fail(m, p.failure())
		case p.Phase == "Succeeded":
			g.Succeed(m)
		case p.Phase == "Running", p.Phase == "Pending":
			g.Start(m)
		}
	}
}

// exit is an exit code of the first container for which the first rule that matches has one of the actions, "" for none.
func (j *Job) exit(actions ...string) (code int32, ok bool) {
	for code := int32(1); code < 256; code++ {
		action := ""
		for _, r := range j.Rules() {
			e := r.OnExitCodes
			if e != nil && (e.ContainerName == "" || e.ContainerName == j.Containers[0]) && slices.Contains(e.Values, code) == (e.Operator == "In") {
				action = r.Action
				break
			}
		}
		if slices.Contains(actions, action) {
			return code, true
		}
	}
	return 0, false
}

// active is how many pods of a Job run or are to run.
func (j *Job) active(g Group) int {
	return min(or(j.Parallelism, 1), len(jobs(g, Waiting, Running)))
}

// failedIndexes are the indexes that failed for good by themselves, not with the Job.
func failedIndexes(g Group) (all []int) {
	for _, m := range jobs(g, Failed) {
		decided := g.Decisions(m)
		last := decided[len(decided)-1]
		if withJob := []string{"PodFailurePolicy", "BackoffLimitExceeded"}; !slices.Contains(withJob, last.UnitReason) {
			all = append(all, m.Index)
		}
	}
	return all
}

func succeededIndexes(g Group) (all []int) {
	for _, m := range jobs(g, Succeeded) {
		all = append(all, m.Index)
	}
	return all
}

// PerIndex is the suite of k8s_sync_backoff_limit_per_index.json.
func (start Jobs) PerIndex() *Suite {
	const bookkeeping = "which pods the controller has counted or deleted by then, no decision"
	return &Suite{
		File: "k8s_sync_backoff_limit_per_index.json", Same: sameCondition, Optional: []string{"expected.completedIndexes"},
		Silent: map[string]string{
			"expected.failed": bookkeeping, "expected.terminating": bookkeeping, "expected.ready": bookkeeping, "expected.uncountedTerminatedPods": bookkeeping,
		},
		Run: func(c *Check) {
			var row struct {
				Policy   Job
				Prior    struct{ FailedIndexes, CompletedIndexes string }
				Gates    struct{ EnableJobBackoffLimitPerIndex *bool }
				Observed struct{ Pods []Pod }
				Expected struct {
					Active, Succeeded *int
					FailedIndexes     *string
					CompletedIndexes  string
					Conditions        []condition
				}
			}
			if !c.Read(&row) {
				return
			}
			gate := row.Gates.EnableJobBackoffLimitPerIndex
			if c.LeaveOut(Reason{gate != nil && !*gate, "a feature gate of Kubernetes is off"}) {
				return
			}
			j := &row.Policy
			g := start.start(c, j, row.Observed.Pods)
			if g == nil {
				return
			}
			j.before(c, g, row.Prior.FailedIndexes, row.Prior.CompletedIndexes)
			j.observe(c, g, row.Observed.Pods)
			EqualIf(c, "active", j.active(g), row.Expected.Active)
			EqualIf(c, "succeeded", len(succeededIndexes(g)), row.Expected.Succeeded)
			if row.Expected.FailedIndexes == nil && j.BackoffLimitPerIndex != nil {
				c.Errorf("failedIndexes: the row has none, though the Job has a limit for each")
			}
			EqualIf(c, "failedIndexes", indexString(failedIndexes(g)), row.Expected.FailedIndexes)
			Equal(c, "completedIndexes", indexString(succeededIndexes(g)), row.Expected.CompletedIndexes)
			compareConditions(c, g, row.Expected.Conditions)
		},
	}
}

// before lets indexes fail and succeed that a row says did so before.
func (j *Job) before(c *Check, g Group, failed, completed string) {
	for _, i := range parseIndexes(c, completed) {
		if g.State(index(i)) != "" {
			g.Succeed(index(i))
		}
	}
	for _, i := range parseIndexes(c, failed) {
		for range min(or(j.BackoffLimitPerIndex, 0), maxFailures) + 1 {
			if g.State(index(i)) == Waiting {
				g.Fail(index(i), Failure{Containers: []Exit{{Code: 1}}})
			}
		}
	}
}

// PodFailurePolicy is the suite of k8s_sync_pod_failure_policy.json.
func (start Jobs) PodFailurePolicy() *Suite {
	return &Suite{
		File: "k8s_sync_pod_failure_policy.json", Same: sameCondition,
		Run: func(c *Check) {
			var row struct {
				Policy   Job
				Observed struct{ Pods []Pod }
				Expected struct {
					WantConditions                                          []condition
					WantStatusActive, WantStatusFailed, WantStatusSucceeded int
				}
			}
			if !c.Read(&row) {
				return
			}
			j := &row.Policy
			g := start.start(c, j, row.Observed.Pods)
			if g == nil {
				return
			}
			j.observe(c, g, row.Observed.Pods)
			want := row.Expected
			running := 0
			for i := range row.Observed.Pods {
				if p := row.Observed.Pods[i].Phase; p != "Failed" && p != "Succeeded" {
					running++
				}
			}
			Equal(c, "active", j.active(g), want.WantStatusActive)
			Equal(c, "failed", counted(g, running), want.WantStatusFailed)
			Equal(c, "succeeded", len(succeededIndexes(g)), want.WantStatusSucceeded)
			compareConditions(c, g, want.WantConditions)
		},
	}
}

// counted is how many failed pods Kubernetes counts: with a Job that failed, those that still ran end too.
func counted(g Group, running int) int {
	if _, failed := ended(g); failed {
		return failures(g) + running
	}
	return failures(g)
}

// BackoffLimit is the suite of k8s_backoff_limit.json.
func (start Jobs) BackoffLimit() *Suite {
	return &Suite{
		File: "k8s_backoff_limit.json", Same: sameCondition,
		Run: func(c *Check) {
			var row struct {
				Policy   Job
				Observed struct {
					ActivePods, FailedPods int
					RestartCounts          *[]int
					RestartPolicy          string
				}
				Expected struct {
					ExpectedActive, ExpectedFailed, ExpectedSucceeded int
					ExpectedConditions                                []condition
				}
			}
			if !c.Read(&row) || c.LeaveOut(Reason{
				row.Observed.RestartCounts != nil || row.Observed.RestartPolicy == "OnFailure",
				"restarts of a container in its pod are no runs; conversion says that restartPolicy OnFailure is lost",
			}) || c.CannotRun(
				Reason{row.Observed.FailedPods <= 0, "no pod that failed"},
				Reason{row.Observed.FailedPods > maxFailures, "more failures than a test lets fail"},
			) {
				return
			}
			j := &row.Policy
			g := start.start(c, j, nil)
			if g == nil {
				return
			}
			for range row.Observed.FailedPods {
				if waiting := jobs(g, Waiting); len(waiting) > 0 {
					g.Fail(waiting[0], Failure{Containers: []Exit{{Code: 1}}})
				}
			}
			want := row.Expected
			Equal(c, "active", j.active(g), want.ExpectedActive)
			Equal(c, "failed", counted(g, row.Observed.ActivePods), want.ExpectedFailed)
			Equal(c, "succeeded", len(succeededIndexes(g)), want.ExpectedSucceeded)
			compareConditions(c, g, want.ExpectedConditions)
		},
	}
}
