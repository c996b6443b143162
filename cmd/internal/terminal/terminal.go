// Package terminal makes text safe to print. Job ids, messages of failed pods and file names come from strangers: what
// they hold must not move the cursor, hide text or reverse it.
package terminal

import (
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Safe returns a text in which each character that a terminal acts on, or does not show, is written as JSON writes it,
// as \u202e. JSON keeps its meaning by that: it has such characters in strings only.
func Safe(text string) string {
	if strings.IndexFunc(text, unsafe) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !unsafe(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// unsafe reports whether a terminal acts on a character, or does not show it. Cf has the bidirectional overrides and
// the zero-width characters. Bytes that are not UTF-8 are replaced.
func unsafe(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == utf8.RuneError)
}

// The sequences that our own headings have.
const (
	Bold  = "\x1b[1m"
	Plain = "\x1b[0m"
)

// Writer writes safe text to a file.
type Writer struct {
	file *os.File
	rest []byte // the beginning of a character that the last Write ended with
}

// NewWriter returns a writer to a file.
func NewWriter(file *os.File) *Writer { return &Writer{file: file} }

// Fd is that of the file.
func (w *Writer) Fd() uintptr { return w.file.Fd() }

func (w *Writer) Write(p []byte) (int, error) {
	text := append(w.rest, p...)
	end := len(text)
	for i := max(0, end-utf8.UTFMax); i < end; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
			break
		}
	}
	w.rest = append([]byte(nil), text[end:]...)
	if _, err := w.file.WriteString(safeHeadings(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// safeHeadings is Safe, except for the sequences of headings: they change nothing but how letters look.
func safeHeadings(text string) string {
	parts := strings.SplitAfter(text, Plain)
	for i, part := range parts {
		head, body, bold := strings.Cut(strings.TrimSuffix(part, Plain), Bold)
		parts[i] = Safe(head)
		if bold {
			parts[i] += Bold + Safe(body)
		}
		if strings.HasSuffix(part, Plain) {
			parts[i] += Plain
		}
	}
	return strings.Join(parts, "")
}
