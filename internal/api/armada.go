package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// Armada implements Armada's RetryPolicyService on the same policies, with Armada's semantics (as of Armada 207cc9e04; docs/reference/api.md):
// create and update replace, an omitted retry_limit is 0 (never), deletion detaches from queues. A policy that
// Armada's form cannot express is neither shown nor overwritten.
type Armada struct {
	pb.UnimplementedRetryPolicyServiceServer

	Service *Service
}

// leftOut is the response header that lists policies which Armada's form cannot express.
const leftOut = "refloat-left-out"

// put requires only the verb of the call, as in Armada, where permission to create includes permission to replace.
func (a *Armada) put(ctx context.Context, r *pb.RetryPolicy, verb Verb) (*emptypb.Empty, error) {
	file, err := FlatFile(r)
	if err != nil {
		return nil, err
	}
	_, err = a.Service.change(ctx, &asked{request: r, verb: verb, lax: true, make: func(now policylog.Snapshot) (*policyfile.Set, error) {
		set, _, err := now.Base.With(file)
		if problems := policyfile.Problems(nil); errors.As(err, &problems) {
			return nil, status.Errorf(codes.InvalidArgument, "invalid retry policy: %s", describe(problems))
		} else if err != nil {
			return nil, err
		}
		switch _, is := now.Base.Body(policyfile.ID{Kind: policyfile.KindPolicy, Name: r.Name}); {
		case !is && verb == UpdateRetryPolicy:
			return nil, notFound(r.Name)
		case is:
			if err := expressible(now.Base, r.Name, "is not overwritten"); err != nil {
				return nil, err
			}
		}
		return set, nil
	}})
	return &emptypb.Empty{}, err
}

// FlatFile converts a policy of Armada's service to a file in Armada's flat form.
func FlatFile(r *pb.RetryPolicy) (policyfile.File, error) {
	type rule struct {
		Action        any    `json:"action,omitempty"`
		OnCategory    string `json:"onCategory,omitempty"`
		OnSubcategory string `json:"onSubcategory,omitempty"`
	}
	doc := struct {
		APIVersion    string `json:"apiVersion"`
		Kind          string `json:"kind"`
		Name          string `json:"name"`
		RetryLimit    uint32 `json:"retryLimit"`
		DefaultAction any    `json:"defaultAction,omitempty"`
		Rules         []rule `json:"rules,omitempty"`
	}{"armadaproject.io/v1beta1", policyfile.KindPolicy, r.GetName(), r.GetRetryLimit(), actionOf(r.GetDefaultAction()), nil}
	for i, in := range r.GetRules() {
		mutates := in.GetMutate().GetAffinity().GetAvoidSameNode() || in.GetMutate().GetResources().GetMemory() != nil
		if mutates {
			return policyfile.File{}, status.Errorf(codes.InvalidArgument,
				"invalid retry policy: rules[%d].mutate: not supported: to avoid nodes, write the policy in Refloat's form with antiAffinity, and use `refloatctl apply`", i)
		}
		doc.Rules = append(doc.Rules, rule{actionOf(in.GetAction()), in.GetOnCategory(), in.GetOnSubcategory()})
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return policyfile.File{}, fmt.Errorf("write %s: %w", doc.Name, err)
	}
	return policyfile.File{Name: "retry policy", Data: b}, nil
}

// actionOf formats an action for the flat form; nil: it is not set.
func actionOf(a pb.RetryAction) any {
	if a == pb.RetryAction_RETRY_ACTION_UNSPECIFIED {
		return nil
	}
	return int32(a)
}

// expressible returns an error for a policy that Armada's form cannot express.
func expressible(set *policyfile.Set, name, what string) error {
	if _, beyond := set.Flat(name); len(beyond) > 0 {
		if more := len(beyond) - shownProblems; more > 0 {
			beyond = append(beyond[:shownProblems], fmt.Sprintf("and %d more", more))
		}
		return status.Errorf(codes.FailedPrecondition, "retry policy %s has fields that Armada's form does not have (%s), and %s: use refloatctl", name, strings.Join(beyond, ", "), what)
	}
	return nil
}

func notFound(name string) error {
	return status.Errorf(codes.NotFound, "error: retry policy %q does not exist", name)
}

var errNoName = status.Error(codes.InvalidArgument, "retry policy name must not be empty")

func (a *Armada) remove(ctx context.Context, r *pb.RetryPolicyDeleteRequest) (*emptypb.Empty, error) {
	if r.GetName() == "" {
		return nil, errNoName
	}
	_, err := a.Service.change(ctx, &asked{request: r, verb: DeleteRetryPolicy, lax: true, make: func(now policylog.Snapshot) (*policyfile.Set, error) {
		id := policyfile.ID{Kind: policyfile.KindPolicy, Name: r.Name}
		if _, is := now.Base.Body(id); !is {
			return now.Base, nil
		}
		return now.Base.Detached(r.Name).Without(id), nil
	}})
	return &emptypb.Empty{}, err
}

// GetRetryPolicy implements pb.RetryPolicyServiceServer.
func (a *Armada) GetRetryPolicy(ctx context.Context, r *pb.RetryPolicyGetRequest) (*pb.RetryPolicy, error) {
	if r.GetName() == "" {
		return nil, errNoName
	}
	snap, err := a.Service.snapshot(ctx, 0)
	if err != nil {
		return nil, err
	}
	if _, is := snap.Base.Body(policyfile.ID{Kind: policyfile.KindPolicy, Name: r.Name}); !is {
		return nil, notFound(r.Name)
	}
	if err := expressible(snap.Base, r.Name, "cannot be shown in it"); err != nil {
		return nil, err
	}
	return armadaPolicy(snap.Base, r.Name), nil
}

// GetRetryPolicies implements pb.RetryPolicyServiceServer.
func (a *Armada) GetRetryPolicies(ctx context.Context, _ *pb.RetryPolicyListRequest) (*pb.RetryPolicyList, error) {
	snap, err := a.Service.snapshot(ctx, 0)
	if err != nil {
		return nil, err
	}
	out := &pb.RetryPolicyList{}
	var left []string
	for _, id := range snap.Base.Resources() {
		switch {
		case id.Kind != policyfile.KindPolicy:
		case expressible(snap.Base, id.Name, "") != nil:
			left = append(left, id.Name)
		default:
			out.RetryPolicies = append(out.RetryPolicies, armadaPolicy(snap.Base, id.Name))
		}
	}
	if len(left) > 0 {
		// Only gRPC has a stream for headers here; REST gets the same header from the gateway.
		_ = grpc.SetHeader(ctx, metadata.Pairs(leftOut, strings.Join(left[:min(len(left), 50)], ",")))
	}
	return out, nil
}

func armadaPolicy(set *policyfile.Set, name string) *pb.RetryPolicy {
	flat, _ := set.Flat(name)
	out := &pb.RetryPolicy{Name: name, RetryLimit: flat.RetryLimit, DefaultAction: armadaAction(flat.DefaultAction)}
	for _, r := range flat.Rules {
		out.Rules = append(out.Rules, &pb.RetryRule{Action: armadaAction(r.Action), OnCategory: r.Category, OnSubcategory: r.Subcategory})
	}
	return out
}

func armadaAction(word string) pb.RetryAction {
	return pb.RetryAction(slices.Index([]string{"", "Fail", "Retry"}, word))
}
