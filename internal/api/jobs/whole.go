package jobs

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/audit/report"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

// defaultChanges is how many changed decisions a what-if lists.
const defaultChanges = 20

// whole answers a question that reads whole logs.
func (s *Service) whole(ctx context.Context, answer func(context.Context, *query.Source) error) error {
	err := s.askWithin(ctx, cmp.Or(s.Limits.Whole, 100*time.Second), answer)
	if status.Code(err) == codes.DeadlineExceeded {
		return status.Error(codes.DeadlineExceeded, "the logs are too long to be read within the time of a request: use refloatctl whatif or verify beside them")
	}
	return err
}

// WhatIf implements pb.JobsServer.
func (s *Service) WhatIf(ctx context.Context, r *pb.WhatIfRequest) (*pb.WhatIfResponse, error) {
	limit, err := pageSize("limit", r.Limit, defaultChanges)
	if err != nil {
		return nil, err
	}
	w := &query.WhatIf{Candidates: make([]query.Policies, len(r.Candidates)), Set: r.Set, Queue: r.Queue, Limit: limit, Skip: int(r.Skip)}
	if err := w.Bounded(); err != nil {
		return nil, s.failed(err)
	}
	if w.From, err = s.moment("from", r.From); err != nil {
		return nil, err
	}
	if w.To, err = s.moment("to", r.To); err != nil {
		return nil, err
	}
	for i, c := range r.Candidates {
		p, err := policiesOf("candidates", c)
		if err != nil {
			return nil, err
		}
		w.Candidates[i] = *p
	}
	if r.Against != nil {
		if w.Against, err = policiesOf("against", r.Against); err != nil {
			return nil, err
		}
	}
	return answered[pb.WhatIfResponse](ctx, s.whole, func(ctx context.Context, from *query.Source) (any, error) {
		results, err := from.WhatIf(ctx, w)
		return map[string]any{"results": results}, err
	})
}

// policiesOf parses policies as a change of policies is parsed.
func policiesOf(field string, p *pb.Policies) (*query.Policies, error) {
	out := &query.Policies{Name: p.Name}
	if len(p.Documents) == 0 {
		return out, nil
	}
	var files []policyfile.File
	for _, d := range p.Documents {
		text, err := d.MarshalJSON()
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%s: %s", field, clean(err.Error()))
		}
		kind, name := d.GetFields()["kind"].GetStringValue(), d.GetFields()["name"].GetStringValue()
		files = append(files, policyfile.File{Name: strings.TrimSpace(kind + " " + name), Data: text})
	}
	set, err := policyfile.Parse(files)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%s: %s", field, clean(err.Error()))
	}
	out.Set = set
	return out, nil
}

// Verify implements pb.JobsServer.
func (s *Service) Verify(ctx context.Context, r *pb.VerifyRequest) (*pb.VerifyResponse, error) {
	o := report.Options{Created: s.Now().UTC().Format(time.RFC3339), Program: s.Program, Source: "the logs of the server", AllowWaiting: r.AllowWaiting}
	for p, envelope := range r.Until {
		if o.Until == nil {
			o.Until = map[int]uint64{}
		}
		o.Until[int(p)] = envelope
	}
	return answered[pb.VerifyResponse](ctx, s.whole, func(ctx context.Context, from *query.Source) (any, error) {
		found, err := from.Verify(ctx, o)
		return map[string]any{"report": found}, err
	})
}

// ListPartitions implements pb.JobsServer.
func (s *Service) ListPartitions(ctx context.Context, _ *pb.ListPartitionsRequest) (*pb.ListPartitionsResponse, error) {
	return answered[pb.ListPartitionsResponse](ctx, s.askSoon, func(ctx context.Context, from *query.Source) (any, error) {
		all, err := from.ListPartitions(ctx)
		return map[string]any{"partitions": all}, err
	})
}
