package policy

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// pattern is a regular expression of RE2.
type pattern struct {
	source   string
	compiled *regexp.Regexp
	size     int
	pieces   []string // see piecesOf
}

// What bounds the time that a pattern takes on a message, and the memory.
const (
	maxPattern      = 4096   // bytes of one as it is written
	maxPatternSize  = 5_000  // see sizeOf
	maxPatternSizes = 50_000 // of one policy
)

func (p *pattern) form() (string, string) { return "a regular expression in quotes", "!!str" }
func (p *pattern) text() string           { return p.source }
func (p *pattern) parse(s string) fault {
	*p = pattern{source: s}
	if f := printable(s, maxPattern); f != (fault{}) {
		return f
	}
	tree, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		message := err.Error()
		if e := (*syntax.Error)(nil); errors.As(err, &e) {
			message = e.Code.String() + ": " + strconv.Quote(e.Expr)
		}
		return fault{codeBadPattern, message, "write a regular expression of RE2, in single quotes"}
	}
	if p.size = sizeOf(tree); p.size > maxPatternSize {
		return fault{
			codeTooMuch, fmt.Sprintf("%d parts with its repetitions written out, at most %d", p.size, maxPatternSize),
			"repeat less: x{1000} is x a thousand times",
		}
	}
	p.compiled, p.pieces = regexp.MustCompile(s), piecesOf(tree)
	return fault{}
}

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
