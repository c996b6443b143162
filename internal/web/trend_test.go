package web_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestTrends: start, queue, policy and generation have a chart with its numbers, and the numbers are those of the page.
func TestTrends(t *testing.T) {
	t.Parallel()
	d := running(t)
	for _, path := range []string{"/", "/queue?name=genomics", "/policy?name=training", "/generation?number=1"} {
		resp, body := ask(t, http.MethodGet, d.url+path, "")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d", path, resp.StatusCode)
		}
		_, chart, ok := strings.Cut(body, `<figure class="trend">`)
		chart, _, ended := strings.Cut(chart, "</figure>")
		if !ok || !ended {
			t.Errorf("%s has no chart: %s", path, text(body))
			continue
		}
		for _, want := range []string{`role="img" aria-labelledby="trend-title trend-desc"`, `<title id="trend-title">Decisions of each `, `<desc id="trend-desc">From 20`, "<summary>The numbers</summary>"} {
			if !strings.Contains(chart, want) {
				t.Errorf("%s: the chart has no %q: %.900s", path, want, chart)
			}
		}
		if strings.Contains(chart, "style=") || strings.Contains(chart, "NaN") {
			t.Errorf("%s: %.900s", path, chart)
		}
	}
	_, body := ask(t, http.MethodGet, d.url+"/generation?number=1", "")
	if !strings.Contains(body, "Decisions in the 24 hours before and after") || !strings.Contains(body, "retried, of those with an effect") {
		t.Errorf("no comparison around a generation: %s", text(body))
	}
	_, body = ask(t, http.MethodGet, d.url+"/top", "")
	if !regexp.MustCompile(`<svg class="spark"[^>]* aria-label="\d+ retried, `).MatchString(body) {
		t.Errorf("no sparkline: %s", text(body))
	}
}
