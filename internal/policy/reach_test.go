package policy

import (
	"regexp"
	"testing"
)

// TestReach: what is proven holds of every message here.
func TestReach(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "ab", "\n", "\na", "a\n", "\n\n", " ", "\x00", "ü"}
	for _, c := range []struct {
		pattern string
		want    Reach
	}{
		{".*", EveryMessage},
		{"^", EveryMessage},
		{"$", EveryMessage},
		{"(a|)", EveryMessage},
		{"^.*", EveryMessage},
		{".*$", EveryMessage},
		{"(?m)^", EveryMessage},
		{"a{0,3}", EveryMessage},
		{"(a*)+", EveryMessage},
		{".+", EveryMessageWithText},
		{".", EveryMessageWithText},
		{"(.)", EveryMessageWithText},
		{".*.+.*", EveryMessageWithText},
		{"(?s).", EveryMessageWithText},
		{"[^\\x00-\\x{10FFFF}]", NoMessage},
		{"a[^\\x00-\\x{10FFFF}]", NoMessage},
		{"^$", SomeMessages},
		{"^.*$", SomeMessages},
		{"^.+", SomeMessages},
		{"..", SomeMessages},
		{"\\b", SomeMessages},
		{"a", SomeMessages},
		{"a|b", SomeMessages},
		{"(", SomeMessages},
	} {
		got := reachOf(c.pattern)
		if got != c.want {
			t.Errorf("reach of %q is %d, want %d", c.pattern, got, c.want)
		}
		re, err := regexp.Compile(c.pattern)
		if err != nil {
			continue
		}
		for _, s := range all {
			hasText := regexp.MustCompile(".").MatchString(s)
			if m := re.MatchString(s); got == EveryMessage && !m || got == NoMessage && m || got == EveryMessageWithText && hasText && !m {
				t.Errorf("%q on %q: %v, and it says %d", c.pattern, s, m, got)
			}
		}
	}
}
