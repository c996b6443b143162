package web_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/app"
)

// TestBudgetsListed: the page of policies says what each retry budget permits, and leads to its text.
func TestBudgetsListed(t *testing.T) {
	t.Parallel()
	const heading = "Retry budgets"
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(policies, []byte(`apiVersion: refloat.github.io/v1
kind: RetryBudget
metadata: {name: genomics}
spec: {queue: genomics, ratio: 0.25, floor: 2}
---
apiVersion: refloat.github.io/v1
kind: RetryBudget
metadata: {name: whole-fleet}
spec: {ratio: 1, floor: 40, window: 90s, whenExhausted: Refuse, mode: Shadow}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := deploy(policies, "../../testdata/recordings/plain.jsonl.gz", func(context.Context, app.Dir) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	})
	_, body := ask(t, "GET", d.url+"/policies", "")
	_, budgets, ok := strings.Cut(text(body), heading)
	for _, want := range []string{"genomics genomics 0.25 2 10m delayed", "whole-fleet all queues together 1 40 1m30s refused (in shadow: only counted)"} {
		if !ok || !strings.Contains(budgets, want) {
			t.Errorf("the page of policies lacks %q:\n%s", want, text(body))
		}
	}
	if to := `href="/policy?kind=RetryBudget&amp;name=whole-fleet"`; !strings.Contains(body, to) {
		t.Errorf("it lacks %s", to)
	}
	if _, body := ask(t, "GET", d.url+"/policy?kind=RetryBudget&name=whole-fleet", ""); !strings.Contains(text(body), "whenExhausted: Refuse") ||
		!strings.Contains(text(body), "Use it held none of the newest ") {
		t.Errorf("the page of a budget lacks its text or use:\n%s", text(body))
	}
	if _, body := ask(t, "GET", running(t).url+"/policies", ""); strings.Contains(text(body), heading) {
		t.Error("policies without budgets have a list of them")
	}
}
