package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy"
)

// armadactl, as it goes over the wire: what it sends is built here field by field,
// by numbers and wire types alone, and what it gets is read so.

// raw passes bytes through.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = slices.Clone(data); return nil }
func (raw) Name() string                       { return "proto" }

// armadactl calls a method of Armada's service as the real one does: compressed, and
// with a user and a password where there is one.
func (w *world) armadactl(method string, request ...[]byte) ([]byte, error) {
	w.Helper()
	return w.call(w.Context(), "/api.RetryPolicyService/"+method, request...)
}

func (w *world) call(ctx context.Context, method string, request ...[]byte) ([]byte, error) {
	in, out := bytes.Join(request, nil), []byte(nil)
	err := w.conn.Invoke(ctx, method, &in, &out, grpc.ForceCodec(raw{}), grpc.UseCompressor("gzip"), grpc.WaitForReady(true))
	return out, err
}

// done fails the test where armadactl would report an error.
func (w *world) done(method string, request ...[]byte) []byte {
	w.Helper()
	out, err := w.armadactl(method, request...)
	if err != nil {
		w.Fatalf("%s: %v", method, err)
	}
	return out
}

func text(n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), s)
}

func number(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

func double(n protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(nil, n, protowire.Fixed64Type), math.Float64bits(v))
}

func message(n protowire.Number, fields ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), bytes.Join(fields, nil))
}

// The fields of a RetryPolicy and of a RetryRule, and the values of a RetryAction.
const (
	nName, nLimit, nDefault, nRule            = 1, 2, 3, 4
	nAction, nCategory, nSubcategory, nMutate = 1, 5, 6, 7
	actFail, actRetry                         = 1, 2
)

// What Armada's own Python client (0.5.1, protobuf) writes for these messages.
const (
	wholePolicy  = "0a05696e66726110ac021801221b08022a097472616e7369656e74320c6e6f64652d6661696c757265220808012a0475736572"
	mutatePolicy = "0a016d1802221a08022a036f6f6d3a110a020801120b0a0911000000000000f83f"
	nameRequest  = "0a05696e667261"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func infraBytes() []byte {
	return slices.Concat(text(nName, "infra"), number(nLimit, 300), number(nDefault, actFail),
		message(nRule, number(nAction, actRetry), text(nCategory, "transient"), text(nSubcategory, "node-failure")),
		message(nRule, number(nAction, actFail), text(nCategory, "user")))
}

// What is built here is what an Armada client writes.
func TestArmadaBytes(t *testing.T) {
	t.Parallel()
	mutate := slices.Concat(text(nName, "m"), number(nDefault, actRetry), message(nRule, number(nAction, actRetry), text(nCategory, "oom"),
		message(nMutate, message(1, number(1, 1)), message(2, message(1, double(2, 1.5))))))
	for want, got := range map[string][]byte{wholePolicy: infraBytes(), mutatePolicy: mutate, nameRequest: text(1, "infra")} {
		if !bytes.Equal(got, unhex(t, want)) {
			t.Errorf("%x, want %s", got, want)
		}
	}
}

// create, get, get all, update and delete, byte for byte.
func TestArmadactl(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := text(1, "infra")
	if out := w.done("GetRetryPolicies"); len(out) != 0 {
		t.Errorf("an empty list is %x", out)
	}
	if out := w.done("CreateRetryPolicy", infraBytes()); len(out) != 0 {
		t.Errorf("created: %x", out)
	}
	if out := w.done("GetRetryPolicy", name); !bytes.Equal(out, infraBytes()) {
		t.Errorf("got %x, want what was sent: %x", out, infraBytes())
	}
	other := slices.Concat(text(nName, "app"), number(nDefault, actRetry))
	w.done("CreateRetryPolicy", other)
	if out, want := w.done("GetRetryPolicies"), slices.Concat(message(1, other), message(1, infraBytes())); !bytes.Equal(out, want) {
		t.Errorf("listed %x, want %x", out, want)
	}

	// create replaces, as update does.
	shorter := slices.Concat(text(nName, "infra"), number(nLimit, 1), number(nDefault, actRetry))
	w.done("CreateRetryPolicy", shorter)
	if out := w.done("GetRetryPolicy", name); !bytes.Equal(out, shorter) {
		t.Errorf("created again: %x, want %x", out, shorter)
	}
	w.done("UpdateRetryPolicy", infraBytes())
	w.done("UpdateRetryPolicy", infraBytes()) // again, as after a lost answer
	if out := w.done("GetRetryPolicy", name); !bytes.Equal(out, infraBytes()) {
		t.Errorf("updated: %x, want %x", out, infraBytes())
	}
	_, err := w.armadactl("UpdateRetryPolicy", text(nName, "nobody"), number(nDefault, actFail))
	w.refused(err, codes.NotFound, `"nobody"`)
	_, err = w.armadactl("GetRetryPolicy", text(1, "nobody"))
	w.refused(err, codes.NotFound, `"nobody"`)
	for _, method := range []string{"GetRetryPolicy", "DeleteRetryPolicy", "CreateRetryPolicy", "UpdateRetryPolicy"} {
		_, err := w.armadactl(method)
		w.refused(err, codes.InvalidArgument, "name")
	}

	// delete takes it from the queues and the settings that name it, and may be repeated.
	w.create(w.queue("ml", `, "retryPolicies": ["infra", "app"], "mode": "Shadow"`), w.doc(`{"kind": "RetrySettings", "spec": {"defaultPolicyName": "infra"}}`))
	for range 2 {
		if out := w.done("DeleteRetryPolicy", name); len(out) != 0 {
			t.Errorf("deleted: %x", out)
		}
	}
	ml, err := w.Get(t.Context(), &pb.GetRequest{Kind: "Queue", Name: "ml"})
	if err != nil || len(ml.Document.Fields["retryPolicies"].GetListValue().GetValues()) != 1 || ml.Document.Fields["mode"].GetStringValue() != "Shadow" {
		t.Errorf("the queue is now %v, %v", ml, err)
	}
	_, err = w.Get(t.Context(), &pb.GetRequest{Kind: "RetrySettings"})
	w.refused(err, codes.NotFound)

	// armadactl create -f with a queue: that service is not ours.
	_, err = w.call(t.Context(), "/api.Submit/CreateQueue", text(1, "ml"))
	w.refused(err, codes.Unimplemented)
}

// An absent retry_limit is 0, and 0 is never.
func TestArmadaLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for limit, want := range []policy.Code{policy.PolicyLimit, policy.DefaultRetry} {
		request := [][]byte{text(nName, "p"), number(nDefault, actRetry)}
		if limit > 0 {
			request = append(request, number(nLimit, uint64(limit)))
		}
		w.done("CreateRetryPolicy", request...)
		if limit == 0 {
			w.create(w.doc(`{"kind": "RetrySettings", "spec": {"defaultPolicyName": "p"}}`))
		}
		now, err := w.service.Store.Newest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if v := now.Set.Evaluate(&policy.Failure{Queue: "ml"}, &policy.Counts{}); v.Code != want || v.Requeue != (limit > 0) {
			t.Errorf("with limit %d: %+v, want %v", limit, v, want)
		}
	}
}

// TestArmadaFields checks that unknown fields, and those that the rules of Armada's proposal had, are ignored as
// in proto3. mutate is known, and refused with its path.
func TestArmadaFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unknown := slices.Concat(number(90, 7), text(91, "x"), double(92, 1.5), message(93, text(1, "y")),
		protowire.AppendFixed32(protowire.AppendTag(nil, 94, protowire.Fixed32Type), 1))
	reserved := slices.Concat(text(2, "OOMKilled"), message(3, number(1, 137)), message(4, text(1, ".*")))
	w.done("CreateRetryPolicy", unknown, text(nName, "p"), number(nDefault, actFail), unknown,
		message(nRule, reserved, unknown, number(nAction, actRetry), text(nCategory, "oom")))
	plain := slices.Concat(text(nName, "p"), number(nDefault, actFail), message(nRule, number(nAction, actRetry), text(nCategory, "oom")))
	if out := w.done("GetRetryPolicy", text(1, "p"), unknown); !bytes.Equal(out, plain) {
		t.Errorf("%x, want %x", out, plain)
	}
	// The last occurrence of a repeated scalar field wins; an enum may be any number.
	w.done("CreateRetryPolicy", number(nDefault, actRetry), text(nName, "q"), text(nName, "p"), number(nDefault, actFail))
	for _, action := range []uint64{0, 3, 1 << 40} {
		_, err := w.armadactl("CreateRetryPolicy", text(nName, "p"), number(nDefault, action))
		w.refused(err, codes.InvalidArgument, "invalid retry policy", "defaultAction")
	}
	// A rule of reserved fields alone has no matcher.
	_, err := w.armadactl("CreateRetryPolicy", text(nName, "p"), number(nDefault, actFail), message(nRule, reserved, number(nAction, actRetry)))
	w.refused(err, codes.InvalidArgument, "rules[0].onCategory")

	empty := message(nMutate, message(1), message(2))
	w.done("CreateRetryPolicy", text(nName, "p"), number(nDefault, actFail), message(nRule, number(nAction, actRetry), text(nCategory, "oom"), empty))
	for _, mutate := range [][]byte{
		message(nMutate, message(1, number(1, 1))), message(nMutate, message(2, message(1, text(1, "1Gi")))),
		message(nMutate, message(2, message(1, double(2, 1.5)))), message(nMutate, message(2, message(1))),
	} {
		rule := slices.Concat(number(nAction, actRetry), text(nCategory, "oom"))
		_, err := w.armadactl("UpdateRetryPolicy", text(nName, "p"), number(nDefault, actFail), message(nRule, rule), message(nRule, rule, mutate))
		w.refused(err, codes.InvalidArgument, "rules[1].mutate", "antiAffinity")
	}
	_, err = w.armadactl("CreateRetryPolicy", []byte{0xff})
	w.refused(err, codes.Internal)
}

// A policy that says more than Armada's form can is neither shown nor overwritten nor
// lost, and is named in a header; it can be deleted.
func TestArmadaBeyond(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(w.policy("rich", evict), w.policy("plain", `"retryLimit": 2, "defaultAction": "Fail"`))
	in, out, header := []byte{}, []byte(nil), metadata.MD{}
	if err := w.conn.Invoke(t.Context(), "/api.RetryPolicyService/GetRetryPolicies", &in, &out, grpc.ForceCodec(raw{}), grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	want := message(1, text(nName, "plain"), number(nLimit, 2), number(nDefault, actFail))
	if !bytes.Equal(out, want) || !slices.Equal(header.Get("refloat-left-out"), []string{"rich"}) {
		t.Errorf("listed %x, want %x; header %v", out, want, header)
	}
	_, err := w.armadactl("GetRetryPolicy", text(1, "rich"))
	w.refused(err, codes.FailedPrecondition, "rich", "spec.rules[0].onConditions", "refloatctl")
	for _, method := range []string{"CreateRetryPolicy", "UpdateRetryPolicy"} {
		_, err := w.armadactl(method, text(nName, "rich"), number(nDefault, actFail))
		w.refused(err, codes.FailedPrecondition, "is not overwritten", "spec.rules[0].onConditions")
	}
	if rich, err := w.Get(t.Context(), &pb.GetRequest{Kind: "RetryPolicy", Name: "rich"}); err != nil || rich.Generation != 1 {
		t.Errorf("rich: %v, %v", rich, err)
	}
	w.done("DeleteRetryPolicy", text(1, "rich"))
}

// Permissions are Armada's: that of the call, whatever the call then changes.
func TestArmadaPermissions(t *testing.T) {
	t.Parallel()
	hash, err := bcrypt.GenerateFromPassword([]byte("se:cret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	auth := &api.Auth{
		Basic: map[string]api.BasicUser{
			"ann": {PasswordHash: string(hash), Groups: []string{"makers"}},
			"bob": {PasswordHash: string(hash), Groups: []string{"cleaners"}},
			"eve": {PasswordHash: string(hash)},
		},
		Permissions: map[api.Verb][]string{
			api.CreateRetryPolicy: {"makers"}, api.DeleteRetryPolicy: {"cleaners"}, api.BindRetryPolicies: {"binders"},
		},
	}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.done("CreateRetryPolicy", infraBytes())
	w.create(w.queue("ml", `, "retryPolicies": ["infra"]`))
	w.serve(func(s *api.Service) { s.Auth = auth })
	as := func(user, method string, request []byte) error {
		ctx := t.Context()
		if user != "" {
			// The scheme as armadactl writes it, in small letters.
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "basic "+base64.StdEncoding.EncodeToString([]byte(user+":se:cret")))
		}
		_, err := w.call(ctx, "/api.RetryPolicyService/"+method, request)
		return err
	}
	name, changed := text(1, "infra"), slices.Concat(text(nName, "infra"), number(nDefault, actFail))
	for _, c := range []struct {
		user, method string
		request      []byte
		code         codes.Code
	}{
		{"", "GetRetryPolicies", nil, codes.Unauthenticated},
		{"mallory", "GetRetryPolicies", nil, codes.Unauthenticated},
		{"eve", "GetRetryPolicies", nil, codes.OK},
		{"eve", "GetRetryPolicy", name, codes.OK},
		{"eve", "CreateRetryPolicy", infraBytes(), codes.PermissionDenied}, // though nothing would change
		{"eve", "DeleteRetryPolicy", text(1, "nobody"), codes.PermissionDenied},
		{"ann", "UpdateRetryPolicy", changed, codes.PermissionDenied},
		{"ann", "CreateRetryPolicy", changed, codes.OK}, // replaces, and needs no more than to create
		{"ann", "DeleteRetryPolicy", name, codes.PermissionDenied},
		{"bob", "DeleteRetryPolicy", name, codes.OK}, // and so changes what a queue names
	} {
		if err := as(c.user, c.method, c.request); c.code != codes.OK || err != nil {
			w.refused(err, c.code)
		}
	}
	h, err := w.service.Store.History(t.Context())
	if err != nil || h[0].Author != "bob" || h[1].Author != "ann" {
		t.Errorf("the last changes are by %s and %s; %v", h[0].Author, h[1].Author, err)
	}
}

// Armada's REST, with the words that reach its server: an action is a word in any case,
// the enum's name or its number.
func TestArmadaREST(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(w.policy("rich", evict))
	for _, c := range []struct {
		method, path, body string
		code               int
		has                string
	}{
		{"GET", "/v1/retry-policies", "", 200, "{}"},
		{"POST", "/v1/retry-policy", `{"name": "a", "retryLimit": 3, "defaultAction": "Fail", "rules": [{"action": "retry", "onCategory": "x", "onSubcategory": "y"}]}`, 200, "{}"},
		{"GET", "/v1/retry-policy/a", "", 200, `{"name":"a","retryLimit":3,"defaultAction":"Fail","rules":[{"action":"Retry","onCategory":"x","onSubcategory":"y"}]}`},
		{"POST", "/v1/retry-policy", `{"name": "b", "defaultAction": "RETRY_ACTION_RETRY", "rules": [{"action": 1, "onCategory": "x", "mutate": null}]}`, 200, "{}"},
		{"GET", "/v1/retry-policies", "", 200, `{"retryPolicies":[{"name":"a","retryLimit":3,"defaultAction":"Fail","rules":[{"action":"Retry","onCategory":"x","onSubcategory":"y"}]},` +
			`{"name":"b","defaultAction":"Retry","rules":[{"action":"Fail","onCategory":"x"}]}]}`},
		{"PUT", "/v1/retry-policy/b", `{"name": "other", "defaultAction": "FAIL"}`, 200, "{}"}, // the path names it
		{"GET", "/v1/retry-policy/b", "", 200, `{"name":"b","defaultAction":"Fail"}`},
		{"GET", "/v1/retry-policy/other", "", 404, "does not exist"},
		{"PUT", "/v1/retry-policy/other", `{"defaultAction": 2}`, 404, "does not exist"},
		{"POST", "/v1/retry-policy", `{"name": "c", "defaultAction": "Ignore"}`, 400, "use Fail or Retry"},
		{"POST", "/v1/retry-policy", `{"name": "c", "defaultAction": 7}`, 400, "defaultAction"},
		{"POST", "/v1/retry-policy", `{"name": "c"}`, 400, "defaultAction"},
		{"POST", "/v1/retry-policy", `{"name": "c", "defaultAction": "Fail", "retryLimit": -1}`, 400, "retryLimit"},
		{"POST", "/v1/retry-policy", `{"name": "c", "defaultAction": "Fail", "rules": [{"action": "Retry", "onCategory": "x", "mutate": {"affinity": {"avoidSameNode": true}}}]}`, 400, "rules[0].mutate"},
		{"POST", "/v1/retry-policy", `{"name": "c", "defaultAction": "Fail", "rules": [{"action": "Retry", "onCategory": "x", "mutate": {"resources": {"memory": {}}}}]}`, 400, "rules[0].mutate"},
		{"POST", "/v1/retry-policy", "", 400, "name"},
		{"POST", "/v1/retry-policy", `name: c`, 400, ""},
		{"GET", "/v1/retry-policy/rich", "", 400, "has fields that Armada's form does not have"},
		{"PUT", "/v1/retry-policy/rich", `{"defaultAction": "Fail"}`, 400, "is not overwritten"},
		{"DELETE", "/v1/retry-policy/b", "", 200, "{}"},
		{"DELETE", "/v1/retry-policy/b", "", 200, "{}"},
		{"GET", "/v1/retry-polices", "", 404, ""},
	} {
		code, body := w.rest(c.method, c.path, c.body)
		if c.code == 200 && strings.TrimSpace(body) != c.has || code != c.code || !strings.Contains(body, c.has) {
			t.Errorf("%s %s %s: %d %.500s, want %d %s", c.method, c.path, c.body, code, body, c.code, c.has)
		}
	}
	resp, err := http.Get("http://" + w.address + "/v1/retry-policies")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("refloat-left-out") != "rich" {
		t.Errorf("headers %v", resp.Header)
	}
}
