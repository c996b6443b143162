package web_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestCostOnPages: resource-hours are shown where they are kept: of one key in a time, and not where several criteria meet.
func TestCostOnPages(t *testing.T) {
	t.Parallel()
	d := running(t)
	hours := regexp.MustCompile(`GPU [<0-9.]+ h, core [<0-9.]+ h, GiB [<0-9.]+ h`)
	for path, want := range map[string]string{
		"/top":                                  "Resource-hours by queue",
		"/top?by=node&since=2020-01-01":         "Resource-hours by node",
		"/top?by=category":                      "Resource-hours by category",
		"/top?by=rule":                          "Resource-hours by rule",
		"/top?queue=genomics":                   "Resource-hours by queue",
		"/queue?name=genomics":                  "Resource-hours by queue",
		"/queue?name=genomics&since=2020-01-01": "Resource-hours by queue",
		"/policy?name=training":                 "Resource-hours by policy",
		"/top?by=set":                           "",
		"/top?by=node&queue=genomics":           "",
		"/top?by=queue&node=x":                  "",
		"/top?by=queue&since=2200-01-01":        "",
		"/queue?name=genomics&since=2200-01-01": "",
	} {
		_, body := ask(t, http.MethodGet, d.url+path, "")
		_, cost, found := strings.Cut(body, "<h2>Resource-hours by ")
		if found != (want != "") || found && !strings.Contains(body, "<h2>"+want+"</h2>") || found && !hours.MatchString(cost) {
			t.Errorf("%s: want %q and hours: %s", path, want, text(body))
		}
	}
	_, body := ask(t, http.MethodGet, d.url+"/policy?name=training", "")
	if _, cost, _ := strings.Cut(body, "Resource-hours by policy"); !strings.Contains(cost, ">training</a>") || !strings.Contains(cost, ">training/oom</a>") || strings.Contains(cost, ">infra/") {
		t.Errorf("the policy's rules: %s", text(body))
	}
}
