package app

import (
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
)

// TestLag: a partition lags since its last decided message was published, not at all at the end of its events, and by what
// nobody knows where it was just taken over with messages left to decide.
func TestLag(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)
	n := &node{}
	n.Now = func() time.Time { return now }
	at := func(entry int64) eventlog.Position { return eventlog.Position{Ledger: 1, Entry: entry} }
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixNano() }
	for _, c := range []struct {
		name  string
		r     reached
		end   eventlog.Position
		lag   float64
		known bool
	}{
		{"at the end", reached{at: at(5), published: ago(time.Hour)}, at(5), 0, true},
		{"taken over at the end", reached{at: at(5)}, at(5), 0, true},
		{"taken over before the end", reached{at: at(4)}, at(5), 0, false},
		{"behind", reached{at: at(4), published: ago(90 * time.Second)}, at(5), 90, true},
		{"behind, by a clock that is ahead", reached{at: at(4), published: ago(-time.Minute)}, at(5), 0, true},
	} {
		if lag, known := n.lagOf(c.r, c.end); lag != c.lag || known != c.known {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, lag, known, c.lag, c.known)
		}
	}
}
