package api_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/test/model"
)

// operation is a requested change, possibly requested several times.
type operation struct {
	number int
	what   string
	id     string // of the request; "" for none
	dry    bool
	lost   bool // its service knows no request ids
	// model says what it makes of a state at a time, or why it is refused.
	model func(st *state, at int64) (*state, codes.Code)
	call  func(ctx context.Context, r *replica) (*pb.Change, error)

	generation uint64 // that it made; 0: none
	unknown    bool   // an answer said that it is not known
	settled    bool   // an answer said more
	refused    bool
}

func (op *operation) String() string { return fmt.Sprintf("op-%d (%s)", op.number, op.what) }

// try asks a replica, and holds its answer against the log and the model.
func (s *storm) try(op *operation, r *replica) {
	r.busy = true
	defer func() { r.busy = false }()
	s.poll()
	from, since := s.plain.counts, s.now
	who := metadata.Pairs("refloat-user", fmt.Sprintf("op-%d", op.number))
	change, err := op.call(metadata.NewIncomingContext(s.ctx, who), r)
	s.poll()
	s.logf("%v over %v: %v, %v", op, r, change, err)
	code := status.Code(err)
	if code != codes.Unavailable {
		s.seen["answer "+code.String()]++
	}
	switch {
	case code == codes.Unavailable:
		op.unknown = true
		s.seen["unknown"]++
	case err != nil:
		op.settled = true
		op.refused = !op.unknown || code != codes.InvalidArgument // a pause may be over when it is asked for again
		if op.generation != 0 {
			s.fail("%v was refused (%w), and is generation %d", op, err, op.generation)
		}
		if !s.mayRefuse(op, code, from, since) {
			s.fail("%v was refused (%w), which no state from generation %d to %d gives", op, err, from, s.plain.counts)
		}
	case op.dry:
		op.settled, op.refused = true, true
	default:
		op.settled = true
		s.acknowledged(op, change, from, since)
	}
}

// acknowledged: the change is in the log, and counts, before it is answered; or
// there was nothing to be changed.
func (s *storm) acknowledged(op *operation, change *pb.Change, from uint64, since int64) {
	if op.generation == 0 {
		s.seen["nothing to do"]++
		// From now on it must not appear, except for a request whose response was lost: one that changed nothing
		// leaves no trace.
		op.refused = !op.unknown
		if !s.some(from, func(st *state) bool {
			next, code := op.model(st, since)
			again, _ := op.model(st, s.now)
			here := change == nil || change.Generation == st.number
			return here && code == codes.OK && (next.same(st) || again != nil && again.same(st))
		}) {
			s.fail("%v was answered with %v, and no generation that counts is it", op, change)
		}
		return
	}
	if change != nil && change.Generation != op.generation {
		s.fail("%v was answered with generation %d, and is %d", op, change.Generation, op.generation)
	}
	s.acked = max(s.acked, op.generation)
}

func (s *storm) mayRefuse(op *operation, code codes.Code, from uint64, since int64) bool {
	if code == codes.AlreadyExists && slices.ContainsFunc(s.ops, func(o *operation) bool { return o != op && o.id == op.id && o.generation != 0 && op.id != "" }) {
		return true // the id of its request belongs to another
	}
	return s.some(from, func(st *state) bool {
		_, first := op.model(st, since)
		_, last := op.model(st, s.now)
		return first == code || last == code
	})
}

// some says whether a state from a generation on, up to the newest, is such.
func (s *storm) some(from uint64, such func(*state) bool) bool {
	for n := from; n <= s.plain.counts; n++ {
		if st := s.at(n); st != nil && such(st) {
			return true
		}
	}
	return false
}

// ask makes up a change and asks for it.
func (s *storm) ask(r *replica) {
	op := s.invent()
	op.number = len(s.ops)
	if !op.lost && !s.one(3) {
		op.id = fmt.Sprintf("r%d", op.number)
		if s.one(30) && op.number > 0 {
			op.id = s.ops[s.rng.IntN(op.number)].id
		}
	}
	s.ops = append(s.ops, op)
	s.try(op, r)
}

// askAgain repeats a request whose outcome is unknown.
func (s *storm) askAgain(r *replica) {
	var open []*operation
	for _, op := range s.ops {
		if op.unknown && op.id != "" && !op.refused && (!op.settled || s.one(10)) {
			open = append(open, op)
		}
	}
	if len(open) > 0 {
		s.try(open[s.rng.IntN(len(open))], r)
	}
}

// read returns a state as a client read it, possibly some time ago.
func (s *storm) read() *state {
	s.poll()
	for n := s.plain.counts - min(s.plain.counts, uint64(s.rng.IntN(4))); ; n-- {
		if st := s.at(n); st != nil {
			return st
		}
	}
}

func (s *storm) struc(text string) *structpb.Struct {
	doc := &structpb.Struct{}
	if err := doc.UnmarshalJSON([]byte(text)); err != nil {
		s.fail("%s: %w", text, err)
	}
	return doc
}

func (s *storm) pick(docs map[policyfile.ID]doc) (policyfile.ID, doc, bool) {
	ids := sorted(docs)
	if len(ids) == 0 {
		return policyfile.ID{}, doc{}, false
	}
	id := ids[s.rng.IntN(len(ids))]
	return id, docs[id], true
}

// another is a resource of the same name as one, from the pool.
func (s *storm) another(id policyfile.ID) (doc, bool) {
	for range 20 {
		if d, is := s.pool[s.rng.IntN(len(s.pool))][id]; is {
			return d, true
		}
	}
	return doc{}, false
}

func (s *storm) invent() *operation {
	st := s.read()
	switch n := s.rng.IntN(100); {
	case n < 12:
		if id, d, ok := s.pick(s.pool[s.rng.IntN(len(s.pool))]); ok {
			return s.create(id, d)
		}
	case n < 34:
		if id, _, ok := s.pick(st.docs); ok {
			if d, ok := s.another(id); ok {
				return s.update(id, d, st)
			}
		}
	case n < 42:
		if id, _, ok := s.pick(st.docs); ok {
			return s.delete(id, st)
		}
	case n < 62:
		return s.rollBack(st)
	case n < 68:
		return s.armadaPut()
	case n < 72:
		if id, _, ok := s.pick(st.docs); ok && id.Kind == policyfile.KindPolicy {
			return s.armadaDelete(id.Name)
		}
	case n < 84:
		return s.override()
	case n < 90:
		return s.release()
	}
	return s.apply(st)
}

// strict is an operation of our own service on resources.
func (s *storm) strict(what string, model func(*state) (*state, codes.Code), call func(ctx context.Context, r *replica, op *operation) (*pb.Change, error)) *operation {
	op := &operation{what: what, dry: s.one(12)}
	op.model = func(st *state, _ int64) (*state, codes.Code) {
		next, code := model(st)
		if code == codes.OK {
			code = next.whole(st)
		}
		return next, code
	}
	op.call = func(ctx context.Context, r *replica) (*pb.Change, error) { return call(ctx, r, op) }
	return op
}

func (op *operation) reason() string { return fmt.Sprintf("reason %d", op.number) }

func (s *storm) create(id policyfile.ID, d doc) *operation {
	return s.strict("create "+id.String(), func(st *state) (*state, codes.Code) {
		if _, is := st.docs[id]; is {
			return nil, codes.AlreadyExists
		}
		next := st.with()
		next.docs[id] = d
		return next, codes.OK
	}, func(ctx context.Context, r *replica, op *operation) (*pb.Change, error) {
		return r.service.Create(ctx, &pb.CreateRequest{Document: s.struc(d.text), Reason: op.reason(), RequestId: op.id, DryRun: op.dry})
	})
}

// changed is why a resource that was read with a generation is not changed.
func (st *state) changed(id policyfile.ID, read uint64) codes.Code {
	if read != 0 && st.since[id] != read {
		return codes.Aborted
	}
	return codes.OK
}

func (s *storm) update(id policyfile.ID, d doc, read *state) *operation {
	since := read.since[id]
	return s.strict(fmt.Sprintf("update %v of %d", id, since), func(st *state) (*state, codes.Code) {
		if _, is := st.docs[id]; !is && !st.ever[id] {
			return nil, codes.NotFound
		}
		next := st.with()
		next.docs[id] = d
		return next, st.changed(id, since)
	}, func(ctx context.Context, r *replica, op *operation) (*pb.Change, error) {
		return r.service.Update(ctx, &pb.UpdateRequest{Document: s.struc(d.text), Generation: since, Reason: op.reason(), RequestId: op.id, DryRun: op.dry})
	})
}

func (s *storm) delete(id policyfile.ID, read *state) *operation {
	since := read.since[id]
	if s.one(2) {
		since = 0
	}
	return s.strict(fmt.Sprintf("delete %v of %d", id, since), func(st *state) (*state, codes.Code) {
		if _, is := st.docs[id]; !is {
			return nil, codes.NotFound
		}
		next := st.with()
		delete(next.docs, id)
		return next, st.changed(id, since)
	}, func(ctx context.Context, r *replica, op *operation) (*pb.Change, error) {
		return r.service.Delete(ctx, &pb.DeleteRequest{Kind: id.Kind, Name: id.Name, Generation: since, Reason: op.reason(), RequestId: op.id, DryRun: op.dry})
	})
}

func (s *storm) apply(read *state) *operation {
	all := s.pool[s.rng.IntN(len(s.pool))]
	docs, few := map[policyfile.ID]doc{}, s.one(2)
	for _, id := range sorted(all) {
		if !few || s.one(3) {
			docs[id] = all[id]
		}
	}
	if len(docs) == 0 {
		docs = all
	}
	return s.applying(docs, s.one(3), read.number*uint64(s.rng.IntN(2)))
}

func (s *storm) applying(docs map[policyfile.ID]doc, prune bool, generation uint64) *operation {
	return s.strict(fmt.Sprintf("apply %d, prune %v, of %d", len(docs), prune, generation), func(st *state) (*state, codes.Code) {
		if generation != 0 && generation != st.number {
			return nil, codes.Aborted
		}
		next := st.with()
		if prune {
			clear(next.docs)
		}
		maps.Copy(next.docs, docs)
		if hasPolicies(st.docs) && !hasPolicies(next.docs) {
			return nil, codes.FailedPrecondition
		}
		return next, codes.OK
	}, func(ctx context.Context, r *replica, op *operation) (*pb.Change, error) {
		req := &pb.ApplyRequest{Prune: prune, Generation: generation, Reason: op.reason(), RequestId: op.id, DryRun: op.dry}
		for _, id := range sorted(docs) {
			req.Documents = append(req.Documents, s.struc(docs[id].text))
		}
		return r.service.Apply(ctx, req)
	})
}

func hasPolicies(docs map[policyfile.ID]doc) bool {
	for id := range docs {
		if id.Kind == policyfile.KindPolicy {
			return true
		}
	}
	return false
}

func (s *storm) rollBack(read *state) *operation {
	to := uint64(1)
	if read.number > 0 {
		to += s.rng.Uint64N(read.number)
	}
	id, since := policyfile.ID{}, uint64(0)
	if s.one(2) {
		if picked, _, ok := s.pick(s.pool[s.rng.IntN(len(s.pool))]); ok {
			id, since = picked, read.since[picked]*uint64(s.rng.IntN(2))
		}
	}
	return s.strict(fmt.Sprintf("roll back %v of %d to %d", id, since, to), func(st *state) (*state, codes.Code) {
		then := s.at(to)
		if then == nil {
			return nil, codes.NotFound
		}
		next := st.with()
		if id == (policyfile.ID{}) {
			next.docs = then.docs
			return next, codes.OK
		}
		_, is := st.docs[id]
		d, was := then.docs[id]
		switch {
		case !is && !was:
			return nil, codes.NotFound
		case was:
			next.docs[id] = d
		default:
			delete(next.docs, id)
		}
		return next, st.changed(id, since)
	}, func(ctx context.Context, r *replica, op *operation) (*pb.Change, error) {
		return r.service.RollBack(ctx, &pb.RollBackRequest{
			To: to, Kind: id.Kind, Name: id.Name, Generation: since, Reason: op.reason(), RequestId: op.id, DryRun: op.dry,
		})
	})
}

// sayable says whether Armada's form can say all of a policy.
func sayable(p *model.Policy) bool {
	if p.Flat {
		return true
	}
	if p.RetryLimit == nil || p.DefaultAction == "" || p.Backoff != (model.Backoff{}) || p.AntiAffinity != "" || p.Replacement != "" || p.SelectableByJobs != nil {
		return false
	}
	return !slices.ContainsFunc(p.Rules, func(r model.Rule) bool {
		return r.Action == "Ignore" || r.Name != "" || len(r.OnConditions) > 0 || r.OnExitCodes != nil || r.OnTerminationMessage != "" ||
			len(r.OnFailureCategory) > 1 || len(r.OnFailureSubcategory) > 1 || r.ContainerName != "" || r.IncludeInitContainers ||
			r.RetryLimit != nil || r.Backoff != (model.Backoff{}) || r.AntiAffinity != "" || r.Replacement != ""
	})
}

var armadaActions = map[string]pb.RetryAction{"Fail": 1, "Retry": 2}

func (s *storm) armadaPut() *operation {
	p := model.Policy{Name: []string{"infra", "training", "user", "gpu", "flat"}[s.rng.IntN(5)], Flat: true, DefaultAction: "Fail"}
	p.RetryLimit = new(s.rng.IntN(4))
	p.Rules = []model.Rule{{Action: "Retry", OnFailureCategory: []string{"infrastructure"}}}
	docs, err := docsOf(model.Policies{Policies: []model.Policy{p}})
	if err != nil {
		s.fail("%w", err)
	}
	id, mustBe := policyfile.ID{Kind: policyfile.KindPolicy, Name: p.Name}, s.one(2)
	req := &pb.RetryPolicy{
		Name: p.Name, RetryLimit: uint32(*p.RetryLimit), DefaultAction: armadaActions[p.DefaultAction],
		Rules: []*pb.RetryRule{{Action: armadaActions["Retry"], OnCategory: "infrastructure"}},
	}
	return &operation{
		lost: true, what: fmt.Sprintf("Armada puts %v, must be %v", id, mustBe),
		model: func(st *state, _ int64) (*state, codes.Code) {
			was, is := st.docs[id]
			switch {
			case !is && mustBe:
				return nil, codes.NotFound
			case is && !sayable(was.policy):
				return nil, codes.FailedPrecondition
			}
			next := st.with()
			next.docs[id] = docs[id]
			return next, codes.OK
		},
		call: func(ctx context.Context, r *replica) (*pb.Change, error) {
			put := r.armada.CreateRetryPolicy
			if mustBe {
				put = r.armada.UpdateRetryPolicy
			}
			_, err := put(ctx, req)
			return nil, err
		},
	}
}

func (s *storm) armadaDelete(name string) *operation {
	return &operation{
		lost: true, what: "Armada deletes " + name,
		model: func(st *state, _ int64) (*state, codes.Code) {
			if !st.hasPolicy(name) {
				return st, codes.OK
			}
			next, err := st.detached(name)
			if err != nil {
				s.fail("%w", err)
			}
			return next, codes.OK
		},
		call: func(ctx context.Context, r *replica) (*pb.Change, error) {
			_, err := r.armada.DeleteRetryPolicy(ctx, &pb.RetryPolicyDeleteRequest{Name: name})
			return nil, err
		},
	}
}

func (s *storm) override() *operation {
	queue := []string{"", "ml", "batch", "nodoc"}[s.rng.IntN(4)]
	kill, until := s.one(2), int64(0)
	if !kill || s.one(4) {
		length := []time.Duration{2 * time.Second, time.Minute, 20 * time.Minute}[s.rng.IntN(3)]
		until = s.now - s.now%1e6 + int64(length) + s.rng.Int64N(1000)*1e6
	}
	return s.braking(queue, kill, until)
}

func (s *storm) braking(queue string, kill bool, until int64) *operation {
	op := &operation{what: fmt.Sprintf("override %q, kill %v, pause until %d", queue, kill, until)}
	op.model = func(st *state, at int64) (*state, codes.Code) {
		if until != 0 && until <= at {
			return nil, codes.InvalidArgument
		}
		next := st.with()
		next.overrides = slices.DeleteFunc(next.overrides, func(b override) bool {
			return b.until != 0 && b.until <= at || b.queue == queue && (b.kill && kill || b.until != 0 && until != 0)
		})
		author := fmt.Sprintf("op-%d (not verified)", op.number)
		if kill {
			next.overrides = append(next.overrides, override{queue, true, 0, author, op.reason()})
		}
		if until != 0 {
			next.overrides = append(next.overrides, override{queue, false, until, author, op.reason()})
		}
		return next, codes.OK
	}
	op.call = func(ctx context.Context, r *replica) (*pb.Change, error) {
		req := &pb.BrakeRequest{Queue: queue, All: queue == "", Force: true, Kill: kill, Reason: op.reason(), RequestId: op.id}
		if until != 0 {
			req.PausedUntil = timestamppb.New(time.Unix(0, until))
		}
		return r.service.Brake(ctx, req)
	}
	return op
}

func (s *storm) release() *operation {
	return s.releasing([]string{"", "ml", "batch", "nodoc"}[s.rng.IntN(4)], s.one(3))
}

func (s *storm) releasing(queue string, everything bool) *operation {
	if everything {
		queue = ""
	}
	op := &operation{what: fmt.Sprintf("release %q, everything %v", queue, everything)}
	op.model = func(st *state, at int64) (*state, codes.Code) {
		next := st.with()
		next.overrides = slices.DeleteFunc(next.overrides, func(b override) bool { return everything || b.queue == queue })
		if len(next.overrides) < len(st.overrides) { // pauses that are over go with what changes
			next.overrides = slices.DeleteFunc(next.overrides, func(b override) bool { return b.until != 0 && b.until <= at })
		}
		return next, codes.OK
	}
	op.call = func(ctx context.Context, r *replica) (*pb.Change, error) {
		return r.service.Release(ctx, &pb.ReleaseRequest{Queue: queue, All: queue == "" && !everything, Force: true, Everything: everything, Reason: op.reason(), RequestId: op.id})
	}
	return op
}
