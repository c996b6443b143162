package web_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/web"
)

// TestOtherSites: a page of another site can open a window on a view, as a link does; it cannot make the browser ask for one
// in any other way, nor run a what-if.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	s := newSmall(t, func(c *web.Config) {
		c.Query.Logs = func(context.Context, func(audit.Logs) error) error {
			t.Error("the logs were opened")
			return nil
		}
	})
	for _, c := range []struct {
		name    string
		headers []string
		want    int
	}{
		{"no browser", nil, 200},
		{"a link on a page of ours", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"what updates itself", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, 200},
		{"a bookmark", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"a link elsewhere", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"an image elsewhere", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, 403},
		{"a script elsewhere", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, 403},
		{"another port of this machine", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}, 403},
		{"a frame elsewhere", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{"a page made before anybody opens it", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Sec-Purpose", "prefetch;prerender"}, 403},
	} {
		for _, path := range []string{"/whatif?set=settings.globalMaxRetries%3D1", "/overrides", "/policies"} {
			if resp, body := ask(t, "GET", s.URL+path, "", c.headers...); resp.StatusCode != c.want {
				t.Errorf("%s, %s: %d, want %d: %s", c.name, path, resp.StatusCode, c.want, text(body))
			}
		}
	}
	form := url.Values{"set": {"settings.globalMaxRetries=1"}}
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://elsewhere.example"}} {
		if resp, _ := ask(t, "POST", s.URL+"/whatif", form.Encode(), headers...); resp.StatusCode != 403 {
			t.Errorf("a what-if with %v: %d, want 403", headers, resp.StatusCode)
		}
	}
}

// TestWhatIfForm: an address fills the form, and what is posted is answered, or refused with the form as it was.
func TestWhatIfForm(t *testing.T) {
	t.Parallel()
	d := running(t)
	const set = "policies.training.rules[oom].retryLimit=2"
	const otherPolicies = "apiVersion: armadaproject.io/v1\nkind: RetryPolicy\nmetadata: {name: any}\nspec: {defaultAction: Retry, retryLimit: 1}\n---\nkind: RetrySettings\nspec: {defaultPolicyName: any}\n"
	if resp, body := ask(t, "GET", d.url+"/whatif?"+url.Values{"set": {set}, "queue": {"genomics"}}.Encode(), ""); resp.StatusCode != 200 ||
		!strings.Contains(body, set+"</textarea>") || !strings.Contains(body, `value="genomics"`) || strings.Contains(body, `id="answer"`) || !strings.Contains(body, "Run what-if") {
		t.Errorf("an address with fields: %d %s", resp.StatusCode, text(body))
	}
	for _, c := range []struct {
		form url.Values
		code int
		want string
	}{
		{url.Values{"set": {set}}, 200, "would be decided differently"},
		{url.Values{"set": {set}}, 200, `<th scope="col" class="num">what happened</th>`},
		{url.Values{"set": {set}, "against": {"now"}}, 200, `<th scope="col" class="num">the policies in force</th>`},
		{url.Values{"set": {set}, "against": {"kind: RetrySettings\nspec: {globalMaxRetries: 7}\n"}}, 200, `<th scope="col" class="num">the second candidate</th>`},
		{url.Values{"policies": {otherPolicies}, "against": {"kind: RetrySettings\nspec: {globalMaxRetries: 7}\n"}}, 200, `<th scope="col">the second candidate</th><th scope="col">the candidate</th>`},
		{url.Values{"policies": {otherPolicies}, "against": {"kind: RetrySettings\nspec: {globalMaxRetries: 7}\n"}}, 200, "With these policies, against the second candidate</h2>"},
		{url.Values{"policies": {" generation:1\n"}}, 200, "With generation 1</h2>"},
		{url.Values{"policies": {otherPolicies}, "against": {"generation:0"}}, 200, "With these policies, against generation 0</h2>"},
		{url.Values{"policies": {"generation:99"}}, 422, "there is no generation 99"},
		{url.Values{"set": {set}, "against": {"generation:99"}}, 422, "The policies to compare with: generation:99: there is no generation 99"},
		{url.Values{"set": {set}, "against": {"kind: Nonsense"}}, 422, "The policies to compare with"},
		{url.Values{"set": {set}, "queue": {"no-such-queue"}}, 422, "no queue is called &#34;no-such-queue&#34;"},
		{url.Values{"set": {"nonsense"}}, 422, "set"},
		{url.Values{"rule": {"policies.training.rules[oom].retryLimit"}}, 422, "Give a limit"},
		{url.Values{"limit": {"2"}}, 422, "Choose the rule"},
		{url.Values{"set": {" \n"}}, 422, "what is to be different"},
		{url.Values{"set": {set}, "from": {"yesterday"}}, 422, "want a duration"},
		{url.Values{"policies": {"kind: Nonsense"}}, 422, "Nonsense"},
		{url.Values{"set": {strings.Repeat(set+"\n", 101)}}, 422, "101 fields"},
	} {
		resp, body := ask(t, "POST", d.url+"/whatif", c.form.Encode())
		if resp.StatusCode != c.code || !strings.Contains(body, c.want) || !strings.Contains(body, `<form class="whatif"`) {
			t.Errorf("%.80s: %d, want %d with %q: %.600s", fmt.Sprint(c.form), resp.StatusCode, c.code, c.want, text(body))
		}
		if c.form.Get("against") != "" && c.code == 200 && (strings.Contains(body, "Was decided") || strings.Contains(body, ": decided ")) {
			t.Errorf("%.80s: what candidates would decide is shown as what was decided: %s", fmt.Sprint(c.form), text(body))
		}
	}
}

// TestStopsHaveRoom: kill, pause and resume are there for everybody, also for who has all pages of his own and of others
// waiting for a job database that does not answer.
func TestStopsHaveRoom(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 64)
	var h *web.Site
	newSmall(t, func(c *web.Config) {
		c.Query.Jobs = func(ctx context.Context, _ func(jobdb.Queries) error) error {
			entered <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		var err error
		if h, err = web.Open(*c); err != nil {
			t.Fatal(err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	do := func(peer int, method, path, form string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, method, "http://127.0.0.1"+path, strings.NewReader(form))
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", peer)
		if form != "" {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		r.Host = "127.0.0.1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	var stuck sync.WaitGroup
	for i := range 32 {
		stuck.Go(func() { do(i/8, "GET", "/runs?rule=x", "") })
	}
	for range 32 {
		<-entered
	}
	if w := do(9, "GET", "/runs", ""); w.Code != 503 {
		t.Errorf("one more list: %d", w.Code)
	}
	for _, peer := range []int{0, 9} {
		if w := do(peer, "GET", "/overrides", ""); w.Code != 200 {
			t.Errorf("%d: the form: %d %s", peer, w.Code, text(w.Body.String()))
		}
		form := url.Values{"do": {"kill"}, "all": {"yes"}, "reason": {"r"}}
		if w := do(peer, "POST", "/overrides", form.Encode()); w.Code != 200 || !strings.Contains(w.Body.String(), "Confirm") || !strings.Contains(w.Body.String(), "is not known now") {
			t.Errorf("%d: a kill: %d %s", peer, w.Code, text(w.Body.String()))
		}
		form.Set("confirm", "yes")
		if w := do(peer, "POST", "/overrides", form.Encode()); w.Code != 303 {
			t.Errorf("%d: a kill that is confirmed: %d %s", peer, w.Code, text(w.Body.String()))
		}
	}
	cancel()
	stuck.Wait()
}
