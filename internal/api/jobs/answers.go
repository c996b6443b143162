package jobs

import (
	"cmp"
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/query"
)

// GetJob implements pb.JobsServer.
func (s *Service) GetJob(ctx context.Context, r *pb.GetJobRequest) (*pb.GetJobResponse, error) {
	at, err := query.At(r.At, s.Now())
	if err != nil {
		return nil, s.failed(err)
	}
	return answered[pb.GetJobResponse](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) {
		found, err := from.GetJob(ctx, r.JobId, at)
		return map[string]any{"jobs": found}, err
	})
}

// withoutLogs is a source that does not read the logs: a pruned job is not found, and the error says that it may be pruned.
func withoutLogs(from *query.Source) *query.Source {
	copied := *from
	copied.Logs = nil
	return &copied
}

// GetStory implements pb.JobsServer.
func (s *Service) GetStory(ctx context.Context, r *pb.GetStoryRequest) (*pb.GetStoryResponse, error) {
	return answered[pb.GetStoryResponse](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) {
		stories, err := withoutLogs(from).Stories(ctx, r.JobId)
		return map[string]any{"stories": stories}, err
	})
}

func runOf(run *uint32) int {
	if run == nil {
		return query.LastRun
	}
	return int(*run)
}

// Explain implements pb.JobsServer.
func (s *Service) Explain(ctx context.Context, r *pb.ExplainRequest) (*pb.Explanation, error) {
	return answered[pb.Explanation](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) {
		return withoutLogs(from).Explain(ctx, r.JobId, runOf(r.Run))
	})
}

// ExplainWhyNot implements pb.JobsServer.
func (s *Service) ExplainWhyNot(ctx context.Context, r *pb.ExplainWhyNotRequest) (*pb.WhyNot, error) {
	return answered[pb.WhyNot](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) {
		return withoutLogs(from).WhyNot(ctx, r.JobId, runOf(r.Run), r.Outcome)
	})
}

// GetGroup implements pb.JobsServer.
func (s *Service) GetGroup(ctx context.Context, r *pb.GetGroupRequest) (*pb.Group, error) {
	return answered[pb.Group](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) {
		return from.Group(ctx, query.GroupKey{Queue: r.Queue, JobSet: r.JobSet, Group: r.Group})
	})
}

// GetGroupHistory implements pb.JobsServer.
func (s *Service) GetGroupHistory(ctx context.Context, r *pb.GetGroupHistoryRequest) (*pb.GetGroupHistoryResponse, error) {
	return answered[pb.GetGroupHistoryResponse](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) {
		h, err := from.GroupHistory(ctx, query.GroupKey{Queue: r.Queue, JobSet: r.JobSet, Group: r.Group})
		if err != nil {
			return nil, err
		}
		if len(h.Lines) > maxRecords {
			return nil, status.Errorf(codes.ResourceExhausted, "the history has more than %d records: use refloatctl explain group", maxRecords)
		}
		return map[string]any{"group": h.Group, "records": h.Lines}, nil
	})
}

// GetQueueStory implements pb.JobsServer.
func (s *Service) GetQueueStory(ctx context.Context, r *pb.GetQueueStoryRequest) (*pb.QueueStory, error) {
	limit, err := pageSize("limit", r.Limit, defaultTop)
	if err != nil {
		return nil, err
	}
	about := query.QueueQuestion{Queue: r.Queue, JobSet: r.JobSet, Limit: limit}
	if about.Since, err = s.moment("since", r.Since); err != nil {
		return nil, err
	}
	return answered[pb.QueueStory](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) {
		return from.QueueStory(ctx, about)
	})
}

// GetBeforeAfter implements pb.JobsServer.
func (s *Service) GetBeforeAfter(ctx context.Context, r *pb.GetBeforeAfterRequest) (*pb.BeforeAfter, error) {
	if r.First == "" {
		return nil, status.Error(codes.InvalidArgument, "first: missing: when the change came")
	}
	asked := query.Around{Queue: r.Queue, Policy: r.Policy, Rule: r.Rule}
	var err error
	if asked.First, err = s.moment("first", r.First); err != nil {
		return nil, err
	}
	if asked.Last, err = s.moment("last", cmp.Or(r.Last, r.First)); err != nil {
		return nil, err
	}
	return answered[pb.BeforeAfter](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) {
		return from.BeforeAfter(ctx, asked)
	})
}

// GetSummary implements pb.JobsServer.
func (s *Service) GetSummary(ctx context.Context, _ *pb.GetSummaryRequest) (*pb.Summary, error) {
	return answered[pb.Summary](ctx, s.ask, func(ctx context.Context, from *query.Source) (any, error) { return from.Summary(ctx) })
}

// GetShadowReport implements pb.JobsServer.
func (s *Service) GetShadowReport(ctx context.Context, r *pb.GetShadowReportRequest) (*pb.GetShadowReportResponse, error) {
	since, err := s.moment("since", r.Since)
	if err != nil {
		return nil, err
	}
	out := &pb.GetShadowReportResponse{}
	err = s.ask(ctx, func(ctx context.Context, from *query.Source) error {
		return from.Shadow(ctx, r.Queue, since, func(l *query.ShadowLine) error {
			if len(out.Lines) == maxRecords {
				return status.Errorf(codes.ResourceExhausted, "the report has more than %d lines: give a queue or since, or use refloatctl shadow report", maxRecords)
			}
			return rowsOf[*query.ShadowLine](&out.Lines)(l)
		})
	})
	return out, err
}
