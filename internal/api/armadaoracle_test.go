package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/test/oracle"
)

// Armada's own rows of what its server and its scheduler take for a policy
// (testdata/oracles/README.md), sent to our service as bytes: accepted and refused
// alike, but for mutate. We change no memory, and antiAffinity says which nodes.
func TestOracleArmadaService(t *testing.T) {
	t.Parallel()
	serviceSuite(newWorld(t)).Test(t)
}

// Names that use an expression, and what is at the limits.
func TestOracleArmadaServiceRows(t *testing.T) {
	t.Parallel()
	s := serviceSuite(newWorld(t))
	for _, c := range []struct {
		name, row string
		leftOut   bool
		differs   bool
	}{
		{name: "the longest name", row: `{"policy": {"name": {"$chain": [{"fn": "strings.Repeat", "args": ["a", 63]}]}, "defaultAction": 1}, "expected": {"error": null}}`},
		{name: "a name too long", row: `{"policy": {"name": {"$chain": [{"fn": "strings.Repeat", "args": ["a", 64]}]}, "defaultAction": 1}, "expected": {"error": "is invalid"}}`},
		{name: "a name too long, accepted", row: `{"policy": {"name": {"$chain": [{"fn": "strings.Repeat", "args": ["a", 64]}]}, "defaultAction": 1}, "expected": {"error": null}}`, differs: true},
		{name: "an unknown expression", row: `{"policy": {"name": {"$chain": [{"fn": "longName", "args": []}]}, "defaultAction": 1}, "expected": {"error": null}}`, leftOut: true},
		{name: "an unknown field", row: `{"policy": {"name": "p", "defaultAction": 1, "backoff": {}}, "expected": {"error": null}}`, differs: true},
		{name: "no policy", row: `{"policy": null, "expected": {"error": "must not be nil"}}`},
		{name: "no rule", row: `{"policy": {"name": "p", "defaultAction": "Fail", "rules": [null]}, "expected": {"error": "must not be nil"}}`},
		{name: "a memory bump", row: `{"policy": {"name": "p", "defaultAction": 1, "rules": [{"action": 2, "onCategory": "c", "mutate": {"resources": {"memory": {"factor": 2}}}}]}, "expected": {"error": null}}`},
		{name: "a limit that is no slip", row: `{"policy": {"name": "p", "defaultAction": 1, "retryLimit": 4294967295}, "expected": {"error": null}}`, leftOut: true},
	} {
		row, err := oracle.ParseRow(c.row)
		if err != nil {
			t.Fatal(err)
		}
		if r := s.Try(&row); r.Failed() != c.differs || (r.LeftOut != "") != c.leftOut {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

func serviceSuite(w *world) *oracle.Suite {
	return &oracle.Suite{
		File: "armada_policy_validation.json",
		Run:  func(c *oracle.Check) { sendRow(w, c) },
		Silent: map[string]string{
			"expected.expected.rules[].mutation": "we refuse mutate by name",
		},
		Optional: []string{"expected.error", "expected.expectError"},
		Same: func(path string, a, b any) bool { // words: the suite of package policy compares them
			_, isText := a.(string)
			_, isText2 := b.(string)
			return (path == "expected.error" || path == "expected.expectError") && isText && isText2
		},
	}
}

func sendRow(w *world, c *oracle.Check) {
	var fields map[string]any
	var p, known oraclePolicy
	if !c.Inputs(map[string]any{"policy": &fields}) || !c.Inputs(map[string]any{"policy": &known}) {
		return
	}
	plain, mutates := oracle.WithoutMutate(fields)
	if c.LeaveOut(
		oracle.Reason{Holds: known.RetryLimit > 1_000_000, Why: "a limit above 1,000,000: we refuse it"},
		oracle.Reason{Holds: oracle.LongestLabel(fields) > 253, Why: "a category or subcategory of more than 253 bytes: we refuse it"},
		oracle.Reason{Holds: oracle.BadMutate(fields), Why: "a mutate that Armada refuses: we refuse every one by name"},
	) {
		return
	}
	var expected struct {
		Error, ExpectError *string
		Expected           map[string]any
	}
	if !c.Expected(&expected) {
		return
	}
	if mutates {
		c.Adapt("mutate is left away: we refuse it by name")
		if _, err := w.armadactl("CreateRetryPolicy", known.bytes(c)); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "mutate") {
			c.Errorf("a policy with mutate: %v", err)
		}
	}
	read(c, plain, &p)
	sent := p.bytes(c)
	_, err := w.armadactl("CreateRetryPolicy", sent)
	if oracle.Refusal(c, expected.Error, expected.ExpectError) != nil {
		if status.Code(err) != codes.InvalidArgument {
			c.Errorf("got %v, the row says it is refused", err)
		}
		return
	}
	if err != nil {
		c.Errorf("the row says valid, and we refuse: %v", err)
		return
	}
	got := w.done("GetRetryPolicy", text(1, p.Name))
	if expected.Expected != nil { // Armada's own conversion of the policy
		var same oraclePolicy
		converted, _ := oracle.WithoutMutate(expected.Expected)
		read(c, converted, &same)
		sent = same.bytes(c)
	}
	if !slices.Equal(got, sent) {
		c.Errorf("became %x, the row says %x", got, sent)
	}
	w.done("DeleteRetryPolicy", text(1, p.Name))
}

// read takes a decoded policy into our struct.
func read(c *oracle.Check, fields map[string]any, p *oraclePolicy) {
	data, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(data, p)
	}
	if err != nil {
		c.Errorf("%v", err)
	}
}

// What Armada's rules say beyond its rows, and where ours are narrower.
//
//	what                            Armada    we       why
//	retry_limit over 1,000,000      accepts   refuse   a limit that says nothing is a slip; 1,000,000 is our most
//	a category of over 253 bytes    accepts   refuse   a job run's category is at most 63 there (Armada 207cc9e04)
//	a category with a line break    accepts   refuse   no executor has one
func TestArmadaLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := func(fields ...[]byte) []byte { return message(nRule, fields...) }
	retry, oom := number(nAction, actRetry), text(nCategory, "oom")
	name, def := text(nName, "p"), number(nDefault, actFail)
	for _, c := range []struct {
		what    string
		request [][]byte
		refused bool
	}{
		{"63 bytes of name", [][]byte{text(nName, strings.Repeat("a", 63)), def}, false},
		{"64 bytes of name", [][]byte{text(nName, strings.Repeat("a", 64)), def}, true},
		{"a dot in the name", [][]byte{text(nName, "a.b"), def}, true},
		{"one digit", [][]byte{text(nName, "7"), def}, false},
		{"no default action", [][]byte{name}, true},
		{"no category", [][]byte{name, def, rule(retry)}, true},
		{"only a subcategory", [][]byte{name, def, rule(retry, text(nSubcategory, "oom"))}, true},
		{"a rule of nothing", [][]byte{name, def, rule()}, true},
		{"no action", [][]byte{name, def, rule(oom)}, true},
		{"the same rule twice", [][]byte{name, def, rule(retry, oom), rule(retry, oom)}, false},
		{"a category in quotes", [][]byte{name, def, rule(retry, text(nCategory, `"a": {b} #c é 🙂 yes`))}, false},
		{"the largest limit of ours", [][]byte{name, def, number(nLimit, 1_000_000)}, false},

		{"a larger limit", [][]byte{name, def, number(nLimit, 1_000_001)}, true},
		{"the largest limit of Armada", [][]byte{name, def, number(nLimit, 1<<32-1)}, true},
		{"a long category", [][]byte{name, def, rule(retry, text(nCategory, strings.Repeat("a", 254)))}, true},
		{"a line break in a category", [][]byte{name, def, rule(retry, text(nCategory, "a\nb"))}, true},
	} {
		_, err := w.armadactl("CreateRetryPolicy", c.request...)
		if code := status.Code(err); c.refused && code != codes.InvalidArgument || !c.refused && err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

type oraclePolicy struct {
	Name          string
	RetryLimit    uint64
	DefaultAction json.RawMessage
	Rules         []oracleRule
}

type oracleRule struct {
	Action                    json.RawMessage
	OnCategory, OnSubcategory string
	Mutate                    *oracleMutate
}

type oracleMutate struct {
	Affinity  struct{ AvoidSameNode bool }
	Resources struct{ Memory *oracleMemory }
}

type oracleMemory struct {
	Static string
	Factor float64
}

// bytes is a policy as a client of Armada writes it: without zero values.
func (p *oraclePolicy) bytes(c *oracle.Check) []byte {
	b := field(nil, p.Name != "", text(nName, p.Name))
	b = field(b, p.RetryLimit != 0, number(nLimit, p.RetryLimit))
	b = field(b, actionNumber(c, p.DefaultAction) != 0, number(nDefault, actionNumber(c, p.DefaultAction)))
	for _, r := range p.Rules {
		rule := field(nil, actionNumber(c, r.Action) != 0, number(nAction, actionNumber(c, r.Action)))
		rule = field(rule, r.OnCategory != "", text(nCategory, r.OnCategory))
		rule = field(rule, r.OnSubcategory != "", text(nSubcategory, r.OnSubcategory))
		if m := r.Mutate; m != nil {
			mutate := field(nil, m.Affinity.AvoidSameNode, message(1, number(1, 1)))
			if memory := m.Resources.Memory; memory != nil {
				bump := field(nil, memory.Static != "", text(1, memory.Static))
				bump = field(bump, memory.Factor != 0, double(2, memory.Factor))
				mutate = append(mutate, message(2, message(1, bump))...)
			}
			rule = append(rule, message(nMutate, mutate)...)
		}
		b = append(b, message(nRule, rule)...)
	}
	return b
}

func field(b []byte, is bool, bytes []byte) []byte {
	if !is {
		return b
	}
	return append(b, bytes...)
}

func actionNumber(c *oracle.Check, raw json.RawMessage) uint64 {
	switch s := string(raw); s {
	case "", "0", "null":
		return 0
	case "1", `"Fail"`:
		return actFail
	case "2", `"Retry"`:
		return actRetry
	default:
		c.Errorf("no action of Armada: %s", s)
		return 0
	}
}
