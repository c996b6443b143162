package scheduling

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
)

// story is a random sequence of changes, told to a Scheduler and done to the input of Schedule.
type story struct {
	t    *testing.T
	r    *rand.Rand
	s    *Scheduler
	in   *situation // what Schedule gets
	pool []Job      // jobs that have not been submitted
	of   map[string]int
	all  []Node
	log  []string
	seen *seen
}

// seen counts cycles.
type seen struct{ calm, unchanged, full, scheduled, preempted, failed, fitsNoNode int }

func newStory(t *testing.T, seed uint64, seen *seen) *story {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 4))
	in := draw(r)
	if r.IntN(3) > 0 { // a full cluster
		in.nodes = in.nodes[:1+r.IntN(min(len(in.nodes), 4))]
	}
	st := &story{t: t, r: r, in: in, of: map[string]int{}, all: in.nodes, seen: seen}
	for q := range in.queues {
		for _, j := range in.queues[q].Jobs {
			st.of[j.ID] = q
			st.pool = append(st.pool, j)
		}
		in.queues[q].Jobs = nil
	}
	r.Shuffle(len(st.pool), func(i, k int) { st.pool[i], st.pool[k] = st.pool[k], st.pool[i] })
	if r.IntN(2) == 0 { // gangs together
		slices.SortStableFunc(st.pool, func(a, b Job) int { return strings.Compare(a.Gang.ID, b.Gang.ID) })
	}
	in.running = map[string]string{}
	in.config.Now, in.config.LikeArmada = noon, r.IntN(2) == 0
	s, err := NewScheduler(in.config, in.queues, in.nodes)
	if err != nil {
		t.Fatal(err)
	}
	st.s = s
	for range min(len(st.pool), r.IntN(40)) {
		st.submit()
	}
	return st
}

func (st *story) say(format string, args ...any) {
	st.log = append(st.log, fmt.Sprintf(format, args...))
}

// queue has a job queued, new or not.
func (st *story) queue(j Job) {
	q := &st.in.queues[st.of[j.ID]]
	st.say("queue %+v in %s", j, q.Name)
	if err := st.s.Queue(q.Name, j); err != nil {
		st.t.Fatal(err)
	}
	delete(st.in.running, j.ID)
	if i := slices.IndexFunc(q.Jobs, func(k Job) bool { return k.ID == j.ID }); i >= 0 {
		q.Jobs[i] = j
	} else {
		q.Jobs = append(q.Jobs, j)
	}
}

func (st *story) submit() {
	st.queue(st.pool[0])
	st.pool = st.pool[1:]
}

func (st *story) remove(id string) {
	st.say("remove %s", id)
	st.s.Remove(id)
	delete(st.in.running, id)
	q := &st.in.queues[st.of[id]]
	q.Jobs = slices.DeleteFunc(q.Jobs, func(j Job) bool { return j.ID == id })
}

// any is a job that runs, or one that is queued.
func (st *story) any(runs bool) (Job, bool) {
	var all []Job
	for _, q := range st.in.queues {
		for _, j := range q.Jobs {
			if _, ok := st.in.running[j.ID]; ok == runs {
				all = append(all, j)
			}
		}
	}
	if len(all) == 0 {
		return Job{}, false
	}
	return all[st.r.IntN(len(all))], true
}

func (st *story) change() {
	r := st.r
	switch r.IntN(12) {
	case 0, 1, 2:
		for range min(len(st.pool), 1+r.IntN(1+r.IntN(12))) {
			st.submit()
		}
	case 3, 4, 5:
		if j, ok := st.any(true); ok {
			st.remove(j.ID)
		}
	case 6, 7:
		if j, ok := st.any(true); ok {
			j.RetryAfter = st.in.config.Now.Add(time.Duration(r.IntN(4)-1) * time.Second)
			if r.IntN(2) == 0 {
				j.AvoidedNodes = append(slices.Clone(j.AvoidedNodes), fmt.Sprint("n", r.IntN(4)))
			}
			st.queue(j)
		}
	case 8:
		if j, ok := st.any(false); ok {
			j.Held = r.IntN(3) == 0
			j.Priority = r.Int64N(3)
			if r.IntN(2) == 0 {
				j.RetryAfter = st.in.config.Now.Add(time.Duration(r.IntN(4)-1) * time.Second)
			}
			if r.IntN(4) == 0 {
				j.Request = Resources{r.Int64N(2) * r.Int64N(2), r.Int64N(4), r.Int64N(4)}
			}
			st.queue(j)
		}
	case 9:
		if j, ok := st.any(false); ok {
			st.remove(j.ID)
		}
	case 10:
		if r.IntN(3) > 0 {
			return
		}
		st.in.nodes = nil
		for _, n := range st.all {
			switch r.IntN(12) {
			case 0:
				continue
			case 1:
				n.Total = Resources{r.Int64N(3), r.Int64N(9), r.Int64N(9)}
			}
			st.in.nodes = append(st.in.nodes, n)
		}
		st.say("nodes %+v", st.in.nodes)
		if err := st.s.SetNodes(st.in.nodes); err != nil {
			st.t.Fatal(err)
		}
	case 11:
		st.say("a second passes")
		st.in.config.Now = st.in.config.Now.Add(time.Second)
	}
}

// cycle compares a cycle with Schedule.
func (st *story) cycle() {
	t := st.t
	want, err := Schedule(st.in.config, st.in.queues, st.in.nodes, st.in.running)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := st.s.Cycle(st.in.config.Now)
	if err != nil {
		t.Fatal(err)
	}
	st.say("cycle: calm %v, %+v", st.s.calm, changes)
	got := st.s.Result()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("Schedule (-) and Cycle (+) differ:\n%s\nafter:\n%s", diff.Diff(want, got), strings.Join(st.log, "\n"))
	}
	if !slices.Equal(changes.Scheduled, want.Scheduled) || !slices.Equal(changes.Preempted, want.Preempted) || !slices.Equal(changes.Failed, want.Failed) || !slices.Equal(st.s.Shares(), want.Shares) {
		t.Fatalf("changes %+v, want %+v", changes, want)
	}
	var noRoom []string
	reasons := map[string]Reason{}
	for _, u := range want.Unscheduled {
		reasons[u.Job] = u.Reason
		if u.Reason == NoRoom {
			noRoom = append(noRoom, u.Job)
		}
		if got := st.s.Reason(u.Job); got != u.Reason {
			t.Fatalf("reason of %s: %v, want %v", u.Job, got, u.Reason)
		}
	}
	var listed []string
	for _, q := range st.in.queues {
		listed = append(listed, slices.Collect(st.s.NoRoom(q.Name))...)
		for _, j := range q.Jobs {
			if got := st.s.Node(j.ID); got != want.NodeByJob[j.ID] {
				t.Fatalf("node of %s: %q, want %q", j.ID, got, want.NodeByJob[j.ID])
			}
		}
	}
	slices.Sort(listed)
	if !slices.Equal(listed, noRoom) {
		t.Fatalf("no room for %v, want %v", listed, noRoom)
	}
	for _, id := range changes.FitsNoNode {
		if reasons[id] != FitsNoNode {
			t.Fatalf("%s fits no node, want %v", id, reasons[id])
		}
	}
	n := st.seen
	n.scheduled, n.preempted, n.failed, n.fitsNoNode = n.scheduled+len(want.Scheduled), n.preempted+len(want.Preempted), n.failed+len(want.Failed), n.fitsNoNode+len(changes.FitsNoNode)
	switch {
	case !st.s.calm:
		n.full++
	case maps.Equal(want.NodeByJob, st.in.running):
		n.unchanged++
	default:
		n.calm++
	}
	st.in.running = want.NodeByJob
	for _, id := range slices.Concat(want.Preempted, want.Failed) {
		if st.r.IntN(2) == 0 {
			st.remove(id)
		}
	}
}

// sequences is how many stories are told: 400, or SEQUENCES, from another seed each time.
func sequences() (n int, seed uint64) {
	if n, err := strconv.Atoi(os.Getenv("SEQUENCES")); err == nil {
		return n, rand.Uint64()
	}
	return 400, 0
}

// TestSchedulerIsSchedule: after any changes, Cycle has the result of Schedule.
func TestSchedulerIsSchedule(t *testing.T) {
	t.Parallel()
	n, first := sequences()
	var seen seen
	for seed := first; seed != first+uint64(n); seed++ {
		st := newStory(t, seed, &seen)
		st.say("seed %d, queues %+v, nodes %+v, config %+v", seed, st.in.queues, st.in.nodes, st.in.config)
		for range 12 {
			for range st.r.IntN(1 + st.r.IntN(4)) {
				st.change()
			}
			st.cycle()
		}
	}
	t.Logf("%d sequences: %+v", n, seen)
	for _, count := range []int{seen.calm, seen.unchanged, seen.full, seen.preempted, seen.failed, seen.fitsNoNode} {
		if count < n/100 {
			t.Errorf("hardly tested: %+v", seen)
		}
	}
}

// TestSchedulerRejects: what Schedule would reject is an error, and changes nothing.
func TestSchedulerRejects(t *testing.T) {
	t.Parallel()
	queues := []Queue{{Name: "a", PriorityFactor: 1000}, {Name: "b", PriorityFactor: 1000}}
	nodes := []Node{{Name: "n", Total: Resources{1, 4, 4}}}
	s, err := NewScheduler(config(), queues, nodes)
	if err != nil {
		t.Fatal(err)
	}
	good := Job{ID: "good", Request: Resources{0, 1}, Gang: Gang{ID: "g", Cardinality: 1}}
	if err := s.Queue("a", good); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		queue, want string
		job         Job
	}{
		{"c", `there is no queue "c"`, Job{ID: "x"}},
		{"b", `is in queue "a"`, good},
		{"a", "without an ID", Job{}},
		{"a", "is negative", Job{ID: "x", Request: Resources{-1}}},
		{"a", "more jobs than its cardinality", Job{ID: "x", Gang: good.Gang}},
		{"a", "differ in cardinality", Job{ID: "x", Gang: Gang{ID: "g", Cardinality: 2}}},
		{"a", "there is no priority class", Job{ID: "x", PriorityClass: "none"}},
		{"a", "more than 2^63-1", Job{ID: "x", Request: Resources{0, 1<<63 - 1}}},
	} {
		if err := s.Queue(bad.queue, bad.job); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %v, want %s", bad.job, err, bad.want)
		}
	}
	if err := s.SetNodes(append(nodes, nodes...)); err == nil {
		t.Error("a node that is named twice is no error")
	}
	if _, err := s.Cycle(noon.Add(-time.Hour)); err == nil {
		t.Error("a cycle before the last one is no error")
	}
	s.Remove("x")
	now := cmp.Or(config().Now, noon)
	if got, err := s.Cycle(now); err != nil || !slices.Equal(got.Scheduled, []string{"good"}) {
		t.Errorf("the good job is not scheduled: %+v, %v", got, err)
	}
}
