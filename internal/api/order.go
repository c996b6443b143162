package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy"
)

const (
	// MaxOrdered is the number of jobs that one order may be about.
	MaxOrdered = 1000
	// MaxOver is within how long the retries of an order are started at most.
	MaxOver = time.Hour
	// maxOrderText is the length of the reason and the request id of an order, in bytes.
	maxOrderText = 1000
)

// order asks for whole job ids: what begins like one names no job.
func (s *Service) order(ctx context.Context, r *pb.OrderRequest) (*pb.OrderResponse, error) {
	who, err := s.Auth.Who(ctx)
	if err == nil {
		err = s.Auth.May(who, OrderRetries)
	}
	if err == nil {
		err = checkOrder(r)
	}
	if err != nil {
		return nil, err
	}
	if s.Orders == nil {
		return nil, status.Error(codes.FailedPrecondition, "this process has no job database to find jobs in, or cannot write events: ask one that ingests, or has --api-job-db")
	}
	r.Max = cmp.Or(r.Max, 1)
	r.RequestId = cmp.Or(r.RequestId, rand.Text())
	ordered, err := s.Orders(ctx, r, who.String())
	if err != nil {
		return nil, answer(err)
	}
	return &pb.OrderResponse{Order: r.RequestId, Jobs: ordered}, nil
}

func checkOrder(r *pb.OrderRequest) error {
	_, ok := policy.ParseOrderAction(r.Action)
	set := r.Queue != "" || r.JobSet != ""
	switch {
	case !ok:
		return status.Errorf(codes.InvalidArgument, "action: %.40q: want Retry, GiveUp or Start", r.Action)
	case r.Over != nil && r.Action != policy.OrderStart.String():
		return status.Error(codes.InvalidArgument, "over: only for the action Start")
	case r.Over != nil && (!r.Over.IsValid() || r.Over.AsDuration() < 0 || r.Over.AsDuration() > MaxOver):
		return status.Errorf(codes.InvalidArgument, "over: want a duration from 0 to %v", MaxOver)
	case set == (len(r.Jobs) > 0):
		return status.Error(codes.InvalidArgument, "jobs: give either job ids, or a queue and a job set")
	case set && (r.Queue == "" || r.JobSet == ""):
		return status.Error(codes.InvalidArgument, "queue and job_set: give both: a job set is one in its queue")
	case slices.Contains(r.Jobs, ""):
		return status.Error(codes.InvalidArgument, "jobs: one of the job ids is empty")
	case r.Max > MaxOrdered:
		return status.Errorf(codes.InvalidArgument, "max: %d: want at most %d", r.Max, MaxOrdered)
	case len(r.Jobs) > int(max(r.Max, 1)):
		return status.Errorf(codes.InvalidArgument, "jobs: %d, and max is %d: none is ordered; raise max (--max) if all are meant", len(r.Jobs), max(r.Max, 1))
	case strings.TrimSpace(r.Reason) == "":
		return status.Error(codes.InvalidArgument, "reason: missing: it is recorded, and shown with each job")
	case len(r.Reason) > maxOrderText || len(r.RequestId) > maxOrderText:
		return status.Errorf(codes.InvalidArgument, "reason and request_id: want at most %d bytes each", maxOrderText)
	}
	return nil
}

// NotOrdered is the error of an order that is carried out on no job, for a reason.
func NotOrdered(why string) error { return status.Error(codes.FailedPrecondition, why) }
