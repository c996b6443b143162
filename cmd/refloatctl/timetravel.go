package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/query"
)

// getJobAt shows a job as it was, derived from the logs.
func getJobAt(cmd *cobra.Command, f *getFlags, id, at string) error {
	if err := query.CheckAt(at); err != nil {
		bad, _ := errors.AsType[*query.Invalid](err)
		return usageError{fmt.Errorf("--at %w", bad.Err)}
	}
	if f.data == "" && !f.onPulsar() && !f.onServer() {
		return usageError{errors.New("--at is derived from the logs: give --data DIR, or --pulsar URL beside --job-db URL")}
	}
	bar := newProgress()
	defer bar.done()
	found, err := f.answers(bar).GetJob(cmd.Context(), id, at)
	bar.done()
	if err != nil {
		return f.asked(cmd, err)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	for i := range found {
		if err := printJob(out, f.output, &found[i]); err != nil {
			return err
		}
	}
	return out.Flush()
}

// generationAt returns the generation that was the newest at a time, or the one of that number.
func generationAt(ctx context.Context, c pb.PoliciesClient, at string) (uint64, error) {
	if n, err := strconv.ParseUint(at, 10, 64); err == nil && n > 0 {
		return n, nil
	}
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return 0, usageError{fmt.Errorf("--at %q: want a time such as 2026-12-01T06:00:00Z, or a generation such as 7", at)}
	}
	h, err := c.History(ctx, &pb.HistoryRequest{Limit: math.MaxInt32})
	if err != nil {
		return 0, err
	}
	for _, g := range h.Generations { // newest first
		if !g.Time.AsTime().After(t) {
			return g.Generation, nil
		}
	}
	return 0, fmt.Errorf("the policies log begins after %s: `refloatctl history` lists its generations", at)
}
