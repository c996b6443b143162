package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/api"
	apipb "github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

// ordersInMessage is the number of orders in one message of events.
const ordersInMessage = 100

// orders carries out orders of operators: it publishes an event for each job that does not refuse its order, on the job's own
// partition, and returns what is known of all of them. The decision log answers each event (semantics.md 16).
func (n *node) orders(source *query.Source) func(context.Context, *apipb.OrderRequest, string) ([]*apipb.OrderedJob, error) {
	if source.Jobs == nil || n.backend.Copies == nil {
		return nil
	}
	return func(ctx context.Context, r *apipb.OrderRequest, author string) ([]*apipb.OrderedJob, error) {
		now, err := n.policies.Newest(ctx)
		if err != nil {
			return nil, err
		}
		action, _ := policy.ParseOrderAction(r.Action)
		jobs, err := source.Ordered(ctx, &query.Order{Action: action, Jobs: r.Jobs, Queue: r.Queue, JobSet: r.JobSet, Max: int(r.Max), Set: now.Set.Set, Now: n.Now()})
		if err != nil {
			return nil, orderError(err)
		}
		var out []*apipb.OrderedJob
		batches := map[batchKey]*pb.EventSequence{}
		var order []batchKey
		for i := range jobs {
			j := &jobs[i]
			shown := &apipb.OrderedJob{JobId: j.JobID, Why: j.Why()}
			out = append(out, shown)
			if j.Job == nil {
				shown.Refusal = "NotFound"
				continue
			}
			shown.Queue, shown.JobSet, shown.RunId = j.Job.Queue, j.Job.JobSet, j.Job.Queueing.LatestRun
			if j.Refusal != policy.NotRefused {
				shown.Refusal = j.Refusal.String()
				continue
			}
			if err := source.TakesOrders(ctx, j.Job.Partition, evaluator.SinceOrders); err != nil {
				return nil, orderError(err)
			}
			key := batchKey{j.Job.Partition, j.Job.Queue, j.Job.JobSet, len(out) / ordersInMessage}
			if batches[key] == nil {
				batches[key] = &pb.EventSequence{Queue: key.queue, JobSetName: key.set, UserId: author}
				order = append(order, key)
			}
			at, notBefore := n.Now(), int64(0)
			if r.Over != nil {
				notBefore = at.Add(time.Duration(float64(r.Over.AsDuration()) * float64(i) / float64(len(jobs)))).UnixNano()
			}
			batches[key].Events = append(batches[key].Events, &pb.Event{
				Created: &pb.Timestamp{Seconds: at.Unix(), Nanos: int32(at.Nanosecond())},
				Event: &pb.Event_JobOrder{JobOrder: &pb.JobOrder{
					JobId: j.JobID, RunId: shown.RunId, OrderId: r.RequestId, Action: uint32(action), Author: author, Reason: r.Reason, NotBefore: notBefore,
				}},
			})
		}
		if r.DryRun {
			return out, nil
		}
		for _, key := range order {
			payload, err := proto.Marshal(batches[key])
			if err == nil {
				err = n.backend.Copies(ctx, key.partition, []eventlog.Message{{Key: key.set, Payload: payload}})
			}
			if err != nil {
				return nil, fmt.Errorf("publish order %s: %w (some jobs may have it: repeat it with the same request id)", r.RequestId, err)
			}
		}
		n.Log.Info("order", slog.String("author", author), slog.String("action", r.Action), slog.String("order", r.RequestId), slog.Int("jobs", len(out)), slog.String("reason", r.Reason))
		return out, nil
	}
}

// batchKey is what the orders of a message have in common.
type batchKey struct {
	partition  int
	queue, set string
	n          int
}

func orderError(err error) error {
	if bad := (*query.Invalid)(nil); errors.As(err, &bad) {
		return api.NotOrdered(bad.Err.Error())
	}
	return err
}
