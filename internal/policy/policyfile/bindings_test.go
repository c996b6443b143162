package policyfile

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBound(t *testing.T) {
	t.Parallel()
	s, err := Parse([]File{{"q.yaml", []byte(`
{kind: Queue, name: a, retryPolicies: [x, y]}
---
{kind: Queue, name: b, retryPolicies: [x], mode: Shadow}
---
{kind: Queue, name: c}
---
{kind: Queue, name: d, retryPolicies: [x], pausedUntil: 2026-12-01T06:00:00Z}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	before := s.Digest()
	bound, refused := s.Bound([]Binding{
		{"c", []string{"z", "x", "z"}}, {"new", []string{"x", "No!"}}, {"with space", []string{"x"}}, {"none", nil}, {"bad", []string{""}},
	})
	want := []Binding{{"c", []string{"z", "x"}}, {"new", []string{"x"}}}
	if diff := cmp.Diff(want, bound.Bindings()); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
	var names []string
	for _, id := range bound.Resources() {
		names = append(names, id.Name)
	}
	if !slices.Equal(names, []string{"b", "c", "d", "new"}) { // a says nothing any more
		t.Errorf("queues %q", names)
	}
	text := strings.Join(refused, "; ")
	for _, word := range []string{"Queue new: policy", "No!", "with space", "Queue bad: policy"} {
		if !strings.Contains(text, word) {
			t.Errorf("refused %q, without %q", text, word)
		}
	}
	if len(refused) != 3 || s.Digest() != before {
		t.Errorf("refused %q; the set changed: %v", refused, s.Digest() != before)
	}
	if same, refused := s.Bound(s.Bindings()); same.Digest() != before || refused != nil {
		t.Errorf("its own bindings: %s, %q", same.Canonical(), refused)
	}
}
