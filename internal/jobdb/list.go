package jobdb

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

// Criteria select the rows of a list; the zero value selects all. A job is selected by
// its runs and decisions too: by one with this node and category, and by one with this
// code, policy and rule. A run is selected by its job and its decision, and a decision
// by its run. Of groups, only Queue, JobSet, Group, States, Policy and Rule select.
type Criteria struct {
	JobID     string // exactly this job
	JobPrefix string // jobs whose id begins with it
	Queue     string
	Queues    []string // any of these; none: any
	JobSet    string
	Group     string  // a group's name
	States    []uint8 // of jobs JobState, of runs RunState, of groups policy.GroupState; none: all
	Waiting   bool    // only jobs with a pending retry, as Queries.Retries counts them
	Codes     []policy.Code
	Policy    string
	Rule      string
	Node      string
	Category  string // Armada's error category
	// Since <= time < Until, where 0 means no bound: of jobs the submission, of runs the
	// lease, of decisions the failure. Unix nanoseconds.
	Since, Until int64
	EndedSince   int64 // of jobs; 0: no bound
}

// Empty reports whether they select everything.
func (c *Criteria) Empty() bool {
	return len(c.States) == 0 && len(c.Codes) == 0 && len(c.Queues) == 0 && reflect.DeepEqual(Criteria{States: c.States, Codes: c.Codes, Queues: c.Queues}, *c)
}

// Page is one page of a list.
type Page struct {
	Sort       string // one of the Sorts of the list; "": the first of them
	Descending bool
	After      []any // what the page before returned; nil: the first page
	Limit      int   // rows; 0: all
}

// The orders of lists; the first one is the default. Rows without a time come first.
var (
	JobSorts      = []string{"id", "submitted", "ended", "retry-after", "runs"}
	RunSorts      = []string{"job", "leased", "ended"}
	DecisionSorts = []string{"log", "time"}
	GroupSorts    = []string{"name", "restarts"}
)

// ParseSort reads an order of a list: one of its sorts, with a minus before it for the
// opposite direction.
func ParseSort(text string, sorts []string) (sort string, descending bool, err error) {
	sort, descending = strings.CutPrefix(text, "-")
	for _, s := range sorts {
		if s == sort || text == "" {
			return s, descending, nil
		}
	}
	return "", false, suggest.Unknown("order", sort, sorts...)
}

// Top is what a list of the most frequent ones is about.
type Top struct {
	Key      string // the queue, job set, policy, rule, node or category; "": none
	Retries  uint64
	Failures uint64
	Jobs     uint64 // with a retry or a failure; 0: they were not counted
}

// Tops are what effective decisions can be counted by.
var Tops = []string{"queue", "set", "policy", "rule", "node", "category"}

// ErrToken reports that a continuation token is not one of this list.
var ErrToken = errors.New("this is not a continuation of this list: give the token that the page before ended with, and the same criteria and order")

// token continues a list after a row.
type token struct {
	List  []byte `json:"l"` // identifies list, criteria (but the times) and order
	After []any  `json:"a"`
}

// identity does not include times: those that are so long ago move.
func (p Page) identity(list string, c *Criteria) []byte {
	what := *c
	what.Since, what.Until = 0, 0
	text, err := json.Marshal(struct {
		List       string
		Criteria   Criteria
		Sort       string
		Descending bool
	}{list, what, p.Sort, p.Descending})
	if err != nil {
		panic(err) // plain values
	}
	sum := sha256.Sum256(text)
	return sum[:8]
}

// Token encodes where the next page of a list begins; after is what the query returned.
// It is empty after the last page.
func (p Page) Token(list string, c *Criteria, after []any) string {
	if after == nil {
		return ""
	}
	text, err := json.Marshal(token{p.identity(list, c), after})
	if err != nil {
		panic(fmt.Sprintf("jobdb: a row's place: %v", err)) // numbers and texts
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// Continue returns the page that begins where a token says; an empty token is the first
// page. Errors: ErrToken.
func (p Page) Continue(list string, c *Criteria, text string) (Page, error) {
	p.After = nil
	if text == "" {
		return p, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return p, ErrToken
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var t token
	if d.Decode(&t) != nil || string(t.List) != string(p.identity(list, c)) || len(t.After) == 0 {
		return p, ErrToken
	}
	for i, v := range t.After {
		switch v := v.(type) {
		case string:
		case json.Number:
			if t.After[i], err = v.Int64(); err != nil {
				return p, ErrToken
			}
		default:
			return p, ErrToken
		}
	}
	p.After = t.After
	return p, nil
}
