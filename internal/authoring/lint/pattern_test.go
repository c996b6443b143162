package lint

import (
	"regexp"
	"testing"
)

// TestMatchesAll: what is proven holds of every message here.
func TestMatchesAll(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "ab", "\n", "\na", "a\n", "\n\n", " ", "\x00", "ü"}
	for _, c := range []struct {
		pattern string
		want    reach
	}{
		{".*", everyMessage},
		{"^", everyMessage},
		{"$", everyMessage},
		{"(a|)", everyMessage},
		{"^.*", everyMessage},
		{".*$", everyMessage},
		{"(?m)^", everyMessage},
		{"a{0,3}", everyMessage},
		{"(a*)+", everyMessage},
		{".+", everyMessageWithText},
		{".", everyMessageWithText},
		{"(.)", everyMessageWithText},
		{".*.+.*", everyMessageWithText},
		{"(?s).", everyMessageWithText},
		{"[^\\x00-\\x{10FFFF}]", noMessage},
		{"a[^\\x00-\\x{10FFFF}]", noMessage},
		{"^$", someMessages},
		{"^.*$", someMessages},
		{"^.+", someMessages},
		{"..", someMessages},
		{"\\b", someMessages},
		{"a", someMessages},
		{"a|b", someMessages},
		{"(", someMessages},
	} {
		got := matchesAll(c.pattern)
		if got != c.want {
			t.Errorf("matchesAll(%q) = %d, want %d", c.pattern, got, c.want)
		}
		re, err := regexp.Compile(c.pattern)
		if err != nil {
			continue
		}
		for _, s := range all {
			hasText := regexp.MustCompile(".").MatchString(s)
			if m := re.MatchString(s); got == everyMessage && !m || got == noMessage && m || got == everyMessageWithText && hasText && !m {
				t.Errorf("%q on %q: %v, and matchesAll says %d", c.pattern, s, m, got)
			}
		}
	}
}
