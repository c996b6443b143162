package lint

import (
	"regexp/syntax"
	"slices"
)

// reach is how much a pattern is proven to match of messages that are not empty.
type reach uint8

const (
	someMessages reach = iota // nothing is proven
	noMessage
	everyMessage
	everyMessageWithText // every one that is more than line feeds
)

// matchesAll says what is proven of a pattern, which is searched for anywhere.
func matchesAll(pattern string) reach {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return someMessages
	}
	re = re.Simplify()
	if matchesNothing(re) {
		return noMessage
	}
	items := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		items = re.Sub
	}
	// At the beginning ^ holds, and the end $: one of them costs nothing.
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
			return someMessages
		}
	}
	switch {
	case text == 0:
		return everyMessage
	case text == 1 && len(items) == len(re.Sub) || text == 1 && re.Op != syntax.OpConcat:
		return everyMessageWithText
	}
	return someMessages
}

// nullable says that it matches the empty text anywhere.
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
	default: // the others need a character or a place
	}
	return false
}

// anyText says that it matches any one character but a line feed.
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

// matchesNothing says that no text has a match.
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
