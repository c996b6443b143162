package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/jobs"
	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/test/openapitest"
)

// answering serves the questions about a data directory.
func answering(t *testing.T, data string, auth *api.Auth) string {
	t.Helper()
	from := withOpenPolicies(t, data)
	service := &api.Service{Auth: auth, Now: time.Now}
	if err := from.Policies(t.Context(), func(store *policylog.Store) error { service.Store = store; return nil }); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	answers := &jobs.Service{Source: from, Now: time.Now, Log: log}
	h, err := api.Handler(service, answers.Questions(), log)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = api.Server(h, nil).Protocols // gRPC too
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func ask(t *testing.T, at, token string) (status int, body string) {
	t.Helper()
	return send(t, http.MethodGet, at, token, "")
}

// send sends a request, and checks the answer against the OpenAPI description.
func send(t *testing.T, method, at, token, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	openapitest.Check(t, r, resp.StatusCode, resp.Header, string(text))
	return resp.StatusCode, string(text)
}

// TestAnswersOverTheAPI: each question has over REST the answer that the command prints with -o json, field by field.
func TestAnswersOverTheAPI(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	server := answering(t, data, nil)
	of := func(args ...string) []string {
		return slices.Collect(strings.Lines(ctl(t, append(args, "--data", data, "-o", "json")...).exits(t, exitFine).out))
	}
	decision := jsonLine(t, of("get", "decisions", "--last", "1")[0])
	job, queue, set := decision.text("jobId"), decision.text("queue"), decision.text("jobSet")
	at := decision.text("eventTime")
	for _, q := range []struct {
		path string
		args []string
		in   string // field of the answer that holds the lines of the command; "": the answer is its line
		one  proto.Message
	}{
		{"jobs?page_size=1000", []string{"get", "jobs"}, "jobs", &pb.Job{}},
		{"jobs?page_size=1000&state=Failed&state=Queued&sort=-submitted", []string{"get", "jobs", "--state", "Failed,Queued", "--sort", "-submitted"}, "jobs", &pb.Job{}},
		{"runs?page_size=1000&queue=" + url.QueryEscape(queue), []string{"get", "runs", "--queue", queue}, "runs", &pb.Run{}},
		{"decisions?page_size=1000&job_set=" + url.QueryEscape(set), []string{"get", "decisions", "--job-set", set}, "decisions", &pb.Decision{}},
		{"groups?page_size=1000", []string{"get", "groups"}, "groups", &pb.Group{}},
		{"jobs/" + job, []string{"get", "job", job}, "jobs", &pb.Job{}},
		{"jobs/" + job + "?at=" + url.QueryEscape(at), []string{"get", "job", job, "--at", at}, "jobs", &pb.Job{}},
		{"jobs/" + job + "/story", []string{"explain", job, "--all-runs"}, "stories", &pb.Story{}},
		{"jobs/" + job + "/explanation", []string{"explain", job}, "", &pb.Explanation{}},
		{"jobs/" + job + "/explanation?run=" + fmt.Sprint(decision["runIndex"]), []string{"explain", job, "--run", fmt.Sprint(decision["runIndex"])}, "", &pb.Explanation{}},
		{"queues/" + queue + "/story", []string{"explain", "queue", queue}, "", &pb.QueueStory{}},
		{"queues/" + queue + "/story?limit=3&job_set=" + url.QueryEscape(set), []string{"explain", "job-set", queue + "/" + set, "--limit", "3"}, "", &pb.QueueStory{}},
		{"queues/" + queue + "/story?since=2026-11-20T23:38:14Z", []string{"explain", "queue", queue, "--since", "2026-11-20T23:38:14Z"}, "", &pb.QueueStory{}},
		{"search?text=ra&limit=1000", []string{"search", "ra", "--limit", "0"}, "matches", &pb.Match{}},
		{"search?text=" + job[:8] + "&kind=job", []string{"search", job[:8], "--kind", "job"}, "matches", &pb.Match{}},
		{"top/retries?by=rule&limit=5", []string{"top", "retries", "--by", "rule", "--limit", "5"}, "rows", &pb.Top{}},
		{"shadow/report", []string{"shadow", "report"}, "lines", &pb.ShadowLine{}},
	} {
		status, body := ask(t, server+"/refloat/v1/"+q.path, "")
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", q.path, status, body)
			continue
		}
		var got []string
		if q.in == "" {
			got = []string{body}
		} else {
			var fields map[string]json.RawMessage
			var rows []json.RawMessage
			if err := json.Unmarshal([]byte(body), &fields); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(fields[q.in], &rows); err != nil {
				t.Fatalf("%s: %v in %s", q.path, err, body)
			}
			for _, row := range rows {
				got = append(got, string(row))
			}
		}
		want := of(q.args...)
		if len(got) != len(want) || len(got) == 0 && q.in != "groups" {
			t.Errorf("%s: %d rows, %v has %d", q.path, len(got), q.args, len(want))
			continue
		}
		for i := range got {
			if !sameAnswer(t, q.one, got[i], want[i]) {
				t.Errorf("%s: row %d is\n%s\n%v prints\n%s", q.path, i, got[i], q.args, want[i])
				break
			}
		}
	}
	status, body := ask(t, server+"/refloat/v1/summary", "")
	var sum pb.Summary
	if err := protojson.Unmarshal([]byte(body), &sum); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	decisions := uint64(0)
	for _, c := range sum.Decisions {
		decisions += c.Count
	}
	if want := len(of("get", "decisions")); decisions != uint64(want) || len(sum.Jobs) == 0 {
		t.Errorf("the summary counts %d decisions, want %d; jobs %v", decisions, want, sum.Jobs)
	}
}

// sameAnswer compares two JSON texts as messages of a type: an unknown field in either is an error.
func sameAnswer(t *testing.T, of proto.Message, a, b string) bool {
	t.Helper()
	read := func(text string) proto.Message {
		m := of.ProtoReflect().New().Interface()
		if err := protojson.Unmarshal([]byte(text), m); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return m
	}
	return proto.Equal(read(a), read(b))
}

// TestAnswersPaging: the pages of a list have each row once, and a token continues only the list that it is of.
func TestAnswersPaging(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	server := answering(t, data, nil)
	seen := map[string]bool{}
	token, first := "", ""
	for pages := 0; pages == 0 || token != ""; pages++ {
		status, body := ask(t, server+"/refloat/v1/decisions?sort=-time&page_size=37&page_token="+token, "")
		var page pb.ListDecisionsResponse
		if err := protojson.Unmarshal([]byte(body), &page); err != nil || status != http.StatusOK {
			t.Fatalf("page %d: %d %s: %v", pages, status, body, err)
		}
		for _, d := range page.Decisions {
			id := fmt.Sprint(d.Partition, "/", d.Number)
			if seen[id] {
				t.Errorf("page %d has decision %s again", pages, id)
			}
			seen[id] = true
		}
		if token = page.NextPageToken; first == "" {
			first = token
		}
	}
	if want := strings.Count(ctl(t, "get", "decisions", "--data", data, "-o", "json").exits(t, exitFine).out, "\n"); len(seen) != want || first == "" {
		t.Errorf("%d rows in pages, want %d", len(seen), want)
	}
	for path, want := range map[string]string{
		"decisions?sort=time&page_token=" + first:              "page_token: this is not a continuation of this list",
		"jobs?page_token=" + first:                             "page_token: this is not a continuation of this list",
		"decisions?sort=-time&queue=other&page_token=" + first: "page_token: this is not a continuation of this list",
		"jobs?page_token=%00%ff":                               "not UTF-8",
		"jobs?page_token=xyz":                                  "page_token: this is not a continuation of this list",
		"jobs?page_size=1001":                                  "page_size 1001: want 1 to 1000",
		"jobs?page_size=-1":                                    "page_size -1: want 1 to 1000",
		"jobs?pagesize=3":                                      "did you mean page",
		"jobs?state=Quued":                                     "did you mean Queued",
		"jobs?code=RuleLimt":                                   "did you mean RuleLimit",
		"jobs?sort=sbmitted":                                   "did you mean submitted",
		"jobs?since=yesterday":                                 "want a duration such as 24h",
		"top/retries?by=queu":                                  "did you mean queue",
		"jobs/x/why-not/Retri":                                 "did you mean Retry",
		"jobs/x?at=now":                                        "or a position such as 12:345:6",
		"queues/x/story?limit=-1":                              "limit -1: want",
	} {
		if status, body := ask(t, server+"/refloat/v1/"+path, ""); status != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want 400 and %q", path, status, body, want)
		}
	}
	for _, path := range []string{"jobs/nosuchjob", "jobs/nosuchjob/story", "jobs/nosuchjob/explanation", "groups/nosuchgroup", "queues/nosuchqueue/story"} {
		if status, body := ask(t, server+"/refloat/v1/"+path, ""); status != http.StatusNotFound || !strings.Contains(body, "nosuch") {
			t.Errorf("%s: %d %s, want 404", path, status, body)
		}
	}
}

// TestAnswersPermission: a caller needs get_jobs, also where the file does not mention it.
func TestAnswersPermission(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	token := func(groups ...string) api.Token {
		return api.Token{SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("secret-"+strings.Join(groups, "-")))), Groups: groups}
	}
	auth := &api.Auth{Tokens: map[string]api.Token{"reader": token("readers"), "other": token("ops")}, Permissions: map[api.Verb][]string{api.GetJobs: {"readers"}, api.KillRetries: {"ops"}}}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	server := answering(t, data, auth)
	silent := &api.Auth{Tokens: auth.Tokens}
	if err := silent.Check(); err != nil {
		t.Fatal(err)
	}
	closed := answering(t, data, silent)
	for _, c := range []struct {
		at, token string
		want      int
	}{
		{server, "secret-readers", http.StatusOK},
		{server, "secret-ops", http.StatusForbidden},
		{server, "", http.StatusUnauthorized},
		{server, "wrong", http.StatusUnauthorized},
		{closed, "secret-readers", http.StatusForbidden},
	} {
		for _, path := range []string{"jobs?page_size=1", "summary", "shadow/report", "jobs/x/story"} {
			status, body := ask(t, c.at+"/refloat/v1/"+path, c.token)
			if want := c.want; status != want && (want != http.StatusOK || path != "jobs/x/story" || status != http.StatusNotFound) {
				t.Errorf("%s with %q: %d %s, want %d", path, c.token, status, body, want)
			}
		}
	}
	if status, body := ask(t, closed+"/refloat/v1/resources", "secret-readers"); status != http.StatusOK {
		t.Errorf("policies: %d %s: reading them needs no permission", status, body)
	}
}
