package web_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
)

// What callers with a permission on another queue may not see: names, by which the test asks, and what only answers have.
const (
	hiddenName = "plugh"
	hiddenText = "xyzzy"
	seenQueue  = "genomics"
)

// class is who may ask for a route.
type class int

const (
	ofJobs    class = iota // who may see jobs of some queue, and is shown only these
	ofWhole                // who may see the jobs of all queues
	ofAnybody              // who signs in
	ofChanges              // who may change something
)

// routeClasses has each route of the page and of the API.
var routeClasses = map[string]class{
	"GET /": ofJobs, "GET /decisions": ofJobs, "GET /jobs": ofJobs, "GET /runs": ofJobs, "GET /groups": ofJobs, "GET /search": ofJobs, "GET /names": ofJobs, "GET /job": ofJobs,
	"GET /explain": ofJobs, "GET /group": ofJobs, "GET /queue": ofJobs, "GET /top": ofJobs, "GET /policies": ofJobs, "GET /policy": ofJobs,
	"GET /generation": ofJobs, "GET /whatif": ofJobs, "POST /whatif": ofWhole, "GET /shadow": ofJobs, "GET /partitions": ofJobs, "GET /overrides": ofJobs, "POST /overrides": ofChanges,
	"GET /order": ofJobs, "POST /order": ofChanges,

	"GET /refloat/v1/jobs": ofJobs, "GET /refloat/v1/jobs/{job_id}": ofJobs, "GET /refloat/v1/jobs/{job_id}/story": ofJobs, "GET /refloat/v1/jobs/{job_id}/explanation": ofJobs,
	"GET /refloat/v1/jobs/{job_id}/why-not/{outcome}": ofJobs, "GET /refloat/v1/runs": ofJobs, "GET /refloat/v1/decisions": ofJobs, "GET /refloat/v1/decisions/around": ofJobs, "GET /refloat/v1/groups": ofJobs, "GET /refloat/v1/search": ofJobs,
	"GET /refloat/v1/groups/{group}": ofJobs, "GET /refloat/v1/groups/{group}/history": ofJobs, "GET /refloat/v1/queues/{queue}/story": ofJobs,
	"GET /refloat/v1/top/retries": ofJobs, "GET /refloat/v1/top/cost": ofJobs, "GET /refloat/v1/summary": ofJobs, "GET /refloat/v1/shadow/report": ofJobs, "GET /refloat/v1/partitions": ofJobs,
	"GET /refloat/v1/watch/decisions": ofJobs, "POST /refloat/v1/whatif": ofWhole, "POST /refloat/v1/verify": ofWhole,

	"GET /refloat/v1/resources": ofAnybody, "GET /refloat/v1/resources/{kind}": ofAnybody, "GET /refloat/v1/resources/{kind}/{name}": ofAnybody,
	"GET /refloat/v1/history": ofAnybody, "GET /refloat/v1/status": ofAnybody, "GET /refloat/v1/openapi.json": ofAnybody,
	"GET /v1/retry-policies": ofAnybody, "GET /v1/retry-policy/{name}": ofAnybody,
	"POST /refloat/v1/resources": ofChanges, "PUT /refloat/v1/resources": ofChanges, "DELETE /refloat/v1/resources/{kind}": ofChanges, "DELETE /refloat/v1/resources/{kind}/{name}": ofChanges,
	"POST /refloat/v1/apply": ofChanges, "POST /refloat/v1/rollback": ofChanges, "POST /refloat/v1/brakes": ofChanges, "POST /refloat/v1/brakes:release": ofChanges, "POST /refloat/v1/orders": ofChanges,
	"POST /v1/retry-policy": ofChanges, "PUT /v1/retry-policy/{name}": ofChanges, "DELETE /v1/retry-policy/{name}": ofChanges,
}

// plantHidden writes a job, its run, decision and group in a queue that some callers may not see.
func plantHidden(ctx context.Context, dir app.Dir) error {
	const partition = 8
	db, err := app.OpenJobDB(ctx, dir.JobDBURL())
	if err != nil {
		return err
	}
	tx, err := db.Begin(ctx, partition)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	from := tx.Positions()
	to := from
	to.Chain.Seq++
	to.Chain.InTo = eventlog.Position{Ledger: 1, Entry: 1}
	when := time.Now().UnixNano()
	g := jobdb.Group{Partition: partition, Queue: hiddenName, JobSet: hiddenText, Name: hiddenName, Binding: 1, Policy: hiddenText, Rule: hiddenText, State: policy.GroupActive}
	g.ID = jobdb.GroupID(g.Queue, g.JobSet, g.Name)
	where := jobdb.Where{Partition: partition, Seq: to.Chain.Seq}
	rows := &jobdb.Changes{
		Groups: []*jobdb.Group{&g},
		Units:  []*jobdb.Unit{{Partition: partition, ID: jobdb.UnitID(g.ID, hiddenText, 0), GroupID: g.ID, Binding: 1, Part: hiddenText}},
		Jobs: []*jobdb.Job{{
			Partition: partition, JobID: hiddenName, Queue: hiddenName, JobSet: hiddenText, Known: true, State: jobdb.JobQueued, Times: jobdb.JobTimes{Submitted: when},
			Queueing: jobdb.Queueing{Runs: 1, RetryAfter: when, AvoidNodes: []string{hiddenText}}, Member: jobdb.Membership{GroupID: g.ID, Binding: 1, Group: g.Name, Part: hiddenText},
		}},
		Runs: []*jobdb.Run{{
			Partition: partition, JobID: hiddenName, RunID: "r" + hiddenText, State: jobdb.RunFailed, Executor: hiddenText, Node: hiddenText, Times: jobdb.RunTimes{Leased: when, Ended: when},
			Outcome: jobdb.Requeued, Decision: 1, Error: jobdb.RunError{Reason: hiddenText, Message: hiddenText, Category: hiddenText},
		}},
		Decisions: []*jobdb.Decision{{
			Where: where, Acted: true, Decision: chain.Decision{
				Number: 1, Queue: hiddenName, JobSet: hiddenText, JobID: hiddenName, RunID: "r" + hiddenText, Time: when, Code: policy.RuleRetry, Policy: hiddenText, Rule: hiddenText, Requeue: true, RetryAfter: when,
			},
		}},
		Parked: []*jobdb.Parked{{Where: where, Parked: chain.Parked{Reason: events.ParkReason(1), Raw: []byte(hiddenText)}}},
	}
	return errors.Join(tx.Write(ctx, rows), tx.Commit(ctx, from, to), db.Close())
}

// secured is a deployment with callers of each kind, and with a queue that one of them may not see.
func secured(t *testing.T) *deployment {
	t.Helper()
	return securedOn(t, "../../testdata/recordings/plain.jsonl.gz")
}

// securedOn is that on the history of a feed.
func securedOn(t *testing.T, feed string) *deployment {
	t.Helper()
	token := func(name string, groups ...string) api.Token {
		sum := sha256.Sum256([]byte(name))
		return api.Token{SHA256: hex.EncodeToString(sum[:]), Groups: groups}
	}
	auth := &api.Auth{
		Tokens: map[string]api.Token{
			"admin": token("admin", "ops"), "limited": token("limited", "biologists", "nobody's"), "policies": token("policies", "editors"), "stranger": token("stranger", "others"),
		},
		Permissions: map[api.Verb][]string{},
		Queues: map[string]api.QueuePermissions{
			seenQueue:  {View: []string{"biologists"}, Override: []string{"biologists"}, Apply: []string{"biologists"}},
			hiddenName: {View: []string{"miners"}, Kill: []string{"miners"}},
		},
	}
	for _, v := range api.Verbs() {
		auth.Permissions[v] = []string{"ops"}
	}
	auth.Permissions[api.UpdateRetryPolicy] = []string{"ops", "editors"}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	d, err := deploy("../../examples/policies", feed, plantHidden, app.API{Auth: auth})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	})
	for path, body := range map[string]string{
		"/refloat/v1/resources?reason=" + hiddenText: `{"kind": "Queue", "name": "` + hiddenName + `", "mode": "Shadow"}`,
		"/refloat/v1/brakes":                         `{"queue": "` + hiddenName + `", "kill": true, "reason": "` + hiddenText + `", "force": true}`,
	} {
		if resp, text := as(t, "admin", "POST", d.url+path, body); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", path, resp.StatusCode, text)
		}
	}
	return d
}

// passing is how long ago something was, which a later page says otherwise.
var passing = regexp.MustCompile(`<small class="beside"[^>]*>[^<]*`)

// as asks with the token of somebody; "": of nobody.
func as(t *testing.T, who, method, address, body string) (*http.Response, string) {
	t.Helper()
	if who == "" {
		return ask(t, method, address, body)
	}
	return ask(t, method, address, body, "Authorization", "Bearer "+who)
}

// TestAccess asks for each route of the page and of the API as nobody, as somebody without permissions, as somebody who may see
// one queue, and as an administrator.
func TestAccess(t *testing.T) {
	t.Parallel()
	d := secured(t)
	seen, told := map[string]bool{}, 0
	all := append(everything(t), asked{method: "GET", path: "/refloat/v1/openapi.json", pattern: "/refloat/v1/openapi.json"})
	for _, a := range all {
		route := a.method + " " + a.pattern
		kind, ok := routeClasses[route]
		if !ok {
			t.Errorf("%s has no row in routeClasses: who may ask for it?", route)
			continue
		}
		seen[route] = true
		code := func(who string, with func(string) string) (int, string) {
			values := url.Values{}
			for name, list := range a.with {
				for _, v := range list {
					values.Add(name, with(v))
				}
			}
			address, body := d.url+with(a.path), ""
			if route == "POST /whatif" {
				values.Set("set", "settings.globalMaxRetries=1")
			}
			if a.form {
				body = values.Encode()
			} else {
				address += "?" + values.Encode()
				if a.method == "POST" || a.method == "PUT" {
					body = map[bool]string{true: `{"set": ["settings.globalMaxRetries=1"]}`, false: "{}"}[strings.HasSuffix(a.path, "/whatif")]
				}
			}
			resp, text := as(t, who, a.method, address, body)
			return resp.StatusCode, passing.ReplaceAllString(text, "")
		}
		plain := func(s string) string { return s }
		hidden := strings.NewReplacer("01m7xn681y99tqr9907k6hqh4d", hiddenName, seenQueue, hiddenName, "g"+hostile, hiddenName, "/g", "/"+hiddenName, "RetryPolicy/training", "Queue/"+hiddenName).Replace
		nowhere := func(s string) string { return strings.ReplaceAll(hidden(s), hiddenName, "nowhere") }
		if strings.HasPrefix(a.path, "/g") { // a page
			hidden = strings.NewReplacer("g"+hostile, hiddenName).Replace
		}

		if n, _ := code("", plain); n != http.StatusUnauthorized {
			t.Errorf("%s by nobody: %d", route, n)
		}
		if n, text := code("stranger", plain); n != http.StatusForbidden && kind != ofAnybody || kind == ofAnybody && (n == http.StatusForbidden || n > 499) {
			t.Errorf("%s by a stranger: %d %.200s", route, n, text)
		}
		if n, text := code("limited", plain); kind == ofWhole && n != http.StatusForbidden || n > 499 || strings.Contains(text, hiddenText) || strings.Contains(text, hiddenName) {
			t.Errorf("%s by somebody who may see another queue: %d %.2000s", route, n, text)
		}
		n, text := code("limited", hidden)
		if n > 499 || strings.Contains(text, hiddenText) {
			t.Errorf("%s of what is hidden: %d %.2000s", route, n, text)
		}
		if other, answer := code("limited", nowhere); other != n || kind != ofChanges && strings.ReplaceAll(answer, "nowhere", hiddenName) != text && !strings.Contains(route, "GET /overrides") {
			t.Errorf("%s of what is hidden: %d, of what does not exist: %d\n%.600s\n%.600s", route, n, other, text, answer)
		}
		if n, text := code("admin", hidden); strings.Contains(text, hiddenText) || n < 300 && strings.Contains(text, hiddenName) {
			told++
		}
	}
	for route := range routeClasses {
		if !seen[route] && !strings.Contains(route, "/watch/") {
			t.Errorf("%s is no route", route)
		}
	}
	if told < 25 {
		t.Errorf("%d routes tell an administrator what is hidden: hardly any, so that this test would see little", told)
	}
}

// TestOwnQueue: who may view, override and apply one queue does it, on the page and over the API, and does nothing else.
func TestOwnQueue(t *testing.T) {
	t.Parallel()
	d := secured(t)
	for _, path := range []string{"/refloat/v1/jobs?page_size=1000", "/refloat/v1/decisions?page_size=1000"} {
		all, some := 0, 0
		for who, n := range map[string]*int{"admin": &all, "limited": &some} {
			_, body := as(t, who, "GET", d.url+path, "")
			*n = strings.Count(body, `"jobId"`)
		}
		if some == 0 || some >= all {
			t.Errorf("%s: %d of %d", path, some, all)
		}
	}
	_, all := as(t, "admin", "GET", d.url+"/refloat/v1/summary", "")
	_, some := as(t, "limited", "GET", d.url+"/refloat/v1/summary", "")
	if all == some || !strings.Contains(some, `"decisions"`) {
		t.Errorf("a summary of one queue: %s", some)
	}
	form := func(queue, do string) string {
		v := url.Values{"do": {do}, "reason": {"r"}, "confirm": {"yes"}, "for": {"1h"}, "request": {queue + do}}
		if queue == "" {
			v.Set("all", "yes")
		} else {
			v.Set("queue", queue)
		}
		return v.Encode()
	}
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"POST", "/overrides", form(seenQueue, "pause"), 303},
		{"POST", "/overrides", form(seenQueue, "kill"), 403},
		{"POST", "/overrides", form(hiddenName, "pause"), 403},
		{"POST", "/overrides", form("", "pause"), 403},
		{"POST", "/overrides", form(seenQueue, "resume"), 403}, // it would end a kill
		{"POST", "/refloat/v1/brakes", `{"queue": "genomics", "pausedUntil": "2199-01-01T00:00:00Z", "reason": "r"}`, 200},
		{"POST", "/refloat/v1/brakes", `{"queue": "genomics", "pausedUntil": "2199-01-01T00:00:00Z", "kill": true, "reason": "r"}`, 403},
		{"POST", "/refloat/v1/brakes", `{"all": true, "pausedUntil": "2199-01-01T00:00:00Z", "reason": "r"}`, 403},
		{"POST", "/refloat/v1/brakes", `{"node": "n", "avoidedUntil": "2199-01-01T00:00:00Z", "reason": "r"}`, 403},
		{"POST", "/refloat/v1/brakes:release", `{"everything": true, "reason": "r"}`, 403},
		{"POST", "/refloat/v1/apply", `{"documents": [{"kind": "Queue", "name": "genomics", "mode": "Shadow"}]}`, 200},
		{"POST", "/refloat/v1/apply", `{"documents": [{"kind": "Queue", "name": "genomics", "killed": true}]}`, 403},
		{"POST", "/refloat/v1/apply", `{"documents": [{"kind": "Queue", "name": "genomics"}], "prune": true}`, 403},
		{"POST", "/refloat/v1/apply", `{"documents": [{"kind": "Queue", "name": "plugh"}]}`, 403},
		{"POST", "/refloat/v1/apply", `{"documents": [{"kind": "Queue", "name": "Genomics"}]}`, 403},
		{"POST", "/refloat/v1/apply", `{"documents": [{"kind": "RetrySettings", "spec": {"enabled": false}}]}`, 403},
		{"POST", "/refloat/v1/apply", `{"documents": [], "prune": true, "allowEmpty": true}`, 403},
		{"DELETE", "/refloat/v1/resources/Queue/plugh", "", 403},
		{"DELETE", "/refloat/v1/resources/RetryPolicy/training", "", 403},
		{"POST", "/refloat/v1/rollback", `{"to": "1"}`, 403},
		{"POST", "/refloat/v1/rollback", `{"to": "1", "kind": "Queue", "name": "plugh"}`, 403},
	} {
		if resp, body := as(t, "limited", c.method, d.url+c.path, c.body); resp.StatusCode != c.code || strings.Contains(body, hiddenText) {
			t.Errorf("%s %s %s: %d, want %d: %.300s", c.method, c.path, c.body, resp.StatusCode, c.code, text(body))
		}
	}
	// Whoever edits policies and has no permission on a queue sees no queue.
	if _, body := as(t, "policies", "GET", d.url+"/refloat/v1/resources", ""); strings.Contains(body, `"kind":"Queue"`) || !strings.Contains(body, `"kind":"RetryPolicy"`) {
		t.Errorf("resources for an editor of policies: %.2000s", body)
	}
}

// TestOwnStream: a stream has the decisions of the queues that its reader may see, also when the newest is of another.
func TestOwnStream(t *testing.T) {
	t.Parallel()
	d := secured(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", d.url+"/refloat/v1/watch/decisions", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer limited")
	resp, err := http.DefaultClient.Do(r) // answers when the stream has its position
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	db, err := app.OpenJobDB(t.Context(), d.dir.JobDBURL())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(t.Context(), 8)
	if err != nil {
		t.Fatal(err)
	}
	from := tx.Positions()
	to := from
	to.Chain.Seq++
	to.Chain.InTo = eventlog.Position{Ledger: 1, Entry: 2}
	rows := &jobdb.Changes{}
	for i, queue := range []string{hiddenName, seenQueue, hiddenName} {
		rows.Decisions = append(rows.Decisions, &jobdb.Decision{
			Where:    jobdb.Where{Partition: 8, Seq: to.Chain.Seq, Record: uint32(i)},
			Decision: chain.Decision{Number: uint64(i + 2), Queue: queue, JobID: "j", RunID: "r", Time: 1, Code: policy.RuleRetry, Policy: hiddenText},
		})
	}
	rows.Decisions[1].Policy = "seen"
	if err := errors.Join(tx.Write(t.Context(), rows), tx.Commit(t.Context(), from, to), db.Close()); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, `"seen"`) || strings.Contains(line, hiddenText) {
		t.Errorf("%d: %q, %v", resp.StatusCode, line, err)
	}
}
