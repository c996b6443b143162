package history

import "testing"

// TestSurplus: Fisher's tea (1/70, 17/70), and that one failure names no node.
func TestSurplus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		k, n, others, of, tests int
		want                    bool
	}{
		{4, 4, 0, 4, 1, true},
		{4, 4, 0, 4, 2, false},
		{3, 4, 1, 4, 1, false},
		{1, 1, 0, 1_000_000, 1, false},
		{0, 50, 3, 50, 1, false},
		{30, 40, 40, 4000, 500, true},
		{2, 26, 500, 6500, 1, false},
	} {
		if got := surplus(c.k, c.n, c.others, c.of, c.tests); got != c.want {
			t.Errorf("%d of %d beside %d of %d, %d tests: %t", c.k, c.n, c.others, c.of, c.tests, got)
		}
	}
}
