package convert

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"
)

// mustReadBack fails if a YAML parser does not find in a file what its jobs are in JSON.
func mustReadBack(t rapid.TB, s *Submit, text []byte) {
	t.Helper()
	var got any
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatalf("jobs.yaml is no YAML: %v\n%s", err, text)
	}
	want, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(generic(t, want), generic(t, mustJSON(t, got))); diff != "" {
		t.Fatalf("jobs.yaml differs from its jobs (-want +got):\n%s\n%s", diff, text)
	}
}

func mustJSON(t rapid.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// generic is a value of JSON without what is not written.
func generic(t rapid.TB, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	var strip func(v any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, item := range v {
				if m, ok := item.(map[string]any); item == nil || key == "resources" && ok && len(m) == 0 {
					delete(v, key)
				}
				strip(item)
			}
		case []any:
			for _, item := range v {
				strip(item)
			}
		}
	}
	strip(v)
	if m, ok := v.(map[string]any); ok && m["jobs"] == nil {
		m["jobs"] = []any{}
	}
	return v
}

// TestTextsAreReadBack: whatever a text is, a YAML parser reads the same.
func TestTextsAreReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.String(),
			rapid.StringOf(rapid.RuneFrom([]rune("ab \n\t#:-|>'\"\\{}[]&*!%@,?~\u00e9\u2028\u0085\u007f\ufeff"))),
			rapid.SampledFrom([]string{"yes", "No", "0x10", "1e3", "1:30", "~", "null", "2026-11-22", "- a", "a: b", "a\n\n b\n", "a\nb", " a\nb", "<<", "="}),
		)
		s := &Submit{Queue: text.Draw(t, "queue"), JobSetID: text.Draw(t, "job set"), Jobs: []Job{{
			Namespace: "n", Annotations: rapid.MapOfN(text, text, 0, 4).Draw(t, "annotations"),
		}}}
		var b bytes.Buffer
		if err := s.WriteYAML(&b); err != nil {
			t.Fatal(err)
		}
		mustReadBack(t, s, b.Bytes())
	})
}
