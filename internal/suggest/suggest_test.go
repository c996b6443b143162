package suggest_test

import (
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/suggest"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	queues := []string{"", "ml", "genomics", "batch-low", "größe", "pulsar-oauth2-audience", "retryPolicies"}
	for _, c := range []struct{ name, typed, want string }{
		{"a letter left out", "genomcs", "genomics"},
		{"two letters swapped", "gneomics", "genomics"},
		{"another case", "Genomics", "genomics"},
		{"letters beyond ASCII count once", "grübe", "größe"},
		{"a short word with half of it wrong", "mx", "ml"},
		{"half a word left out", "batch", "batch-low"},
		{"too far", "physics", ""},
		{"a singular", "retryPolicy", "retryPolicies"},
		{"three letters of a word that is not long", "genoxyz", ""},
		{"a beginning", "pulsar", "pulsar-oauth2-audience"},
		{"a few letters of a long word", "since", ""},
		{"nothing", "", ""},
		{"too long to be a typing error", strings.Repeat("genomics", 10), ""},
	} {
		if got := suggest.Nearest(c.typed, queues); got != c.want {
			t.Errorf("%s: Nearest(%q) = %q, want %q", c.name, c.typed, got, c.want)
		}
	}
	if got := suggest.Fix("genomcs", queues, "list them"); got != "did you mean genomics?" {
		t.Errorf("Fix = %q", got)
	}
	if got := suggest.Fix("physics", queues, "list them"); got != "list them" {
		t.Errorf("Fix of an unknown word = %q", got)
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		words []string
		want  string
	}{
		{"none", nil, `state "Runninng": there is none to use`},
		{"one", []string{"Queued"}, `state "Runninng": use Queued`},
		{"two", []string{"Queued", "Running"}, `state "Runninng": did you mean Running? use Queued or Running`},
		{"three", []string{"a", "b", "c"}, `state "Runninng": use a, b or c`},
	} {
		if got := suggest.Unknown("state", "Runninng", c.words...).Error(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
