package query

import (
	"context"
	"time"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/report"
)

// Answers is where questions are asked: a Source, or the API of a process that has one (internal/api/jobs, Client). Both
// give the same answers, as far as they have a JSON form. It is wide because it is every question that both answer.
//
// Errors: *Invalid, *NotFound, *NotDecided, *Ambiguous, *NoAnswer; of a Source, those that its methods name.
type Answers interface {
	ListJobs(ctx context.Context, l *List, visit func(*Job) error) (next string, err error)
	ListRuns(ctx context.Context, l *List, visit func(*Run) error) (next string, err error)
	ListDecisions(ctx context.Context, l *List, visit func(*audit.Decision) error) (next string, err error)
	WatchDecisions(ctx context.Context, l *List, last int, every time.Duration, visit func(*audit.Decision) error, shown func() error) error
	ListGroups(ctx context.Context, l *List, visit func(*Group) error) (next string, err error)
	Search(ctx context.Context, asked SearchQuestion) (*Matches, error)
	TopRetries(ctx context.Context, by string, jobs bool, l *List) ([]Top, error)
	TopCost(ctx context.Context, asked CostQuestion) ([]Cost, error)
	GetJob(ctx context.Context, id, at string) ([]Job, error)
	Stories(ctx context.Context, job string) ([]*Story, error)
	Explain(ctx context.Context, job string, run int) (*Explanation, error)
	WhyNot(ctx context.Context, job string, run int, outcome string) (*WhyNot, error)
	Group(ctx context.Context, k GroupKey) (Group, error)
	GroupHistory(ctx context.Context, k GroupKey) (*GroupHistory, error)
	BeforeAfter(ctx context.Context, asked Around) (BeforeAfter, error)
	QueueStory(ctx context.Context, about QueueQuestion) (*QueueStory, error)
	Shadow(ctx context.Context, queue string, since int64, visit func(*ShadowLine) error) error
	WhatIf(ctx context.Context, w *WhatIf) ([]WhatIfResult, error)
	Verify(ctx context.Context, o report.Options) (*report.Report, error)
	ListPartitions(ctx context.Context) ([]Partition, error)
}

var _ Answers = (*Source)(nil)

// GetJob finds a job by its id or a unique beginning of it, with its runs, as it is or, unless at is empty, as it was (JobAt).
func (s *Source) GetJob(ctx context.Context, id, at string) (jobs []Job, err error) {
	var found []Found
	if at == "" {
		found, err = s.FindJob(ctx, id)
	} else {
		found, err = s.JobAt(ctx, id, at)
	}
	for i := range found {
		jobs = append(jobs, found[i].Job)
	}
	return jobs, err
}

// Shadow visits the lines of ShadowReport.
func (s *Source) Shadow(ctx context.Context, queue string, since int64, visit func(*ShadowLine) error) error {
	queues, err := s.ShadowReport(ctx, queue, since)
	if err != nil {
		return err
	}
	return ShadowLines(queues, visit)
}
