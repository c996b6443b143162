package query

import (
	"context"
	"errors"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/report"
	"github.com/refloat/refloat/internal/eventlog"
)

// Verify verifies the logs, all of them or up to an envelope of each partition, and reports what it finds; also logs that
// are damaged are a finding. Errors: ErrNoLogs, ErrBusy, and those of logs that cannot be read.
func (s *Source) Verify(ctx context.Context, o report.Options) (r *report.Report, err error) {
	if s.Logs == nil {
		return nil, ErrNoLogs
	}
	err = s.whole(ctx, func(logs audit.Logs) (err error) {
		r, err = report.Make(ctx, logs, o)
		return err
	})
	if errors.Is(err, eventlog.ErrCorrupt) {
		return report.Damaged(err, o), nil
	}
	return r, err
}
