package web_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/web"
)

// asked is a request, without the parameter that a test adds.
type asked struct {
	method, path string
	pattern      string     // of the path, with the names of what is in it
	with         url.Values // what the route requires
	names        []string   // of its parameters, in the address or in the form
	form         bool
}

// everything lists all routes of the page and of the API with the parameters that they declare.
func everything(t *testing.T) (all []asked) {
	t.Helper()
	const job = "01m7xn681y99tqr9907k6hqh4d"
	required := map[string]url.Values{
		"/search": {"q": {"01m7"}}, "/job": {"id": {job}}, "/explain": {"id": {job}, "run": {"0"}}, "/queue": {"name": {"genomics"}},
		"/group": {"name": {"g" + hostile}}, "/policy": {"name": {"training"}}, "/generation": {"number": {"1"}},
		"/overrides": {"do": {"kill"}, "queue": {"genomics"}, "reason": {"r"}},
		"/order":     {"do": {"Retry"}, "job": {job}, "reason": {"r"}},
	}
	for path, takes := range pageRoutes(t) {
		all = append(all, asked{method: "GET", path: path, pattern: path, with: required[path], names: takes[0]})
		if takes[1] != nil {
			all = append(all, asked{method: "POST", path: path, pattern: path, with: required[path], names: takes[1], form: true})
		}
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	if err := json.Unmarshal([]byte(api.OpenAPI()), &doc); err != nil {
		t.Fatal(err)
	}
	inPath := strings.NewReplacer("{job_id}", job, "{group}", "g", "{queue}", "genomics", "{kind}", "RetryPolicy", "{name}", "training", "{outcome}", "Retry")
	for path, methods := range doc.Paths {
		for method, operation := range methods {
			a := asked{method: strings.ToUpper(method), path: inPath.Replace(path), pattern: path, names: []string{}}
			for _, p := range operation.Parameters {
				if p.In == "query" {
					a.names = append(a.names, p.Name)
				}
			}
			if !strings.HasSuffix(path, "watch/decisions") { // it has no end
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, func(a, b asked) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return all
}

func pageRoutes(t *testing.T) map[string][2][]string {
	t.Helper()
	h, err := web.Open(web.Config{API: &api.Service{}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return web.Routes(h)
}

// send sends a request with one more parameter.
func (a *asked) send(t *testing.T, to, name string, values ...string) (int, string) {
	t.Helper()
	all := maps.Clone(a.with)
	if all == nil {
		all = url.Values{}
	}
	all[name] = values
	address, form := to+a.path, ""
	switch {
	case a.form:
		form = all.Encode()
	default:
		address += "?" + all.Encode()
		if a.method == "POST" || a.method == "PUT" {
			form = "{}"
		}
	}
	resp, body := ask(t, a.method, address, form)
	return resp.StatusCode, body
}

// TestParameters: whatever is in a parameter, each route of the page and of the API answers, or says what is wrong with it;
// it ignores none.
func TestParameters(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of requests, one after the other")
	}
	t.Parallel()
	d := running(t)
	values := []string{"", "-1", "99999999999999999999", "1e9", "\x00", "\u202e\U0001f680%/{}\"", "2262-04-12T00:00:00Z", strings.Repeat("x", 60_000)}
	tokens := forged(t, d)
	n := 0
	for _, a := range everything(t) {
		code, body := a.send(t, d.url, "nope", "1")
		if n++; code < 400 || code > 499 || a.method == "GET" && code != http.StatusBadRequest && code != http.StatusNotFound {
			t.Errorf("%s %s with a parameter that it does not know: %d: %.200s", a.method, a.path, code, text(body))
		}
		for _, name := range a.names {
			try := slices.Clone(values)
			if name == "continue" || name == "pageToken" {
				try = append(try, tokens[strings.TrimPrefix(a.path, "/refloat/v1")]...)
			}
			for _, v := range try {
				if code, body := a.send(t, d.url, name, v); code > 499 {
					t.Errorf("%s %s with %s=%.60q: %d: %.200s", a.method, a.path, name, v, code, text(body))
				}
				n++
			}
			code, body := a.send(t, d.url, name, "1", "2")
			if n++; code > 499 || code < 300 && name != "state" && name != "code" {
				t.Errorf("%s %s with two values of %s: %d: %.200s", a.method, a.path, name, code, text(body))
			}
		}
		if code, body := a.send(t, d.url, "\xff", "\xff"); code < 400 || code > 499 {
			t.Errorf("%s %s with a parameter that is not UTF-8: %d: %.200s", a.method, a.path, code, text(body))
		}
	}
	t.Logf("%d requests", n)
}

// forged makes continuations that no list gave out, by the path of the list: of genuine ones, with other places.
func forged(t *testing.T, d *deployment) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, path := range []string{"/jobs", "/runs", "/decisions", "/groups"} {
		var token string
		_, body := ask(t, "GET", d.url+path, "")
		if m := regexp.MustCompile(`href="([^"]*)" rel="next"`).FindStringSubmatch(body); m != nil {
			next, err := url.Parse(html.UnescapeString(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			token = next.Query().Get("continue")
		}
		_, body = ask(t, "GET", d.url+"/refloat/v1"+path+"?page_size=1", "")
		var page struct{ NextPageToken string }
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatal(err)
		}
		if token == "" && page.NextPageToken == "" && path != "/groups" { // there is one group
			t.Fatalf("%s has one page only", path)
		}
		for _, genuine := range []string{token, page.NextPageToken} {
			raw, err := base64.RawURLEncoding.DecodeString(genuine)
			if err != nil {
				t.Fatal(err)
			}
			var fields map[string]any
			if genuine == "" || json.Unmarshal(raw, &fields) != nil {
				continue
			}
			for _, place := range []any{nil, []any{}, []any{1}, []any{"x"}, []any{1, 2, 3, 4, 5}, []any{"a", "b"}, []any{"a", 1, "b", 2}, []any{nil}, []any{1.5, "x", 2}, []any{map[string]any{}}, []any{"x", uint64(1) << 63}, "x", 7} {
				fields["a"] = place
				text, err := json.Marshal(fields)
				if err != nil {
					t.Fatal(err)
				}
				all[path] = append(all[path], base64.RawURLEncoding.EncodeToString(text))
			}
		}
	}
	return all
}

// TestLinks: each page takes the parameters of every link and form that leads to it.
func TestLinks(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of requests, one after the other")
	}
	t.Parallel()
	d := running(t)
	links := regexp.MustCompile(`(?:href|data-hx-get)="(/[^"]*)"`)
	seen := map[string]bool{}
	shape := func(address string) string { // links with the same parameters are alike
		at, err := url.Parse(address)
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		return fmt.Sprint(at.Path, slices.Sorted(maps.Keys(at.Query())))
	}
	todo := views()
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		resp, body := ask(t, "GET", d.url+at, "")
		if resp.StatusCode == http.StatusBadRequest || resp.StatusCode > 499 {
			t.Errorf("%s = %d: %.300s", at, resp.StatusCode, text(body))
		}
		if to := resp.Header.Get("Location"); to != "" && !seen[shape(to)] {
			seen[shape(to)] = true
			todo = append(todo, to)
		}
		for _, m := range links.FindAllStringSubmatch(body, -1) {
			if to, _, _ := strings.Cut(html.UnescapeString(m[1]), "#"); !strings.HasPrefix(to, "/static/") && !seen[shape(to)] {
				seen[shape(to)] = true
				todo = append(todo, to)
			}
		}
	}
	t.Logf("%d kinds of links", len(seen))
	if len(seen) < 60 {
		t.Errorf("%d kinds of links: hardly any", len(seen))
	}
}

// TestFiltersOfAPI: a list has on the page the filters that it has in the API.
func TestFiltersOfAPI(t *testing.T) {
	t.Parallel()
	routes := pageRoutes(t)
	for path, request := range map[string]proto.Message{
		"/jobs": &pb.ListJobsRequest{}, "/runs": &pb.ListRunsRequest{}, "/decisions": &pb.ListDecisionsRequest{}, "/groups": &pb.ListGroupsRequest{},
	} {
		got := slices.DeleteFunc(slices.Clone(routes[path][0]), func(name string) bool {
			return slices.Contains([]string{"sort", "continue", "live", "repeats", "seen"}, name)
		})
		var want []string
		fields := request.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if name := string(fields.Get(i).Name()); !slices.Contains([]string{"sort", "page_size", "page_token", "job_prefix"}, name) {
				want = append(want, strings.TrimPrefix(strings.TrimSuffix(name, "_id"), "job_"))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, the API has %v", path, got, want)
		}
	}
}
