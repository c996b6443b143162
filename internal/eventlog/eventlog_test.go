package eventlog_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/eventlog"
)

// TestPositionText: a position is read as it is written, and nothing else is one.
func TestPositionText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := eventlog.Position{Ledger: rapid.Int64().Draw(t, "ledger"), Entry: rapid.Int64().Draw(t, "entry"), Batch: rapid.Int32().Draw(t, "batch")}
		if got, err := eventlog.ParsePosition(p.String()); got != p || err != nil {
			t.Fatalf("%v is read as %v, %v", p, got, err)
		}
	})
	for _, s := range []string{"", "1", "1:2", "1:2:3:4", "1:2:x", "+1:2:3", "01:2:3", "1:2:3 ", " 1:2:3", "1:2:2147483648", "1::3", "-:1:2"} {
		if p, err := eventlog.ParsePosition(s); err == nil {
			t.Errorf("%q is read as %v", s, p)
		}
	}
}
