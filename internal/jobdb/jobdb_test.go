package jobdb_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/refloat/refloat/internal/jobdb"
)

// anyText draws arbitrary bytes as text.
func anyText(r *rapid.T, label string) string {
	if rapid.Bool().Draw(r, "plain") {
		return rapid.StringMatching(`[ -~]*`).Draw(r, label)
	}
	return string(rapid.SliceOf(rapid.Byte()).Draw(r, label))
}

// TestLists: a list of any texts round-trips, and is JSON with the plain texts wherever
// they are valid.
func TestLists(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var list []string
		for range rapid.IntRange(0, 4).Draw(r, "n") {
			list = append(list, anyText(r, "text"))
		}
		encoded := jobdb.EncodeStrings(list)
		back, err := jobdb.DecodeStrings(encoded)
		if err != nil || !reflect.DeepEqual(back, list) {
			r.Fatalf("%q became %s and came back as %q, %v", list, encoded, back, err)
		}
		if list == nil {
			return
		}
		var plain []any
		if err := json.Unmarshal([]byte(encoded), &plain); err != nil {
			r.Fatalf("%s is no JSON: %v", encoded, err)
		}
		for i, s := range list {
			if utf8.ValidString(s) && plain[i] != s {
				r.Fatalf("%q stands as %v", s, plain[i])
			}
		}
	})
}

func TestContainers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var list []jobdb.Container
		for range rapid.IntRange(0, 3).Draw(r, "n") {
			list = append(list, jobdb.Container{
				Name: anyText(r, "name"), Reason: anyText(r, "reason"), Message: anyText(r, "message"), ExitCode: rapid.Int32().Draw(r, "code"),
			})
		}
		encoded := jobdb.EncodeContainers(list)
		back, err := jobdb.DecodeContainers(encoded)
		if err != nil || !reflect.DeepEqual(back, list) {
			r.Fatalf("%+v became %s and came back as %+v, %v", list, encoded, back, err)
		}
	})
}

// TestNames: every state has a name of its own.
func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for s := jobdb.UnknownJob; s <= jobdb.JobStopping; s++ {
		if s.String() == "" || seen[s.String()] {
			t.Errorf("the name %q of state %d is not its own", s, uint8(s))
		}
		seen[s.String()] = true
		if s.Terminal() != (s == jobdb.JobSucceeded || s == jobdb.JobFailed || s == jobdb.JobCancelled) {
			t.Errorf("%v.Terminal() = %v", s, s.Terminal())
		}
	}
	if got := jobdb.RunState(99).String(); got != "RunState(99)" {
		t.Errorf("a state from the future is called %q", got)
	}
}
