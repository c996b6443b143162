package policy

import "strconv"

var conditions = [...]string{"Condition(0)", "OOMKilled", "Evicted", "DeadlineExceeded", "Preempted", "Unschedulable", "LeaseReturned", "LeaseExpired"}

// String returns the name of c in semantics.md 2, as rules use it.
func (c Condition) String() string { return NameAt(conditions[:], uint8(c), "Condition") }

// ParseCondition returns the condition that String names s.
func ParseCondition(s string) (Condition, bool) { return parseName(s, OOMKilled, LeaseExpired) }

var codes = [...]string{
	"Code(0)", "RuleRetry", "RuleIgnore", "RuleFail", "DefaultRetry", "DefaultFail", "RuleLimit", "PolicyLimit", "GlobalLimit",
	"KillSwitch", "FailFast", "NoPolicy", "LeaseReturned", "LegacyLimit", "GangRetry", "GangFail", "GroupRestart", "GroupEnded",
	"UnitLimit", "BudgetRefused", "BreakerHeld",
}

// String returns the code's name in semantics.md 11, usable as a metric label.
func (c Code) String() string { return NameAt(codes[:], uint8(c), "Code") }

// ParseCode returns the code that String names s.
func ParseCode(s string) (Code, bool) { return parseName(s, RuleRetry, BreakerHeld) }

var limitsFrom = [...]string{"", "rule", "policy", "global"}

// String returns rule, policy or global, and "" for FromNowhere.
func (l LimitFrom) String() string { return NameAt(limitsFrom[:], uint8(l), "LimitFrom") }

// ParseLimitFrom returns the level that String names s.
func ParseLimitFrom(s string) (LimitFrom, bool) { return parseName(s, FromNowhere, FromGlobal) }

var avoidModes = [...]string{"none", "node", "allNodes"}

// String returns the mode's name in a policy file.
func (m AvoidMode) String() string { return NameAt(avoidModes[:], uint8(m), "AvoidMode") }

// PodName returns the pod name of a job's run (semantics.md 10). enabled is that of the settings: without retries
// there is one pod name per job.
func PodName(jobID string, runIndex uint32, enabled bool) string {
	if runIndex == 0 || !enabled {
		return "armada-" + jobID + "-0"
	}
	return "armada-" + jobID + "-0-" + strconv.FormatUint(uint64(runIndex), 10)
}

// NameAt returns the n-th name of a kind of numbered values; a value without one, which only damaged data can contain, is named by
// its number.
func NameAt(names []string, n uint8, kind string) string {
	if int(n) < len(names) {
		return names[n]
	}
	return kind + "(" + strconv.Itoa(int(n)) + ")"
}

// named is a kind of numbered values with names.
type named interface {
	~uint8
	String() string
}

// parseName returns the value from first to last that String names s.
func parseName[T named](s string, first, last T) (T, bool) {
	for v := first; v <= last; v++ {
		if v.String() == s {
			return v, true
		}
	}
	return 0, false
}

// Names are what String names the values from first to last.
func Names[T named](first, last T) (all []string) {
	for v := first; v <= last; v++ {
		all = append(all, v.String())
	}
	return all
}
