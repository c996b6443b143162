package suite_test

import (
	"testing"

	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/policy"
)

// TestReportOOM: the condition is reported whatever the containers are, for one that failed if there is one.
func TestReportOOM(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		containers []policy.Container
		killed     int
	}{
		{nil, 0},
		{[]policy.Container{{Name: "main", Message: "killed"}}, 0},
		{[]policy.Container{{Name: "proxy"}, {Name: "main", ExitCode: 137}}, 1},
	} {
		f := suite.Failure{Conditions: []policy.Condition{policy.OOMKilled}, Containers: tt.containers}
		for i, c := range f.Report().GetPodError().GetContainerErrors() {
			if got := c.GetReason() == policy.OOMKilled.String(); got != (i == tt.killed) {
				t.Errorf("%v: container %d was killed: %t", tt.containers, i, got)
			}
		}
	}
}
