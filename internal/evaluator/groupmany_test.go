package evaluator_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/test/model"
)

// TestManyGroups: of many groups that end at once, because a policy generation lets them or
// their horizon has passed, each message ends some. Every way to decide gives the same, and
// nothing is left of them in the end.
func TestManyGroups(t *testing.T) {
	t.Parallel()
	const n = 3000 // of each kind; a message looks at 2,000 members
	mode := func(mode string) model.Policies {
		return model.Policies{
			Settings: &model.Settings{Enabled: new(true), Mode: mode, HorizonMs: new(int64(3_600_000))},
			Groups: []model.GroupPolicy{
				{Name: "one", Parts: []model.GroupPart{{Name: "main"}}},
				{Name: "two", Parts: []model.GroupPart{{Name: "main", Members: new(2)}}}, // the second never comes
			},
		}
	}
	h := model.History{Policies: mode("Shadow"), Versions: []model.Version{{Before: 0, Number: model.GroupsVersion}}}
	now := 0
	add := func(events ...*pb.Event) {
		now++
		m := hostileMessage(t, now, events)
		m.Publish += int64(now) * 1e9
		h.Messages = append(h.Messages, m)
	}
	for _, size := range []string{"one", "two"} {
		for first := 0; first < n; first += 500 {
			var submitted, succeeded []*pb.Event
			for i := first; i < first+500; i++ {
				job := fmt.Sprint(size, i)
				submitted = append(submitted, hostile{"id": job, "group": job, "group-policy": size}.submission(0))
				succeeded = append(succeeded, &pb.Event{Event: &pb.Event_JobRunSucceeded{JobRunSucceeded: &pb.JobRunSucceeded{JobId: job, RunId: job + "-run"}}})
			}
			add(submitted...)
			add(succeeded...)
		}
	}
	h.Changes = []model.Change{{Before: len(h.Messages), Policies: mode("Enforce")}}
	quiet := func() {
		for range 6 {
			add(hostile{}.submission(now))
		}
	}
	quiet()
	now += 3600 // the horizon of those of two
	quiet()
	now += 3600
	quiet()

	live := &history{History: h}
	if err := live.run(nil, false, nil); err != nil {
		t.Fatal(err)
	}
	ended := map[policy.GroupState]int{}
	most := 0
	for i, records := range live.records {
		here := 0
		for _, r := range records {
			if end, ok := r.(*chain.GroupEnded); ok {
				ended[end.State]++
				here++
			}
		}
		if most = max(most, here); here > 0 && i < h.Changes[0].Before {
			t.Errorf("message %d ends a group of a queue in shadow", i)
		}
	}
	if want := map[policy.GroupState]int{policy.GroupSucceeded: n, policy.GroupFailed: n}; !reflect.DeepEqual(ended, want) {
		t.Errorf("ended %v, want %v", ended, want)
	}
	if most > 2000 {
		t.Errorf("one message ends %d groups", most)
	}
	left := 0
	_ = live.store.Scan([]byte{'g'}, []byte{'h'}, func(_, _ []byte) bool { left++; return true })
	_ = live.store.Scan([]byte{'y'}, []byte{'z'}, func(_, _ []byte) bool { left++; return true })
	if left > 0 {
		t.Errorf("%d records of groups are left", left)
	}
	for _, way := range []struct {
		name   string
		reload bool
		log    *history
	}{{"reloaded", true, nil}, {"replayed and reloaded", true, live}} {
		other := &history{History: h}
		if err := other.run(rand.New(rand.NewPCG(1, 1)), way.reload, way.log); err != nil {
			t.Fatalf("%s: %v", way.name, err)
		}
		if !reflect.DeepEqual(live.bytes, other.bytes) {
			t.Errorf("%s: other records", way.name)
		}
	}
}
