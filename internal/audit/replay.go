package audit

import (
	"context"
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
)

// flushAt is the number of changed jobs after which a replay moves them to its compact
// store, which bounds its memory.
const flushAt = 1 << 12

// Replay decides the history of one partition again, with one policy set as generation
// 1 and the newest version of the semantics. It calls visit with the records of each
// message, in order. Its memory grows with the jobs that are not forgotten, not with
// the history.
func Replay(ctx context.Context, events eventlog.Topic, partition int, set *policy.Set, visit func(m *eventlog.Message, out *evaluator.Output) error) (evaluator.Progress, error) {
	return ReplayBy(ctx, events, partition, Rules{Set: set, Semantics: evaluator.SemanticsVersion}, visit)
}

// Rules are the rules of a replay.
type Rules struct {
	Set       *policy.Set
	Semantics uint32 // version of the semantics
	Passing   bool   // visit keeps nothing of what it sees
}

// ReplayBy is Replay with a version of the semantics.
func ReplayBy(ctx context.Context, events eventlog.Topic, partition int, by Rules, visit func(m *eventlog.Message, out *evaluator.Output) error) (evaluator.Progress, error) {
	set := by.Set
	p, store, err := newProcessor(set.Horizon().Nanoseconds())
	if err != nil {
		return evaluator.Progress{}, err
	}
	p.Rules = evaluator.Rules{Generation: 1, Set: set}
	p.Activate([]chain.Record{
		&chain.SemanticsActivated{Version: by.Semantics},
		evaluator.Activation(1, set, by.Semantics),
	})
	r, err := events.Open(partition, eventlog.Start)
	if err != nil {
		return p.Progress, fmt.Errorf("read events of partition %d: %w", partition, err)
	}
	defer r.Close()
	chunk := make([]eventlog.Message, 64)
	for {
		if by.Passing {
			eventlog.Release(r)
		}
		n, err := r.Read(chunk)
		if err != nil {
			return p.Progress, fmt.Errorf("read events of partition %d: %w", partition, err)
		}
		if n == 0 {
			return p.Progress, nil
		}
		if err := ctx.Err(); err != nil {
			return p.Progress, err
		}
		for i := range chunk[:n] {
			out, err := p.Step(&chunk[i])
			if err != nil {
				return p.Progress, err
			}
			if err := visit(&chunk[i], out); err != nil {
				return p.Progress, err
			}
		}
		if p.State.Unflushed() >= flushAt {
			if err := flush(p, store); err != nil {
				return p.Progress, err
			}
		}
	}
}

// Replayer is a processor with a store of its own, which is empty at first.
type Replayer struct {
	*evaluator.Processor
	store *projection.Memory
}

// NewReplayer returns a processor without rules, before any activation.
func NewReplayer() (*Replayer, error) {
	p, store, err := newProcessor(evaluator.DefaultHorizon)
	return &Replayer{p, store}, err
}

// Settle moves changes to the compact store once there are many. It is called between
// messages, and invalidates the output of the last one.
func (r *Replayer) Settle() error {
	if r.State.Unflushed() < flushAt {
		return nil
	}
	return flush(r.Processor, r.store)
}

func newProcessor(horizon int64) (*evaluator.Processor, *projection.Memory, error) {
	store := projection.NewMemory()
	state, err := projection.NewState(store, projection.NoWatermark, horizon)
	if err != nil {
		return nil, nil, err
	}
	return &evaluator.Processor{State: state}, store, nil
}

// flush moves changes into the compact store.
func flush(p *evaluator.Processor, store Store) error {
	batch := store.NewBatch()
	n, err := p.State.Flush(batch)
	if err != nil {
		return err
	}
	if err := store.Commit(batch, nil); err != nil {
		return err
	}
	p.State.Committed(n)
	return nil
}
