package api_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Armada's own rows of what its server and its scheduler take for a policy
// (testdata/oracles/README.md), sent to our service as bytes: accepted and rejected
// alike, but for these.
//
//	row                             Armada    we       why
//	TestConvertPolicy#01            accepts   refuse   mutate: we change no memory, and antiAffinity says which nodes
//	server.TestValidatePolicy#05    accepts   refuse   the same
func TestOracleArmadaService(t *testing.T) {
	t.Parallel()
	differs := map[string]string{"TestConvertPolicy#01": "mutate", "server.TestValidatePolicy#05": "mutate"}
	data, err := os.ReadFile("../../testdata/oracles/armada_policy_validation.json")
	if err != nil {
		t.Fatal(err)
	}
	var suite struct {
		RowCount int `json:"row_count"`
		Rows     []struct {
			ID, Name string
			Policy   oraclePolicy
			Expected struct{ Error, ExpectError *string }
		}
	}
	if err := json.Unmarshal(data, &suite); err != nil {
		t.Fatal(err)
	}
	if len(suite.Rows) != suite.RowCount || suite.RowCount == 0 {
		t.Fatalf("%d rows of %d", len(suite.Rows), suite.RowCount)
	}
	w := newWorld(t)
	for _, r := range suite.Rows {
		if r.ID == "TestConvertPolicy#02" { // a Go expression: a memory bump to "many"
			r.Policy = oraclePolicy{Name: "memory-bump", DefaultAction: json.RawMessage("2"), Rules: []oracleRule{{Action: json.RawMessage("2"), OnCategory: "oom"}}}
			r.Policy.Rules[0].Mutate = &oracleMutate{}
			r.Policy.Rules[0].Mutate.Resources.Memory = &oracleMemory{Static: "many"}
		}
		_, err := w.armadactl("CreateRetryPolicy", r.Policy.bytes(t))
		if accepts := r.Expected.Error == nil && r.Expected.ExpectError == nil; !accepts || differs[r.ID] != "" {
			if code := status.Code(err); code != codes.InvalidArgument || !strings.Contains(err.Error(), differs[r.ID]) {
				t.Errorf("%s (%s): %v", r.ID, r.Name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s (%s): %v", r.ID, r.Name, err)
			continue
		}
		if got := w.done("GetRetryPolicy", text(1, r.Policy.Name)); !slices.Equal(got, r.Policy.bytes(t)) {
			t.Errorf("%s (%s) became %x", r.ID, r.Name, got)
		}
	}
}

// What Armada's rules say beyond its rows, and where ours are narrower.
//
//	what                            Armada    we       why
//	retry_limit over 1,000,000      accepts   refuse   a limit that says nothing is a slip; 1,000,000 is our most
//	a category of over 253 bytes    accepts   refuse   a job run's category is at most 63 there (facts/ARMADA.md h)
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
func (p *oraclePolicy) bytes(t *testing.T) []byte {
	t.Helper()
	b := field(nil, p.Name != "", text(nName, p.Name))
	b = field(b, p.RetryLimit != 0, number(nLimit, p.RetryLimit))
	b = field(b, actionNumber(t, p.DefaultAction) != 0, number(nDefault, actionNumber(t, p.DefaultAction)))
	for _, r := range p.Rules {
		rule := field(nil, actionNumber(t, r.Action) != 0, number(nAction, actionNumber(t, r.Action)))
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

func actionNumber(t *testing.T, raw json.RawMessage) uint64 {
	t.Helper()
	switch s := string(raw); s {
	case "", "0":
		return 0
	case "1", `"Fail"`:
		return actFail
	case "2", `"Retry"`:
		return actRetry
	default:
		t.Fatalf("action %s", s)
		return 0
	}
}
