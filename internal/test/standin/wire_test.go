package standin

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/eventlog/recording"
)

func TestFits(t *testing.T) {
	t.Parallel()
	plain := &schedulingInfo{slots: 1}
	node := Node{Name: "n", Slots: 2, Labels: map[string]string{"zone": "a"}}
	in := func(e ...expression) *schedulingInfo {
		return &schedulingInfo{affinity: &affinity{required: true, terms: []term{{}, {expressions: e}}}}
	}
	cases := []struct {
		name string
		info *schedulingInfo
		want bool
	}{
		{"plain", plain, true},
		{"selector", &schedulingInfo{selector: map[string]string{"zone": "a"}}, true},
		{"other selector", &schedulingInfo{selector: map[string]string{"zone": "b"}}, false},
		{"unknown selector", &schedulingInfo{selector: map[string]string{"wait": ""}}, false},
		{"too big", &schedulingInfo{slots: 3}, false},
		{"avoids another", plain.avoiding([]string{"m"}), true},
		{"avoids it", plain.avoiding([]string{"m"}).avoiding([]string{"n"}), false},
		{"in", in(expression{"zone", "In", []string{"b", "a"}}), true},
		{"in, and not in", in(expression{"zone", "In", []string{"a"}}, expression{hostname, "NotIn", []string{"n"}}), false},
		{"exists", in(expression{"zone", "Exists", nil}), true},
		{"does not exist", in(expression{"zone", "DoesNotExist", nil}), false},
		{"unknown operator", in(expression{"zone", "Gt", []string{"1"}}), false},
		{"no expressions", in(), false},
	}
	for _, c := range cases {
		if got := c.info.fits(node); got != c.want {
			t.Errorf("%s: fits = %v, want %v", c.name, got, c.want)
		}
	}
}

// TestInfo: requirements are read as they were written, and what is lost is seen.
func TestInfo(t *testing.T) {
	t.Parallel()
	j := Job{
		Priority: 3, NodeSelector: map[string]string{"zone": "a"}, AvoidNodes: []string{"m"},
		Annotations: map[string]string{failFastKey: "true", "other": "x"},
	}.withDefaults()
	asked := j.asked()
	asked.resources = msg(nil).sub(2, msg(nil).str(1, "cpu").sub(2, msg(nil).str(1, "1"))).
		sub(2, msg(nil).str(1, "memory").sub(2, msg(nil).str(1, "1Gi")))
	got, err := parseInfo(asked.encode())
	if err != nil {
		t.Fatal(err)
	}
	if what := asked.lost(got); what != "" || got.slots != 1 {
		t.Errorf("of its own encoding, %q is lost; %d slots", what, got.slots)
	}
	if again := got.avoiding([]string{"n"}); asked.lost(again) != "" || again.version != 1 {
		t.Errorf("avoiding one more node: %q is lost, version %d", asked.lost(again), again.version)
	}
	for name, change := range map[string]func(*schedulingInfo){
		"class":       func(i *schedulingInfo) { i.class = "" },
		"selector":    func(i *schedulingInfo) { i.selector = nil },
		"affinity":    func(i *schedulingInfo) { i.affinity = nil },
		"other nodes": func(i *schedulingInfo) { i.affinity = (*affinity)(nil).avoiding([]string{"n"}) },
		"tolerations": func(i *schedulingInfo) { i.tolerations = nil },
		"requests":    func(i *schedulingInfo) { i.requests = map[string]string{"cpu": "1"} },
		"annotations": func(i *schedulingInfo) { i.annotations = nil },
		"priority":    func(i *schedulingInfo) { i.priority = 0 },
	} {
		c := *got
		change(&c)
		if asked.lost(&c) == "" {
			t.Errorf("%s: not seen to be lost", name)
		}
	}
	if _, err := parseInfo(nil); err == nil {
		t.Error("no pod requirements, no error")
	}
}

// TestEvents: what is published reads as Armada's events.
func TestEvents(t *testing.T) {
	t.Parallel()
	at := time.Unix(5, 6)
	j := &job{id: "j", queuedVersion: 3, info: &schedulingInfo{class: defaultClass}}
	s := sequence{queue: "q", set: "s", user: "u", groups: []string{"g"}, events: []event{
		{evJobRunLeased, at, leased(j, &run{id: "r", executor: "x", node: "n"})},
		{evJobRequeued, at, requeued(j)},
	}}
	var got pb.EventSequence
	if err := proto.Unmarshal(s.encode(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Queue != "q" || got.JobSetName != "s" || got.UserId != "u" || !slices.Equal(got.Groups, []string{"g"}) || len(got.Events) != 2 {
		t.Errorf("%v", &got)
	}
	l := got.Events[0].GetJobRunLeased()
	if l.GetJobId() != "j" || l.GetRunId() != "r" || l.GetNodeId() != "n" || l.GetExecutorId() != "x" || l.GetUpdateSequenceNumber() != 3 ||
		l.GetPodRequirementsOverlay() == nil || got.Events[0].GetCreated().GetNanos() != 6 {
		t.Errorf("%v", l)
	}
	if r := got.Events[1].GetJobRequeued(); r.GetUpdateSequenceNumber() != 3 || r.GetSchedulingInfo() == nil || r.GetJobId() != "j" {
		t.Errorf("%v", r)
	}
}

// TestCompact: one sequence for the events of one user in a job set, in their order.
func TestCompact(t *testing.T) {
	t.Parallel()
	e := func(n int) []event { return []event{{created: time.Unix(int64(n), 0)}} }
	got := compact([]sequence{
		{set: "a", queue: "q", events: e(1)},
		{set: "b", queue: "q", events: e(2)},
		{set: "a", queue: "q", events: e(3)},
		{set: "a", queue: "q", user: "u", events: e(4)},
		{set: "a", queue: "q", events: e(5)},
	})
	var shape []int64
	for _, s := range got {
		for _, e := range s.events {
			shape = append(shape, e.created.Unix())
		}
		shape = append(shape, 0)
	}
	if want := []int64{1, 3, 0, 4, 0, 5, 0, 2, 0}; !slices.Equal(shape, want) {
		t.Errorf("compact = %v, want %v", shape, want)
	}
}

// TestRecordings: of each event, only such fields are written as a real Armada has
// written, and all that it always writes.
func TestRecordings(t *testing.T) {
	t.Parallel()
	seen, always := shapes{}, map[int][]string{}
	for _, name := range []string{"plain", "chaos", "preempted"} {
		entries, err := recording.ReadFile("../../../testdata/recordings/" + name + ".jsonl.gz")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			seen.message(t, e.Message.Payload, func(kind int, paths []string) {
				old, ok := always[kind]
				if !ok {
					always[kind] = paths
					return
				}
				always[kind] = slices.DeleteFunc(old, func(p string) bool { return !slices.Contains(paths, p) })
			})
		}
	}

	w := NewWorld(t, Config{Seed: 7})
	i := newIngester(t, w)
	w.Submit(Job{}, Job{Script: []Outcome{Returned()}}, Job{Script: []Outcome{Fail(1).In("a", "b")}}, Job{Script: []Outcome{OOM()}}, Job{Script: []Outcome{Expired()}},
		Job{AvoidNodes: []string{"x"}, Script: times(1, Returned(), Succeed())}, Job{Script: times(1, NeverStarts(), Preempted())})
	rest := w.Submit(Job{Preemptible: true, Priority: 1, Script: []Outcome{Forever()}}, Job{Script: []Outcome{Forever()}}, Job{})
	steps(w, i, 60)
	w.Reprioritise(rest[0], 5)
	w.Cancel(rest[1])
	w.CancelSet(w.Submit(Job{Set: "other", Script: []Outcome{Forever()}})[0])
	steps(w, i, 5)
	w.Preempt(rest[0])
	until(t, w, i, "done", w.Done)

	ours := shapes{}
	for _, m := range messages(t, w) {
		ours.message(t, m.Payload, func(kind int, paths []string) {
			for _, p := range always[kind] {
				if !slices.Contains(paths, p) && kind != evSubmitJob { // what a user gives, and what the server adds
					t.Errorf("event %d lacks %s, which Armada always writes", kind, p)
				}
			}
		})
	}
	for kind, paths := range ours {
		for p := range paths {
			if !seen[kind][p] && !slices.Contains(unrecorded, p) && kind != evReprioritiseJob {
				t.Errorf("event %d has %s, which Armada never wrote", kind, p)
			}
		}
	}
	for kind := range seen {
		if ours[kind] == nil && kind != 3 { // ReprioritiseJobSet
			t.Errorf("no event %d was written", kind)
		}
	}
}

// unrecorded: no job that was recorded had an affinity of its own.
var unrecorded = []string{".5.2.1.18"}

// shapes are the paths of fields that were seen in events, by their number.
type shapes map[int]map[string]bool

func (s shapes) message(t *testing.T, payload []byte, each func(kind int, paths []string)) {
	t.Helper()
	err := scan(payload, func(f field) error {
		if f.number != 5 {
			return nil
		}
		return scan(f.bytes, func(f field) error {
			kind := f.number
			if kind == evCreated || kind == evPartitionMarker {
				return nil
			}
			paths, err := pathsOf(kind, "", f.bytes)
			if s[kind] == nil {
				s[kind] = map[string]bool{}
			}
			for _, p := range paths {
				s[kind][p] = true
			}
			each(kind, paths)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inside says of which fields the message in them is looked at too.
var inside = map[int][]string{
	evSubmitJob:      {".4", ".5", ".5.2", ".5.2.1"},
	evJobErrors:      {".2", ".2.7", ".2.8", ".2.8.5", ".2.9", ".2.11"},
	evJobRunAssigned: {".3", ".3.1", ".3.2"}, evJobRunRunning: {".3", ".3.1", ".3.2"}, evJobRunSucceeded: {".3", ".3.1", ".3.2"},
	evJobRunErrors: {".3", ".3.8", ".3.8.5", ".3.9", ".3.11"},
	evJobRequeued:  {".2", ".2.5", ".2.5.1"},
}

func pathsOf(kind int, prefix string, b []byte) ([]string, error) {
	var paths []string
	err := scan(b, func(f field) error {
		p := prefix + "." + strconv.Itoa(f.number)
		paths = append(paths, p)
		if !slices.Contains(inside[kind], p) {
			return nil
		}
		more, err := pathsOf(kind, p, f.bytes)
		paths = append(paths, more...)
		return err
	})
	return paths, err
}
