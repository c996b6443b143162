package policy

import (
	"regexp/syntax"
	"testing"
)

// FuzzPieces: a message that matches a pattern has one of its pieces, and the
// program is not bigger than its size says.
func FuzzPieces(f *testing.F) {
	f.Add("(?i)kelvin|mega", "\u212aelvin")
	f.Add("(?i)classes", "CLA\u017f\u017fES")
	f.Add("(?i)stra\u00dfe", "STRA\u1e9eE")
	f.Add("(?i)Out of MEMORY", "oUT OF memory")
	f.Add("a(bcd|bce){2,3}x*", "abcdbceabcd")
	f.Add("\ufffdabc|[[:alpha:]]+\\x{D800}", "\xffabc")
	f.Add("(abcd){0,900}|((ABC)+)?def", "no def")
	f.Fuzz(func(t *testing.T, source, message string) {
		p, err := ParsePattern(source)
		if err != nil {
			return
		}
		tree, err := syntax.Parse(source, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		if prog, err := syntax.Compile(tree.Simplify()); err != nil || len(prog.Inst) > 3*p.size+10 {
			t.Errorf("%q: %d instructions of %d parts, %v", source, len(prog.Inst), p.size, err)
		}
		has := p.pieces == nil
		for _, piece := range p.pieces {
			if len(piece) < leastPiece {
				t.Errorf("%q: a piece %q", source, piece)
			}
			for i := range len(message) {
				has = has || beginsWith(message[i:], piece)
			}
		}
		if !has && p.re.MatchString(message) {
			t.Errorf("%q matches %q, which has none of %q", source, message, p.pieces)
		}
	})
}
