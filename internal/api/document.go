package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/suggest"
)

// fileOf converts a document of a request to a file. The name is for errors only.
func fileOf(name string, doc *structpb.Struct) (policyfile.File, error) {
	if len(doc.GetFields()) == 0 {
		return policyfile.File{}, status.Errorf(codes.InvalidArgument, "%s: missing: give a resource in the format of policy files, with its kind", name)
	}
	b, err := json.Marshal(doc.AsMap())
	if err != nil {
		return policyfile.File{}, status.Errorf(codes.InvalidArgument, "%s: %v", name, err)
	}
	return policyfile.File{Name: name, Data: b}, nil
}

// resourceOf returns a resource of a generation, with the queues that use it as far as a caller may know of them.
func (s *Service) resourceOf(who Principal, snap *policylog.Snapshot, id policyfile.ID) (*pb.Resource, error) {
	doc, err := documentOf(snap.Base, id)
	if err != nil {
		return nil, err
	}
	r := &pb.Resource{Kind: id.Kind, Name: id.Name, Document: doc, Generation: snap.Since[id]}
	if id.Kind == policyfile.KindPolicy {
		for _, user := range snap.Base.Users(id.Name) {
			if s.Auth.knowsID(who, user) {
				r.UsedBy = append(r.UsedBy, user.String())
			}
		}
	}
	return r, nil
}

func documentOf(set *policyfile.Set, id policyfile.ID) (*structpb.Struct, error) {
	text, err := set.JSON(id)
	if err != nil {
		return nil, err
	}
	doc := &structpb.Struct{}
	if err := doc.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	return doc, nil
}

// DocumentsOf returns the resources of a set as requests have them.
func DocumentsOf(set *policyfile.Set) (docs []*structpb.Struct, err error) {
	for _, id := range set.Resources() {
		doc, err := documentOf(set, id)
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	return docs, nil
}

// idOf checks the kind and name in a request.
func idOf(kind, name string) (policyfile.ID, error) {
	id := policyfile.ID{Kind: kind, Name: name}
	if err := checkKind(kind); err != nil {
		return id, err
	}
	switch {
	case kind == policyfile.KindSettings && name != "":
		return id, status.Errorf(codes.InvalidArgument, "name %.60q: %s has no name", name, kind)
	case kind != policyfile.KindSettings && name == "":
		return id, status.Errorf(codes.InvalidArgument, "name: missing: which %s?", kind)
	}
	return id, nil
}

// optionalIDOf is idOf, or the zero ID if both are empty.
func optionalIDOf(kind, name string) (policyfile.ID, error) {
	if kind == "" && name == "" {
		return policyfile.ID{}, nil
	}
	return idOf(kind, name)
}

func checkKind(kind string) error {
	if slices.Contains(policyfile.Kinds(), kind) {
		return nil
	}
	fix := suggest.Fix(kind, policyfile.Kinds(), "use one of "+strings.Join(policyfile.Kinds(), ", "))
	return status.Errorf(codes.InvalidArgument, "kind %.60q: %s", kind, fix)
}

// invalid is the answer to invalid documents: all problems, by field.
func invalid(err error) error {
	var problems policyfile.Problems
	if !errors.As(err, &problems) {
		return err
	}
	s := status.New(codes.InvalidArgument, describe(problems))
	bad := &errdetails.BadRequest{}
	for _, p := range problems {
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: p.File + ": " + p.Path, Description: p.Message + ". fix: " + p.Fix, Reason: p.Code,
		})
	}
	if with, err := s.WithDetails(bad); err == nil {
		s = with
	}
	return s.Err()
}

const shownProblems = 5

func describe(problems policyfile.Problems) string {
	var lines []string
	for i, p := range problems {
		if i == shownProblems {
			lines = append(lines, fmt.Sprintf("and %d more", len(problems)-i))
			break
		}
		value := ""
		if p.Value != "" {
			value = fmt.Sprintf(" (%.60q)", p.Value)
		}
		lines = append(lines, fmt.Sprintf("%s: %s %s%s: %s. fix: %s", p.File, p.Code, p.Path, value, p.Message, p.Fix))
	}
	return strings.Join(lines, "; ")
}

func stamp(nanos int64) *timestamppb.Timestamp {
	if nanos == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, nanos))
}

func changesOf(changes []policylog.Change) []*pb.ResourceChange {
	out := make([]*pb.ResourceChange, len(changes))
	for i, c := range changes {
		out[i] = &pb.ResourceChange{Kind: c.Kind, Name: c.Name, Op: string(c.Op)}
	}
	return out
}

func overridesOf(overrides []policylog.Override) []*pb.BrakeState {
	out := make([]*pb.BrakeState, len(overrides))
	for i, b := range overrides {
		out[i] = OverrideState(b)
	}
	return out
}

// OverrideState converts an override to its API form.
func OverrideState(b policylog.Override) *pb.BrakeState {
	return &pb.BrakeState{
		Queue: b.Queue, Kill: b.Kill, PausedUntil: stamp(b.PausedUntil),
		Author: b.Author, Reason: b.Reason, Time: stamp(b.Time),
		Node: b.Node, AvoidedUntil: stamp(b.AvoidedUntil), TrustedUntil: stamp(b.TrustedUntil),
		Category: b.Category, Subcategory: b.Subcategory, HeldUntil: stamp(b.HeldUntil),
	}
}

// OverrideOf converts an override from its API form.
func OverrideOf(b *pb.BrakeState) policylog.Override {
	return policylog.Override{Override: policyfile.Override{
		Queue: b.Queue, Kill: b.Kill, PausedUntil: nanos(b.PausedUntil), Node: b.Node, AvoidedUntil: nanos(b.AvoidedUntil), TrustedUntil: nanos(b.TrustedUntil),
		Category: b.Category, Subcategory: b.Subcategory, HeldUntil: nanos(b.HeldUntil),
	}, Author: b.Author, Reason: b.Reason, Time: nanos(b.Time)}
}

func nanos(t *timestamppb.Timestamp) int64 {
	if t == nil {
		return 0
	}
	return t.AsTime().UnixNano()
}
