package convert

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestValidateJobRows runs the rows of Kubernetes' TestValidateJob: a Job that its API server refuses is an Error at the
// field that the row names, and one that it accepts is converted.
func TestValidateJobRows(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../testdata/oracles/k8s_validate_job.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Rows []struct {
			ID       string
			Policy   map[string]any
			Expected struct {
				Valid bool
				Error string
			}
			Prior         struct{ RestartPolicyOfPod string }
			Representable *bool
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, row := range file.Rows {
		spec := maps.Clone(row.Policy)
		if row.Representable != nil && !*row.Representable {
			// The row has the Go code of a list that is too long.
			rules := make([]any, 21)
			for i := range rules {
				rules[i] = map[string]any{"action": "FailJob", "onExitCodes": map[string]any{"operator": "In", "values": []int{i + 1}}}
			}
			if !strings.Contains(row.Expected.Error, "must have at most 20 items") {
				t.Errorf("%s: no way to make the list of this row", row.ID)
				continue
			}
			spec = map[string]any{"podFailurePolicy": map[string]any{"rules": rules}}
		}
		containers := []any{map[string]any{"name": "ctr", "image": "image", "resources": map[string]any{"limits": map[string]any{"cpu": "1"}}}}
		spec["template"] = map[string]any{"spec": map[string]any{"restartPolicy": row.Prior.RestartPolicyOfPod, "containers": containers}}
		text, err := json.Marshal(map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "myjob"}, "spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		r := Convert([]File{{Name: row.ID, Data: text}}, Options{})
		if row.Expected.Valid {
			// A group is smaller than a Job can be: that is another Error than the rows are about.
			tooBig := regexp.MustCompile(`a group has at most`)
			for _, n := range r.Notes {
				if n.Kind == Error && !tooBig.MatchString(n.Why) {
					t.Errorf("%s: %s, and Kubernetes accepts it", row.ID, n)
				}
			}
			passed++
			continue
		}
		// Rules of an error are named as the API server names them: path, colon, text.
		path, _, _ := strings.Cut(row.Expected.Error, ":")
		found := false
		for _, n := range r.Notes {
			found = found || n.Kind == Error && n.Path == path
		}
		if !found {
			t.Errorf("%s: no Error at %s, want %q; notes: %v", row.ID, path, row.Expected.Error, r.Notes)
			continue
		}
		passed++
	}
	t.Logf("%d rows, %d passed", len(file.Rows), passed)
}
