package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policylog"
)

// desk is a service over a log in memory, for one goroutine.
type desk struct {
	*api.Service
	handler http.Handler
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	d := emptyDesk(t)
	var err error
	if d.handler, err = api.Handler(d.Service, nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`{"kind": "Queue", "name": "ml"}`, `{"apiVersion": "armadaproject.io/v1", "kind": "RetryPolicy", "metadata": {"name": "infra"}, "spec": {"retryLimit": 3}}`} {
		if code, body := d.rest("POST", "/refloat/v1/resources", "", []byte(text)); code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
	}
	return d
}

func (d *desk) rest(method, path, query string, body []byte) (int, string) {
	w := httptest.NewRecorder()
	r := &http.Request{
		Method: method, URL: &url.URL{Path: path, RawQuery: query}, Host: "localhost", Header: http.Header{"Refloat-User": {query}},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	d.handler.ServeHTTP(w, r.WithContext(context.Background()))
	return w.Code, w.Body.String()
}

// routes are the REST routes that there are.
var routes = []struct{ method, path string }{
	{"GET", "/refloat/v1/resources"},
	{"GET", "/refloat/v1/resources/"},
	{"POST", "/refloat/v1/resources"},
	{"PUT", "/refloat/v1/resources"},
	{"DELETE", "/refloat/v1/resources/Queue/"},
	{"DELETE", "/refloat/v1/resources/"},
	{"POST", "/refloat/v1/apply"},
	{"GET", "/refloat/v1/history"},
	{"POST", "/refloat/v1/rollback"},
	{"POST", "/refloat/v1/brakes"},
	{"POST", "/refloat/v1/brakes:release"},
	{"GET", "/refloat/v1/status"},
	{"POST", "/v1/retry-policy"},
	{"PUT", "/v1/retry-policy/"},
	{"DELETE", "/v1/retry-policy/"},
	{"GET", "/v1/retry-policy/"},
	{"GET", "/v1/retry-policies"},
}

// FuzzREST: whatever is sent to a route, the answer is none of a server that
// failed, comes soon and costs little, and the policies can still be read.
func FuzzREST(f *testing.F) {
	deep := func(n int) string {
		return `{"documents": [` + strings.Repeat(`{"a":[`, n) + strings.Repeat(`]}`, n) + `]}`
	}
	for i := range routes {
		f.Add(byte(i), "ml", "generation=1&reason=x&dry_run=true", []byte(`{"kind": "Queue", "name": "ml", "reason": "x", "to": 1, "kill": true}`))
	}
	f.Add(byte(2), "", "reason=%ff", []byte(`{"kind": "Queue", "name": "x"}`))
	f.Add(byte(2), "", "request_id=%ff&reason=%1b[2J", []byte(`{"kind": "Queue", "name": "x"}`))
	f.Add(byte(4), "\xff", "", []byte{})
	f.Add(byte(2), "", "reason=%ff&request_id=a%00", []byte(`{"kind": "Queue", "name": "\u0000\ud800", "retryPolicies": [1e999]}`))
	f.Add(byte(3), "", "generation=18446744073709551615", []byte(`{"kind": "RetryPolicy", "spec": {"retryLimit": 99999999999999999999999999, "rules": [null]}}`))
	f.Add(byte(6), "", "", []byte(`{"documents": [null, {}, {"kind": "Queue", "name": "a"}, {"kind": "Queue", "name": "a"}], "prune": true}`))
	f.Add(byte(6), "", "", []byte(deep(4000)))
	f.Add(byte(6), "", "", []byte(deep(9)))
	f.Add(byte(9), "", "", []byte(`{"pausedUntil": "9999-12-31T23:59:59.999999999Z", "reason": "x"}`))
	f.Add(byte(9), "", "", []byte(`{"pausedUntil": "0001-01-01T00:00:00Z", "queue": "a\nb", "kill": true, "reason": "x"}`))
	f.Add(byte(8), "", "", []byte(`{"to": "1", "kind": "Queue", "name": "ml", "generation": -1}`))
	f.Add(byte(12), "", "", []byte(`{"name": "flat", "rules": [{"action": 7, "mutate": {"affinity": {"avoidSameNode": true}}}, null], "defaultAction": "RETRY_ACTION_RETRY"}`))
	f.Add(byte(13), "infra", "", []byte(`{"name": "other", "retryLimit": -1}`))
	f.Add(byte(7), "", "kind=Queue&limit=4294967295", []byte{})
	var d *desk
	uses := 0
	f.Fuzz(func(t *testing.T, route byte, more, query string, body []byte) {
		if uses++; d == nil || uses%100 == 0 {
			d = newDesk(t)
		}
		to := routes[int(route)%len(routes)]
		path := to.path
		if strings.HasSuffix(path, "/") {
			path += more
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := time.Now()
		code, text := d.rest(to.method, path, query, body)
		took := time.Since(begin)
		runtime.ReadMemStats(&after)
		if code >= 500 || code < 200 {
			t.Errorf("%s %s: %d %s", to.method, path, code, text)
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 64<<20+uint64(len(body))*2000 {
			t.Errorf("%s %s: %d bytes cost %d MiB", to.method, path, len(body), cost>>20)
		}
		if took > 10*time.Second {
			t.Errorf("%s %s took %v", to.method, path, took)
		}
		if len(text) > 0 && code != http.StatusOK && !json.Valid([]byte(text)) && code != http.StatusMovedPermanently {
			t.Errorf("%s %s: %d, not JSON: %q", to.method, path, code, text)
		}
		if _, err := d.List(context.Background(), &pb.ListRequest{}); err != nil {
			t.Errorf("after %s %s: %v", to.method, path, err)
		}
		if code, text := d.rest("GET", "/refloat/v1/history", "limit=1", nil); code != http.StatusOK {
			t.Errorf("history after %s %s: %d %s", to.method, path, code, text)
		}
	})
}

// FuzzDocument: a document that is accepted comes back as one that says the same.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"kind": "Queue", "name": "ml", "retryPolicies": [], "mode": "Shadow", "pausedUntil": "2026-12-01T06:00:00.5+01:00"}`))
	f.Add([]byte(`{"apiVersion": "armadaproject.io/v1", "kind": "RetryPolicy", "metadata": {"name": "infra"}, "spec": {"retryLimit": 3, "backoff": {"initialDelay": "1.5s", "multiplier": 1.001, "jitter": 0.1},
		"rules": [{"name": "x", "action": "Retry", "onExitCodes": {"operator": "In", "values": [137, -1]}, "onTerminationMessage": {"pattern": "(?i)\\d+\u2028<&>"}, "onFailureCategory": ["true", "1e3", "2026-01-01", "~", "é"]}]}}`))
	f.Add([]byte(`{"apiVersion": "armadaproject.io/v1beta1", "kind": "RetryPolicy", "name": "flat", "retryLimit": 0, "defaultAction": 1, "rules": [{"action": "Fail", "onCategory": "a", "onSubcategory": "b"}]}`))
	f.Add([]byte(`{"kind": "RetrySettings", "spec": {"enabled": false, "globalMaxRetries": 1e1, "horizon": "36h", "defaultBackoff": {"type": "Constant"}}}`))
	f.Add([]byte(`{"kind": "Queue", "name": 1e400}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		doc := &structpb.Struct{}
		if doc.UnmarshalJSON(text) != nil {
			return
		}
		ctx := context.Background()
		first, second := emptyDesk(t), emptyDesk(t)
		made, err := first.Create(ctx, &pb.CreateRequest{Document: doc})
		if err != nil {
			if code := status.Code(err); code != codes.InvalidArgument && code != codes.FailedPrecondition {
				t.Errorf("%v", err)
			}
			return
		}
		list, err := first.List(ctx, &pb.ListRequest{})
		if err != nil || len(list.Resources) != len(made.Changes) {
			t.Fatalf("%v, %v; made %v", list, err, made)
		}
		for _, r := range list.Resources {
			if _, err := second.Create(ctx, &pb.CreateRequest{Document: r.Document}); err != nil {
				t.Fatalf("what was accepted comes back as %v: %v", r.Document, err)
			}
		}
		a, errA := first.Store.Newest(ctx)
		b, errB := second.Store.Newest(ctx)
		if errA != nil || errB != nil || a.Set.Digest() != b.Set.Digest() {
			t.Errorf("%s\n%s\n%v, %v", a.Set.Canonical(), b.Set.Canonical(), errA, errB)
		}
	})
}

// emptyDesk is a desk without resources, and without a server.
func emptyDesk(t testing.TB) *desk {
	t.Helper()
	log := &shelf{s: &storm{calm: true}, name: "policies"}
	store, err := policylog.OpenStore(log, func(_ context.Context, payload []byte) error {
		log.append(eventlog.Message{Payload: payload})
		return nil
	}, func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	return &desk{Service: &api.Service{Store: store, Now: func() time.Time { return noon }}}
}
