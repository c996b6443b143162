package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCodeNames(t *testing.T) {
	want := "RuleRetry RuleIgnore RuleFail DefaultRetry DefaultFail RuleLimit PolicyLimit GlobalLimit KillSwitch FailFast NoPolicy LeaseReturned LegacyLimit GangRetry GangFail GroupRestart GroupEnded UnitLimit BudgetRefused BreakerHeld"
	var got []string
	for c := RuleRetry; c <= BreakerHeld; c++ {
		got = append(got, c.String())
		if back, ok := ParseCode(c.String()); !ok || back != c {
			t.Errorf("ParseCode(%s) = %v, %v", c, back, ok)
		}
	}
	if strings.Join(got, " ") != want {
		t.Errorf("codes are %s, want %s", got, want)
	}
}

func TestNames(t *testing.T) {
	names := map[string]string{
		"conditions": fmt.Sprint(OOMKilled, Evicted, DeadlineExceeded, Preempted, Unschedulable, LeaseReturned, LeaseExpired, UnknownCondition, Condition(99)),
		"levels":     fmt.Sprint([]LimitFrom{FromNowhere, FromRule, FromPolicy, FromGlobal, 99}),                                                                    //nolint:staticcheck // names are wanted, not bytes
		"matchers":   fmt.Sprint([]Matcher{NoMatcher, OnConditions, OnExitCodes, OnTerminationMessage, OnFailureCategory, OnFailureSubcategory, OnRunDuration, 99}), //nolint:staticcheck // names are wanted, not bytes
		"modes":      fmt.Sprint(AvoidNone, AvoidNode, AvoidAllNodes, AvoidMode(99)),
		"codes":      fmt.Sprint(UnknownCode, Code(99)),
	}
	want := map[string]string{
		"conditions": "OOMKilled Evicted DeadlineExceeded Preempted Unschedulable LeaseReturned LeaseExpired Condition(0) Condition(99)",
		"levels":     "[ rule policy global LimitFrom(99)]",
		"matchers":   "[ onConditions onExitCodes onTerminationMessage onFailureCategory onFailureSubcategory onRunDuration Matcher(99)]",
		"modes":      "none node allNodes AvoidMode(99)",
		"codes":      "Code(0) Code(99)",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	for _, s := range []string{"Code(0)", "", "ruleretry", "LegacyReturn"} {
		if c, ok := ParseCode(s); ok {
			t.Errorf("ParseCode(%q) = %v", s, c)
		}
	}
	for m := NoMatcher; m <= LastMatcher; m++ {
		if back, ok := ParseMatcher(m.String()); !ok || back != m {
			t.Errorf("ParseMatcher(%q) = %v, %v", m, back, ok)
		}
	}
	for l := FromNowhere; l <= FromGlobal; l++ {
		if back, ok := ParseLimitFrom(l.String()); !ok || back != l {
			t.Errorf("ParseLimitFrom(%q) = %v, %v", l, back, ok)
		}
	}
}

func TestPodName(t *testing.T) {
	for _, c := range []struct {
		index   uint32
		enabled bool
		want    string
	}{
		{0, true, "armada-01j-0"},
		{1, true, "armada-01j-0-1"},
		{12, true, "armada-01j-0-12"},
		{0, false, "armada-01j-0"},
		{12, false, "armada-01j-0"},
	} {
		if got := PodName("01j", c.index, c.enabled); got != c.want {
			t.Errorf("PodName(01j, %d, %v) = %s, want %s", c.index, c.enabled, got, c.want)
		}
	}
}
