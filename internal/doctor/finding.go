package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Severity ranks findings.
type Severity int

// The severities, best first.
const (
	OK Severity = iota
	Warn
	Error
)

var severities = [...]string{"ok", "warn", "error"}

// String returns the severity's name.
func (s Severity) String() string {
	if s >= 0 && int(s) < len(severities) {
		return severities[s]
	}
	return fmt.Sprintf("Severity(%d)", int(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is the outcome of one check of one subject.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     string   `json:"code"`          // RD0xx, in the package comment
	About    string   `json:"about"`         // topic or setting
	What     string   `json:"what"`          // what was found
	Why      string   `json:"why,omitempty"` // why it matters; empty if all is well
	Fix      string   `json:"fix,omitempty"` // a command, or what to set; empty if there is nothing to do
}

// Worst returns the worst severity among findings.
func Worst(findings []Finding) Severity {
	worst := OK
	for _, f := range findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// Check checks the facts. Findings are sorted: the worst first, then by code.
func Check(f *Facts) []Finding {
	c := &checks{facts: f}
	c.brokers()
	c.topics()
	c.storage()
	c.settings()
	c.clients()
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), strings.Compare(a.Code, b.Code))
	})
	return c.found
}

type checks struct {
	facts *Facts
	found []Finding
}

func (c *checks) ok(code, about, what string) {
	c.found = append(c.found, Finding{Code: code, About: about, What: what})
}

func (c *checks) warn(code, about, what, why, fix string) {
	c.found = append(c.found, Finding{Warn, code, about, what, why, fix})
}

func (c *checks) bad(code, about, what, why, fix string) {
	c.found = append(c.found, Finding{Error, code, about, what, why, fix})
}

// unknown adds a finding about a fact that could not be read.
func (c *checks) unknown(code, about, what string, err error, why string) {
	fix := "run this as a user who may read it from the admin API"
	switch {
	case errors.Is(err, ErrDenied):
	case errors.Is(err, ErrNotChecked):
		fix = ""
	default:
		fix = "run this again; if it fails again, check the broker's log"
	}
	c.warn(code, about, fmt.Sprintf("%s is unknown: %s", what, oneLine(err)), why, fix)
}

// ErrNotChecked reports that there was no way or no reason to query something.
var ErrNotChecked = errors.New("not checked")

func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return strings.TrimPrefix(text, ErrNotChecked.Error()+": ")
}

// some lists partition numbers, at most the first few.
func some(partitions []int) string {
	const most = 8
	var b strings.Builder
	for i, p := range partitions {
		switch {
		case i == most:
			fmt.Fprintf(&b, " and %d more", len(partitions)-most)
			return b.String()
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, p)
	}
	return b.String()
}

// partitionsOf returns "partition 3" or "partitions 1, 2".
func partitionsOf(list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("partition %d", list[0])
	}
	return "partitions " + some(list)
}
