package policyfile

import (
	"errors"
	"regexp/syntax"
	"strconv"

	"github.com/refloat/refloat/internal/policy"
)

// pattern is an RE2 regular expression.
type pattern struct {
	source   string
	compiled *policy.Pattern
}

// Limits on the time and memory of patterns, in addition to policy.MaxPatternSize.
const (
	maxPattern      = 4096   // bytes of source of one pattern
	maxPatternSizes = 50_000 // nodes of all patterns of one policy
)

func (p *pattern) form() (string, string) { return "a regular expression in quotes", "!!str" }
func (p *pattern) text() string           { return p.source }

func (p *pattern) parse(s string) fault {
	*p = pattern{source: s}
	if f := printable(s, maxPattern); f != (fault{}) {
		return f
	}
	compiled, err := policy.ParsePattern(s)
	if large := (*policy.PatternTooLargeError)(nil); errors.As(err, &large) {
		return fault{codeTooMuch, err.Error(), "use fewer repetitions: x{1000} expands to a thousand x"}
	}
	if err != nil {
		message := err.Error()
		if e := (*syntax.Error)(nil); errors.As(err, &e) {
			message = e.Code.String() + ": " + strconv.Quote(e.Expr)
		}
		return fault{codeBadPattern, message, "write an RE2 regular expression, in single quotes"}
	}
	p.compiled = compiled
	return fault{}
}

// size returns the number of nodes of the pattern; 0 if unset.
func (p *pattern) size() int {
	if p.compiled == nil {
		return 0
	}
	return p.compiled.Size()
}
