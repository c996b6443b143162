package api_test

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
)

// What REST does not know it refuses, with the nearest name, and changes nothing.
func TestUnknownFieldsAndParameters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(w.queue("ml", ""))
	const queue = `{"kind": "Queue", "name": "ml", "mode": "Shadow"}`
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/refloat/v1/brakes", `{"quue": "ml", "all": true, "kill": true, "reason": "x"}`, `unknown field \"quue\": did you mean queue?`},
		{"POST", "/refloat/v1/brakes:release", `{"everythin": true, "all": true, "reason": "x"}`, `did you mean everything?`},
		{"POST", "/refloat/v1/brakes?dry_run=true", `{"all": true, "kill": true, "reason": "x"}`, `unknown parameter \"dry_run\": remove it`},
		{"POST", "/refloat/v1/apply", `{"documents": [` + queue + `], "dryrun": true}`, `did you mean dryRun?`},
		{"POST", "/refloat/v1/apply?dry_run=true", `{"documents": [` + queue + `]}`, `unknown parameter \"dry_run\"`},
		{"PUT", "/refloat/v1/resources?generation=1&dryrun=true", queue, `did you mean dryRun?`},
		{"PUT", "/refloat/v1/resources?generation=1&document=x", queue, `unknown parameter \"document\"`},
		{"DELETE", "/refloat/v1/resources/Queue/ml?generaton=1", "", `did you mean generation?`},
		{"DELETE", "/refloat/v1/resources/Queue/ml?name=other", "", `unknown parameter \"name\"`},
		{"GET", "/refloat/v1/resources?knid=Queue", "", `did you mean kind?`},
		{"GET", "/refloat/v1/history?limitt=1", "", `did you mean limit?`},
		{"GET", "/refloat/v1/status?verbose=1", "", `unknown parameter \"verbose\": remove it`},
		{"POST", "/refloat/v1/rollback", `{"to": "1", "dryrun": true}`, `did you mean dryRun?`},
		{"POST", "/v1/retry-policy", `{"name": "p", "defaultAction": "Fail", "retrylimt": 3}`, `did you mean retryLimit?`},
		{"PUT", "/v1/retry-policy/p?force=1", `{"name": "p", "defaultAction": "Fail"}`, `unknown parameter \"force\"`},
		{"GET", "/v1/retry-policies?limit=1", "", `unknown parameter \"limit\"`},
		{"DELETE", "/refloat/v1/resources/Queue/ml", `{"dryRun": true}`, `takes no body`},
		{"DELETE", "/v1/retry-policy/p", `{"name": "q"}`, `takes no body`},
		{"GET", "/refloat/v1/status", `{}`, `takes no body`},
		{"POST", "/refloat/v1/resources", `{"kind": "Queue", "name": "a"} {"kind": "Queue", "name": "b"}`, `after the first JSON value`},
		{"POST", "/refloat/v1/apply", `{"documents": [` + queue + `]}]`, `after the first JSON value`},
		{"POST", "/refloat/v1/brakes", `{"all": true, "kill": true, "reason": "x"} {"dryRun": true}`, `after the first JSON value`},
		{"POST", "/v1/retry-policy", `{"name": "p", "defaultAction": "Fail"} {"retryLimit": 3}`, `after the first JSON value`},
	} {
		if code, text := w.rest(c.method, c.path, c.body); code != 400 || !strings.Contains(text, c.want) {
			t.Errorf("%s %s %s: %d %s; want 400 and %s", c.method, c.path, c.body, code, text, c.want)
		}
	}
	s, err := w.Status(t.Context(), &pb.StatusRequest{})
	if err != nil || s.Generation != 1 || len(s.Brakes) > 0 {
		t.Errorf("after that: %v, %v", s, err)
	}
	// Both spellings of a field are known.
	for _, path := range []string{"?generation=1&dry_run=true&request_id=a", "?generation=1&dryRun=true&requestId=b"} {
		if code, text := w.rest("PUT", "/refloat/v1/resources"+path, queue); code != 200 {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, text := w.rest("PUT", "/refloat/v1/resources?generation=1&dry_run=true&request_id=c", queue+" \r\n\t"); code != 200 {
		t.Errorf("a body with white space at its end: %d %s", code, text)
	}
	// Over gRPC, a newer client may ask for more than is known here.
	r := &pb.DeleteRequest{Kind: "Queue", Name: "ml"}
	r.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	_, err = w.Delete(t.Context(), r)
	w.refused(err, codes.InvalidArgument, "upgrade the server")
}

// TestHeaders: answers over REST are kept by nobody, and are nothing but what they say.
func TestHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, code := range map[string]int{"/refloat/v1/status": 200, "/refloat/v1/resources?nope=1": 400, "/refloat/v1/nope": 404, "/v1/retry-policies": 200, api.OpenAPIPath: 200} {
		resp, err := http.Get("http://" + w.address + path) //nolint:noctx // it ends with the server
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if h := resp.Header; resp.StatusCode != code || h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d with %v", path, resp.StatusCode, h)
		}
	}
}
