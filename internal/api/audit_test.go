package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
)

// readers are the methods that change nothing.
var readers = []string{"List", "Get", "History", "Status", "GetRetryPolicy", "GetRetryPolicies", "GetQueues"}

// changing lists the methods of the policy API and of Armada's service that change something, by their names.
func changing(t *testing.T) map[string]protoreflect.MethodDescriptor {
	t.Helper()
	all := map[string]protoreflect.MethodDescriptor{}
	for _, file := range []protoreflect.FileDescriptor{pb.File_internal_api_pb_policies_proto, pb.File_internal_api_pb_armada_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				all[string(service.Methods().Get(j).Name())] = service.Methods().Get(j)
			}
		}
	}
	for _, name := range readers {
		if all[name] == nil {
			t.Errorf("there is no method %s", name)
		}
		delete(all, name)
	}
	return all
}

// TestAudit: each change is one line of the log, whether it is made or refused; a method that changes something and has no row
// here fails.
func TestAudit(t *testing.T) {
	t.Parallel()
	auth := &api.Auth{
		Tokens: map[string]api.Token{
			"ci":     {SHA256: digestOf(ciToken), Groups: []string{"ops"}},
			"reader": {SHA256: digestOf("token-of-a-reader"), Groups: []string{"readers"}},
		},
		Permissions: everybody(),
	}
	if err := auth.Check(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(s *api.Service) {
		s.Auth = auth
		s.Orders = func(context.Context, *pb.OrderRequest, string) ([]*pb.OrderedJob, error) { return nil, nil }
	})
	as := func(token string) metadata.MD { return metadata.Pairs("authorization", "Bearer "+token) }
	ops := metadata.NewOutgoingContext(t.Context(), as(ciToken))
	for _, r := range []*pb.CreateRequest{{Document: w.queue("a", "")}, {Document: w.queue("b", "")}} {
		if _, err := w.Create(ops, r); err != nil {
			t.Fatal(err)
		}
	}
	soon := timestamppb.New(noon.Add(time.Hour))
	rows := []struct {
		method string
		r      proto.Message
		says   string
	}{
		{"Create", &pb.CreateRequest{Document: w.queue("c", ""), Reason: "more \"jobs\"\nwho=root"}, `document="Queue c" reason="more \"jobs\"who=root"`},
		{"Update", &pb.UpdateRequest{Document: w.queue("a", `, "mode": "Shadow"`), Generation: 1}, `document="Queue a" generation=1`},
		{"Delete", &pb.DeleteRequest{Kind: "Queue", Name: "b", Reason: "gone"}, "kind=Queue name=b"},
		{"Apply", &pb.ApplyRequest{Documents: []*structpb.Struct{w.queue("d", ""), w.queue("e", "")}}, `documents="Queue d, Queue e"`},
		{"RollBack", &pb.RollBackRequest{Kind: "Queue", Name: "a", To: 1}, "to=1"},
		{"Brake", &pb.BrakeRequest{Queue: "a", PausedUntil: soon, Reason: "INC-1"}, "queue=a"},
		{"Release", &pb.ReleaseRequest{Queue: "a", Reason: "over"}, "queue=a"},
		{"Order", &pb.OrderRequest{Action: "Retry", Jobs: []string{"j1", "j2"}, Max: 2, Reason: "the disk is back"}, `jobs="j1, j2" max=2 reason="the disk is back"`},
		{"CreateRetryPolicy", &pb.RetryPolicy{Name: "p", RetryLimit: 1, DefaultAction: pb.RetryAction_RETRY_ACTION_RETRY}, "name=p"},
		{"UpdateRetryPolicy", &pb.RetryPolicy{Name: "p", RetryLimit: 2, DefaultAction: pb.RetryAction_RETRY_ACTION_RETRY}, "name=p"},
		{"DeleteRetryPolicy", &pb.RetryPolicyDeleteRequest{Name: "p"}, "name=p"},
	}
	left := changing(t)
	for _, row := range rows {
		m := left[row.method]
		if m == nil {
			t.Fatalf("%s is no method that changes something, or has two rows", row.method)
		}
		delete(left, row.method)
		path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
		out, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ token, who, result, says string }{
			{"nonsense", `"nobody who could be authenticated"`, "Unauthenticated", "path=" + path},
			{"token-of-a-reader", "reader", "PermissionDenied", "path=" + path},
			{ciToken, "ci", "OK", row.says},
		} {
			before := len(w.logged.String())
			_ = w.conn.Invoke(metadata.NewOutgoingContext(t.Context(), as(c.token)), path, row.r, out.New().Interface())
			lines := auditLines(w.logged.String()[before:])
			want := fmt.Sprintf("who=%s action=%s result=%s from=127.0.0.1 via=grpc ", c.who, row.method, c.result)
			if len(lines) != 1 || !strings.Contains(lines[0], want) || !strings.Contains(lines[0], c.says) {
				t.Errorf("%s by %s: %q, want one line with %s and %s", row.method, c.who, lines, want, c.says)
			}
		}
	}
	for name := range left {
		t.Errorf("%s changes something and has no row", name)
	}
	before := len(w.logged.String())
	w.rest("POST", "/refloat/v1/brakes", `{"queue": "a", "kill": true, "reason": "r"}`, "Authorization", "Bearer "+ciToken)
	w.rest("POST", "/refloat/v1/brakes", `{"queue": "a", "kill": true, "reason": "r"}`)
	w.rest("POST", "/refloat/v1/brakes", `{"queue": "nobody's", "kill": true, "reason": "r"}`, "Authorization", "Bearer "+ciToken)
	lines := auditLines(w.logged.String()[before:])
	if len(lines) != 3 || !strings.Contains(lines[0], "result=OK from=127.0.0.1 via=rest queue=a kill=true") ||
		!strings.Contains(lines[1], "result=Unauthenticated") || !strings.Contains(lines[2], "result=NotFound") {
		t.Errorf("over REST: %q", lines)
	}
	if text := w.logged.String(); strings.Contains(text, ciToken) || strings.Contains(text, "nonsense") {
		t.Errorf("a token is logged: %s", text)
	}
	before = len(w.logged.String())
	if _, err := w.List(ops, &pb.ListRequest{}); err != nil {
		t.Fatal(err)
	}
	if lines := auditLines(w.logged.String()[before:]); len(lines) != 0 {
		t.Errorf("a list is no change: %q", lines)
	}
}

// auditLines returns the lines about changes.
func auditLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, " msg=audit ") {
			lines = append(lines, line)
		}
	}
	return lines
}
