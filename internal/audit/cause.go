package audit

import (
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/policy"
)

// Cause names in a few words why a run failed, for tables and counts: its conditions, else its exit codes, else
// its category.
func Cause(f *policy.Failure) string {
	names := make([]string, 0, 4)
	for condition := range policy.Condition(16) {
		if f.Conditions.Has(condition) {
			names = append(names, condition.String())
		}
	}
	if f.PodOOM {
		names = append(names, policy.OOMKilled.String())
	}
	for i := range f.Containers {
		switch k := &f.Containers[i]; {
		case len(names) > 0 || k.ExitCode == 0:
		case k.Reason == policy.OOMKilled.String():
			names = append(names, policy.OOMKilled.String())
		default:
			names = append(names, "exit code "+strconv.Itoa(int(k.ExitCode)))
		}
	}
	if len(names) == 0 && f.Category != "" {
		names = append(names, strings.Clone(f.Category))
	}
	if len(names) == 0 {
		return "unknown"
	}
	return strings.Join(names, ", ")
}
