package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	mark    = '\x1a' // U+001A, SUBSTITUTE
	longest = 1000   // bytes of a key; two and a number must fit into an index
	prefix  = 200    // bytes of a longer key that are kept
)

// escape converts any text into text that PostgreSQL can store.
func escape(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == 0 || r == mark || r == utf8.RuneError && n == 1 {
			b.WriteByte(mark)
			b.WriteString(hex.EncodeToString([]byte{s[i]}))
			i++
			continue
		}
		b.WriteString(s[i : i+n])
		i += n
	}
	return b.String()
}

func plain(s string) bool {
	ascii := true
	for i := range len(s) {
		switch c := s[i]; {
		case c == 0 || c == mark:
			return false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return ascii || utf8.ValidString(s)
}

// unescape reverses escape.
func unescape(s string) (string, error) {
	i := strings.IndexByte(s, mark)
	if i < 0 {
		return s, nil
	}
	var b strings.Builder
	for ; i >= 0; i = strings.IndexByte(s, mark) {
		b.WriteString(s[:i])
		if len(s) < i+3 {
			return "", fmt.Errorf("text ends inside an escape sequence: %q", s)
		}
		c, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil {
			return "", fmt.Errorf("invalid escape sequence in text: %q", s[i:i+3])
		}
		b.Write(c)
		s = s[i+3:]
	}
	b.WriteString(s)
	return b.String(), nil
}

// key converts a text for an indexed column. It abbreviates a long text, which must be
// stored elsewhere.
func key(s string) (stored string, long bool) {
	stored = escape(s)
	if len(stored) <= longest {
		return stored, false
	}
	sum := sha256.Sum256([]byte(s))
	end := prefix
	for !utf8.RuneStart(stored[end]) {
		end--
	}
	if i := strings.LastIndexByte(stored[end-2:end], mark); i >= 0 { // do not cut an escape sequence
		end += i - 2
	}
	return stored[:end] + string(mark) + "=" + hex.EncodeToString(sum[:]), true
}

// isName reports whether a stored key is an abbreviated long text.
func isName(stored string) bool { return strings.Contains(stored, string(mark)+"=") }

// searched reports whether the column holds keys.
func searched(column string) bool {
	switch column {
	case "job_id", "run_id", "queue", "job_set", "about":
		return true
	}
	return false
}
