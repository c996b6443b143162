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
	out := &pb.GetJobResponse{}
	at, err := query.At(r.At, s.Now())
	if err != nil {
		return nil, s.failed(err)
	}
	err = s.ask(ctx, func(ctx context.Context, from *query.Source) error {
		found, err := from.GetJob(ctx, r.JobId, at)
		for i := range found {
			if err == nil {
				err = rowsOf[pb.Job, *pb.Job, *query.Job](&out.Jobs)(&found[i])
			}
		}
		return err
	})
	return out, err
}

// withoutLogs is a source that does not read the logs: a pruned job is not found, and the error says that it may be pruned.
func withoutLogs(from *query.Source) *query.Source {
	copied := *from
	copied.Logs = nil
	return &copied
}

// GetStory implements pb.JobsServer.
func (s *Service) GetStory(ctx context.Context, r *pb.GetStoryRequest) (*pb.GetStoryResponse, error) {
	out := &pb.GetStoryResponse{}
	err := s.ask(ctx, func(ctx context.Context, from *query.Source) error {
		stories, err := withoutLogs(from).Stories(ctx, r.JobId)
		for _, one := range stories {
			if err == nil {
				err = rowsOf[pb.Story, *pb.Story, *query.Story](&out.Stories)(one)
			}
		}
		return err
	})
	return out, err
}

func runOf(run *uint32) int {
	if run == nil {
		return query.LastRun
	}
	return int(*run)
}

// Explain implements pb.JobsServer.
func (s *Service) Explain(ctx context.Context, r *pb.ExplainRequest) (*pb.Explanation, error) {
	out := &pb.Explanation{}
	err := s.ask(ctx, func(ctx context.Context, from *query.Source) error {
		e, err := withoutLogs(from).Explain(ctx, r.JobId, runOf(r.Run))
		if err == nil {
			out, err = fill(out, e)
		}
		return err
	})
	return out, err
}

// ExplainWhyNot implements pb.JobsServer.
func (s *Service) ExplainWhyNot(ctx context.Context, r *pb.ExplainWhyNotRequest) (*pb.WhyNot, error) {
	out := &pb.WhyNot{}
	err := s.ask(ctx, func(ctx context.Context, from *query.Source) error {
		found, err := withoutLogs(from).WhyNot(ctx, r.JobId, runOf(r.Run), r.Outcome)
		if err == nil {
			out, err = fill(out, found)
		}
		return err
	})
	return out, err
}

// GetGroup implements pb.JobsServer.
func (s *Service) GetGroup(ctx context.Context, r *pb.GetGroupRequest) (*pb.Group, error) {
	out := &pb.Group{}
	err := s.ask(ctx, func(ctx context.Context, from *query.Source) error {
		g, err := from.Group(ctx, query.GroupKey{Queue: r.Queue, JobSet: r.JobSet, Group: r.Group})
		if err == nil {
			out, err = fill(out, g)
		}
		return err
	})
	return out, err
}

// GetGroupHistory implements pb.JobsServer.
func (s *Service) GetGroupHistory(ctx context.Context, r *pb.GetGroupHistoryRequest) (*pb.GetGroupHistoryResponse, error) {
	out := &pb.GetGroupHistoryResponse{}
	err := s.ask(ctx, func(ctx context.Context, from *query.Source) error {
		h, err := from.GroupHistory(ctx, query.GroupKey{Queue: r.Queue, JobSet: r.JobSet, Group: r.Group})
		if err != nil {
			return err
		}
		if len(h.Lines) > maxRecords {
			return status.Errorf(codes.ResourceExhausted, "the history has more than %d records: use refloatctl explain group", maxRecords)
		}
		if out.Group, err = fill(&pb.Group{}, h.Group); err != nil {
			return err
		}
		for i := range h.Lines {
			if err := rowsOf[pb.Record, *pb.Record, *query.Line](&out.Records)(&h.Lines[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
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
	out := &pb.QueueStory{}
	err = s.ask(ctx, func(ctx context.Context, from *query.Source) error {
		story, err := from.QueueStory(ctx, about)
		if err == nil {
			out, err = fill(out, story)
		}
		return err
	})
	return out, err
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
	out := &pb.BeforeAfter{}
	err = s.ask(ctx, func(ctx context.Context, from *query.Source) error {
		n, err := from.BeforeAfter(ctx, asked)
		if err == nil {
			out, err = fill(out, n)
		}
		return err
	})
	return out, err
}

// GetSummary implements pb.JobsServer.
func (s *Service) GetSummary(ctx context.Context, _ *pb.GetSummaryRequest) (*pb.Summary, error) {
	out := &pb.Summary{}
	err := s.ask(ctx, func(ctx context.Context, from *query.Source) error {
		sum, err := from.Summary(ctx)
		if err == nil {
			out, err = fill(out, sum)
		}
		return err
	})
	return out, err
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
			return rowsOf[pb.ShadowLine, *pb.ShadowLine, *query.ShadowLine](&out.Lines)(l)
		})
	})
	return out, err
}
