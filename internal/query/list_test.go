package query_test

import (
	"testing"
	"time"

	"github.com/refloat/refloat/internal/query"
)

func TestMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"1h": now.Add(-time.Hour), "0s": now, "7d": now.AddDate(0, 0, -7), "0d": now,
		"2026-11-30": time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC), "2026-11-30T05:00:00+01:00": time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC),
	} {
		if at, err := query.Moment(text, now); err != nil || at != want.UnixNano() {
			t.Errorf("%s: %v, %v, want %v", text, time.Unix(0, at).UTC(), err, want)
		}
	}
	for _, text := range []string{"yesterday", "-1h", "d", "1.5d", "-3d", "99999d", "2026-13-01", "2026-11-30 05:00", "3000-01-01"} {
		if at, err := query.Moment(text, now); err == nil {
			t.Errorf("%q: %v, no error", text, time.Unix(0, at).UTC())
		}
	}
	if at, err := query.Moment("", now); at != 0 || err != nil {
		t.Errorf("no time: %d, %v", at, err)
	}
}
