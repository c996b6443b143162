package logtest_test

import (
	"testing"

	"github.com/refloat/refloat/internal/eventlog"
)

// The vectors are what Pulsar's client computes.
func TestPartitionFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key  string
		hash uint32
	}{
		{"", 0},
		{"js", 3401},
		{"testJobset", 1465001655},
		{"job-set-1", 40460150},
		{"armada-scheduler", 1517267312},
		{"ünïcode", 1258076078},
		{"eod-var-2026-11-20", 3392994329}, // the highest bit is not masked away
	} {
		for _, n := range []int{1, 2, 3, 4, 16, 1000, 1 << 16} {
			if got, want := eventlog.PartitionFor(c.key, n), int(c.hash%uint32(n)); got != want {
				t.Errorf("PartitionFor(%q, %d) = %d, want %d", c.key, n, got, want)
			}
		}
	}
}
