package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/refloat/refloat/internal/api/pb"
)

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
