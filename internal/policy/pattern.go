package policy

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"unicode"
	"unicode/utf8"
)

// MaxPatternSize is the greatest size of a pattern. It bounds the time that a
// pattern takes on a message, and its memory.
const MaxPatternSize = 5_000

// Pattern is a regular expression of RE2, unanchored.
type Pattern struct {
	re     *regexp.Regexp
	size   int
	pieces []string // see piecesOf
}

// PatternTooLargeError is the error of a pattern larger than MaxPatternSize.
type PatternTooLargeError struct{ Size int }

func (e *PatternTooLargeError) Error() string {
	return fmt.Sprintf("%d parts with its repetitions written out, at most %d", e.Size, MaxPatternSize)
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

// String returns the pattern as it was written.
func (p *Pattern) String() string { return p.re.String() }

// Size is how many parts the pattern has with its repetitions written out.
func (p *Pattern) Size() int { return p.size }

// sizeOf is how many parts a pattern has with its repetitions written out: the
// size of the program that it is compiled to, about. It does not overflow: the
// parser refuses what is more than about four millions.
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

// leastPiece is how many bytes a piece has at least.
const leastPiece = 3

// piecesOf returns texts of which each text that matches has one, where ASCII
// letters count as their lower case; none: nothing is known.
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
	default: // what is left has no text of its own
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

// longestPiece returns the longest part of a literal that stands in each text that
// matches, byte by byte but for the case of ASCII letters.
func longestPiece(literal []rune, fold bool) string {
	var best, piece []byte
	for _, r := range literal {
		if r == utf8.RuneError || fold && !foldsInASCII(r) { // it stands for other bytes too
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

// foldsInASCII says that a letter in all its cases is ASCII: k is not, because of
// the sign of kelvin.
func foldsInASCII(r rune) bool {
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		if other > unicode.MaxASCII {
			return false
		}
	}
	return r <= unicode.MaxASCII
}

// lower is an ASCII letter in lower case, and any other byte as it is.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// beginsWith says whether a message begins with a piece.
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
