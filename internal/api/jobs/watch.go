package jobs

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/jobs/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// WatchDecisions implements pb.JobsServer. Headers are sent when the stream has its position:
// it has all decisions after that.
func (s *Service) WatchDecisions(r *pb.WatchDecisionsRequest, to grpc.ServerStreamingServer[pb.Decision]) error {
	if s.Source.Jobs == nil {
		return status.Error(codes.FailedPrecondition, noJobDB)
	}
	wanted := query.List{Criteria: jobdb.Criteria{Queue: r.Queue, JobSet: r.JobSet, JobID: r.JobId, Policy: r.Policy, Rule: r.Rule}, Codes: r.Code}
	w, err := wanted.Watch()
	if err != nil {
		return s.failed(err)
	}
	most, each := cmp.Or(s.Limits.Streams, 32), cmp.Or(s.Limits.Each, 8)
	leave, own := s.watching.Take(api.ClientOf(to.Context()), most, each)
	switch {
	case own:
		return status.Errorf(codes.ResourceExhausted, "you have %d streams open already: end one of them", each)
	case leave == nil:
		return status.Errorf(codes.ResourceExhausted, "%d streams are open already: try again later", most)
	}
	defer leave()
	some, all := api.QueuesOf(to.Context())
	selects := w.Want
	w.Want = func(d *jobdb.Decision) bool { return (all || slices.Contains(some, d.Queue)) && selects(d) }
	w.Behind = uint64(cmp.Or(s.Limits.Behind, 100000))
	ctx := api.OfAllQueues(to.Context()) // a position is one among all decisions; Want selects
	api.ExtendWrite(ctx, time.Time{})
	if err := w.ToEnd(ctx, s.Source); err != nil {
		return s.failed(err)
	}
	if err := to.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	ticker := time.NewTicker(cmp.Or(s.Limits.Every, time.Second))
	defer ticker.Stop()
	for {
		news, err := w.News(ctx, s.Source)
		if errors.Is(err, query.ErrBehind) {
			return errBehind
		}
		if err != nil {
			return s.failed(err)
		}
		for i := range news {
			m := &pb.Decision{}
			if err := fill(m, query.DecisionOf(&news[i])); err != nil {
				return s.failed(err)
			}
			api.ExtendWrite(ctx, s.Now().Add(cmp.Or(s.Limits.Patience, 30*time.Second)))
			if err := to.Send(m); err != nil {
				return err
			}
		}
		api.ExtendWrite(ctx, time.Time{})
		if w.More {
			continue
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return s.failed(ctx.Err())
		}
	}
}

var errBehind = status.Error(codes.ResourceExhausted, "the client reads too slowly: it has fallen "+query.ErrBehind.Error())
