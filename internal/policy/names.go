package policy

import "strconv"

// String returns the name of c in semantics.md 2, as rules use it.
func (c Condition) String() string {
	switch c {
	case OOMKilled:
		return "OOMKilled"
	case Evicted:
		return "Evicted"
	case DeadlineExceeded:
		return "DeadlineExceeded"
	case Preempted:
		return "Preempted"
	case Unschedulable:
		return "Unschedulable"
	case LeaseReturned:
		return "LeaseReturned"
	case LeaseExpired:
		return "LeaseExpired"
	case UnknownCondition:
	}
	return unknown("Condition", uint8(c))
}

// ParseCondition returns the condition that String names s.
func ParseCondition(s string) (Condition, bool) { return parseName(s, OOMKilled, LeaseExpired) }

// String returns the code's name in semantics.md 11, usable as a metric label.
func (c Code) String() string {
	switch c {
	case RuleRetry:
		return "RuleRetry"
	case RuleIgnore:
		return "RuleIgnore"
	case RuleFail:
		return "RuleFail"
	case DefaultRetry:
		return "DefaultRetry"
	case DefaultFail:
		return "DefaultFail"
	case RuleLimit:
		return "RuleLimit"
	case PolicyLimit:
		return "PolicyLimit"
	case GlobalLimit:
		return "GlobalLimit"
	case KillSwitch:
		return "KillSwitch"
	case FailFast:
		return "FailFast"
	case NoPolicy:
		return "NoPolicy"
	case LegacyReturn:
		return "LeaseReturned"
	case LegacyLimit:
		return "LegacyLimit"
	case GangRetry:
		return "GangRetry"
	case GangFail:
		return "GangFail"
	case GroupRestart:
		return "GroupRestart"
	case GroupOver:
		return "GroupEnded"
	case UnitLimit:
		return "UnitLimit"
	case BudgetRefused:
		return "BudgetRefused"
	case BreakerHeld:
		return "BreakerHeld"
	case UnknownCode:
	}
	return unknown("Code", uint8(c))
}

// ParseCode returns the code that String names s.
func ParseCode(s string) (Code, bool) { return parseName(s, RuleRetry, BreakerHeld) }

// String returns rule, policy or global, and "" for FromNowhere.
func (l LimitFrom) String() string {
	switch l {
	case FromNowhere:
		return ""
	case FromRule:
		return "rule"
	case FromPolicy:
		return "policy"
	case FromGlobal:
		return "global"
	}
	return unknown("LimitFrom", uint8(l))
}

// ParseLimitFrom returns the level that String names s.
func ParseLimitFrom(s string) (LimitFrom, bool) { return parseName(s, FromNowhere, FromGlobal) }

// String returns the mode's name in a policy file.
func (m AvoidMode) String() string {
	switch m {
	case AvoidNone:
		return "none"
	case AvoidNode:
		return "node"
	case AvoidAllNodes:
		return "allNodes"
	}
	return unknown("AvoidMode", uint8(m))
}

// PodName returns the pod name of a job's run (semantics.md 10). enabled is that of the settings: without retries
// there is one pod name per job.
func PodName(jobID string, runIndex uint32, enabled bool) string {
	if runIndex == 0 || !enabled {
		return "armada-" + jobID + "-0"
	}
	return "armada-" + jobID + "-0-" + strconv.FormatUint(uint64(runIndex), 10)
}

// unknown names a value without a name, which only damaged data can contain.
func unknown(kind string, n uint8) string {
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
