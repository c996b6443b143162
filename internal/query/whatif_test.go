package query_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/report"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

// prunedJobs is a job database that has pruned all of its jobs.
type prunedJobs struct{ jobdb.Queries }

func (prunedJobs) JobList(*jobdb.Criteria, jobdb.Page, func(*jobdb.Job) error) ([]any, error) {
	return nil, nil
}

func (prunedJobs) Positions() ([]jobdb.PartitionPositions, error) {
	return []jobdb.PartitionPositions{{Positions: jobdb.Positions{Pruned: jobdb.Pruned{Jobs: 1}}}}, nil
}

func (prunedJobs) Releases(jobdb.RecordFilter, func(*jobdb.Release) error) error { return nil }

// TestWholeHistoriesOneAtATime: while a question reads whole logs, another one is refused, and after it one is answered.
func TestWholeHistoriesOneAtATime(t *testing.T) {
	t.Parallel()
	reads, ended := make(chan struct{}), errors.New("ended")
	var atOnce atomic.Int32
	s := &query.Source{
		Whole: &query.Gate{},
		Logs: func(ctx context.Context, _ func(audit.Logs) error) error {
			defer atOnce.Add(-1)
			if atOnce.Add(1) > 1 {
				return errors.New("the logs are read by two")
			}
			reads <- struct{}{}
			<-ctx.Done()
			return ended
		},
		Jobs: func(_ context.Context, read func(jobdb.Queries) error) error { return read(prunedJobs{}) },
	}
	asked := &query.WhatIf{Candidates: []query.Policies{{Set: policyfile.Empty()}}}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error)
		go func() {
			_, err := s.WhatIf(ctx, asked)
			first <- err
		}()
		<-reads
		if _, err := s.WhatIf(t.Context(), asked); !errors.Is(err, query.ErrBusy) {
			t.Errorf("a second what-if: %v", err)
		}
		if _, err := s.Verify(t.Context(), report.Options{}); !errors.Is(err, query.ErrBusy) {
			t.Errorf("a verification: %v", err)
		}
		if _, err := s.Histories(t.Context(), "job"); !errors.Is(err, query.ErrBusy) {
			t.Errorf("a job that was pruned: %v", err)
		}
		if _, err := s.JobAt(t.Context(), "job", "1:2:3"); !errors.Is(err, query.ErrBusy) {
			t.Errorf("a job as it was: %v", err)
		}
		cancel()
		if err := <-first; !errors.Is(err, ended) {
			t.Errorf("the first one: %v", err)
		}
	}
}

// TestWhatIfRefuses: what cannot be asked is refused before any log is read.
func TestWhatIfRefuses(t *testing.T) {
	t.Parallel()
	s := &query.Source{Whole: &query.Gate{}, Logs: func(context.Context, func(audit.Logs) error) error {
		t.Error("the logs were opened")
		return nil
	}}
	one := []query.Policies{{Set: policyfile.Empty()}}
	for param, asked := range map[string]*query.WhatIf{
		"":     {},
		"from": {Candidates: one, From: 2e9, To: 1e9},
		"set":  {Candidates: one, Set: []string{"policies.none.rules[oom].retryLimit=2"}},
	} {
		_, err := s.WhatIf(t.Context(), asked)
		if bad, ok := errors.AsType[*query.Invalid](err); !ok || bad.Param != param {
			t.Errorf("%+v: %v, want an Invalid about %q", asked, err, param)
		}
	}
	if _, err := s.WhatIf(t.Context(), &query.WhatIf{Set: []string{"settings.globalMaxRetries=1"}}); !errors.Is(err, query.ErrNoPolicies) {
		t.Errorf("without a policies log: %v", err)
	}
	if _, err := (&query.Source{}).WhatIf(t.Context(), &query.WhatIf{Candidates: one}); !errors.Is(err, query.ErrNoLogs) {
		t.Errorf("without logs: %v", err)
	}
}
