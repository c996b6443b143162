package api

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api/pb"
)

// Each change that is asked for, also one that is refused, is one line of the log: who, what, where from, with what result.
// The message of an error stays out of it, which may repeat what a caller sent.

// origin is where a request comes from.
type origin struct{ address, via string }

type originKey struct{}

// audited makes a change, and logs it.
func audited[R proto.Message, A any](ctx context.Context, s *Service, action string, r R, do func(context.Context, R) (A, error)) (answer A, err error) {
	result := codes.Internal // of a panic
	defer func() {
		who, _ := ctx.Value(admitted{}).(Principal)
		s.audit(ctx, who, action, result, attrsOf(r.ProtoReflect())...)
	}()
	answer, err = do(ctx, r)
	result = status.Code(err)
	return answer, err
}

// audit logs a change.
func (s *Service) audit(ctx context.Context, who Principal, action string, result codes.Code, what ...slog.Attr) {
	if s.Log == nil {
		return
	}
	from, _ := ctx.Value(originKey{}).(origin)
	name := who.String()
	if who.Name == "" {
		name = "nobody who could be authenticated"
	}
	attrs := append([]slog.Attr{slog.String("who", name), slog.String("action", action), slog.String("result", result.String()), slog.String("from", from.address), slog.String("via", from.via)}, what...)
	s.Log.LogAttrs(ctx, slog.LevelInfo, "audit", attrs...)
}

// refused logs a change that is refused before its body is read.
func (s *Service) refused(r *http.Request, who Principal, c *call, err error) {
	if status.Code(err) == codes.Internal {
		return // of a panic, in a change that is logged
	}
	if c.group == changes || c.group == bulk || c.group == overrides {
		s.audit(r.Context(), who, c.name, status.Code(err), slog.String("path", r.URL.Path))
	}
}

// Refused logs a change that the page refuses before it asks the service for it.
func (s *Service) Refused(ctx context.Context, who Principal, action string, err error) {
	s.audit(ctx, who, action, status.Code(err))
}

// maxNamed limits the documents, or jobs, that a line of the log names.
const maxNamed = 20

// attrsOf says what a request asks for: its fields but for documents, of which it has kinds and names.
func attrsOf(m protoreflect.Message) (what []slog.Attr) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := string(f.Name())
		switch v := m.Get(f); {
		case !m.Has(f) || name == "request_id":
		case f.IsList() && f.Message() != nil && f.Message().FullName() == "google.protobuf.Struct":
			what = append(what, slog.String(name, firstNames(v.List(), func(v protoreflect.Value) string { return namedIn(v.Message()) })))
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			what = append(what, slog.String(name, firstNames(v.List(), func(v protoreflect.Value) string { return nameFor(v.String()) })))
		case f.IsList() || f.IsMap():
		case f.Message() == nil:
			what = append(what, slog.String(name, nameFor(fmt.Sprint(v.Interface()))))
		case f.Message().FullName() == "google.protobuf.Struct":
			what = append(what, slog.String(name, namedIn(v.Message())))
		default:
			if t, ok := v.Message().Interface().(*timestamppb.Timestamp); ok {
				what = append(what, slog.String(name, t.AsTime().UTC().Format("2006-01-02T15:04:05Z")))
			}
		}
	}
	return what
}

// firstNames names the first elements of a list.
func firstNames(l protoreflect.List, name func(protoreflect.Value) string) string {
	var names []string
	for i := range min(l.Len(), maxNamed) {
		names = append(names, name(l.Get(i)))
	}
	if more := l.Len() - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// namedIn returns kind and name of a document.
func namedIn(m protoreflect.Message) string {
	doc, ok := m.Interface().(*structpb.Struct)
	if !ok {
		return ""
	}
	name := cmp.Or(doc.GetFields()["name"].GetStringValue(), doc.GetFields()["metadata"].GetStructValue().GetFields()["name"].GetStringValue())
	return nameFor(strings.TrimSpace(doc.GetFields()["kind"].GetStringValue() + " " + name))
}

// Create implements pb.PoliciesServer.
func (s *Service) Create(ctx context.Context, r *pb.CreateRequest) (*pb.Change, error) {
	return audited(ctx, s, "Create", r, s.create)
}

// Update implements pb.PoliciesServer.
func (s *Service) Update(ctx context.Context, r *pb.UpdateRequest) (*pb.Change, error) {
	return audited(ctx, s, "Update", r, s.update)
}

// Delete implements pb.PoliciesServer.
func (s *Service) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.Change, error) {
	return audited(ctx, s, "Delete", r, s.remove)
}

// Apply implements pb.PoliciesServer.
func (s *Service) Apply(ctx context.Context, r *pb.ApplyRequest) (*pb.Change, error) {
	return audited(ctx, s, "Apply", r, s.apply)
}

// RollBack implements pb.PoliciesServer.
func (s *Service) RollBack(ctx context.Context, r *pb.RollBackRequest) (*pb.Change, error) {
	return audited(ctx, s, "RollBack", r, s.rollBack)
}

// Brake implements pb.PoliciesServer.
func (s *Service) Brake(ctx context.Context, r *pb.BrakeRequest) (*pb.Change, error) {
	return audited(ctx, s, "Brake", r, s.brake)
}

// Release implements pb.PoliciesServer.
func (s *Service) Release(ctx context.Context, r *pb.ReleaseRequest) (*pb.Change, error) {
	return audited(ctx, s, "Release", r, s.release)
}

// Order implements pb.PoliciesServer.
func (s *Service) Order(ctx context.Context, r *pb.OrderRequest) (*pb.OrderResponse, error) {
	return audited(ctx, s, "Order", r, s.order)
}

// CreateRetryPolicy implements pb.RetryPolicyServiceServer.
func (a *Armada) CreateRetryPolicy(ctx context.Context, r *pb.RetryPolicy) (*emptypb.Empty, error) {
	return audited(ctx, a.Service, "CreateRetryPolicy", r, func(ctx context.Context, r *pb.RetryPolicy) (*emptypb.Empty, error) {
		return a.put(ctx, r, CreateRetryPolicy)
	})
}

// UpdateRetryPolicy implements pb.RetryPolicyServiceServer.
func (a *Armada) UpdateRetryPolicy(ctx context.Context, r *pb.RetryPolicy) (*emptypb.Empty, error) {
	return audited(ctx, a.Service, "UpdateRetryPolicy", r, func(ctx context.Context, r *pb.RetryPolicy) (*emptypb.Empty, error) {
		return a.put(ctx, r, UpdateRetryPolicy)
	})
}

// DeleteRetryPolicy implements pb.RetryPolicyServiceServer.
func (a *Armada) DeleteRetryPolicy(ctx context.Context, r *pb.RetryPolicyDeleteRequest) (*emptypb.Empty, error) {
	return audited(ctx, a.Service, "DeleteRetryPolicy", r, a.remove)
}
