package api

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/suggest"
)

// Service implements the policy API of a deployment. Store and Now are required.
type Service struct {
	pb.UnimplementedPoliciesServer

	Store *policylog.Store
	Auth  *Auth // nil: every caller may do everything
	// Proxies are those whose X-Forwarded-For is believed, so that limits count the clients behind them; none: no proxy is.
	Proxies []netip.Prefix
	Now     func() time.Time
	Fixed   Fixed // what cannot be changed here
	// Partitions returns what is in force in this process.
	Partitions func() []*pb.PartitionStatus
	// Queues lists the queues of known jobs, and counts the partitions whose jobs only other processes know. If it is nil, any queue may be named.
	Queues func() (queues []string, elsewhere int, err error)
	// Categories lists the categories that contain a text of the failed runs whose jobs the context may see. If it is nil, any may be named.
	Categories func(ctx context.Context, text string) ([]string, error)
	// Orders carries out an order that was checked, on each job that does not refuse it; nil: this process cannot.
	Orders func(ctx context.Context, r *pb.OrderRequest, author string) ([]*pb.OrderedJob, error)
	// Source returns the status of the followed source of resources.
	Source func() *pb.Source
	// Writes limits the rate of changes; nil: unlimited.
	Writes  *rate.Limiter
	Timeout time.Duration // timeout of the log; default 20 s
	Log     *slog.Logger  // of changes, one line each (audit.go); nil: they are not logged
}

// writer returns the author of a change, within the rate limit.
func (s *Service) writer(ctx context.Context) (Principal, error) {
	who, err := s.Auth.Who(ctx)
	if err != nil {
		return who, err
	}
	if s.Writes != nil && !s.Writes.AllowN(s.Now(), 1) {
		return who, status.Errorf(codes.ResourceExhausted, "more than %v changes a second: wait a moment, or combine them in one apply", float64(s.Writes.Limit()))
	}
	return who, nil
}

// snapshot returns a generation; 0: the newest.
func (s *Service) snapshot(ctx context.Context, generation uint64) (policylog.Snapshot, error) {
	snap, _, err := s.snapshotFor(ctx, generation)
	return snap, err
}

// snapshotFor also returns the caller, who may not know of all queues.
func (s *Service) snapshotFor(ctx context.Context, generation uint64) (policylog.Snapshot, Principal, error) {
	who, err := s.Auth.Who(ctx)
	if err != nil {
		return policylog.Snapshot{}, who, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	read := s.Store.Newest
	if generation != 0 {
		read = func(ctx context.Context) (policylog.Snapshot, error) { return s.Store.At(ctx, generation) }
	}
	snap, err := read(ctx)
	return snap, who, answer(err)
}

// history returns all generations, newest first.
func (s *Service) history(ctx context.Context) ([]*policylog.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	all, err := s.Store.History(ctx)
	return all, answer(err)
}

// List implements pb.PoliciesServer.
func (s *Service) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	if r.Kind != "" {
		if err := checkKind(r.Kind); err != nil {
			return nil, err
		}
	}
	snap, who, err := s.snapshotFor(ctx, r.Generation)
	if err != nil {
		return nil, err
	}
	out := &pb.ListResponse{Generation: snap.Generation(), Brakes: overridesOf(s.Auth.known(who, snap.ActiveOverrides()))}
	for _, id := range snap.Base.Resources() {
		if r.Kind != "" && id.Kind != r.Kind || !s.Auth.knowsID(who, id) {
			continue
		}
		one, err := s.resourceOf(who, &snap, id)
		if err != nil {
			return nil, answer(err)
		}
		out.Resources = append(out.Resources, one)
	}
	return out, nil
}

// Get implements pb.PoliciesServer.
func (s *Service) Get(ctx context.Context, r *pb.GetRequest) (*pb.Resource, error) {
	id, err := idOf(r.Kind, r.Name)
	if err != nil {
		return nil, err
	}
	snap, who, err := s.snapshotFor(ctx, r.Generation)
	if err != nil {
		return nil, err
	}
	if _, ok := snap.Base.Body(id); !ok || !s.Auth.knowsID(who, id) {
		return nil, s.notThere(ctx, &snap, id)
	}
	out, err := s.resourceOf(who, &snap, id)
	return out, answer(err)
}

// some lists the first few of names.
func some(names []string) string {
	const most = 10
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

func (s *Service) notThere(ctx context.Context, snap *policylog.Snapshot, id policyfile.ID) error {
	who, _ := s.Auth.Who(ctx) // is known
	var names []string
	for _, other := range snap.Base.Resources() {
		if other.Kind == id.Kind && s.Auth.knowsID(who, other) {
			names = append(names, other.Name)
		}
	}
	if len(names) == 0 || id.Name == "" {
		return status.Errorf(codes.NotFound, "%s does not exist", id)
	}
	return status.Errorf(codes.NotFound, "%s does not exist: %s", id, suggest.Fix(id.Name, names, "there is "+some(names)))
}

func (s *Service) create(ctx context.Context, r *pb.CreateRequest) (*pb.Change, error) {
	file, err := fileOf("document", r.Document)
	if err != nil {
		return nil, err
	}
	return s.change(ctx, &asked{
		request: r, id: r.RequestId, reason: r.Reason, dryRun: r.DryRun, about: s.Auth.about(file),
		make: func(now policylog.Snapshot) (*policyfile.Set, error) {
			set, ids, err := now.Base.With(file)
			if err != nil {
				return nil, err
			}
			for _, id := range ids {
				if _, is := now.Base.Body(id); is {
					return nil, status.Errorf(codes.AlreadyExists, "%s already exists, since generation %d: update it", id, now.Since[id])
				}
			}
			return set, nil
		},
	})
}

func (s *Service) update(ctx context.Context, r *pb.UpdateRequest) (*pb.Change, error) {
	file, err := fileOf("document", r.Document)
	if err != nil {
		return nil, err
	}
	if r.Generation == 0 {
		return nil, status.Error(codes.InvalidArgument, "generation: missing: give the generation in which you read the resource, so that no concurrent change is lost")
	}
	history, err := s.history(ctx)
	if err != nil {
		return nil, err
	}
	return s.change(ctx, &asked{
		request: r, id: r.RequestId, reason: r.Reason, dryRun: r.DryRun, about: s.Auth.about(file),
		make: func(now policylog.Snapshot) (*policyfile.Set, error) {
			set, ids, err := now.Base.With(file)
			if err != nil {
				return nil, err
			}
			for _, id := range ids {
				if _, is := now.Base.Body(id); !is && !slices.ContainsFunc(history, touches(id)) {
					return nil, s.notThere(ctx, &now, id)
				}
				if err := s.unchanged(ctx, &now, id, r.Generation, history); err != nil {
					return nil, err
				}
			}
			return set, nil
		},
	})
}

func touches(id policyfile.ID) func(*policylog.Version) bool {
	return func(v *policylog.Version) bool {
		return slices.ContainsFunc(v.Changes, func(c policylog.Change) bool { return c.ID == id })
	}
}

func (s *Service) remove(ctx context.Context, r *pb.DeleteRequest) (*pb.Change, error) {
	id, err := idOf(r.Kind, r.Name)
	if err != nil {
		return nil, err
	}
	history, err := s.history(ctx)
	if err != nil {
		return nil, err
	}
	return s.change(ctx, &asked{
		request: r, id: r.RequestId, reason: r.Reason, dryRun: r.DryRun, about: []policyfile.ID{id},
		make: func(now policylog.Snapshot) (*policyfile.Set, error) {
			if _, is := now.Base.Body(id); !is {
				return nil, s.notThere(ctx, &now, id)
			}
			if r.Generation != 0 {
				if err := s.unchanged(ctx, &now, id, r.Generation, history); err != nil {
					return nil, err
				}
			}
			return now.Base.Without(id), nil
		},
	})
}

// maxDocuments limits the documents of one Apply.
const maxDocuments = 50_000

func (s *Service) apply(ctx context.Context, r *pb.ApplyRequest) (*pb.Change, error) {
	if len(r.Documents) > maxDocuments {
		return nil, status.Errorf(codes.InvalidArgument, "documents: %d: above the limit of %d", len(r.Documents), maxDocuments)
	}
	if len(r.Documents) == 0 && (!r.AllowEmpty || !r.Prune) {
		return nil, status.Error(codes.InvalidArgument, "documents: none")
	}
	files := make([]policyfile.File, len(r.Documents))
	for i, doc := range r.Documents {
		var err error
		if files[i], err = fileOf(fmt.Sprintf("documents[%d]", i), doc); err != nil {
			return nil, err
		}
	}
	return s.change(ctx, &asked{
		request: r, id: r.RequestId, reason: r.Reason, dryRun: r.DryRun, lax: r.AllowEmpty, confirm: r.AllowEmpty, keepsPolicies: !r.AllowEmpty, about: s.Auth.about(files...),
		make: func(now policylog.Snapshot) (*policyfile.Set, error) {
			if r.Generation != 0 && r.Generation != now.Generation() {
				return nil, status.Errorf(codes.Aborted, "%s is newer than generation %d, on which the request is based: read again", described(now.Version), r.Generation)
			}
			base := now.Base
			if r.Prune {
				base = s.Fixed.pruned(base)
			}
			set, _, err := base.With(files...)
			return set, err
		},
	})
}

func (s *Service) rollBack(ctx context.Context, r *pb.RollBackRequest) (*pb.Change, error) {
	id, err := optionalIDOf(r.Kind, r.Name)
	if err != nil {
		return nil, err
	}
	then, err := s.snapshot(ctx, r.To)
	if err != nil {
		return nil, err
	}
	if r.To == 0 {
		return nil, status.Error(codes.InvalidArgument, "to: missing: give the generation to restore from; history lists them")
	}
	history, err := s.history(ctx)
	if err != nil {
		return nil, err
	}
	done, err := s.change(ctx, &asked{
		request: r, id: r.RequestId, reason: r.Reason, dryRun: r.DryRun, about: []policyfile.ID{id},
		make: func(now policylog.Snapshot) (*policyfile.Set, error) {
			if id == (policyfile.ID{}) {
				return then.Base, nil
			}
			_, is := now.Base.Body(id)
			if _, was := then.Base.Body(id); !is && !was {
				return nil, s.notThere(ctx, &now, id)
			}
			if r.Generation != 0 {
				if err := s.unchanged(ctx, &now, id, r.Generation, history); err != nil {
					return nil, err
				}
			}
			return now.Base.Replacing(id, then.Base), nil
		},
	})
	if err == nil && len(done.Changes) == 0 {
		what := "everything"
		if id != (policyfile.ID{}) {
			what = id.String()
		}
		done.Notes = append(done.Notes, fmt.Sprintf("nothing changed: %s is as it was in generation %d", what, r.To))
	}
	return done, err
}

// History implements pb.PoliciesServer.
func (s *Service) History(ctx context.Context, r *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	who, err := s.Auth.Who(ctx)
	if err != nil {
		return nil, err
	}
	id, err := optionalIDOf(r.Kind, r.Name)
	if err != nil {
		return nil, err
	}
	all, err := s.history(ctx)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(int(r.Limit), 100)
	out := &pb.HistoryResponse{}
	for i, v := range all {
		if id != (policyfile.ID{}) && (!touches(id)(v) || !s.Auth.knowsID(who, id)) {
			continue
		}
		var before []policylog.Override
		if i+1 < len(all) {
			before = all[i+1].Overrides
		}
		changes, overrides, lines, some := s.shown(who, v, before)
		if !some {
			continue
		}
		if len(out.Generations) == limit {
			break
		}
		g := &pb.Generation{
			Generation: v.Number, Author: v.Author, Reason: v.Reason, Time: stamp(v.Time),
			Changes: changesOf(changes), Brakes: overridesOf(overrides), BrakesChanged: len(lines) > 0, BrakeChanges: lines,
		}
		if v.Err != nil {
			g.Unusable = v.Err.Error()
		}
		out.Generations = append(out.Generations, g)
	}
	return out, nil
}

// Status implements pb.PoliciesServer.
func (s *Service) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	snap, who, err := s.snapshotFor(ctx, 0)
	if err != nil {
		return nil, err
	}
	out := &pb.StatusResponse{Generation: snap.Generation(), Brakes: overridesOf(s.Auth.known(who, snap.ActiveOverrides())), ReadOnly: s.Fixed.Why}
	if s.Partitions != nil {
		out.Partitions = s.Partitions()
	}
	if s.Source != nil {
		out.Source = s.Source()
	}
	return out, nil
}
