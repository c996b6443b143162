package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/chain/follow"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/group"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// Candidate is a policy set with a name.
type Candidate struct {
	Name string
	Set  *policyfile.Set // without overrides
}

// Options say what to compare.
type Options struct {
	Candidates []Candidate
	// Against is what the candidates are compared with; nil: with what was decided.
	Against *Candidate
	// Queue limits what is counted to a queue, From and To to failures in that time (Unix
	// nanoseconds; 0: no limit). The history ends with the first message published after To.
	Queue    string
	From, To int64
	// Semantics is the version that decides where no decision log names one.
	Semantics uint32
	// Limit and Skip select the changes that are listed.
	Limit, Skip int
	// Parallel is the number of partitions that are decided at once; 0: one.
	Parallel int
	// Progress, if set, is called with the number of messages of a partition so far, by
	// several goroutines.
	Progress func(partition int, messages uint64)

	horizon int64
}

// Run decides a history by all candidates in one pass. logs without decisions need
// Options.Against.
func Run(ctx context.Context, logs audit.Logs, o Options) ([]*Result, error) {
	if o.Against == nil && logs.Decisions == nil {
		return nil, errors.New("without a decision log, there is nothing to compare with")
	}
	o.horizon = evaluator.DefaultHorizon
	for i := range o.Candidates {
		o.horizon = max(o.horizon, o.Candidates[i].Set.Horizon().Nanoseconds())
	}
	n := logs.Events.Partitions()
	parts := make([]*pass, n)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, o.Parallel))
	for p := range n {
		group.Go(func() (err error) {
			if parts[p], err = partition(groupCtx, logs, p, &o); err != nil {
				return fmt.Errorf("partition %d: %w", p, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	history := parts[0].history
	for _, x := range parts[1:] {
		history.merge(x.history)
	}
	happened := history.close(Happened, history.took)
	results := make([]*Result, len(o.Candidates))
	for i := range results {
		r := newResult()
		r.Candidate, r.Against = o.Candidates[i].Name, "decided"
		for p := range n {
			r.merge(parts[p].compared[i].result)
			if began := parts[p].began; began != 0 && (r.HistoryBegan == 0 || began < r.HistoryBegan) {
				r.HistoryBegan = began
			}
			r.HistoryEnded = max(r.HistoryEnded, parts[p].ended)
		}
		r.Sides = []Side{sideOf(parts, history, r.Candidate, func(x *pass) *side { return x.sides[i] })}
		if o.Against != nil {
			r.Against = o.Against.Name
			r.Sides = append(r.Sides, sideOf(parts, history, r.Against, func(x *pass) *side { return x.against }))
		}
		r.Sides = append(r.Sides, happened)
		r.EarlierUnknown, r.RunOnUnknown = r.earlier.estimates(history.took), r.runOn.estimates(history.took)
		r.close(o.Skip, o.Limit)
		results[i] = r
	}
	return results, nil
}

// sideOf adds up a side over the partitions.
func sideOf(parts []*pass, history *fates, name string, of func(*pass) *side) Side {
	all := newFates(nil, 0, false)
	for _, x := range parts {
		all.merge(of(x).fates)
	}
	return all.close(name, history.took)
}

// side decides by one policy set, with a state of its own.
type side struct {
	*audit.Replayer
	set     *policyfile.Set
	entries []entry
	fates   *fates
}

func newSide(c *Candidate) (*side, error) {
	r, err := audit.NewReplayer()
	if err != nil {
		return nil, err
	}
	s := &side{Replayer: r, set: c.Set}
	s.Rules, s.RecordsOnly = evaluator.Rules{Set: c.Set.Set}, true
	return s, nil
}

// activate follows the log in everything but its policies: version of the semantics,
// horizon, and overrides.
func (s *side) activate(records []chain.Record, overrides map[uint64][]policyfile.Override) error {
	s.Activate(records)
	for _, r := range records {
		a, ok := r.(*chain.PolicyActivated)
		if !ok {
			continue
		}
		set, err := s.set.WithOverrides(overrides[a.Generation]...)
		if err != nil {
			return err
		}
		s.Rules = evaluator.Rules{Generation: a.Generation, Set: set.Set}
	}
	if len(records) > 0 {
		s.State.SetBudgets(evaluator.Activation(0, s.Rules.Set, s.Progress.Semantics).Budgets)
	}
	return nil
}

// step decides a message.
func (s *side) step(form evaluator.Form, m *eventlog.Message) error {
	out, err := s.StepAs(form, m)
	if err != nil {
		return err
	}
	s.entries = entriesOf(s.entries[:0], out.Records)
	return s.Settle()
}

func entriesOf(to []entry, records []chain.Record) []entry {
	for _, r := range records {
		if e, ok := entryOf(r); ok {
			e.place = len(to)
			to = append(to, e)
		}
	}
	return to
}

// pass is one pass over a partition.
type pass struct {
	o         *Options
	partition int
	against   *side // nil: the records in the log
	sides     []*side
	compared  []*comparison
	history   *fates
	fates     []*fates // of the sides, and the history
	jobs      map[string]*job
	families  map[group.Key]*family
	shapes    shapes
	sweepAt   int
	now       int64   // the latest time of a message
	of        message // the current one
	messages  uint64
	began     int64 // when the first message was published; 0: there is none
	ended     int64 // the latest
}

func partition(ctx context.Context, logs audit.Logs, p int, o *Options) (x *pass, err error) {
	x = &pass{
		o: o, partition: p, jobs: map[string]*job{}, families: map[group.Key]*family{}, shapes: shapes{known: map[string]*jobdb.Requests{}}, sweepAt: 1024,
		of: message{logged: logs.Decisions != nil},
	}
	if o.Against != nil {
		if x.against, err = newSide(o.Against); err != nil {
			return nil, err
		}
	}
	for i := range o.Candidates {
		s, err := newSide(&o.Candidates[i])
		if err != nil {
			return nil, err
		}
		x.sides, x.compared = append(x.sides, s), append(x.compared, &comparison{o: o, index: i, partition: p, result: newResult()})
	}
	for i, s := range x.all() {
		s.fates = newFates(o, i, false)
		x.fates = append(x.fates, s.fates)
	}
	x.history = newFates(o, len(x.fates), true)
	x.fates = append(x.fates, x.history)
	if x.of.logged {
		err = x.decided(ctx, logs)
	} else {
		err = x.events(ctx, logs.Events)
	}
	for _, j := range x.jobs {
		x.told(j)
	}
	x.jobs, x.families = nil, nil
	return x, err
}

// decided passes over events and decisions.
func (x *pass) decided(ctx context.Context, logs audit.Logs) error {
	overrides, err := overridesIn(logs.Policies)
	if err != nil {
		return err
	}
	f, err := follow.Open(logs.Events, logs.Decisions, x.partition, follow.Beginning)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	f.Passing = true
	var actual []entry
	for {
		s, err := f.Next()
		if err = errors.Join(err, ctx.Err()); err != nil || s == nil {
			return err
		}
		for _, side := range x.all() {
			if err := side.activate(s.Records, overrides); err != nil {
				return err
			}
		}
		logged := evaluator.LoggedIn(s.Accepted)
		for i := range s.Messages {
			m := &s.Messages[i]
			if x.isLater(m) {
				return nil
			}
			form, n := logged.FormOf(m), 0
			for n < len(logged.Records) && isOf(logged.Records[n], m) {
				n++
			}
			actual = entriesOf(actual[:0], logged.Records[:n])
			logged.Records, logged.Bytes = logged.Records[n:], logged.Bytes[n:]
			if err := x.message(form, m, actual); err != nil {
				return err
			}
		}
	}
}

func isOf(r chain.Record, m *eventlog.Message) bool {
	at, ok := chain.PositionOf(r)
	return ok && at == m.OriginPosition()
}

func (x *pass) all() []*side {
	if x.against == nil {
		return x.sides
	}
	return append([]*side{x.against}, x.sides...)
}

// isLater reports whether a message is beyond what is read.
func (x *pass) isLater(m *eventlog.Message) bool {
	at := m.OriginPublish()
	x.began, x.ended = cmp.Or(x.began, at), max(x.ended, at)
	return x.o.To != 0 && at > x.o.To
}

// events passes over events alone.
func (x *pass) events(ctx context.Context, topic eventlog.Topic) error {
	for _, side := range x.all() {
		side.Activate([]chain.Record{
			&chain.SemanticsActivated{Version: x.o.Semantics},
			evaluator.Activation(1, side.set.Set, x.o.Semantics),
		})
		side.Rules.Generation = 1
	}
	r, err := topic.Open(x.partition, eventlog.Start)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer r.Close()
	chunk := make([]eventlog.Message, 64)
	for {
		eventlog.Release(r)
		n, err := r.Read(chunk)
		if err = errors.Join(err, ctx.Err()); err != nil || n == 0 {
			return err
		}
		for i := range chunk[:n] {
			if x.isLater(&chunk[i]) {
				return nil
			}
			if err := x.message(evaluator.InFull, &chunk[i], nil); err != nil {
				return err
			}
		}
	}
}

// message decides a message by all sides and compares.
func (x *pass) message(form evaluator.Form, m *eventlog.Message, actual []entry) error {
	of, baseline, happened := &x.of, actual, actual
	of.position, of.actual, of.causes = m.OriginPosition(), actual, of.causes[:0]
	for i, side := range x.all() {
		if err := side.step(form, m); err != nil {
			return err
		}
		if i == 0 {
			of.seq = side.Events()
			of.at = timeOf(of.seq, m.OriginPublish())
			x.now = max(x.now, of.at)
			x.hear()
			x.place(actual)
		}
		x.place(side.entries)
		for k := range side.entries {
			side.fates.decided(of, &side.entries[k])
		}
	}
	if x.against != nil {
		baseline = x.against.entries
		if !of.logged {
			happened = undecided(baseline)
		}
	}
	for k := range happened {
		x.history.decided(of, &happened[k])
	}
	x.happened()
	for i, side := range x.sides {
		x.compared[i].message(of, baseline, side.entries)
	}
	x.forget()
	if x.messages++; x.o.Progress != nil && x.messages%1024 == 0 {
		x.o.Progress(x.partition, x.messages)
	}
	return nil
}

// undecided are failed runs on which nobody decided: a history that has events alone tells what became of them.
func undecided(entries []entry) []entry {
	runs := slices.Clone(entries)
	for i := range runs {
		runs[i].verdict = Verdict{Outcome: NotDecided}
	}
	return runs
}

// overridesIn returns the overrides of each generation.
func overridesIn(policies eventlog.Topic) (map[uint64][]policyfile.Override, error) {
	log, err := policylog.Open(policies)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := log.Refresh(); err != nil {
		return nil, err
	}
	all := map[uint64][]policyfile.Override{}
	for _, e := range log.Entries(0) {
		for _, o := range e.Overrides {
			all[e.Number] = append(all[e.Number], o.Override)
		}
	}
	return all, nil
}
