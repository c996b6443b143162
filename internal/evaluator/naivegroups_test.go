package evaluator_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/model"
	"github.com/refloat/refloat/internal/test/modelrecord"
)

// groupHistories is how many random histories of groups are compared: GROUP_HISTORIES, or a
// tenth of the others, since each takes 5 ms.
func groupHistories(t *testing.T) uint64 {
	t.Helper()
	s := os.Getenv("GROUP_HISTORIES")
	if s == "" {
		return max(histories(t)/10, 1)
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("GROUP_HISTORIES: %v", err)
	}
	return n
}

// TestGroupsAgainstNaiveModel holds the engine against a model of groups that was written
// from semantics.md 12 alone.
func TestGroupsAgainstNaiveModel(t *testing.T) {
	t.Parallel()
	shards, n := uint64(runtime.GOMAXPROCS(0)), groupHistories(t)
	for shard := range shards {
		t.Run(fmt.Sprintf("shard=%d", shard), func(t *testing.T) {
			t.Parallel()
			different := 0
			for seed := *firstSeed + shard; seed < *firstSeed+n && different < 10; seed += shards {
				if !compareGroups(t, seed) {
					different++
				}
			}
		})
	}
}

// groupHistory is a random history of groups, with all the versions that model and engine know.
func groupHistory(seed uint64) model.History {
	newest, budgets := model.SuccessorsVersion, false
	if seed%3 == 1 {
		newest, budgets = model.BudgetsVersion, true
	}
	if seed%8 == 3 { // a log that an operator leaves as it is
		newest = model.GroupsVersion
	}
	h := model.GenerateGroups(seed, model.GroupOptions{Drain: seed%4 == 0, Large: seed%50 == 1, Newest: newest, Budgets: budgets})
	if seed%5 == 0 {
		h = model.Ordered(h, seed)
	}
	return h
}

func compareGroups(t *testing.T, seed uint64) bool {
	t.Helper()
	h := groupHistory(seed)
	want, _ := h.Run()
	got, err := decideHistory(h)
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return false
	}
	for i := range want {
		modelrecord.Normalize(want[i])
		if !reflect.DeepEqual(want[i], got[i]) {
			t.Errorf("seed %d, message %d of %d (-model +engine):\n%s\nrun: GROUP_HISTORIES=1 go test ./internal/evaluator -run TestGroupsAgainstNaiveModel -seed=%d",
				seed, i, len(want), cmp.Diff(lines(want[i]), lines(got[i])), seed)
			return false
		}
	}
	return true
}

// lines renders records with the fields that they have.
func lines(records []model.Record) []string {
	var out []string
	for _, r := range records {
		line := ""
		v := reflect.ValueOf(r)
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() && i > 3 {
				line += fmt.Sprintf(" %s=%v", v.Type().Field(i).Name, f)
			}
		}
		out = append(out, fmt.Sprintf("%s %.400s", r.Kind, line))
	}
	return out
}

// TestGroupsReplayed decides histories of groups in three more ways, which must give the same
// bytes, and leave the same state: with the state written and read back at random messages, by
// replaying the log in envelopes of random sizes, and both.
func TestGroupsReplayed(t *testing.T) {
	t.Parallel()
	n := max(histories(t)/100, 300)
	for seed := *firstSeed; seed < *firstSeed+n; seed++ {
		h := groupHistory(seed)
		live := &history{History: h}
		if err := live.run(nil, false, nil); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, way := range []struct {
			name   string
			reload bool
			log    *history
		}{{"reloaded", true, nil}, {"replayed", false, live}, {"replayed and reloaded", true, live}} {
			other := &history{History: h}
			if err := other.run(rand.New(rand.NewPCG(seed, 1)), way.reload, way.log); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, way.name, err)
			}
			for i := range live.records {
				if !reflect.DeepEqual(live.bytes[i], other.bytes[i]) {
					t.Fatalf("seed %d, %s, message %d (-live +%s):\n%s", seed, way.name, i, way.name, cmp.Diff(rendered(live.records[i]), rendered(other.records[i])))
				}
			}
			if diff := cmp.Diff(stored(t, live.store), stored(t, other.store)); diff != "" {
				t.Fatalf("seed %d, %s: the state at the end (-live +%s):\n%s", seed, way.name, way.name, diff)
			}
		}
	}
}

// stored returns all that is in a store.
func stored(t *testing.T, m *projection.Memory) (all []string) {
	t.Helper()
	err := m.Scan(nil, []byte{0xff}, func(key, value []byte) bool {
		all = append(all, fmt.Sprintf("%q %q", key, value))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func rendered(records []chain.Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, fmt.Sprintf("%T%+v", r, r))
	}
	return out
}

// history is a history with what was made of it: records, and their bytes, by message.
type history struct {
	model.History
	records [][]chain.Record
	bytes   [][][]byte
	store   *projection.Memory // the state at the end
}

// run decides the history, or replays a log of it. With reload, the state is written to a
// store and read back now and then.
func (h *history) run(rnd *rand.Rand, reload bool, log *history) error {
	store := projection.NewMemory()
	h.store = store
	state, err := projection.NewState(store, projection.NoWatermark, evaluator.DefaultHorizon)
	if err != nil {
		return err
	}
	p := &evaluator.Processor{State: state}
	p.Activate([]chain.Record{&chain.OwnerClaim{Partitions: uint32(h.Divided)}})
	generation, current := uint64(0), (*policy.Set)(nil)
	use := func(files []model.File) error {
		set, err := parse(files)
		if err != nil {
			return err
		}
		generation++
		current = set.Set
		if log == nil {
			p.Rules = evaluator.Rules{Generation: generation, Set: set.Set}
		}
		p.Activate([]chain.Record{evaluator.Activation(generation, set.Set, p.Progress.Semantics)})
		return nil
	}
	if err := use(h.YAML()); err != nil {
		return err
	}
	defer func() { _, _ = reloaded(store, p.State) }()
	var envelope evaluator.Logged
	for i, m := range h.Messages {
		cut := false
		for _, c := range h.Changes {
			if c.Before == i {
				cut = true
				if err := use(c.Policies.YAML(false)); err != nil {
					return err
				}
			}
		}
		for _, v := range h.Versions {
			if v.Before == i {
				cut = true
				activateVersion(p, current, v.Number)
			}
		}
		message := &eventlog.Message{
			Position: eventlog.Position{Ledger: m.Ledger, Entry: m.Entry, Batch: m.Batch}, Publish: m.Publish, Payload: m.Payload,
		}
		before := evaluator.Logged{}
		if log == nil {
			out, err := p.Step(message)
			if err != nil {
				return err
			}
			before = clone(out.Records, out.Bytes)
		} else {
			if cut || len(envelope.Records) == 0 {
				if len(envelope.Records) > 0 {
					return fmt.Errorf("message %d: the envelope before has %d records left", i, len(envelope.Records))
				}
				envelope = clone(log.records[i], log.bytes[i])
				for k := i + 1; k < len(log.records) && rnd.IntN(4) > 0 && !h.cutsAt(k); k++ {
					envelope.Records, envelope.Bytes = append(envelope.Records, log.records[k]...), append(envelope.Bytes, log.bytes[k]...)
				}
			}
			was := envelope
			if err := p.Replay(message, &envelope); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			n := len(was.Records) - len(envelope.Records)
			before = clone(was.Records[:n], was.Bytes[:n])
		}
		h.records, h.bytes = append(h.records, before.Records), append(h.bytes, before.Bytes)
		if reload && rnd.IntN(3) == 0 {
			if p.State, err = reloaded(store, p.State); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
	}
	return nil
}

func (h *history) cutsAt(i int) bool {
	return slices.ContainsFunc(h.Changes, func(c model.Change) bool { return c.Before == i }) ||
		slices.ContainsFunc(h.Versions, func(v model.Version) bool { return v.Before == i })
}

func clone(records []chain.Record, encoded [][]byte) evaluator.Logged {
	var l evaluator.Logged
	for i, r := range records {
		if d, ok := r.(*chain.Decision); ok {
			own := *d
			r = &own
		}
		l.Records, l.Bytes = append(l.Records, r), append(l.Bytes, bytes.Clone(encoded[i]))
	}
	return l
}

// reloaded writes a state to its store, and reads it back.
func reloaded(store *projection.Memory, s *projection.State) (*projection.State, error) {
	batch := store.NewBatch()
	n, err := s.Flush(batch)
	if err != nil {
		return nil, err
	}
	if err := store.Commit(batch, nil); err != nil {
		return nil, err
	}
	s.Committed(n)
	return projection.NewState(store, s.Watermark, s.Horizon)
}

// TestGroupRows holds the engine against the rows of JobSet's and Kubernetes' Job's own tests, as
// groups: testdata/groups.
func TestGroupRows(t *testing.T) {
	t.Parallel()
	rows, err := model.ReadTrials("../../testdata/groups/rows.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 50 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		h := model.History{Messages: row.Messages, Versions: []model.Version{{Before: 0, Number: model.GroupsVersion}}}
		got, err := decideFiles(h, row.Policies)
		if err != nil {
			t.Fatalf("%s: %v", row.Name, err)
		}
		for i, want := range row.Records {
			modelrecord.Normalize(want)
			if diff := cmp.Diff(lines(want), lines(got[i])); diff != "" {
				t.Errorf("%s, message %d (-model +engine):\n%s", row.Name, i, diff)
			}
		}
	}
}
