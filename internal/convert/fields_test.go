package convert

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestFieldsAreDecided walks the types of each API: every field is in the table of its system, or below one that is,
// and the table has no other.
func TestFieldsAreDecided(t *testing.T) {
	t.Parallel()
	for _, s := range systems() {
		exists := map[string]bool{}
		undecided := 0
		var walk func(typ reflect.Type, path string, covered bool, depth int)
		walk = func(typ reflect.Type, path string, covered bool, depth int) {
			if depth > 40 {
				t.Fatalf("%s: %s is too deep", s.kind, path)
			}
			if path != "" {
				exists[path] = true
				if row, ok := s.row(path, ""); ok {
					covered = row.Treatment != Inside && row.Treatment != Depends
				} else if !covered {
					undecided++
					t.Errorf("%s: nobody decided on %s: add a row to its table", s.kind, path)
					return
				}
			}
			for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
				typ = typ.Elem()
			}
			if _, custom := reflect.TypeAssert[json.Unmarshaler](reflect.New(typ)); custom || typ.Kind() != reflect.Struct {
				return
			}
			for _, f := range fieldsOf(typ) {
				walk(f.typ, join(path, f.name), covered, depth+1)
			}
		}
		walk(reflect.TypeOf(s.new()).Elem(), "", false, 0)
		for _, f := range s.table {
			path, _, _ := strings.Cut(f.Path, "[")
			if !f.Proposed && !exists[path] {
				t.Errorf("%s: the table has a row for %q, and the API has no such field", s.kind, f.Path)
			}
			if f.Proposed && exists[path] {
				t.Errorf("%s: the API has %s now, which its table calls a proposal", s.kind, f.Path)
			}
		}
		t.Logf("%s: %d fields, %d rows", s.kind, len(exists), len(s.table))
	}
}

// TestTables checks what rows say.
func TestTables(t *testing.T) {
	t.Parallel()
	for _, s := range systems() {
		seen := map[[3]string]bool{}
		for _, f := range s.table {
			key := [3]string{f.Path, f.Value, f.Case}
			if seen[key] {
				t.Errorf("%s: two rows for %q", s.kind, key)
			}
			seen[key] = true
			if f.Why == "" && (f.Treatment == Differs || f.Treatment == Dropped || f.Treatment == Ignored || f.Treatment == Forbidden) {
				t.Errorf("%s: no reason why %s is %s", s.kind, f.Path, f.Treatment)
			}
			if f.Case != "" || f.Value != "" {
				if _, ok := s.row(f.Path, ""); !ok {
					t.Errorf("%s: %s has a row for %q and none for the rest", s.kind, f.Path, f.Case+f.Value)
				}
			}
		}
	}
}

// TestKubernetesVersion: unknown fields are said to be newer than the API that the types are of.
func TestKubernetesVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	minor, found := strings.CutPrefix(kubernetes, "1.")
	if !found || !strings.Contains(string(text), "k8s.io/api v0."+minor+".") {
		t.Errorf("the version is %s, and go.mod has another one of k8s.io/api", kubernetes)
	}
}
