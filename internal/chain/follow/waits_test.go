package follow_test

import (
	"testing"

	"github.com/refloat/refloat/internal/chain/follow"
)

// TestWaits: a follower waits for the input of an accepted envelope, and for
// nothing else.
func TestWaits(t *testing.T) {
	t.Parallel()
	in, w := input(1, 2, 3), newWriter()
	in.readable = 1
	f := open(t, in, w, follow.Beginning)
	check := func(what, batches string, waits bool) {
		t.Helper()
		if got, err := all(f); err != nil || got != batches || f.Waits() != waits {
			t.Errorf("%s: batches %q, waits %v, error %v; want %q, %v", what, got, f.Waits(), err, batches, waits)
		}
	}
	check("the claim", "1:\n", false)
	w.answer(2, 2)
	check("half the input", "", true)
	in.readable = 2
	check("all of it", "2: 1 2\n", false)
}
