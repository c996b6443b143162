package evaluator_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"testing"

	"github.com/refloat/refloat/internal/policy/policyfile"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/events"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/model"
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
// SEMANTICS alone and shares no code with it.
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
	h := model.Generate(seed, model.Options{Changes: seed%3 == 0, Lint: seed%5 == 0, Told: seed%4 == 1, Versions: seed%2 == 1})
	want, _ := h.Run()
	got, err := decideHistory(h)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for i := range want {
		for k := range want[i] {
			normalize(&want[i][k])
		}
		if !reflect.DeepEqual(want[i], got[i]) {
			t.Fatalf("seed %d, message %d of %d (-model +engine):\n%s\nrun: HISTORIES=1 go test ./internal/evaluator -run TestAgainstNaiveModel -seed=%d",
				seed, i, len(want), cmp.Diff(want[i], got[i]), seed)
		}
	}
}

// normalize: empty lists are nil, and our RetryReady names its job alone.
func normalize(r *model.Record) {
	if len(r.AvoidNodes) == 0 {
		r.AvoidNodes = nil
	}
	if len(r.SkippedPolicies) == 0 {
		r.SkippedPolicies = nil
	}
	if len(r.Raw) == 0 {
		r.Raw = nil
	}
	if r.Kind == model.RetryReady {
		r.Queue, r.JobSet = "", ""
	}
}

// decideHistory runs the engine over a history and renders its records as the model does.
func decideHistory(h model.History) ([][]model.Record, error) {
	state, err := projection.NewState(projection.NewMemory(), projection.NoWatermark, evaluator.DefaultHorizon)
	if err != nil {
		return nil, err
	}
	p := &evaluator.Processor{State: state}
	generation := uint64(0)
	use := func(files []model.File) error {
		set, err := parse(files)
		if err != nil {
			return err
		}
		generation++
		p.Rules = evaluator.Rules{Generation: generation, Set: set.Set}
		p.Activate([]chain.Record{&chain.PolicyActivated{Generation: generation, Digest: set.Digest(), HorizonMS: set.Horizon().Milliseconds()}})
		return nil
	}
	if err := use(h.YAML()); err != nil {
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
				p.Activate([]chain.Record{&chain.SemanticsActivated{Version: uint32(v.Number)}})
			}
		}
		o, err := p.Step(&eventlog.Message{
			Position: eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}, Publish: m.Publish, Payload: m.Payload,
		})
		if err != nil {
			return nil, err
		}
		for _, r := range o.Records {
			rendered := render(r)
			normalize(&rendered)
			out[i] = append(out[i], rendered)
		}
	}
	return out, nil
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

var parkReasons = map[events.ParkReason]string{
	events.NotProtobuf: model.Unreadable, events.NoQueue: model.NoQueue, events.NoJobSet: model.NoJobSet,
	events.NoEvents: model.NoEvents, events.NoJob: model.EventWithoutJob, events.NoRun: model.EventWithoutRun,
}

func render(r chain.Record) model.Record {
	at, _ := chain.PositionOf(r)
	out := model.Record{Ledger: at.Ledger, Entry: at.Entry, Batch: at.Batch}
	switch r := r.(type) {
	case *chain.NotDecided:
		out.Kind, out.Reason = model.NotDecided, r.Reason.String()
		out.Queue, out.JobSet, out.JobID, out.RunID, out.T = r.Queue, r.JobSet, r.JobID, r.RunID, r.Time
	case *chain.Parked:
		out.Kind, out.Reason, out.Event, out.Raw = model.Parked, parkReasons[r.Reason], int(r.Event), r.Raw
	case *chain.RetryReady:
		out.Kind, out.JobID, out.RunID, out.RetryAfter = model.RetryReady, r.JobID, r.RunID, r.RetryAfter
	case *chain.Decision:
		renderDecision(&out, r)
	default:
		renderGroup(&out, r)
	}
	return out
}

func renderDecision(out *model.Record, d *chain.Decision) {
	out.Kind = model.JobFailed
	out.Number, out.Queue, out.JobSet, out.JobID, out.RunID = int64(d.Number), d.Queue, d.JobSet, d.JobID, d.RunID
	out.RunIndex, out.Code, out.Policy, out.Rule, out.T = int(d.RunIndex), d.Code.String(), d.Policy, d.Rule, d.Time
	out.GlobalUsed, out.GlobalLimit = int(d.GlobalUsed), int(d.GlobalLimit)
	out.SkippedPolicies, out.Shadow = d.Skipped, d.Shadow
	if d.LimitFrom != policy.FromNowhere {
		out.RuleUsed, out.RuleLimit, out.LimitFrom = int(d.RuleUsed), int(d.RuleLimit), d.LimitFrom.String()
	}
	if d.Requeue {
		out.Kind = model.JobRequeued
		out.DelayMs, out.RetryAfter, out.PodName, out.AvoidNodes = d.DelayMS, d.RetryAfter, d.PodName, d.AvoidNodes
		out.NodesLeftOut = int(d.NodesLeftOut)
	}
	if d.Member != nil {
		renderMember(out, d.Member)
	}
	if v := d.Group; v != nil {
		out.UnitReason, out.GroupAction, out.GroupRule = v.Reason.String(), v.Action.String(), v.Rule
		out.RestartsUsed, out.MaxRestarts = int(v.RestartsUsed), int(v.MaxRestarts)
	}
}
