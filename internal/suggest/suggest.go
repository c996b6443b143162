// Package suggest finds the word that somebody mistyped, for "did you mean".
package suggest

import (
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
)

const (
	maxTypos  = 2  // how many letters may be wrong, and one more of a long word: a singular with -y is that far from its plural
	longWord  = 12 // letters
	maxLength = 64 // nobody mistypes a longer word
)

// Nearest returns the word that s was probably meant to be, or "".
func Nearest(s string, words []string) string {
	if len(s) > maxLength {
		return ""
	}
	best, least := "", maxTypos+2
	for _, word := range words {
		if word == "" || len(word) > 2*maxLength {
			continue
		}
		d := levenshtein.ComputeDistance(strings.ToLower(s), strings.ToLower(word))
		switch {
		case d < least && d*2 <= len(word) && (d <= maxTypos || len(word) >= longWord):
			best, least = word, d
		case best == "" && len(s) > 3 && (strings.HasPrefix(word, s) || 2*len(s) >= len(word) && subsequence(s, word)):
			best = word
		}
	}
	return best
}

// Fix asks "did you mean" about the nearest word. If none is near, it returns otherwise.
func Fix(s string, words []string, otherwise string) string {
	if near := Nearest(s, words); near != "" {
		return "did you mean " + near + "?"
	}
	return otherwise
}

// Unknown returns the error about a value that is none of words. It names the nearest one, and all.
func Unknown(what, s string, words ...string) error {
	near := ""
	if word := Nearest(s, words); word != "" {
		near = "did you mean " + word + "? "
	}
	use := "there is none to use"
	if last := len(words) - 1; last >= 0 {
		use = "use " + words[last]
		if last > 0 {
			use = "use " + strings.Join(words[:last], ", ") + " or " + words[last]
		}
	}
	return fmt.Errorf("%s %q: %s%s", what, s, near, use)
}

// subsequence says whether a is b with letters left out.
func subsequence(a, b string) bool {
	for i := range len(b) {
		if a != "" && a[0] == b[i] {
			a = a[1:]
		}
	}
	return a == ""
}
