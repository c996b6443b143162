package policyfile

import (
	"errors"
	"regexp/syntax"
	"strconv"

	"github.com/refloat/refloat/internal/policy"
)

// pattern is a regular expression of RE2.
type pattern struct {
	source   string
	compiled *policy.Pattern
}

// What bounds the time that patterns take on a message, and their memory, beside
// policy.MaxPatternSize.
const (
	maxPattern      = 4096   // bytes of one as it is written
	maxPatternSizes = 50_000 // of one policy
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
		return fault{codeTooMuch, err.Error(), "repeat less: x{1000} is x a thousand times"}
	}
	if err != nil {
		message := err.Error()
		if e := (*syntax.Error)(nil); errors.As(err, &e) {
			message = e.Code.String() + ": " + strconv.Quote(e.Expr)
		}
		return fault{codeBadPattern, message, "write a regular expression of RE2, in single quotes"}
	}
	p.compiled = compiled
	return fault{}
}

// size is how much the pattern takes; 0 for none.
func (p *pattern) size() int {
	if p.compiled == nil {
		return 0
	}
	return p.compiled.Size()
}
