package web_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/issuer"
	"github.com/refloat/refloat/internal/web"
)

// views are all pages, those of a hostile job among them.
func views() []string {
	id := url.QueryEscape(planted(1, 1, 1).Jobs[0].JobID)
	group := url.Values{"queue": {"q" + hostile}, "set": {long}, "name": {"g" + hostile}}.Encode()
	return []string{
		"/", "/decisions", "/jobs", "/runs", "/runs?node=" + trendNode, "/groups", "/top", "/policies", "/policy?name=training", "/generation?number=1", "/generation?number=1&against=0",
		"/whatif?set=settings.globalMaxRetries%3D2",
		"/whatif?set=policies.training.rules%5Boom%5D.retryLimit%3D2", "/shadow", "/partitions", "/overrides", "/search?q=hostile-", "/search?q=e", "/search?q=hacked", "/search?q=e&kind=node", "/top?by=set&queue=genomics", "/queue?name=" + url.QueryEscape("q"+hostile),
		"/queue?since=24h&name=" + url.QueryEscape("q"+hostile),
		"/job?id=01m7xn681y99tqr9907k6hqh4d", "/explain?id=01m7xn681y99tqr9907k6hqh4d&run=5&why-not=Retry", "/job?id=" + id, "/explain?run=0&id=" + id, "/group?" + group,
		"/order?do=Retry&job=01m7xn681y99tqr9907k6hqh4d", "/order?do=GiveUp&job=" + id,
		"/nope",
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	d := running(t)
	for _, c := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", "/nope", 404, "There is no such page"},
		{"GET", "/static/nope", 404, "There is no such page"},
		{"GET", "/job?id=nope", 404, "not in the job database"},
		{"GET", "/job", 400, "id: missing"},
		{"GET", "/order?do=Retry", 400, "job: missing"},
		{"GET", "/order?do=Sing&job=x", 400, "want Retry, GiveUp or Start"},
		{"GET", "/job?id=01m7", 400, "beginning of several"},
		{"GET", "/explain?id=01m7xn681y99tqr9907k6hqh4d&run=999", 404, "There is no such run"},
		{"GET", "/explain?id=01m7xn681y99tqr9907k6hqh4d&run=32", 404, "Nothing was decided on this run"},
		{"GET", "/explain?id=01m7xn681y99tqr9907k6hqh4d&run=x", 400, "want the number of a run"},
		{"GET", "/explain?id=01m7xn681y99tqr9907k6hqh4d&run=0&why-not=Sing", 400, "use Retry, Fail"},
		{"GET", "/jobs?state=Asleep", 400, "use Unknown, Queued"},
		{"GET", "/jobs?waiting=no", 400, "want yes"},
		{"GET", "/decisions?code=Nope", 400, "use RuleRetry"},
		{"GET", "/decisions?since=yesterday", 400, "want a duration"},
		{"GET", "/decisions?sort=colour", 400, "use log or time"},
		{"GET", "/decisions?continue=zzz", 400, "not a continuation"},
		{"GET", "/top?by=colour", 400, "use queue, set, policy"},
		{"GET", "/policy?name=nope", 404, "does not exist"},
		{"GET", "/policy?kind=Nope&name=x", 400, "kind"},
		{"GET", "/generation?number=999", 404, "There is no such generation"},
		{"GET", "/generation?number=x", 400, "want the number of a generation"},
		{"GET", "/group?name=nope", 404, "no group is called"},
		{"GET", "/queue", 400, "name a queue"},
		{"GET", "/queue?name=genomics&since=yesterday", 400, "since"},
		{"GET", "/queue?name=genomics&since=2200-01-01", 200, "Failed for good: 0 jobs"},
		{"GET", "/shadow?since=x", 400, "want a duration"},
		{"GET", "/jobs?queue=%ff", 400, "UTF-8"},
		{"POST", "/jobs", 405, "is not allowed"},
		{"DELETE", "/", 405, "is not allowed"},
		{"PUT", "/overrides", 405, "is not allowed"},
	} {
		resp, body := ask(t, c.method, d.url+c.path, "")
		if resp.StatusCode != c.code || !strings.Contains(html.UnescapeString(body), c.want) || !strings.Contains(body, "<h1>") {
			t.Errorf("%s %s = %d, want %d with %q\n%s", c.method, c.path, resp.StatusCode, c.code, c.want, text(body))
		}
		if c.code == 405 && resp.Header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow header", c.method, c.path)
		}
	}
}

var tags = regexp.MustCompile(`(?s)^.*<main|<[^>]*>`)

// text is what a page says.
func text(body string) string {
	return strings.Join(strings.Fields(tags.ReplaceAllString(body, " ")), " ")
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	d := running(t)
	for _, path := range append(views(), "/static/style.css", "/static/htmx.min.js", "/static/times.js", "/schema.json") {
		for _, method := range []string{"GET", "HEAD"} {
			resp, body := ask(t, method, d.url+path, "")
			csp := resp.Header.Get("Content-Security-Policy")
			if !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s %s: headers %v", method, path, resp.Header)
			}
			if method == "HEAD" && body != "" {
				t.Errorf("HEAD %s has a body", path)
			}
			if strings.Contains(body, "<script>") || strings.Contains(body, "<img") || strings.Contains(body, "style=") || strings.Contains(body, " onerror=\"w") {
				t.Errorf("%s: a text of a user is not escaped, or a style is inline", path)
			}
			if path != "/nope" && resp.StatusCode != 200 {
				t.Errorf("%s %s = %d: %s", method, path, resp.StatusCode, text(body))
			}
		}
	}
	resp, _ := ask(t, "GET", d.url+"/static/style.css", "")
	if resp, _ = ask(t, "GET", d.url+"/static/style.css", "", "If-None-Match", resp.Header.Get("ETag")); resp.StatusCode != 304 {
		t.Errorf("an unchanged file is sent again: %d", resp.StatusCode)
	}
}

// TestSchema: editors get the schema that `refloatctl schema` prints, without signing in.
func TestSchema(t *testing.T) {
	t.Parallel()
	want, err := policyfile.JSONSchema("")
	if err != nil {
		t.Fatal(err)
	}
	resp, body := ask(t, "GET", running(t).url+"/schema.json", "")
	if body != string(want) || resp.Header.Get("Content-Type") != "application/schema+json" {
		t.Errorf("/schema.json is %s of %.200s", resp.Header.Get("Content-Type"), body)
	}
}

// The API keeps its paths beside the page.
func TestBesideTheAPI(t *testing.T) {
	t.Parallel()
	resp, body := ask(t, "GET", running(t).url+"/refloat/v1/status", "")
	if resp.StatusCode != 200 || !strings.HasPrefix(body, "{") {
		t.Errorf("the API answers %d %s", resp.StatusCode, body)
	}
}

// Lists go through pages to their end without repeating a row.
func TestPages(t *testing.T) {
	t.Parallel()
	d := running(t)
	next := regexp.MustCompile(`href="([^"]*)" rel="next"`)
	ids := regexp.MustCompile(`class="mono id" data-label="Job"><a href="([^"]*)"`)
	seen, pages := map[string]bool{}, 0
	for path := "/jobs?state=Failed"; path != ""; pages++ {
		resp, body := ask(t, "GET", d.url+path, "")
		if resp.StatusCode != 200 || pages > 20 {
			t.Fatalf("%s = %d", path, resp.StatusCode)
		}
		for _, m := range ids.FindAllStringSubmatch(body, -1) {
			if seen[m[1]] {
				t.Errorf("%s is listed twice", m[1])
			}
			seen[m[1]] = true
		}
		path = ""
		if m := next.FindStringSubmatch(body); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	if len(seen) != 79+40 || pages != 3 {
		t.Errorf("%d jobs on %d pages, want 119 on 3", len(seen), pages)
	}
}

// An update of what has not changed is not sent.
func TestUpdates(t *testing.T) {
	t.Parallel()
	d := running(t)
	_, body := ask(t, "GET", d.url+"/decisions?queue=genomics", "")
	m := regexp.MustCompile(`data-hx-get="([^"]*)" data-hx-trigger="every`).FindStringSubmatch(body)
	if m == nil {
		t.Fatal("the list does not update itself")
	}
	update := d.url + html.UnescapeString(m[1])
	if resp, body := ask(t, "GET", update, "", "HX-Request", "true"); resp.StatusCode != 204 || body != "" {
		t.Errorf("unchanged: %d with %d bytes", resp.StatusCode, len(body))
	}
	resp, body := ask(t, "GET", strings.Replace(update, "seen=", "seen=0", 1), "", "HX-Request", "true")
	if resp.StatusCode != 200 || !strings.HasPrefix(strings.TrimSpace(body), `<div id="live"`) {
		t.Errorf("changed: %d %.100s", resp.StatusCode, body)
	}
	if _, body = ask(t, "GET", d.url+"/decisions?live=off", ""); strings.Contains(body, `data-hx-trigger="every`) {
		t.Error("updates cannot be stopped")
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	d := running(t)
	if resp, _ := ask(t, "GET", d.url+"/search?q=01m7xn681y99tqr9907k6hqh", ""); resp.StatusCode != 303 || !strings.Contains(resp.Header.Get("Location"), "/job?id=01m7xn681y99tqr9907k6hqh4d") {
		t.Errorf("one match: %d %s", resp.StatusCode, resp.Header.Get("Location"))
	}
	if resp, body := ask(t, "GET", d.url+"/search?q=01m7", ""); resp.StatusCode != 200 || strings.Count(body, "<tr>") != 51 {
		t.Errorf("many matches: %d with %d rows", resp.StatusCode, strings.Count(body, "<tr>"))
	}
	if _, body := ask(t, "GET", d.url+"/search?q=nope", ""); !strings.Contains(body, "Nothing is called like") || strings.Contains(body, "exit code") {
		t.Error("no match is not said")
	}
	if _, body := ask(t, "GET", d.url+"/search?q=137137", ""); !strings.Contains(body, "No rule in force lists it as an exit code") {
		t.Error("of a number, it is not said where exit codes are found")
	}
}

// TestSearchKinds: what is called like a text is found whatever it is, and is where its link leads.
func TestSearchKinds(t *testing.T) {
	t.Parallel()
	d := running(t)
	for _, c := range []struct{ q, kind, to string }{
		{"armada-01m7xn681y99tqr9907k6hqh4d-0-1", "", "/job?id=01m7xn681y99tqr9907k6hqh4d"},
		{"GENOMIC", "queue", "/queue?name=genomics"},
		{"raining", "policy", "/policy?name=training"},
		{"oo", "rule", "/decisions?rule=oom"},
		{"134", "rule", "/decisions?rule=signalled"},
		{"INFRASTRUCT", "category", "/runs?category=infrastructure"},
	} {
		resp, _ := ask(t, "GET", d.url+"/search?"+url.Values{"q": {c.q}, "kind": {c.kind}}.Encode(), "")
		to := resp.Header.Get("Location")
		if resp.StatusCode != 303 || !strings.HasPrefix(to, c.to) {
			t.Errorf("%q: %d to %s, want %s", c.q, resp.StatusCode, to, c.to)
			continue
		}
		if resp, body := ask(t, "GET", d.url+to, ""); resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", to, resp.StatusCode, text(body))
		}
	}
	_, body := ask(t, "GET", d.url+"/search?q=e", "")
	for _, want := range []string{"queue", "job set", "node", "policy", "rule"} {
		if !strings.Contains(body, `data-label="Kind">`+want+"<") {
			t.Errorf("no %s is found in %s", want, text(body))
		}
	}
	if resp, body := ask(t, "GET", d.url+"/search?q=e&kind=colour", ""); resp.StatusCode != 400 || !strings.Contains(body, "use job, queue") {
		t.Errorf("an unknown kind: %d %s", resp.StatusCode, text(body))
	}
}

// TestFilters: filters offer names, also those that contain what was typed; and a wrong one stays as it was typed, with what is
// wrong beside it.
func TestFilters(t *testing.T) {
	t.Parallel()
	d := running(t)
	if _, body := ask(t, "GET", d.url+"/jobs", ""); !strings.Contains(body, `<input id="f-queue" name="queue" value="" autocomplete="off" spellcheck="false" list="n-queue"`) ||
		!regexp.MustCompile(`<datalist id="n-queue">[^/]*<option value="genomics">`).MatchString(body) {
		t.Errorf("the field for queues offers none: %.3000s", body)
	}
	if resp, body := ask(t, "GET", d.url+"/names?queue=NOMI", "", "HX-Request", "true"); resp.StatusCode != 200 || body != `<option value="genomics"></option>` {
		t.Errorf("queues with NOMI: %d %s", resp.StatusCode, body)
	}
	if resp, _ := ask(t, "GET", d.url+"/names?queue=NOMI", ""); resp.Header.Get("Location") != "/search?kind=queue&q=NOMI" {
		t.Errorf("as a page: %d %s", resp.StatusCode, resp.Header.Get("Location"))
	}
	for _, c := range []struct {
		path       string
		code       int
		field, why string
	}{
		{"/decisions?since=yesterday&queue=genomics", 400, `name="since" value="yesterday"`, "want a duration"},
		{"/decisions?until=1x&rule=oom", 400, `name="until" value="1x"`, "want a duration"},
		{"/decisions?code=Nope", 400, `<option selected>Nope</option>`, "use RuleRetry"},
		{"/jobs?state=Asleep", 400, `<option selected>Asleep</option>`, "use Unknown"},
		{"/jobs?waiting=no", 400, `<option selected>no</option>`, "want yes"},
		{"/runs?state=Asleep", 400, `<option selected>Asleep</option>`, "use Unknown"},
		{"/groups?state=Asleep", 400, `<option selected>Asleep</option>`, "use "},
		{"/top?since=x", 400, `name="since" value="x"`, "want a duration"},
		{"/?since=x", 400, `name="since" value="x"`, "want a duration"},
		{"/jobs?queue=genomic", 200, `name="queue" value="genomic"`, "did you mean genomics?"},
		{"/decisions?rule=ooom", 200, `name="rule" value="ooom"`, "did you mean oom?"},
		{"/top?queue=genomic", 200, `name="queue" value="genomic"`, "did you mean genomics?"},
	} {
		resp, body := ask(t, "GET", d.url+c.path, "")
		if beside := regexp.MustCompile(`aria-invalid="true" aria-describedby="(e-[a-z]*)"`).FindStringSubmatch(body); resp.StatusCode != c.code || !strings.Contains(body, c.field) ||
			beside == nil || !regexp.MustCompile(`id="`+beside[1]+`" role="alert">[^<]*`+regexp.QuoteMeta(c.why)).MatchString(body) {
			t.Errorf("%s = %d, want %d with %s and %q beside: %.2500s", c.path, resp.StatusCode, c.code, c.field, c.why, body)
		}
	}
}

// TestRepeats: decisions that say the same of a job are one row, and each can be shown; a list leads to its counts, and they
// back to it, with the same filters.
func TestRepeats(t *testing.T) {
	t.Parallel()
	d := running(t)
	const job = "01m7xn681y99tqr9907k6hqh4d"
	_, body := ask(t, "GET", d.url+"/decisions?job="+job, "")
	_, each := ask(t, "GET", d.url+"/decisions?repeats=each&job="+job, "")
	rows, all, folded := strings.Count(body, "<tr>")-1, strings.Count(each, "<tr>")-1, 0
	for _, m := range regexp.MustCompile(`>(\d+) × the same job<`).FindAllStringSubmatch(body, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil || n < 2 {
			t.Errorf("%s", m[0])
		}
		folded += n - 1
	}
	if rows+folded != all || folded == 0 || strings.Contains(each, "× the same job") {
		t.Errorf("%d rows and %d that are collapsed, want %d", rows, folded, all)
	}
	_, body = ask(t, "GET", d.url+"/decisions?queue=genomics&since=2020-01-01", "")
	if !strings.Contains(body, `<a href="/top?by=node&amp;queue=genomics&amp;since=2020-01-01">node</a>`) {
		t.Errorf("no way to the counts by node: %s", body)
	}
	_, body = ask(t, "GET", d.url+"/top?by=set&queue=genomics&since=2020-01-01", "")
	if !regexp.MustCompile(`href="/decisions\?queue=genomics&amp;set=[^&"]+&amp;since=2020-01-01"`).MatchString(body) || !strings.Contains(body, "Retries by job set") {
		t.Errorf("no way back: %s", body)
	}
}

// nextPage finds the address of the next page.
var nextPage = regexp.MustCompile(`<a href="([^"]*)" rel="next">`)

// pageOver returns a page over a job database that has so many jobs.
func pageOver(t *testing.T, jobs int) *small {
	t.Helper()
	dir := app.Dir(t.TempDir())
	if err := plant(t.Context(), dir, 0, jobs); err != nil {
		t.Fatal(err)
	}
	reader, err := app.ReadJobDB(t.Context(), dir.JobDBURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.Close() })
	return newSmall(t, func(c *web.Config) { c.Query.Jobs = reader.View })
}

// TestBreakerHolds: the list of overrides says of a breaker what it holds, and leads to what it held.
func TestBreakerHolds(t *testing.T) {
	t.Parallel()
	s := pageOver(t, 1)
	open := url.Values{"do": {"open"}, "all": {"yes"}, "category": {"gpu"}, "for": {"1h"}, "reason": {"r"}, "confirm": {"yes"}}
	if resp, body := ask(t, "POST", s.URL+"/overrides", open.Encode(), "Sec-Fetch-Site", "same-origin"); resp.StatusCode != 303 {
		t.Fatalf("%d %s", resp.StatusCode, text(body))
	}
	_, body := ask(t, "GET", s.URL+"/overrides", "")
	if !strings.Contains(text(body), "it is open: it holds 0 retries; 0 that it held have started and are not held again, 0 failed again") {
		t.Errorf("what the breaker holds is not said: %s", text(body))
	}
	const list = "/decisions?category=gpu&code=BreakerHeld"
	if resp, _ := ask(t, "GET", s.URL+list, ""); resp.StatusCode != 200 || !strings.Contains(html.UnescapeString(body), `href="`+list+`"`) {
		t.Errorf("what it held: %d, %s", resp.StatusCode, body)
	}
}

// TestSearchPages: the last page of a search is a page, also with one row.
func TestSearchPages(t *testing.T) {
	t.Parallel()
	const matches = 51
	s := pageOver(t, matches)
	rows, pages := 0, 0
	for at := "/search?q=hostile-"; at != ""; pages++ {
		resp, body := ask(t, "GET", s.URL+at, "")
		if resp.StatusCode != 200 || pages > matches {
			t.Fatalf("page %d of the matches: %d to %s", pages, resp.StatusCode, resp.Header.Get("Location"))
		}
		rows += strings.Count(body, "<tr>") - 1
		at = ""
		if m := nextPage.FindStringSubmatch(body); m != nil {
			at = html.UnescapeString(m[1])
		}
	}
	if rows != matches || pages != 2 {
		t.Errorf("%d matches on %d pages", rows, pages)
	}
}

// The questions of a newcomer are answered from the start page by following links.
func TestQuestions(t *testing.T) {
	t.Parallel()
	d := running(t)
	for _, c := range []struct {
		name  string
		steps []string   // patterns of links to follow
		form  url.Values // to post then
		want  string
	}{
		{"why did this job fail for good", []string{`href="(/jobs\?state=Failed[^"]*)"`, `href="(/job\?id=01m7[^"]*)"`}, nil, "It failed for good"},
		{"which queue retried most in the last hour", []string{`href="(/top\?since=1h)"`, `href="([^"]*)">show the last hour of the data`}, nil, "Retries by queue"},
		{"what if OOM were limited to 2", []string{`href="(/decisions\?[^"]*rule=oom)"`, `href="(/policy\?name=training)"`, `href="(/whatif\?set=policies.training.rules%5Boom%5D.retryLimit%3D2)"`}, url.Values{"set": {"policies.training.rules[oom].retryLimit=2"}}, "the policies in force with policies.training.rules[oom].retryLimit=2, against what was decided: "},
	} {
		_, body := ask(t, "GET", d.url+"/", "")
		for _, step := range c.steps {
			m := regexp.MustCompile(step).FindStringSubmatch(body)
			if m == nil {
				t.Fatalf("%s: no link like %s in %s", c.name, step, text(body))
			}
			_, body = ask(t, "GET", d.url+html.UnescapeString(m[1]), "")
		}
		if c.form != nil {
			_, body = ask(t, "POST", d.url+"/whatif", c.form.Encode())
		}
		if !strings.Contains(text(body), c.want) {
			t.Errorf("%s: the answer is %s", c.name, text(body))
		}
	}
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	s := newSmall(t)
	if _, body := ask(t, "GET", s.URL+"/overrides", ""); strings.Contains(body, " checked") {
		t.Error("the form has chosen for its user")
	}
	form := url.Values{"do": {"kill"}, "all": {"yes"}, "reason": {printable}}
	resp, body := ask(t, "POST", s.URL+"/overrides", form.Encode())
	if resp.StatusCode != 200 || !strings.Contains(body, "Kill retries of all queues") {
		t.Fatalf("no confirmation: %d %s", resp.StatusCode, text(body))
	}
	if _, body := ask(t, "GET", s.URL+"/", ""); strings.Contains(body, "In force now") {
		t.Fatal("in force without a confirmation")
	}
	form.Set("confirm", "yes")
	form.Set("request", regexp.MustCompile(`name="request" value="([^"]*)"`).FindStringSubmatch(body)[1])
	for range 2 { // submitting it twice is one change
		if resp, body = ask(t, "POST", s.URL+"/overrides", form.Encode(), "Sec-Fetch-Site", "same-origin"); resp.StatusCode != 303 || resp.Header.Get("Location") != "/overrides?done=1" {
			t.Fatalf("confirmed: %d %s %s", resp.StatusCode, resp.Header.Get("Location"), text(body))
		}
	}
	if _, body = ask(t, "GET", s.URL+"/", ""); !strings.Contains(body, "Retries of all queues are killed") {
		t.Errorf("not shown on other pages")
	}
	for name, bad := range map[string]url.Values{
		"Give a reason":         {"do": {"kill"}, "all": {"yes"}},
		"Name a queue or":       {"do": {"kill"}, "all": {"yes"}, "queue": {"q"}, "reason": {"r"}},
		"Name a queue, or":      {"do": {"kill"}, "reason": {"r"}},
		"want a duration":       {"do": {"pause"}, "all": {"yes"}, "reason": {"r"}, "for": {"-1h"}},
		"want kill, pause, res": {"do": {"sing"}, "all": {"yes"}, "reason": {"r"}},
		"Choose what to do":     {"all": {"yes"}, "reason": {"r"}},
		"category of the":       {"do": {"open"}, "all": {"yes"}, "reason": {"r"}},
		"leave the category":    {"do": {"resume"}, "all": {"yes"}, "category": {"gpu"}, "reason": {"r"}},
	} {
		if resp, body := ask(t, "POST", s.URL+"/overrides", bad.Encode()); resp.StatusCode < 400 || !strings.Contains(body, name) {
			t.Errorf("%v = %d %s", bad, resp.StatusCode, text(body))
		}
	}
	confirmed := func(v url.Values) {
		t.Helper()
		v.Set("confirm", "yes")
		v.Set("reason", "r")
		if resp, body := ask(t, "POST", s.URL+"/overrides", v.Encode(), "Sec-Fetch-Site", "same-origin"); resp.StatusCode != 303 {
			t.Fatalf("%v: %d %s", v, resp.StatusCode, text(body))
		}
	}
	// The link beside a breaker closes this one and nothing else, and each form says what it ends.
	for _, category := range []string{"gpu", "network"} {
		confirmed(url.Values{"do": {"open"}, "all": {"yes"}, "category": {category}, "for": {"1h"}})
	}
	_, body = ask(t, "GET", s.URL+"/overrides", "")
	end := regexp.MustCompile(`category gpu are held[^\n]*?<a href="([^"]*)">Close</a>`).FindStringSubmatch(body)
	if end == nil {
		t.Fatalf("no link closes a breaker: %s", text(body))
	}
	at, err := url.Parse(html.UnescapeString(end[1]))
	if err != nil {
		t.Fatal(err)
	}
	closing := at.Query()
	closing.Set("reason", "r")
	_, body = ask(t, "POST", s.URL+"/overrides", closing.Encode())
	if got := text(body); !strings.Contains(got, "No longer: retries of all queues after failures of category gpu are held") || strings.Contains(got, "No longer: retries of all queues are killed") || !strings.Contains(got, "Close the breaker of category gpu") {
		t.Errorf("the confirmation: %s", got)
	}
	confirmed(closing)
	_, body = ask(t, "GET", s.URL+"/overrides", "")
	if strings.Contains(body, "category gpu are held") || !strings.Contains(body, "category network are held") || !strings.Contains(body, "Retries of all queues are killed") {
		t.Errorf("after closing one breaker: %s", text(body))
	}
	confirmed(url.Values{"do": {"resume"}, "all": {"yes"}})
	_, body = ask(t, "GET", s.URL+"/overrides", "")
	if !strings.Contains(body, "category network are held") || strings.Contains(body, "are killed") {
		t.Errorf("after resuming: %s", text(body))
	}
	if _, body = ask(t, "GET", s.URL+"/generation?number=5", ""); !strings.Contains(body, "No longer: retries of all queues are killed") || strings.Contains(body, "No longer: retries of all queues after") {
		t.Errorf("what the generation ended: %s", text(body))
	}
	if !strings.Contains(body, `href="/whatif?policies=generation%3A5"`) {
		t.Errorf("generation 5 does not link to its what-if: %s", body)
	}
	_, newer := ask(t, "GET", s.URL+"/generation?number=5&against=1", "")
	_, older := ask(t, "GET", s.URL+"/generation?number=1&against=5", "")
	if got := text(newer); got != text(older) || !strings.Contains(got, "generation 5 against 1") || !strings.Contains(got, "Generations between them") || !strings.Contains(got, "No longer: retries of all queues are killed") || !strings.Contains(got, "No resource changed") {
		t.Errorf("two generations, the newer first: %s\nthe older first: %s", got, text(older))
	}
	for against, want := range map[string]string{"99": "there is no generation 99", "soon": "or a generation such as 7", "20000d": "the policies log begins later", "2200-01-01": "lies in the future"} {
		if resp, body := ask(t, "GET", s.URL+"/generation?number=5&against="+against, ""); resp.StatusCode != 400 || !strings.Contains(body, want) {
			t.Errorf("against %s: %d %s", against, resp.StatusCode, text(body))
		}
	}
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "http://elsewhere.example"}, {"Host", "elsewhere.example"}} {
		if resp, _ := ask(t, "POST", s.URL+"/overrides", form.Encode(), headers...); resp.StatusCode != 403 {
			t.Errorf("with %v: %d, want 403", headers, resp.StatusCode)
		}
	}
	if resp, _ := ask(t, "POST", s.URL+"/overrides", "", "Content-Type", "text/plain"); resp.StatusCode != 415 {
		t.Errorf("another type of body: %d", resp.StatusCode)
	}
	form.Set("reason", strings.Repeat("x", 2<<20))
	if resp, _ := ask(t, "POST", s.URL+"/overrides", form.Encode()); resp.StatusCode != 400 {
		t.Errorf("a large body: %d", resp.StatusCode)
	}
}

// Who may not change something over the API may not here.
func TestPermissions(t *testing.T) {
	t.Parallel()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	auth := &api.Auth{
		Basic:       map[string]api.BasicUser{"ann": {PasswordHash: string(hash), Groups: []string{"ops", "readers"}}, "bob": {PasswordHash: string(hash), Groups: []string{"readers"}}, "eve": {PasswordHash: string(hash)}},
		Permissions: map[api.Verb][]string{api.KillRetries: {"ops"}, api.GetJobs: {"readers"}},
	}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	s := newSmall(t, func(c *web.Config) { c.API.Auth = auth })
	as := func(name string) []string {
		r, _ := http.NewRequest("GET", "/", nil)
		r.SetBasicAuth(name, "secret")
		return []string{"Authorization", r.Header.Get("Authorization")}
	}
	resp, body := ask(t, "GET", s.URL+"/overrides", "")
	if resp.StatusCode != 401 || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Basic") || !strings.Contains(body, "Sign in") {
		t.Errorf("without a name: %d %v", resp.StatusCode, resp.Header)
	}
	if resp, body = ask(t, "GET", s.URL+"/overrides", "", as("bob")...); resp.StatusCode != 200 || strings.Contains(body, `<form class="override"`) {
		t.Errorf("bob is offered the form: %d", resp.StatusCode)
	}
	if resp, body = ask(t, "GET", s.URL+"/jobs", "", as("eve")...); resp.StatusCode != 403 || !strings.Contains(body, "get_jobs") {
		t.Errorf("eve reads jobs: %d %s", resp.StatusCode, text(body))
	}
	kill := url.Values{"do": {"kill"}, "all": {"yes"}, "reason": {"r"}, "confirm": {"yes"}}
	if resp, body = ask(t, "POST", s.URL+"/overrides", kill.Encode(), as("bob")...); resp.StatusCode != 403 || !strings.Contains(body, "lacks the permission") {
		t.Errorf("bob kills: %d %s", resp.StatusCode, text(body))
	}
	pause := url.Values{"do": {"pause"}, "all": {"yes"}, "reason": {"r"}}
	if resp, _ = ask(t, "POST", s.URL+"/overrides", pause.Encode(), as("ann")...); resp.StatusCode != 403 {
		t.Errorf("ann pauses: %d", resp.StatusCode)
	}
	if resp, body = ask(t, "POST", s.URL+"/overrides", kill.Encode(), as("ann")...); resp.StatusCode != 303 {
		t.Errorf("ann kills: %d %s", resp.StatusCode, text(body))
	}
	if _, body = ask(t, "GET", s.URL+"/policies", "", as("ann")...); !strings.Contains(body, ">ann<") {
		t.Error("the author is not shown")
	}
}

// A browser asks for a user and a password: the name of a token and the token will do.
func TestTokenInBrowser(t *testing.T) {
	t.Parallel()
	hash := sha256.Sum256([]byte("long and secret"))
	auth := &api.Auth{
		Tokens:      map[string]api.Token{"board": {SHA256: hex.EncodeToString(hash[:]), Groups: []string{"readers"}}, "other": {SHA256: strings.Repeat("00", sha256.Size), Groups: []string{"readers"}}},
		Permissions: map[api.Verb][]string{api.GetJobs: {"readers"}},
	}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	s := newSmall(t, func(c *web.Config) { c.API.Auth = auth })
	for _, c := range []struct {
		name, password string
		want           int
	}{{"board", "long and secret", 200}, {"board", "wrong", 401}, {"other", "long and secret", 401}, {"", "long and secret", 401}, {"board", "", 401}} {
		r, _ := http.NewRequest("GET", "/", nil)
		r.SetBasicAuth(c.name, c.password)
		if resp, body := ask(t, "GET", s.URL+"/", "", "Authorization", r.Header.Get("Authorization")); resp.StatusCode != c.want {
			t.Errorf("%s with %q: %d, want %d: %s", c.name, c.password, resp.StatusCode, c.want, text(body))
		}
	}
}

// Without a job database, and while too many ask at once, the page says so.
func TestLimits(t *testing.T) {
	t.Parallel()
	none := newSmall(t)
	for _, path := range []string{"/jobs", "/job?id=x", "/top", "/shadow", "/queue?name=x", "/search?q=x", "/group?name=x"} {
		if resp, body := ask(t, "GET", none.URL+path, ""); resp.StatusCode != 501 || !strings.Contains(body, "no job database") {
			t.Errorf("%s = %d", path, resp.StatusCode)
		}
	}
	if resp, body := ask(t, "GET", none.URL+"/", ""); resp.StatusCode != 200 || !strings.Contains(body, "no job database") {
		t.Errorf("start = %d", resp.StatusCode)
	}
	synctest.Test(t, func(t *testing.T) { // no request is slow but those that wait
		release := make(chan struct{})
		c := web.Config{API: &api.Service{Now: time.Now}, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
		c.Query.Jobs = func(context.Context, func(jobdb.Queries) error) error {
			<-release
			return jobdb.ErrUnavailable
		}
		site, err := web.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		get := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			site.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/jobs", nil))
			return w
		}
		const atOnce = 8
		codes := make(chan int, atOnce)
		for range atOnce {
			go func() { codes <- get().Code }()
		}
		synctest.Wait()
		if w := get(); w.Code != 503 || !strings.Contains(w.Body.String(), "Too many requests") {
			t.Errorf("one more = %d", w.Code)
		}
		close(release)
		for range atOnce {
			if code := <-codes; code != 503 {
				t.Errorf("an unavailable job database: %d, want 503", code)
			}
		}
	})
}

// A query that takes too long ends, which is no error of the server's.
func TestTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		c := web.Config{API: &api.Service{Now: time.Now}, Now: time.Now, Log: slog.New(slog.NewTextHandler(&logged, nil))}
		c.Query.Jobs = func(ctx context.Context, _ func(jobdb.Queries) error) error {
			<-ctx.Done()
			return ctx.Err()
		}
		site, err := web.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		site.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/jobs", nil))
		if w.Code != http.StatusGatewayTimeout || !strings.Contains(w.Body.String(), "Ask for less") || logged.Len() > 0 {
			t.Errorf("%d %s\nlogged: %s", w.Code, text(w.Body.String()), &logged)
		}
	})
}

// A query ends when its client goes, on whatever page.
func TestGone(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"/jobs", "/decisions", "/runs", "/groups", "/search?q=x", "/job?id=x", "/explain?id=x&run=0", "/group?name=g", "/queue?name=q", "/top", "/shadow", "/partitions", "POST /whatif",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			entered, ended := make(chan struct{}), make(chan struct{})
			stuck := func(ctx context.Context) error {
				close(entered)
				<-ctx.Done()
				close(ended)
				return ctx.Err()
			}
			s := newSmall(t, func(c *web.Config) {
				c.Query.Jobs = func(ctx context.Context, _ func(jobdb.Queries) error) error { return stuck(ctx) }
				c.Query.Logs = func(ctx context.Context, _ func(audit.Logs) error) error { return stuck(ctx) }
			})
			ctx, cancel := context.WithCancel(t.Context())
			method, form := "GET", ""
			if at, ok := strings.CutPrefix(path, "POST "); ok {
				method, path, form = "POST", at, url.Values{"policies": {"{kind: Queue, name: q, killed: true}"}}.Encode()
			}
			r, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(form))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				if resp, err := http.DefaultClient.Do(r); err == nil {
					_ = resp.Body.Close()
				}
			}()
			<-entered
			cancel()
			<-ended
			<-gone
		})
	}
}

// TestGroupShape: the page of a group says what its shape declares.
func TestGroupShape(t *testing.T) {
	t.Parallel()
	d := running(t)
	_, body := ask(t, "GET", d.url+"/group?"+url.Values{"queue": {"q" + hostile}, "set": {long}, "name": {"g" + hostile}}.Encode(), "")
	for _, want := range []string{"one unit of any part has succeeded", " is ready</p>", "a unit succeeds with 2 of the indexes 0,3-7"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// Who opens a page goes to the identity provider, back to that page, and out again with its button.
func TestSignInOnPage(t *testing.T) {
	t.Parallel()
	provider := issuer.New(t, time.Now)
	auth := &api.Auth{
		OIDC:        &api.OIDC{Issuer: provider.URL, Audience: "refloat", Login: &api.Login{}},
		Permissions: map[api.Verb][]string{api.GetJobs: {"ops"}},
	}
	s := newSmall(t, func(c *web.Config) { c.API.Auth = auth })
	auth.OIDC.Login.PageURL = s.URL
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &http.Client{Jar: jar}
	open := func(method, path string) (*http.Response, string) {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
		resp, err := b.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	resp, body := open("GET", "/whatif?set=settings.globalMaxRetries%3D2")
	if resp.StatusCode != 200 || resp.Request.URL.String() != s.URL+"/whatif?set=settings.globalMaxRetries%3D2" || !strings.Contains(body, "u-1") {
		t.Fatalf("%s: %d %s", resp.Request.URL, resp.StatusCode, text(body))
	}
	button := regexp.MustCompile(`<form action="([^"]*)" method="post"><button>Sign out</button></form>`).FindStringSubmatch(body)
	if button == nil {
		t.Fatal("the page has no button to sign out")
	}
	if resp, body = open("POST", button[1]); resp.StatusCode != 200 || !strings.Contains(body, "Signed out") {
		t.Errorf("signing out: %d %s", resp.StatusCode, text(body))
	}
	provider.Lock()
	provider.Refuses = "access_denied"
	provider.Unlock()
	if resp, body = open("GET", "/policies"); resp.StatusCode != 403 || strings.Contains(body, "u-1") {
		t.Errorf("after signing out: %s: %d %s", resp.Request.URL, resp.StatusCode, text(body))
	}
}

// TestPassed: beside a time stands how long ago it was, or how soon it comes.
func TestPassed(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)
	s := newSmall(t, func(c *web.Config) { c.Now = func() time.Time { return now } })
	for at, want := range map[time.Duration]string{
		0: "0 s ago", 59 * time.Second: "59 s ago", 60 * time.Second: "1 min ago", 3599 * time.Second: "59 min ago", time.Hour: "1 h ago", 47*time.Hour + 59*time.Minute: "47 h ago", 48 * time.Hour: "2 days ago",
		900 * 24 * time.Hour: "900 days ago", -500 * time.Millisecond: "0 s ago", -time.Second: "in 1 s", -90 * time.Minute: "in 1 h",
	} {
		if got := s.site.Passed(now.Add(-at).Format(time.RFC3339Nano)); got != want {
			t.Errorf("%v ago: %q, want %q", at, got, want)
		}
	}
	if got := s.site.Passed("nonsense"); got != "" {
		t.Errorf("no time: %q", got)
	}
	if _, err := s.service.Apply(t.Context(), &pb.ApplyRequest{Documents: []*structpb.Struct{{Fields: map[string]*structpb.Value{"kind": structpb.NewStringValue("Queue"), "name": structpb.NewStringValue("q"), "mode": structpb.NewStringValue("Shadow")}}}}); err != nil {
		t.Fatal(err)
	}
	if _, body := ask(t, "GET", s.URL+"/policies", ""); !regexp.MustCompile(`<time datetime="([^"]*)" title="[^"]* UTC"><span class="day">[^<]*</span> [^<]*</time> <small class="beside" data-at="[^"]*" data-passed="-?\d+">`).MatchString(body) {
		t.Errorf("no time in %s", body)
	}
}
