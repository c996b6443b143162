package web_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// trendNode is a node on which runs of the recording failed.
const trendNode = "cluster-a-node-05"

// TestTrends: start, queue, policy, generation and node have a chart with its numbers, and the numbers are those of the page.
func TestTrends(t *testing.T) {
	t.Parallel()
	d := running(t)
	for _, path := range []string{"/", "/queue?name=genomics", "/policy?name=training", "/generation?number=1", "/generation?number=1&against=0", "/runs?node=" + trendNode} {
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
	if !strings.Contains(body, "Decisions before and after") || !strings.Contains(text(body), "There is no decision in the 24 hours before generation 1 came, or after it;") {
		t.Errorf("no comparison around a generation: %s", text(body))
	}
	_, body = ask(t, http.MethodGet, d.url+"/generation?number=1&against=0", "")
	for _, want := range []string{"Policies, generation 1 against 0", "What changed", "added policy training", "RetryPolicy training created", "rule training/oom", "queue genomics"} {
		if !strings.Contains(text(body), want) {
			t.Errorf("generation 1 against none has no %q: %s", want, text(body))
		}
	}
	counted := map[string]int{}
	rows := 0
	for at := "/runs?node=" + trendNode; at != ""; {
		_, body := ask(t, http.MethodGet, d.url+at, "")
		for _, m := range regexp.MustCompile(`data-label="Decision"><a href="/explain[^"]*"><span class="badge [a-z]+">([^<]*)<`).FindAllStringSubmatch(body, -1) {
			counted[m[1]]++
			rows++
		}
		more := nextPage.FindStringSubmatch(body)
		if at = ""; more != nil {
			at = html.UnescapeString(more[1])
		}
	}
	_, body = ask(t, http.MethodGet, d.url+"/runs?node="+trendNode, "")
	if want := fmt.Sprintf("UTC: %d retried, %d failed for good", counted["retried"], counted["failed for good"]); rows == 0 || rows != counted["retried"]+counted["failed for good"] || !strings.Contains(body, want) {
		t.Errorf("the runs of the node have %v, and the chart no %q: %.900s", counted, want, text(body))
	}
	for _, path := range []string{"/runs", "/runs?state=Failed&node=" + trendNode, "/runs?node=nope"} {
		if _, body := ask(t, http.MethodGet, d.url+path, ""); strings.Contains(body, `<figure class="trend">`) {
			t.Errorf("%s has a chart, of other runs than it lists", path)
		}
	}
	_, body = ask(t, http.MethodGet, d.url+"/top", "")
	if !regexp.MustCompile(`<svg class="spark"[^>]* aria-label="\d+ retried, `).MatchString(body) {
		t.Errorf("no sparkline: %s", text(body))
	}
}
