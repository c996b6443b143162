package policysync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// answer is everything that the server returned, sorted.
type answer struct {
	policies []serverPolicy
	bindings []policyfile.Binding
}

// serverPolicy is a policy as the server returned it.
type serverPolicy struct {
	name    string
	file    policyfile.File // in Armada's flat form
	problem string          // why it cannot be converted to a file
}

// read queries the server. It reads queues first, so that it does not miss a policy
// that is created and then bound in between.
func (f *Follower) read(ctx context.Context) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if f.Authorization != nil {
		header, err := f.Authorization()
		if err != nil {
			return nil, err
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", header)
	}
	a := &answer{}
	if err := f.readQueues(ctx, a); err != nil {
		return nil, fmt.Errorf("read queues: %w", plain(err))
	}
	list, err := pb.NewRetryPolicyServiceClient(f.conn).GetRetryPolicies(ctx, &pb.RetryPolicyListRequest{})
	if err != nil {
		return nil, fmt.Errorf("read retry policies: %w", plain(err))
	}
	for _, p := range list.GetRetryPolicies() {
		s := serverPolicy{name: p.GetName()}
		if s.file, err = api.FlatFile(p); err != nil {
			s.problem = status.Convert(err).Message()
		}
		a.policies = append(a.policies, s)
	}
	slices.SortStableFunc(a.policies, func(x, y serverPolicy) int { return cmp.Compare(x.name, y.name) })
	for i := range a.policies {
		a.policies[i].file.Name = fmt.Sprintf("retry policy %d", i)
	}
	return a, nil
}

func (f *Follower) readQueues(ctx context.Context, a *answer) error {
	stream, err := pb.NewQueueServiceClient(f.conn).GetQueues(ctx, &pb.StreamingQueueGetRequest{})
	if err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the server closed the list of queues before its end marker")
		case err != nil:
			return err
		case m.GetEnd() != nil:
			slices.SortStableFunc(a.bindings, func(x, y policyfile.Binding) int { return cmp.Compare(x.Queue, y.Queue) })
			return nil
		}
		if q := m.GetQueue(); len(q.GetRetryPolicies()) > 0 {
			a.bindings = append(a.bindings, policyfile.Binding{Queue: q.Name, Policies: q.RetryPolicies})
		}
	}
}

// plain formats a gRPC error for people.
func plain(err error) error {
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", s.Code(), s.Message())
	}
	return err
}

// onto returns now with the policies and bindings of the answer, and describes in not
// what cannot be used.
func (a *answer) onto(now *policyfile.Set) (set *policyfile.Set, not []string, err error) {
	there := map[string]bool{}
	wrong := map[string]string{} // by file
	var files []policyfile.File
	for _, s := range a.policies {
		there[s.name] = true
		if s.problem != "" {
			wrong[s.file.Name] = s.problem
			continue
		}
		files = append(files, s.file)
	}
	gone := slices.DeleteFunc(now.Resources(), func(id policyfile.ID) bool { return id.Kind != policyfile.KindPolicy || there[id.Name] })
	base := now.Without(gone...)
	set, _, err = base.With(files...)
	if problems, ok := errors.AsType[policyfile.Problems](err); ok {
		for _, p := range problems {
			wrong[p.File] = cmp.Or(wrong[p.File], p.Path+": "+p.Message)
		}
		files = slices.DeleteFunc(files, func(f policyfile.File) bool { return wrong[f.Name] != "" })
		set, _, err = base.With(files...)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, s := range a.policies {
		if why := wrong[s.file.Name]; why != "" {
			id := policyfile.ID{Kind: policyfile.KindPolicy, Name: s.name}
			what := "is ignored"
			if _, kept := set.Body(id); kept {
				what = "stays as it is"
			}
			not = append(not, fmt.Sprintf("RetryPolicy %.100q %s: %s", s.name, what, why))
		}
	}
	set, refused := set.Bound(a.bindings)
	return set, append(not, refused...), nil
}

// dial returns a client that connects at the first request.
func dial(c *Config) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+c.Address, c.options()...)
}
