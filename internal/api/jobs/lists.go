package jobs

import (
	"cmp"
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// asked is what the requests for lists have in common.
type asked interface {
	GetQueue() string
	GetJobSet() string
	GetGroup() string
	GetPolicy() string
	GetRule() string
}

type paged interface {
	asked
	GetSort() string
	GetPageSize() int32
	GetPageToken() string
}

// failing requests select by runs and decisions too.
type failing interface {
	GetCode() []string
	GetNode() string
	GetCategory() string
	GetSince() string
	GetUntil() string
}

func (s *Service) criteria(r asked) (l query.List, err error) {
	l.Criteria = jobdb.Criteria{Queue: r.GetQueue(), JobSet: r.GetJobSet(), Group: r.GetGroup(), Policy: r.GetPolicy(), Rule: r.GetRule()}
	f, ok := r.(failing)
	if !ok {
		return l, nil
	}
	l.Codes, l.Node, l.Category = f.GetCode(), f.GetNode(), f.GetCategory()
	if l.Since, err = s.moment("since", f.GetSince()); err != nil {
		return l, err
	}
	l.Until, err = s.moment("until", f.GetUntil())
	return l, err
}

func (s *Service) moment(param, text string) (int64, error) {
	at, err := query.Moment(text, s.Now())
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "%s %s", param, clean(err.Error()))
	}
	return at, nil
}

func (s *Service) page(r paged) (l query.List, err error) {
	if l, err = s.criteria(r); err != nil {
		return l, err
	}
	l.Sort, l.Continue = r.GetSort(), r.GetPageToken()
	l.Limit, err = pageSize("page_size", r.GetPageSize(), defaultPage)
	return l, err
}

// rowsOf collects the rows of a page as messages.
func rowsOf[R, M any, P message[M]](to *[]*M) func(R) error {
	return func(row R) error {
		m := P(new(M))
		*to = append(*to, (*M)(m))
		return fill(m, row)
	}
}

// ListJobs implements pb.JobsServer.
func (s *Service) ListJobs(ctx context.Context, r *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	l, err := s.page(r)
	if err != nil {
		return nil, err
	}
	l.States, l.Waiting, l.JobPrefix = r.State, r.Waiting, r.JobPrefix
	out := &pb.ListJobsResponse{}
	err = s.ask(ctx, func(ctx context.Context, from *query.Source) (err error) {
		out.NextPageToken, err = from.ListJobs(ctx, &l, rowsOf[*query.Job](&out.Jobs))
		return err
	})
	return out, err
}

// ListRuns implements pb.JobsServer.
func (s *Service) ListRuns(ctx context.Context, r *pb.ListRunsRequest) (*pb.ListRunsResponse, error) {
	l, err := s.page(r)
	if err != nil {
		return nil, err
	}
	l.States, l.JobID = r.State, r.JobId
	out := &pb.ListRunsResponse{}
	err = s.ask(ctx, func(ctx context.Context, from *query.Source) (err error) {
		out.NextPageToken, err = from.ListRuns(ctx, &l, rowsOf[*query.Run](&out.Runs))
		return err
	})
	return out, err
}

// ListDecisions implements pb.JobsServer.
func (s *Service) ListDecisions(ctx context.Context, r *pb.ListDecisionsRequest) (*pb.ListDecisionsResponse, error) {
	l, err := s.page(r)
	if err != nil {
		return nil, err
	}
	l.JobID = r.JobId
	out := &pb.ListDecisionsResponse{}
	err = s.ask(ctx, func(ctx context.Context, from *query.Source) (err error) {
		out.NextPageToken, err = from.ListDecisions(ctx, &l, rowsOf[*audit.Decision](&out.Decisions))
		return err
	})
	return out, err
}

// ListGroups implements pb.JobsServer.
func (s *Service) ListGroups(ctx context.Context, r *pb.ListGroupsRequest) (*pb.ListGroupsResponse, error) {
	l, err := s.page(r)
	if err != nil {
		return nil, err
	}
	l.States = r.State
	out := &pb.ListGroupsResponse{}
	err = s.ask(ctx, func(ctx context.Context, from *query.Source) (err error) {
		out.NextPageToken, err = from.ListGroups(ctx, &l, rowsOf[*query.Group](&out.Groups))
		return err
	})
	return out, err
}

// Search implements pb.JobsServer.
func (s *Service) Search(ctx context.Context, r *pb.SearchRequest) (*pb.SearchResponse, error) {
	limit, err := pageSize("limit", r.Limit, defaultTop)
	if err != nil {
		return nil, err
	}
	return answered[pb.SearchResponse](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) {
		return from.Search(ctx, query.SearchQuestion{Text: r.Text, Kinds: r.Kind, Limit: limit})
	})
}

// TopCost implements pb.JobsServer.
func (s *Service) TopCost(ctx context.Context, r *pb.TopCostRequest) (*pb.TopCostResponse, error) {
	asked := query.CostQuestion{By: cmp.Or(r.By, "queue"), Key: r.Key}
	var err error
	if asked.Since, err = s.moment("since", r.Since); err != nil {
		return nil, err
	}
	if asked.Until, err = s.moment("until", r.Until); err != nil {
		return nil, err
	}
	if asked.Limit, err = pageSize("limit", r.Limit, defaultTop); err != nil {
		return nil, err
	}
	return answered[pb.TopCostResponse](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) {
		rows, err := from.TopCost(ctx, asked)
		return map[string]any{"rows": rows}, err
	})
}

// TopRetries implements pb.JobsServer.
func (s *Service) TopRetries(ctx context.Context, r *pb.TopRetriesRequest) (*pb.TopRetriesResponse, error) {
	l, err := s.criteria(r)
	if err != nil {
		return nil, err
	}
	if l.Limit, err = pageSize("limit", r.Limit, defaultTop); err != nil {
		return nil, err
	}
	return answered[pb.TopRetriesResponse](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) {
		rows, err := from.TopRetries(ctx, cmp.Or(r.By, "queue"), r.Jobs, &l)
		return map[string]any{"rows": rows}, err
	})
}
