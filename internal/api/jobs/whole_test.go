package jobs_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/jobs"
	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/query"
)

// candidate are policies that say nothing.
func candidate(t *testing.T) []*pb.Policies {
	t.Helper()
	doc, err := structpb.NewStruct(map[string]any{"kind": "Queue", "name": "q", "killed": true})
	if err != nil {
		t.Fatal(err)
	}
	return []*pb.Policies{{Name: "p", Documents: []*structpb.Struct{doc}}}
}

// TestWholeOneAtATime: while one question reads whole logs, another one is refused; when its client goes away, or its time
// is over, it ends, and the next one is answered.
func TestWholeOneAtATime(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	logs := func(ctx context.Context, _ func(audit.Logs) error) error {
		began <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return ctx.Err()
	}
	s := &jobs.Service{Now: time.Now, Log: slog.New(slog.DiscardHandler), Limits: jobs.Limits{Whole: time.Hour}, Source: &query.Source{Whole: &query.Gate{}, Logs: logs}}
	client := servedBy(t, s)
	ctx, goAway := context.WithCancel(t.Context())
	first := make(chan error, 1)
	asked := &pb.WhatIfRequest{Candidates: candidate(t)}
	go func() {
		_, err := client.WhatIf(ctx, asked)
		first <- err
	}()
	<-began
	for range 2 {
		if _, err := client.WhatIf(t.Context(), asked); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a second what-if: %v", err)
		}
	}
	goAway()
	<-ended
	if err := <-first; status.Code(err) != codes.Canceled {
		t.Errorf("the first one: %v", err)
	}
	short := &jobs.Service{Now: time.Now, Log: s.Log, Limits: jobs.Limits{Whole: time.Millisecond}, Source: &query.Source{Whole: &query.Gate{}, Logs: logs}}
	for range 2 { // the gate is open again
		_, err := short.WhatIf(t.Context(), asked)
		if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "use refloatctl whatif") {
			t.Errorf("a what-if that takes too long: %v", err)
		}
		<-began
		<-ended
	}
}

// TestWhatIfHostile: requests that are too large or wrong are refused before a log is opened.
func TestWhatIfHostile(t *testing.T) {
	t.Parallel()
	s := &jobs.Service{Now: time.Now, Log: slog.New(slog.DiscardHandler), Source: &query.Source{Logs: func(context.Context, func(audit.Logs) error) error {
		t.Error("the logs were opened")
		return nil
	}}}
	bad, err := structpb.NewStruct(map[string]any{"kind": "RetryPolicy", "name": "p\x1b[2J", "nonsense": 1})
	if err != nil {
		t.Fatal(err)
	}
	for want, r := range map[string]*pb.WhatIfRequest{
		"17 candidates":            {Candidates: make([]*pb.Policies, 17)},
		"101 fields to set":        {Set: make([]string, 101)},
		"what is to be different":  {},
		"limit -1":                 {Candidates: candidate(t), Limit: -1},
		"limit 1001":               {Candidates: candidate(t), Limit: 1001},
		"skip -1":                  {Candidates: candidate(t), Skip: -1},
		"from":                     {Candidates: candidate(t), From: "yesterday"},
		"candidates: RetryPolicy ": {Candidates: []*pb.Policies{{Documents: []*structpb.Struct{bad}}}},
		"set: \"nonsense":          {Candidates: candidate(t), Set: []string{"nonsense\x1b[2J"}},
	} {
		if _, err := s.WhatIf(t.Context(), r); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q: %v", want, err)
		}
	}
	h, err := api.Handler(&api.Service{Now: time.Now}, s.Questions(), s.Log)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	for body, want := range map[string]int{
		`{"candidates": [{"name": "` + strings.Repeat("x", 3<<20) + `"}]}`:           http.StatusRequestEntityTooLarge,
		`{"candidates": [{"documents": [` + strings.Repeat("{},", 300000) + `{}]}]}`: http.StatusBadRequest,
		`{"candidates": [{"documents": [` + strings.Repeat(`{"a":[`, 20000) + `1]}`:  http.StatusBadRequest,
		`{"sett": ["settings.globalMaxRetries=1"]}`:                                  http.StatusBadRequest,
	} {
		resp, err := http.Post(server.URL+"/refloat/v1/whatif", "application/json", strings.NewReader(body)) //nolint:noctx // it ends with the server
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%.60s: %d %.200s, want %d", body, resp.StatusCode, text, want)
		}
	}
}

// TestWatchOverREST: the stream has one JSON object a line; mistakes are refused before it begins, and a client that goes
// away makes room for another one.
func TestWatchOverREST(t *testing.T) {
	t.Parallel()
	g := &growing{has: 7}
	s := &jobs.Service{Source: &query.Source{Jobs: g.view}, Now: time.Now, Log: slog.New(slog.DiscardHandler), Limits: jobs.Limits{Every: time.Millisecond, Streams: 1}}
	h, err := api.Handler(&api.Service{Now: time.Now}, s.Questions(), s.Log)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.CloseClientConnections)
	open := func(ctx context.Context, query string) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/refloat/v1/watch/decisions"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	ctx, goAway := context.WithCancel(t.Context())
	defer goAway()
	stream := open(ctx, "?queue=odd")
	if stream.StatusCode != http.StatusOK {
		t.Fatal(stream.Status)
	}
	g.add(4)
	lines := bufio.NewScanner(stream.Body)
	for _, want := range []string{`"number":"9"`, `"number":"11"`} {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), `{"result":{`) || !strings.Contains(strings.ReplaceAll(lines.Text(), " ", ""), want) {
			t.Errorf("%s: %v, want %s", lines.Text(), lines.Err(), want)
		}
	}
	for query, want := range map[string]int{"?code=RuleRetri": http.StatusBadRequest, "?queu=odd": http.StatusBadRequest, "": http.StatusTooManyRequests} {
		if resp := open(t.Context(), query); resp.StatusCode != want {
			t.Errorf("%q: %s, want %d", query, resp.Status, want)
		}
	}
	goAway()
	for open(ctxOf(t), "").StatusCode != http.StatusOK { // until the server has noticed
		if t.Context().Err() != nil {
			return
		}
	}
}

// ctxOf is a context that ends with the test, before the server is closed.
func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
