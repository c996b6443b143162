package oracle

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Group is a workload at work as a group of jobs, through the reference model or through conversion and engine.
// Its methods report what they cannot do to the Check that the group was started for.
type Group interface {
	Jobs() []Member // all, by part, replica and index
	State(m Member) State
	Runs(m Member) int
	Start(m Member)           // lets a job run that waits
	Fail(m Member, f Failure) // lets a job run, if it waits, and fails it
	Succeed(m Member)         // the same, with success
	Decisions(m Member) []Decision
	UnitReason(part string) string // of its first unit, if it failed
	Status() Status
}

// Member says which job of a group.
type Member struct {
	Part           string
	Replica, Index int
}

// State is what a job of a group does; "": there is no such job.
type State string

// The states of a job. One that is held is Waiting too.
const (
	Waiting   State = "waiting"
	Running   State = "running"
	Succeeded State = "succeeded"
	Failed    State = "failed" // for good
	Stopped   State = "stopped"
)

// Failure is how a run fails.
type Failure struct {
	Containers []Exit
	Condition  string // of ours; "": none
}

// Exit is how a container ended.
type Exit struct {
	Container, Message string
	Code               int32
}

// Decision is what was decided about a run that failed.
type Decision struct {
	Code       string
	Rule       int    // of the pod failure policy; -1: none of it
	Container  string // that the rule matched
	Used       int    // retries of the job that count, this one included
	UnitReason string // of the unit that the failure ended, ""
	GroupRule  string // that answered it, as the row names it
}

// Status is what became of a group.
type Status struct {
	State        string // succeeded, Failed, or "" while it goes on
	Reason       string // of a group that failed
	Restarts     int    // of the whole group
	UnitRestarts int    // of single units
	Counted      int    // of both, those that count
}

// condition is one of a status, as Kubernetes and JobSet write it.
type condition struct{ Type, Status, Reason, Message string }

// jobs are those in a state.
func jobs(g Group, s ...State) (in []Member) {
	for _, m := range g.Jobs() {
		if slices.Contains(s, g.State(m)) {
			in = append(in, m)
		}
	}
	return in
}

func ignored(d Decision) bool { return d.Code == "RuleIgnore" }

// failures are the decisions on all jobs that Kubernetes counts.
func failures(g Group) (n int) {
	for _, m := range g.Jobs() {
		for _, d := range g.Decisions(m) {
			if !ignored(d) {
				n++
			}
		}
	}
	return n
}

// ended returns the decision that ended the unit of a Job; of one that ended otherwise, only the reason.
func ended(g Group) (d Decision, failed bool) {
	reason := g.UnitReason(mainPart)
	for _, m := range g.Jobs() {
		for _, d := range g.Decisions(m) {
			if reason != "" && d.UnitReason == reason {
				return d, true
			}
		}
	}
	return Decision{UnitReason: reason, Rule: -1}, reason != ""
}

// The messages of a Job's condition, where they say more than its reason.
var (
	byContainer = regexp.MustCompile(`^Container (\S*) for pod \S+ failed with exit code (-?\d+) matching FailJob rule at index (\d+)$`)
	byCondition = regexp.MustCompile(`^Pod \S+ has condition (\S+) matching FailJob rule at index (\d+)$`)
)

// knownPart is the part of a condition's message that is ours to know: container and rule.
func knownPart(message string) string {
	if m := byContainer.FindStringSubmatch(message); m != nil {
		return "container, rule " + m[3]
	}
	if m := byCondition.FindStringSubmatch(message); m != nil {
		return "condition, rule " + m[2]
	}
	return message
}

// message is the same of a decision.
func (d *Decision) message() string {
	switch d.UnitReason {
	case "BackoffLimitExceeded":
		return "Job has reached the specified backoff limit"
	case "MaxFailedIndexesExceeded":
		return "Job has exceeded the specified maximal number of failed indexes"
	case "FailedIndexes":
		return "Job has failed indexes"
	}
	if d.Container == "" {
		return "condition, rule " + strconv.Itoa(d.Rule)
	}
	return "container, rule " + strconv.Itoa(d.Rule)
}

// compareConditions: every condition says why the unit of a Job ended, or that it succeeded.
func compareConditions(c *Check, g Group, conditions []condition) {
	d, failed := ended(g)
	if failed && len(conditions) == 0 {
		c.Errorf("the Job failed by %s, and the row expects no condition", d.UnitReason)
	}
	for _, want := range conditions {
		Equal(c, "a condition's status", "True", want.Status)
		switch want.Type {
		case "Failed", "FailureTarget":
			Equal(c, "the Job's reason", d.UnitReason, want.Reason)
			Equal(c, "the Job's message", d.message(), knownPart(want.Message))
		case "Complete", "SuccessCriteriaMet":
			Equal(c, "the Job's state", g.Status().State, string(Succeeded))
		default:
			c.Errorf("a condition %s, which no Job has", want.Type)
		}
	}
}

// sameCondition are the changes to conditions that mean the same to us: when Kubernetes says that a Job ends, and the
// names and exit codes in a message.
func sameCondition(path string, a, b any) bool {
	x, _ := a.(string)
	y, _ := b.(string)
	switch {
	case strings.HasSuffix(path, ".type"):
		failing := []string{"Failed", "FailureTarget"}
		return slices.Contains(failing, x) && slices.Contains(failing, y)
	case strings.HasSuffix(path, ".message"):
		return knownPart(x) == knownPart(y)
	}
	return false
}

// parseIndexes reads indexes as Kubernetes writes them, "0,2-4".
func parseIndexes(c *Check, s string) (all []int) {
	for part := range strings.SplitSeq(s, ",") {
		if part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || b < a || b-a > maxRepeat {
			c.Errorf("%q: not indexes", s)
			return nil
		}
		for i := a; i <= b; i++ {
			all = append(all, i)
		}
	}
	return all
}

// indexString writes indexes so: two in a row one by one, three or more as an interval.
func indexString(list []int) string {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	var words []string
	for i := 0; i < len(list); {
		k := i
		for k+1 < len(list) && list[k+1] == list[k]+1 {
			k++
		}
		switch k {
		case i:
			words = append(words, strconv.Itoa(list[i]))
		case i + 1:
			words = append(words, strconv.Itoa(list[i]), strconv.Itoa(list[k]))
		default:
			words = append(words, strconv.Itoa(list[i])+"-"+strconv.Itoa(list[k]))
		}
		i = k + 1
	}
	return strings.Join(words, ",")
}

// indexesOf are those of intervals.
func indexesOf(intervals []Interval) (all []int) {
	for _, in := range intervals {
		for i := in[0]; i <= in[1] && i-in[0] < maxRepeat; i++ {
			all = append(all, int(i))
		}
	}
	return all
}
