package web_test

import (
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/web"
)

func TestParseLink(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                       "",
		"https://lookout.example.com/?job={job}": "",
		"http://logs.example.com:3000/a/{namespace}?q={pod}&from={from}": "",
		"https://logs.example.com#{job}":                                 "",
		"javascript:alert({job})":                                        "want an http or https address",
		"ftp://x/{job}":                                                  "want an http or https address",
		"//x/{job}":                                                      "want an http or https address",
		"/{job}":                                                         "want an http or https address",
		"{job}":                                                          "want an http or https address",
		"https:///{job}":                                                 "want an http or https address",
		"https://{job}.example.com/":                                     "no place for a placeholder",
		"https://example.com:{job}/":                                     "",
		"https://u:p@example.com/{job}":                                  "no place for a placeholder",
		"https://example.com/":                                           "use a placeholder such as {job}",
		"https://example.com/{jbo}":                                      "use job, run, pod",
		"https://example.com/{job}/{":                                    "a brace is open",
	} {
		_, err := web.ParseLink(text)
		if text == "https://example.com:{job}/" { // whatever is wrong with it
			if err == nil {
				t.Errorf("%s is taken", text)
			}
			continue
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestElsewhere: a job's page leads to Lookout, to logs and to commands; no name of a user becomes a part of an address or
// another word of a command.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	dir := app.Dir(t.TempDir())
	if err := plant(t.Context(), dir, 1, 2); err != nil {
		t.Fatal(err)
	}
	reader, err := app.ReadJobDB(t.Context(), dir.JobDBURL())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	parsed := func(text string) web.Link {
		l, err := web.ParseLink(text)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	s := newSmall(t, func(c *web.Config) {
		c.Query.Jobs = reader.View
		c.Lookout, c.Logs = parsed("https://lookout.example.com/?job={job}&q={queue}"), parsed("https://logs.example.com/{pod}?node={node}&from={from}&to={to}")
	})
	job := planted(1, 1, 1).Jobs[0]
	_, body := ask(t, "GET", s.URL+"/job?"+url.Values{"id": {job.JobID}}.Encode(), "")
	links := map[string]*url.URL{}
	for _, m := range regexp.MustCompile(`<li><a href="(https:[^"]*)" rel="noreferrer">([A-Za-z]*)</a>`).FindAllStringSubmatch(body, -1) {
		at, err := url.Parse(html.UnescapeString(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		links[m[2]] = at
	}
	if at := links["Lookout"]; at == nil || at.Host != "lookout.example.com" || at.Query().Get("job") != job.JobID || at.Query().Get("q") != job.Queue || len(at.Query()) != 2 {
		t.Errorf("to Lookout: %v", at)
	}
	if at := links["Logs"]; at == nil || at.Host != "logs.example.com" || at.Path != "/armada-"+job.JobID+"-0" || at.Query().Get("from") != "2026-11-21T11:01:00Z" || at.Query().Get("node") != hostile {
		t.Errorf("to logs: %v", at)
	}
	if strings.Contains(body, "<code>") { // its names hold what a terminal would act on
		t.Errorf("a command: %s", body)
	}
	d := running(t)
	_, body = ask(t, "GET", d.url+"/job?id=01m7xn681y99tqr9907k6hqh4d", "")
	for _, want := range []string{"armadactl get job-report 01m7xn681y99tqr9907k6hqh4d", "armadactl watch vision-train vit-large-a</code>", "kubectl logs --namespace=", " armada-01m7xn681y99tqr9907k6hqh4d-0</code>", "kubectl describe node "} {
		if !strings.Contains(body, want) {
			t.Errorf("no command %q: %s", want, text(body))
		}
	}
	if strings.Contains(body, ">Lookout<") || strings.Contains(body, ">Logs<") {
		t.Error("a link without a template")
	}
	node := regexp.MustCompile(`/runs\?node=([a-z0-9-]+)"`).FindStringSubmatch(body)
	if node == nil {
		t.Fatalf("no node: %s", body)
	}
	if _, body = ask(t, "GET", d.url+"/runs?node="+node[1], ""); !strings.Contains(body, "<code>kubectl describe node "+node[1]+"</code>") {
		t.Errorf("no command for the node: %s", text(body))
	}
}
