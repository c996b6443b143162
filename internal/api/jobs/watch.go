package jobs

import (
	"cmp"
	"context"
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

// atOnce is how many decisions of a partition a stream reads in one go.
const atOnce = 1000

// WatchDecisions implements pb.JobsServer. Headers are sent when the stream has its position:
// it has all decisions after that.
func (s *Service) WatchDecisions(r *pb.WatchDecisionsRequest, to grpc.ServerStreamingServer[pb.Decision]) error {
	if s.Source.Jobs == nil {
		return status.Error(codes.FailedPrecondition, noJobDB)
	}
	wanted := query.List{Criteria: jobdb.Criteria{Policy: r.Policy, Rule: r.Rule}, Codes: r.Code}
	selected, err := wanted.Select(query.Decisions)
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
	of := selected.Criteria
	some, all := api.QueuesOf(to.Context())
	w := &watch{limits: s.Limits, seen: map[int]uint64{}, want: func(d *jobdb.Decision) bool {
		return (all || slices.Contains(some, d.Queue)) && (r.Queue == "" || d.Queue == r.Queue) && (of.Policy == "" || d.Policy == of.Policy) && (of.Rule == "" || d.Rule == of.Rule) &&
			(r.JobSet == "" || d.JobSet == r.JobSet) && (r.JobId == "" || d.JobID == r.JobId) &&
			(len(r.Code) == 0 || slices.Contains(of.Codes, d.Code))
	}}
	ctx := api.OfAllQueues(to.Context()) // a position is one among all decisions; want selects
	api.ExtendWrite(ctx, time.Time{})
	if _, err := w.read(ctx, s.Source, true); err != nil {
		return s.failed(err)
	}
	if err := to.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	ticker := time.NewTicker(cmp.Or(s.Limits.Every, time.Second))
	defer ticker.Stop()
	for {
		news, err := w.read(ctx, s.Source, false)
		if err != nil {
			return s.failed(err)
		}
		for i := range news {
			m, err := fill(&pb.Decision{}, query.DecisionOf(&news[i]))
			if err != nil {
				return s.failed(err)
			}
			api.ExtendWrite(ctx, s.Now().Add(cmp.Or(s.Limits.Patience, 30*time.Second)))
			if err := to.Send(m); err != nil {
				return err
			}
		}
		api.ExtendWrite(ctx, time.Time{})
		if w.more {
			continue
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return s.failed(ctx.Err())
		}
	}
}

// watch is the position of a stream.
type watch struct {
	limits Limits
	seen   map[int]uint64 // by partition: the last decision that was read
	want   func(*jobdb.Decision) bool
	more   bool // the last read did not reach the end
}

var errBehind = status.Error(codes.ResourceExhausted, "the client reads too slowly: it has fallen too far behind the decisions; list what it missed, then watch again")

// read returns what is new, and with first nothing, but where that begins.
func (w *watch) read(ctx context.Context, from *query.Source, first bool) (news []jobdb.Decision, err error) {
	enough := errors.New("enough")
	w.more = false
	err = from.Jobs(ctx, func(q jobdb.Queries) error {
		positions, err := q.Positions()
		if err != nil {
			return err
		}
		for _, p := range positions {
			last, known := uint64(0), false
			newest := jobdb.RecordFilter{Partition: &p.Partition, From: w.seen[p.Partition] + 1, Last: 1}
			if err := q.Decisions(newest, func(d *jobdb.Decision) error { last, known = d.Number, true; return nil }); err != nil {
				return err
			}
			switch seen := w.seen[p.Partition]; {
			case !known:
				continue
			case first:
				w.seen[p.Partition] = last
				continue
			case last-seen > uint64(cmp.Or(w.limits.Behind, 100000)):
				return errBehind
			}
			n := 0
			err := q.Decisions(jobdb.RecordFilter{Partition: &p.Partition, From: w.seen[p.Partition] + 1, To: w.seen[p.Partition] + atOnce}, func(d *jobdb.Decision) error {
				if n++; n > atOnce {
					return enough
				}
				w.seen[p.Partition] = d.Number
				if w.want(d) {
					news = append(news, *d)
				}
				return nil
			})
			if err != nil && !errors.Is(err, enough) {
				return err
			}
			if n == 0 {
				w.seen[p.Partition] += atOnce // pruned
			}
			w.more = w.more || w.seen[p.Partition] < last
		}
		return nil
	})
	return news, err
}
