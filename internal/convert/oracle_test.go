package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/test/oracle"
)

// TestValidateJobRows runs the rows of Kubernetes' TestValidateJob: a Job that its API server refuses is an Error at the
// field that the row names, and one that it accepts is converted.
func TestValidateJobRows(t *testing.T) {
	t.Parallel()
	validateSuite().Test(t)
}

func validateSuite() *oracle.Suite {
	path := func(words any) string { // the API server writes path, colon, text
		before, _, _ := strings.Cut(fmt.Sprint(words), ":")
		return before
	}
	at := func(ours, theirs string) bool { // we may name the item of a list that they name
		item, ok := strings.CutPrefix(ours, theirs)
		return ok && (item == "" || item[0] == '[' && strings.Index(item, "]") == len(item)-1)
	}
	return &oracle.Suite{
		File: "k8s_validate_job.json",
		Same: func(field string, a, b any) bool { // internal/policy compares the kind of the error
			return field == "expected.error" && a != nil && b != nil && at(path(a), path(b))
		},
		Run: func(c *oracle.Check) {
			var row struct {
				Policy   map[string]any
				Prior    struct{ RestartPolicyOfPod string }
				Expected struct {
					Valid bool
					Error *string
				}
			}
			if !c.Read(&row) {
				return
			}
			if row.Expected.Valid != (row.Expected.Error == nil) {
				c.Errorf("the row says both that the Job is valid and that it is not")
			}
			spec := row.Policy
			containers := []any{map[string]any{"name": "ctr", "image": "image", "resources": map[string]any{"limits": map[string]any{"cpu": "1"}}}}
			spec["template"] = map[string]any{"spec": map[string]any{"restartPolicy": row.Prior.RestartPolicyOfPod, "containers": containers}}
			text, err := json.Marshal(map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "myjob"}, "spec": spec})
			if err != nil {
				c.Fatalf("%v", err)
			}
			r := Convert([]File{{Name: "job.json", Data: text}}, Options{})
			if row.Expected.Error != nil {
				place, what, _ := strings.Cut(*row.Expected.Error, ":")
				required := strings.HasPrefix(strings.TrimSpace(what), "Required value")
				if !slices.ContainsFunc(r.Notes, func(n Note) bool {
					if needs, ok := strings.CutPrefix(n.Why, "requires "); ok { // said of the field that requires another
						return n.Kind == Error && required && strings.HasSuffix(place, "."+needs)
					}
					const order = "must be ordered"
					return n.Kind == Error && at(n.Path, place) && strings.Contains(n.Why, order) == strings.Contains(what, order)
				}) {
					c.Errorf("no Error there, the row says %s; notes: %v", *row.Expected.Error, r.Notes)
				}
				return
			}
			// A group is smaller than a Job can be: that is another Error than the rows are about.
			for _, n := range r.Notes {
				if n.Kind == Error && !strings.Contains(n.Why, "a group has at most") {
					c.Errorf("%s, and Kubernetes accepts it", n)
				}
			}
		},
	}
}
