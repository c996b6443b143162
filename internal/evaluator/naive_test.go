package evaluator_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"testing"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/model"
	"github.com/refloat/refloat/internal/test/modelrecord"
)

var firstSeed = flag.Uint64("seed", 1, "seed of the first random history")

// histories is how many random histories are compared: HISTORIES, or 10,000,
// or fewer in the quick tests.
func histories(t *testing.T) uint64 {
	t.Helper()
	if s := os.Getenv("HISTORIES"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("HISTORIES: %v", err)
		}
		return n
	}
	if testing.Short() {
		return 1000
	}
	return 10_000
}

// TestAgainstNaiveModel holds the engine against a model that was written from
// semantics.md alone and shares no code with it.
func TestAgainstNaiveModel(t *testing.T) {
	t.Parallel()
	shards, n := uint64(runtime.GOMAXPROCS(0)), histories(t)
	for shard := range shards {
		t.Run(fmt.Sprintf("shard=%d", shard), func(t *testing.T) {
			t.Parallel()
			for seed := *firstSeed + shard; seed < *firstSeed+n; seed += shards {
				compareHistory(t, seed)
			}
		})
	}
}

func compareHistory(t *testing.T, seed uint64) {
	t.Helper()
	h := model.Generate(seed, model.Options{Changes: seed%3 == 0, Lint: seed%5 == 0, Republished: seed%4 == 1, Versions: seed%2 == 1, Budgets: seed%7 < 3})
	if seed%5 < 2 {
		h = model.Ordered(h, seed)
	}
	want, _ := h.Run()
	got, err := decideHistory(h)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for i := range want {
		modelrecord.Normalize(want[i])
		if !reflect.DeepEqual(want[i], got[i]) {
			t.Fatalf("seed %d, message %d of %d (-model +engine):\n%s\nrun: HISTORIES=1 go test ./internal/evaluator -run TestAgainstNaiveModel -seed=%d",
				seed, i, len(want), cmp.Diff(want[i], got[i]), seed)
		}
	}
}

// decideHistory runs the engine over a history and renders its records as the model does.
func decideHistory(h model.History) ([][]model.Record, error) { return decideFiles(h, h.YAML()) }

// decideFiles is decideHistory, with the policies that are in force first.
func decideFiles(h model.History, files []model.File) ([][]model.Record, error) {
	state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, evaluator.DefaultHorizon)
	if err != nil {
		return nil, err
	}
	p := &evaluator.Processor{State: state}
	p.Activate([]chain.Record{&chain.OwnerClaim{Partitions: uint32(h.Divided)}})
	generation := uint64(0)
	use := func(files []model.File) error {
		set, err := parse(files)
		if err != nil {
			return err
		}
		generation++
		p.Rules = evaluator.Rules{Generation: generation, Set: set.Set}
		p.Activate([]chain.Record{evaluator.Activation(generation, set.Set, p.Progress.Semantics)})
		return nil
	}
	if err := use(files); err != nil {
		return nil, err
	}
	out := make([][]model.Record, len(h.Messages))
	for i, m := range h.Messages {
		for _, c := range h.Changes {
			if c.Before == i {
				if err := use(c.Policies.YAML(false)); err != nil {
					return nil, err
				}
			}
		}
		for _, v := range h.Versions {
			if v.Before == i {
				activateVersion(p, p.Rules.Set, v.Number)
			}
		}
		o, err := p.Step(&eventlog.Message{
			Position: eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}, Publish: m.Publish, Payload: m.Payload,
		})
		if err != nil {
			return nil, err
		}
		for _, r := range o.Records {
			if modelrecord.Has(r) {
				out[i] = append(out[i], modelrecord.Of(r))
			}
		}
	}
	return out, nil
}

// activateVersion does as Owner.activations: budgets that the version before does not know begin with an activation of their own.
func activateVersion(p *evaluator.Processor, set *policy.Set, version int) {
	was := p.Progress.Semantics
	p.Activate([]chain.Record{&chain.SemanticsActivated{Version: uint32(version)}})
	if was < model.BudgetsVersion && version >= model.BudgetsVersion && len(set.Budgets()) > 0 {
		p.Activate([]chain.Record{evaluator.Activation(p.Progress.Generation, set, uint32(version))})
	}
}

func parse(files []model.File) (*policyfile.Set, error) {
	var in []policyfile.File
	for _, f := range files {
		in = append(in, policyfile.File{Name: f.Name, Data: f.Data})
	}
	set, err := policyfile.Parse(in)
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	return set, nil
}
