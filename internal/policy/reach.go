package policy

import (
	"regexp/syntax"
	"slices"
)

// Reach says which non-empty messages a pattern is proven to match.
type Reach uint8

// What a pattern matches.
const (
	SomeMessages Reach = iota // nothing is proven
	NoMessage
	EveryMessage
	EveryMessageWithText // every message that contains more than line feeds
)

// Covers reports whether it is proven that p matches every message that other matches.
func (p *Pattern) Covers(other *Pattern) bool {
	return p.String() == other.String() || p.Reach() == EveryMessage
}

// Reach returns what is proven of the pattern, which may match anywhere.
func (p *Pattern) Reach() Reach { return reachOf(p.String()) }

func reachOf(pattern string) Reach {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return SomeMessages
	}
	re = re.Simplify()
	if matchesNothing(re) {
		return NoMessage
	}
	items := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		items = re.Sub
	}
	// At the beginning ^ holds, and at the end $: either of them excludes nothing.
	switch first, last := items[0].Op, items[len(items)-1].Op; {
	case first == syntax.OpBeginText || first == syntax.OpBeginLine:
		items = items[1:]
	case last == syntax.OpEndText || last == syntax.OpEndLine:
		items = items[:len(items)-1]
	}
	text := 0
	for _, item := range items {
		switch {
		case nullable(item):
		case anyText(item):
			text++
		default:
			return SomeMessages
		}
	}
	switch {
	case text == 0:
		return EveryMessage
	case text == 1 && len(items) == len(re.Sub) || text == 1 && re.Op != syntax.OpConcat:
		return EveryMessageWithText
	}
	return SomeMessages
}

// nullable reports whether the empty text matches anywhere.
func nullable(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpStar, syntax.OpQuest:
		return true
	case syntax.OpCapture, syntax.OpPlus:
		return nullable(re.Sub[0])
	case syntax.OpRepeat:
		return re.Min == 0 || nullable(re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if !nullable(sub) {
				return false
			}
		}
		return true
	case syntax.OpAlternate:
		return slices.ContainsFunc(re.Sub, nullable)
	default: // the other operators need a character or a position
	}
	return false
}

// anyText reports whether any single character except a line feed matches.
func anyText(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true
	case syntax.OpCapture, syntax.OpPlus:
		return anyText(re.Sub[0])
	default:
		return false
	}
}

// matchesNothing reports whether no text matches.
func matchesNothing(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpNoMatch:
		return true
	case syntax.OpCharClass:
		return len(re.Rune) == 0
	case syntax.OpCapture, syntax.OpPlus:
		return matchesNothing(re.Sub[0])
	case syntax.OpConcat:
		return slices.ContainsFunc(re.Sub, matchesNothing)
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			if !matchesNothing(sub) {
				return false
			}
		}
		return true
	default:
	}
	return false
}
