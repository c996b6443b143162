package policyfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says how bad a problem is.
type Severity uint8

// The severities: an Error stops Parse; Warning and Note come from lint only. A Note may well be intended.
const (
	Error Severity = iota
	Warning
	Note
)

// String returns error, warning or note.
func (s Severity) String() string {
	switch s {
	case Error:
	case Warning:
		return "warning"
	case Note:
		return "note"
	}
	return "error"
}

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// The codes of problems. Users have them in ignore lists: never reuse one.
const (
	codeSyntax       = "RP001" // not YAML
	codeTooBig       = "RP002" // bigger or deeper than any policy file
	codeFancy        = "RP003" // anchor, alias, merge key or tag
	codeAPIVersion   = "RP004"
	codeKind         = "RP005"
	codeUnknownField = "RP010"
	codeDuplicateKey = "RP011"
	codeWrongType    = "RP012"
	codeRequired     = "RP013"
	codeUnsupported  = "RP014"

	codeBadName       = "RP020"
	codeReservedName  = "RP021"
	codeDuplicateName = "RP022"

	codeUnknownValue = "RP030"
	codeDuplicate    = "RP031"
	codeOutOfRange   = "RP032"
	codeNeverMatches = "RP033"
	codeBadDuration  = "RP034"
	codeBadDecimal   = "RP035"
	codeBadPattern   = "RP036"
	codeBadTime      = "RP037"
	codeEmpty        = "RP038"
	codeBadText      = "RP039"

	codeNoMatcher  = "RP040"
	codeNoCategory = "RP041"
	codeConflict   = "RP042"
	codeTooMuch    = "RP043" // exceeds a limit on the cost of a decision
	codeCycle      = "RP044" // parts that wait for each other

	codeLintCondition = "RP101" // a condition of the pod together with containerName
	codeLintPolicy    = "RP102" // a policy that does not exist
	codeLintShadowed  = "RP103" // a rule that is shadowed by an earlier one
	codeLintRepeated  = "RP104" // a policy that a queue names twice
	codeLintDelay     = "RP105" // initialDelay above maxDelay
	codeLintContainer = "RP114" // a name that no container can have
	codeLintLabel     = "RP115" // a category or subcategory that no run can have
	codeLintNoRestart = "RP121" // restarts that never restart
	codeLintAvoided   = "RP123" // more nodes to avoid than a decision names
	codeLintSilent    = "RP116" // a policy without rules and defaultAction
)

// Problem is one problem of the files, and its position.
type Problem struct {
	File     string   `json:"file"`
	Line     int      `json:"line"` // from 1; 0: no position
	Column   int      `json:"column"`
	Code     string   `json:"code"` // RP and three digits
	Severity Severity `json:"severity"`
	Path     string   `json:"path"`            // of the field in its document, such as spec.rules[2].action
	Value    string   `json:"value,omitempty"` // as written, if a scalar is wrong
	Message  string   `json:"message"`
	Fix      string   `json:"fix"` // how to fix it
}

// String formats p in one line, in the form that editors recognise.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": ")
	if p.Severity != Error {
		b.WriteString(p.Severity.String() + " ")
	}
	b.WriteString(p.Code)
	if p.Path != "" {
		b.WriteString(" " + p.Path)
	}
	fmt.Fprintf(&b, ": %s. fix: %s", p.Message, p.Fix)
	return b.String()
}

// Problems lists all problems of the files, sorted by File, Line and Column. It is the error of Parse.
type Problems []Problem

// Error formats one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Sort sorts problems by File, Line and Column.
func (ps Problems) Sort() { ps.sort() }

func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
