package oracle_test

import (
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/test/oracle"
)

const row = `{"id": "r#1", "policy": {"limit": 2, "name": {"$chain": [{"fn": "strings.Repeat", "args": ["ab", 3]}]}},
	"expected": {"ok": true, "used": 1, "code": "A", "list": [{"why": null}], "words": "any"}}`

// blind compares the code only, and admits to what is in silent.
func blind(silent map[string]string) *oracle.Suite {
	return &oracle.Suite{Silent: silent, Run: func(c *oracle.Check) {
		var p struct {
			Limit int
			Name  string
		}
		var expected struct{ Code string }
		if !c.Inputs(map[string]any{"policy": &p}) || c.LeaveOut(oracle.Reason{Holds: p.Limit == 0, Why: "no limit"}) || !c.Expected(&expected) {
			return
		}
		oracle.Equal(c, "name", p.Name, "ababab")
		oracle.Equal(c, "code", "A", expected.Code)
	}}
}

// TestMutations: a suite that does not compare what it should is found out.
func TestMutations(t *testing.T) {
	t.Parallel()
	r, err := oracle.ParseRow(row)
	if err != nil {
		t.Fatal(err)
	}
	unnoticed := func(s *oracle.Suite) (paths []string) {
		if result := s.Try(&r); result.Failed() || result.LeftOut != "" {
			t.Fatalf("%+v", result)
		}
		for _, m := range s.Mutations(&r, map[string][]any{"expected.code": {"A", "B"}}) {
			if result := s.Try(&m.Row); !result.Failed() {
				paths = append(paths, m.Path)
			}
		}
		return paths
	}
	if got, want := strings.Join(unnoticed(blind(nil)), " "), "expected.list expected.list[0].why expected.ok expected.used expected.words"; got != want {
		t.Errorf("unnoticed: %s, want %s", got, want)
	}
	honest := blind(map[string]string{"expected.list": "?", "expected.ok": "?", "expected.used": "?", "expected.words": "?"})
	if got := unnoticed(honest); len(got) > 0 {
		t.Errorf("unnoticed: %v", got)
	}
}

func TestLeftOut(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]string{
		`"limit": 2`:               "",
		`"limit": 0`:               "no limit",
		`"limit": "2"`:             "not read here: policy: ",
		`"limit": 2, "more": true`: "not read here: policy: unknown field",
		`"limit": {"$now": "?"}`:   "built by a Go expression",
	} {
		r, err := oracle.ParseRow(strings.Replace(row, `"limit": 2`, change, 1))
		if err != nil {
			t.Fatal(err)
		}
		if result := blind(nil).Try(&r); !strings.HasPrefix(result.LeftOut, want) || want == "" && result.LeftOut != "" || result.Failed() {
			t.Errorf("%s: %+v, want %q", change, result, want)
		}
	}
}
