package policy

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"unicode"
	"unicode/utf8"
)

// MaxPatternSize is the maximum size of a pattern. It limits the time that a pattern takes on a message, and its
// memory.
const MaxPatternSize = 5_000

// Pattern is an unanchored RE2 regular expression.
type Pattern struct {
	re     *regexp.Regexp
	size   int
	pieces []string // see piecesOf
}

// PatternTooLargeError is the error of a pattern larger than MaxPatternSize.
type PatternTooLargeError struct{ Size int }

func (e *PatternTooLargeError) Error() string {
	return fmt.Sprintf("%d nodes with repetitions expanded, at most %d", e.Size, MaxPatternSize)
}

// ParsePattern compiles a pattern. Its error is a [*syntax.Error] or a
// [*PatternTooLargeError].
func ParsePattern(s string) (*Pattern, error) {
	tree, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return nil, err
	}
	size := sizeOf(tree)
	if size > MaxPatternSize {
		return nil, &PatternTooLargeError{size}
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return nil, err
	}
	return &Pattern{re, size, piecesOf(tree)}, nil
}

// String returns the source of the pattern.
func (p *Pattern) String() string { return p.re.String() }

// Size returns the number of nodes of the pattern with repetitions expanded.
func (p *Pattern) Size() int { return p.size }

// sizeOf returns the number of nodes of a pattern with repetitions expanded: about the size of its compiled
// program. It does not overflow: the parser rejects patterns above about four million.
func sizeOf(re *syntax.Regexp) int {
	size := 1
	if re.Op == syntax.OpLiteral {
		size = len(re.Rune)
	}
	for _, sub := range re.Sub {
		size += sizeOf(sub)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(1, re.Min, re.Max)
	}
	return size
}

// leastPiece is the minimum length of a piece in bytes.
const leastPiece = 3

// piecesOf returns substrings of which every matching text contains at least one, comparing ASCII letters in lower
// case; none: nothing is known.
func piecesOf(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		if piece := longestPiece(re.Rune, re.Flags&syntax.FoldCase != 0); len(piece) >= leastPiece {
			return []string{piece}
		}
	case syntax.OpCapture, syntax.OpPlus:
		return piecesOf(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return piecesOf(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []string
		for _, sub := range re.Sub {
			if pieces := piecesOf(sub); shortest(pieces) > shortest(best) {
				best = pieces
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			pieces := piecesOf(sub)
			if pieces == nil {
				return nil
			}
			all = append(all, pieces...)
		}
		return all
	default: // the other operators have no text of their own
	}
	return nil
}

func shortest(pieces []string) int {
	least := 0
	for i, piece := range pieces {
		if i == 0 || len(piece) < least {
			least = len(piece)
		}
	}
	return least
}

// longestPiece returns the longest part of a literal that every matching text contains, byte by byte except for
// the case of ASCII letters.
func longestPiece(literal []rune, fold bool) string {
	var best, piece []byte
	for _, r := range literal {
		if r == utf8.RuneError || fold && !foldsInASCII(r) { // it matches other bytes too
			piece = nil
			continue
		}
		if piece = utf8.AppendRune(piece, r); len(piece) > len(best) {
			best = piece
		}
	}
	for i, c := range best {
		best[i] = lower(c)
	}
	return string(best)
}

// foldsInASCII reports whether all case variants of a letter are ASCII: k's are not, because of the Kelvin sign.
func foldsInASCII(r rune) bool {
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		if other > unicode.MaxASCII {
			return false
		}
	}
	return r <= unicode.MaxASCII
}

// lower converts an ASCII letter to lower case, and keeps any other byte.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// beginsWith reports whether a message begins with a piece.
func beginsWith(message, piece string) bool {
	if len(message) < len(piece) {
		return false
	}
	for i := range len(piece) {
		if lower(message[i]) != piece[i] {
			return false
		}
	}
	return true
}
