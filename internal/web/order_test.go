package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	eventspb "github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/web"
)

// TestOrderForm: the form gives an order by the service, with a preview before and one line of the audit log for each; it
// refuses what the service refuses.
func TestOrderForm(t *testing.T) {
	t.Parallel()
	var given []*pb.OrderRequest
	var logged bytes.Buffer
	s := newSmall(t, func(c *web.Config) {
		c.API.Log = slog.New(slog.NewTextHandler(&logged, nil))
		c.API.Orders = func(_ context.Context, r *pb.OrderRequest, author string) ([]*pb.OrderedJob, error) {
			switch r.Jobs[0] {
			case "gone":
				return []*pb.OrderedJob{{JobId: "gone", Refusal: "Gone", Why: "Armada has pruned the job"}}, nil
			case "old":
				return nil, status.Error(codes.FailedPrecondition, "partition 3 decides by version 4")
			}
			if given = append(given, r); author != "anonymous (not verified)" {
				t.Errorf("ordered by %q", author)
			}
			return []*pb.OrderedJob{{JobId: r.Jobs[0]}}, nil
		}
	})
	form := url.Values{"do": {"Retry"}, "job": {"j1"}}
	for _, c := range []struct{ field, value, want string }{
		{"reason", " ", "reason: missing"},
		{"reason", strings.Repeat("x", 1001), "at most 1000 bytes"},
		{"job", "gone", "The job refuses: Armada has pruned the job"},
		{"job", "old", "decides by version 4"},
	} {
		bad := url.Values{"do": {"Retry"}, "job": {"j1"}, "reason": {"r"}, "confirm": {"yes"}}
		bad.Set(c.field, c.value)
		if resp, body := ask(t, "POST", s.URL+"/order", bad.Encode()); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, c.want) || !strings.Contains(body, `<form class="order"`) {
			t.Errorf("%s = %.20q: %d, want %q: %.900s", c.field, c.value, resp.StatusCode, c.want, text(body))
		}
	}
	if len(given) > 0 {
		t.Fatalf("refused, and given: %v", given)
	}
	form.Set("reason", printable)
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://elsewhere.example"}, {"Host", "elsewhere.example"}} {
		if resp, _ := ask(t, "POST", s.URL+"/order", form.Encode(), headers...); resp.StatusCode != http.StatusForbidden || len(given) > 0 {
			t.Errorf("with %v: %d, want 403; given %v", headers, resp.StatusCode, given)
		}
	}
	logged.Reset()
	resp, body := ask(t, "POST", s.URL+"/order", form.Encode())
	if resp.StatusCode != http.StatusOK || len(given) != 1 || !given[0].DryRun || !strings.Contains(body, `<form class="confirm"`) || !strings.Contains(body, "counts against no limit") {
		t.Fatalf("no preview: %d %v %.900s", resp.StatusCode, given, text(body))
	}
	form.Set("confirm", "yes")
	form.Set("request", regexp.MustCompile(`name="request" value="([^"]*)"`).FindStringSubmatch(body)[1])
	for range 2 { // submitting it twice is one order, as it has one id
		resp, body = ask(t, "POST", s.URL+"/order", form.Encode(), "Sec-Fetch-Site", "same-origin")
		if want := "/job?id=j1&ordered=" + form.Get("request"); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != want {
			t.Errorf("confirmed: %d to %s, want %s: %.900s", resp.StatusCode, resp.Header.Get("Location"), want, text(body))
		}
	}
	if len(given) != 3 || given[1].DryRun || given[1].Action != "Retry" || given[1].Reason != printable || given[1].RequestId == "" || given[1].RequestId != given[2].RequestId || given[1].Max != 1 {
		t.Errorf("given: %v", given)
	}
	if n := strings.Count(logged.String(), "msg=audit who=\"anonymous (not verified)\" action=Order result=OK"); n != 3 || strings.Count(logged.String(), "via=page") != 3 || strings.Count(logged.String(), "dry_run=true") != 1 {
		t.Errorf("%d lines of the audit log, want 3: %s", n, &logged)
	}
}

// failedNow writes the history of a job whose run fails now, so that it is known still when somebody orders something.
func failedNow(t *testing.T, job string) (feed string) {
	t.Helper()
	feed = filepath.Join(t.TempDir(), "now.jsonl.gz")
	f, err := os.Create(feed)
	if err != nil {
		t.Fatal(err)
	}
	w := recording.NewWriter(f)
	for i, ev := range []*eventspb.Event{
		{Event: &eventspb.Event_SubmitJob{SubmitJob: &eventspb.SubmitJob{JobId: job}}},
		{Event: &eventspb.Event_JobRunErrors{JobRunErrors: &eventspb.JobRunErrors{JobId: job, RunId: "run", Errors: []*eventspb.Error{{
			Terminal: true, Reason: &eventspb.Error_PodError{PodError: &eventspb.PodError{ContainerErrors: []*eventspb.ContainerError{{ObjectMeta: &eventspb.ObjectMeta{Name: "main"}, ExitCode: 1}}}},
		}}}}},
	} {
		payload, err := proto.Marshal(&eventspb.EventSequence{Queue: seenQueue, JobSetName: "s", Events: []*eventspb.Event{ev}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(recording.Entry{Producer: "test", Message: eventlog.Message{
			Position: eventlog.Position{Ledger: 1, Entry: int64(i), Batch: -1}, Publish: time.Now().UnixNano(), Key: "s", Payload: payload,
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return feed
}

// TestOrderOnPage: the page of a job that failed for good leads in three steps to its retry, and that of one that waits to its
// end, for who may order it.
func TestOrderOnPage(t *testing.T) {
	t.Parallel()
	const job = "01order"
	d := securedOn(t, failedNow(t, job))
	offer := regexp.MustCompile(`<a href="(/order\?[^"]*)">([^<]*)</a>`)
	at := d.url + "/job?id=" + job
	order := url.Values{"do": {"Retry"}, "job": {job}, "reason": {"the registry is back"}, "confirm": {"yes"}}
	if resp, body := as(t, "limited", "GET", at, ""); resp.StatusCode != http.StatusOK || offer.MatchString(body) {
		t.Errorf("who may not order is offered it: %.900s", text(body))
	}
	if resp, body := as(t, "limited", "POST", d.url+"/order", order.Encode()); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "order_retries") {
		t.Errorf("who may not order does: %d %.900s", resp.StatusCode, text(body))
	}
	if _, body := as(t, "limited", "GET", d.url+"/order?do=Retry&job="+job, ""); strings.Contains(body, `<form class="order"`) || !strings.Contains(body, "order_retries") {
		t.Errorf("who may not order gets the form: %.900s", text(body))
	}
	for _, c := range []struct{ offered, do, reason, before, answer, again string }{
		{"Retry once", "Retry", "the registry is back", "Failed", "(the registry is back): it runs again, not before", "a retry has been granted already"},
		{"Give up, Start now", "GiveUp", "wrong input", "Queued", "(wrong input): it does not run again", "the job was cancelled"},
	} {
		_, body := as(t, "admin", "GET", at, "")
		var offered []string
		for _, m := range offer.FindAllStringSubmatch(body, -1) {
			offered = append(offered, m[2])
		}
		m := offer.FindStringSubmatch(body)
		if strings.Join(offered, ", ") != c.offered || !strings.Contains(text(body), " "+c.before+" ") {
			t.Fatalf("a job that takes %s is offered %v: %.900s", c.do, offered, text(body))
		}
		if resp, body := as(t, "admin", "GET", d.url+html.UnescapeString(m[1]), ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `<form class="order"`) {
			t.Fatalf("no form: %d %.900s", resp.StatusCode, text(body))
		}
		order = url.Values{"do": {c.do}, "job": {job}, "reason": {c.reason}}
		if resp, body := as(t, "admin", "POST", d.url+"/order", order.Encode()); resp.StatusCode != http.StatusOK || !strings.Contains(body, `<form class="confirm"`) {
			t.Fatalf("no preview: %d %.900s", resp.StatusCode, text(body))
		}
		if _, body := as(t, "admin", "GET", at, ""); !strings.Contains(text(body), " "+c.before+" ") {
			t.Fatalf("a preview is an order: %.900s", text(body))
		}
		order.Set("confirm", "yes")
		resp, body := as(t, "admin", "POST", d.url+"/order", order.Encode())
		if resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("confirmed: %d %.900s", resp.StatusCode, text(body))
		}
		for deadline := time.Now().Add(time.Minute); !strings.Contains(body, c.answer); {
			if _, body = as(t, "admin", "GET", d.url+resp.Header.Get("Location"), ""); time.Now().After(deadline) {
				t.Fatalf("never answered: %.2000s", text(body))
			}
			<-time.After(20 * time.Millisecond)
		}
		if !strings.Contains(body, "admin ordered to ") || !strings.Contains(body, "was given. Its answer") || !strings.Contains(body, `data-hx-trigger="every 5s"`) {
			t.Errorf("the job after %s: %.900s", c.do, text(body))
		}
		order.Del("confirm")
		if resp, body := as(t, "admin", "POST", d.url+"/order", order.Encode()); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "The job refuses: "+c.again) {
			t.Errorf("%s again: %d %.900s", c.do, resp.StatusCode, text(body))
		}
	}
}

// TestOrderRefusals: POST /refloat/v1/orders says why it orders nothing.
func TestOrderRefusals(t *testing.T) {
	t.Parallel()
	d := running(t)
	set := func(action string, limit int) string {
		body, err := json.Marshal(map[string]any{"action": action, "queue": "q" + hostile, "jobSet": long, "max": limit, "reason": "r", "dryRun": true})
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	const job = "01m7xn681y99tqr9907k6hqh4d"
	for _, c := range []struct {
		body string
		code int
		want string
	}{
		{`{"action": "Retry", "jobs": ["nope"], "reason": "r"}`, 200, `"refusal":"NotFound", "why":"no job has the id nope: give the whole id"`},
		{`{"action": "Retry", "jobs": ["` + job[:20] + `"], "reason": "r"}`, 200, `"refusal":"NotFound"`},
		{`{"action": "GiveUp", "jobs": ["` + job + `"], "reason": "r"}`, 200, `"refusal":"Cancelled"`},
		{`{"action": "Retry", "jobs": ["` + job + `"]}`, 400, "reason: missing"},
		{`{"action": "Retry", "jobs": ["` + job + `"], "reason": " "}`, 400, "reason: missing"},
		{`{"action": "Sing", "jobs": ["` + job + `"], "reason": "r"}`, 400, "want Retry, GiveUp or Start"},
		{`{"action": "Retry", "over": "60s", "jobs": ["` + job + `"], "reason": "r"}`, 400, "only for the action Start"},
		{`{"action": "Retry", "jobs": ["a", "b"], "reason": "r"}`, 400, "none is ordered; raise max"},
		{`{"action": "Retry", "jobs": ["a"], "max": 1001, "reason": "r"}`, 400, "want at most 1000"},
		{`{"action": "Retry", "jobs": ["a"], "queue": "q", "jobSet": "s", "reason": "r"}`, 400, "give either job ids"},
		{`{"action": "Retry", "queue": "q", "reason": "r"}`, 400, "give both"},
		{`{"action": "Retry", "reason": "r"}`, 400, "give either job ids"},
		{set("Retry", 39), 400, "more than 39 jobs: none is ordered"},
		{set("Retry", 40), 200, `"refusal":"InGroup"`},
	} {
		resp, body := ask(t, "POST", d.url+"/refloat/v1/orders", c.body)
		if plain := strings.ReplaceAll(body, `", "`, `","`); resp.StatusCode != c.code || !strings.Contains(plain, strings.ReplaceAll(c.want, `", "`, `","`)) {
			t.Errorf("%.90s: %d, want %d with %s: %.300s", c.body, resp.StatusCode, c.code, c.want, body)
		}
	}
	sec := secured(t)
	for who, code := range map[string]int{"": 401, "stranger": 403, "limited": 403, "policies": 403, "admin": 200} {
		if resp, body := as(t, who, "POST", sec.url+"/refloat/v1/orders", fmt.Sprintf(`{"action": "Retry", "jobs": [%q], "reason": "r", "dryRun": true}`, job)); resp.StatusCode != code || code == 403 && !strings.Contains(body, "order_retries") {
			t.Errorf("by %q: %d, want %d: %.300s", who, resp.StatusCode, code, body)
		}
	}
}
