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
	in   *situation     // what Schedule gets
	pool []Job          // jobs that have not been submitted
	of   map[string]int // the queue of each job, also of the pool
	all  []Node
	// could says which queued jobs could be selected in an earlier cycle, since they were queued and the nodes changed.
	could map[string]bool
	log   []string
	seen  *seen
}

// seen counts cycles.
type seen struct{ calm, unchanged, full, scheduled, preempted, failed, fitsNoNode, refused int }

func newStory(t *testing.T, seed uint64, seen *seen) *story {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 4))
	in := draw(r)
	if r.IntN(3) > 0 { // a full cluster
		in.nodes = in.nodes[:1+r.IntN(min(len(in.nodes), 3))]
	}
	st := &story{t: t, r: r, in: in, of: map[string]int{}, all: in.nodes, could: map[string]bool{}, seen: seen}
	for q := range in.queues {
		for _, j := range in.queues[q].Jobs {
			st.of[j.ID] = q
			st.pool = append(st.pool, j)
		}
		in.queues[q].Jobs = nil
	}
	r.Shuffle(len(st.pool), func(i, k int) { st.pool[i], st.pool[k] = st.pool[k], st.pool[i] })
	if r.IntN(2) == 0 {
		st.alike()
	}
	if r.IntN(2) == 0 { // gangs together
		slices.SortStableFunc(st.pool, func(a, b Job) int { return strings.Compare(a.Gang.ID, b.Gang.ID) })
	}
	in.running = map[string]string{}
	in.config.Now, in.config.LikeArmada = noon, r.IntN(2) == 0
	in.config.Resolution = Resources{1, r.Int64N(3), r.Int64N(3)}
	s, err := NewScheduler(in.config, in.queues, in.nodes)
	if err != nil {
		t.Fatal(err)
	}
	st.s = s
	for range min(len(st.pool), r.IntN(80)) {
		st.submit()
	}
	return st
}

// alike lets the jobs of the pool request much the same, and makes pairs of some.
func (st *story) alike() {
	r, last := st.r, map[int]int{} // by queue, the job that waits for another
	pairs := r.IntN(2) == 0
	for i := range st.pool {
		j := &st.pool[i]
		j.Request = Resources{0, 1 + r.Int64N(2)*r.Int64N(2), 1 + r.Int64N(2)*r.Int64N(2)}
		if !pairs || j.Gang.ID != "" {
			continue
		}
		k, ok := last[st.of[j.ID]]
		if last[st.of[j.ID]] = i; !ok {
			continue
		}
		other := &st.pool[k]
		delete(last, st.of[j.ID])
		j.PriorityClass, j.Gang = other.PriorityClass, Gang{ID: "pair-" + j.ID, Cardinality: 2, MinimumCardinality: r.IntN(3), NodeUniformityLabel: []string{"", "rack"}[r.IntN(2)]}
		other.Gang = j.Gang
	}
}

func (st *story) logf(format string, args ...any) {
	st.log = append(st.log, fmt.Sprintf(format, args...))
}

// queue has a job queued, new or not. What Queue refuses, Schedule must refuse too.
func (st *story) queue(j Job) {
	q := &st.in.queues[st.of[j.ID]]
	st.logf("queue %+v in %s", j, q.Name)
	err := st.s.Queue(q.Name, j)
	jobs, runs := q.Jobs, maps.Clone(st.in.running)
	delete(st.in.running, j.ID)
	q.Jobs = append(slices.DeleteFunc(slices.Clone(jobs), func(k Job) bool { return k.ID == j.ID }), j)
	if err == nil {
		delete(st.could, j.ID)
		return
	}
	if _, want := Schedule(st.in.config, st.in.queues, st.in.nodes, st.in.running); want == nil {
		st.t.Fatalf("Queue refuses what Schedule accepts: %v, after:\n%s", err, strings.Join(st.log, "\n"))
	}
	st.seen.refused++
	q.Jobs, st.in.running = jobs, runs
}

func (st *story) submit() {
	st.queue(st.pool[0])
	st.pool = st.pool[1:]
}

func (st *story) remove(id string) {
	st.logf("remove %s", id)
	st.s.Remove(id)
	delete(st.in.running, id)
	delete(st.could, id)
	q := &st.in.queues[st.of[id]]
	q.Jobs = slices.DeleteFunc(q.Jobs, func(j Job) bool { return j.ID == id })
}

// cancel removes a job, which may be submitted again, later and to another queue.
func (st *story) cancel(j Job) {
	st.remove(j.ID)
	if j.Gang.ID == "" && st.r.IntN(2) == 0 {
		st.of[j.ID] = st.r.IntN(len(st.in.queues))
		st.pool = append(st.pool, st.alter(j))
	}
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

// soon is a moment near the present one; half of the time it has come.
func (st *story) soon() time.Time {
	return st.in.config.Now.Add(time.Duration(st.r.IntN(8)-3) * time.Second / 2)
}

// alter changes what a job says of itself alone.
func (st *story) alter(j Job) Job {
	r := st.r
	for range 1 + r.IntN(2) {
		switch r.IntN(6) {
		case 0:
			j.Priority = r.Int64N(3)
		case 1:
			j.Held = r.IntN(2) == 0
		case 2:
			j.RetryAfter = st.soon()
		case 3:
			j.AvoidedNodes = slices.Clone(j.AvoidedNodes[:r.IntN(len(j.AvoidedNodes)+1)])
			for range r.IntN(3) {
				j.AvoidedNodes = append(j.AvoidedNodes, fmt.Sprint("n", r.IntN(4)))
			}
		case 4:
			j.Request = Resources{r.Int64N(2) * r.Int64N(2), r.Int64N(4), r.Int64N(4)}[:r.IntN(4)]
		case 5:
			j.Submitted = noon.Add(time.Duration(r.IntN(9)) * time.Second)
		}
	}
	return j
}

// alterGang changes what the jobs of a gang must agree on.
func (st *story) alterGang(j Job) Job {
	r := st.r
	switch r.IntN(6) {
	case 0:
		j.PriorityClass = st.in.config.PriorityClasses[r.IntN(4)].Name
	case 1:
		j.Gang.Cardinality = r.IntN(4)
	case 2:
		j.Gang.MinimumCardinality = r.IntN(3)
	case 3:
		j.Gang.NodeUniformityLabel = []string{"", "rack"}[r.IntN(2)]
	case 4:
		j.Gang = Gang{}
	case 5:
		if other, ok := st.any(r.IntN(2) == 0); ok && st.of[other.ID] == st.of[j.ID] {
			j.Gang, j.PriorityClass = other.Gang, other.PriorityClass
		}
	}
	return j
}

// gang is all jobs of a job's gang, in a random order.
func (st *story) gang(of Job) (all []Job) {
	for _, j := range st.in.queues[st.of[of.ID]].Jobs {
		if j.ID == of.ID || of.Gang.ID != "" && j.Gang.ID == of.Gang.ID {
			all = append(all, j)
		}
	}
	st.r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

func (st *story) change() {
	r := st.r
	switch r.IntN(14) {
	case 0, 1, 2:
		for range min(len(st.pool), 1+r.IntN(1+r.IntN(12))) {
			st.submit()
		}
	case 3, 4, 5:
		if j, ok := st.any(true); ok {
			st.cancel(j)
		}
	case 6, 7:
		if j, ok := st.any(true); ok {
			j.RetryAfter = st.soon()
			if r.IntN(2) == 0 {
				j.AvoidedNodes = append(slices.Clone(j.AvoidedNodes), fmt.Sprint("n", r.IntN(4)))
			}
			st.queue(j)
		}
	case 8:
		if j, ok := st.any(false); ok {
			st.queue(st.alter(j))
		}
	case 9:
		if j, ok := st.any(false); ok {
			st.cancel(j)
		}
	case 10:
		if r.IntN(3) > 0 {
			return
		}
		for range 1 + r.IntN(2) {
			st.setNodes()
		}
	case 11:
		st.logf("time passes")
		st.in.config.Now = st.in.config.Now.Add(time.Duration(r.IntN(4)) * time.Second / 2)
	case 12:
		if j, ok := st.any(r.IntN(2) == 0); ok {
			st.queue(st.alterGang(j))
		}
	case 13:
		if j, ok := st.any(r.IntN(2) == 0); ok {
			retryAfter, again := st.soon(), r.IntN(2) == 0
			for _, k := range st.gang(j) {
				if k.RetryAfter = retryAfter; again {
					st.queue(k)
				} else {
					st.remove(k.ID)
					st.pool = append(st.pool, k)
				}
			}
		}
	}
}

// setNodes lets nodes go, come back and change.
func (st *story) setNodes() {
	r := st.r
	st.in.nodes = nil
	what := r.IntN(4) // nodes that go and come back, any change, labels, or nothing but the order
	for _, n := range st.all {
		if what == 0 && r.IntN(3) == 0 || what == 1 && r.IntN(12) == 0 {
			continue
		}
		if what == 1 && r.IntN(12) == 0 {
			n.Total = Resources{r.Int64N(3), r.Int64N(9), r.Int64N(9)}
		}
		if (what == 1 || what == 2) && r.IntN(3) == 0 {
			n.Labels = map[string]string{"rack": fmt.Sprint(r.IntN(3))}
		}
		st.in.nodes = append(st.in.nodes, n)
	}
	r.Shuffle(len(st.in.nodes), func(i, k int) { st.in.nodes[i], st.in.nodes[k] = st.in.nodes[k], st.in.nodes[i] })
	st.logf("nodes %+v", st.in.nodes)
	clear(st.could)
	if err := st.s.SetNodes(st.in.nodes); err != nil {
		st.t.Fatal(err)
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
	st.logf("cycle: calm %v, %+v", st.s.calm, changes)
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
	for _, q := range st.in.queues {
		for _, j := range q.Jobs {
			reason := reasons[j.ID]
			if reason == FitsNoNode && !st.could[j.ID] && !slices.Contains(changes.FitsNoNode, j.ID) {
				t.Fatalf("%s fits no node, and %v do, after:\n%s", j.ID, changes.FitsNoNode, strings.Join(st.log, "\n"))
			}
			st.could[j.ID] = reason == NoRoom || reason == FitsNoNode
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
	for q := range st.in.queues {
		for k := range st.in.queues[q].Jobs {
			if j := &st.in.queues[q].Jobs[k]; slices.Contains(want.Scheduled, j.ID) {
				j.Started = st.in.config.Now
			}
		}
	}
	for _, id := range slices.Concat(want.Preempted, want.Failed) {
		if st.r.IntN(2) == 0 {
			st.remove(id)
		}
	}
}

// sequences is how many stories are told: 1,000, or SEQUENCES, from SEED on, or from another seed each time.
func sequences() (n int, seed uint64) {
	if n, err := strconv.Atoi(os.Getenv("SEQUENCES")); err == nil {
		first, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
		if err != nil {
			first = rand.Uint64()
		}
		return n, first
	}
	return 1000, 0
}

// TestSchedulerIsSchedule: after any changes, Cycle has the result of Schedule.
func TestSchedulerIsSchedule(t *testing.T) {
	t.Parallel()
	n, first := sequences()
	var seen seen
	seeds := []uint64{
		121111,               // a queued gang is known to be passed over only when the last running one of its queue has returned
		552611,               // a node had more jobs than room in the cycle before
		15238425518992579367, // a gang that finds nothing free says nothing about others
	}
	for i := range uint64(n) {
		seeds = append(seeds, first+i)
	}
	var seed uint64
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last sequence again: SEQUENCES=1 SEED=%d", seed)
		}
	})
	for _, seed = range seeds {
		st := newStory(t, seed, &seen)
		st.logf("seed %d, queues %+v, nodes %+v, config %+v", seed, st.in.queues, st.in.nodes, st.in.config)
		for range 12 {
			for range st.r.IntN(1 + st.r.IntN(6)) {
				st.change()
			}
			st.cycle()
		}
	}
	t.Logf("%d sequences: %+v", n, seen)
	for _, count := range []int{seen.calm, seen.unchanged, seen.full, seen.preempted, seen.failed, seen.fitsNoNode, seen.refused} {
		if count < n/100 {
			t.Errorf("hardly tested: %+v", seen)
		}
	}
}

// TestTriedAgain: b2 starts on a free node, and is the first to return in the next cycle, since it is more urgent. Then b1 returns after a1 has been
// selected. a1, which found nothing in two cycles before, displaces it now.
func TestTriedAgain(t *testing.T) {
	t.Parallel()
	of := config()
	of.LikeArmada = true
	s, err := NewScheduler(of, []Queue{{Name: "a", PriorityFactor: 1000}, {Name: "b", PriorityFactor: 1000}}, with(2, 4).nodes)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		job   Job
		wants []string
	}{
		{Job{ID: "b1", PriorityClass: "high", Request: cpu(2), AvoidedNodes: []string{"n0"}}, []string{"scheduled [b1] preempted []", "scheduled [] preempted []"}},
		{Job{ID: "a1", PriorityClass: "high", Request: cpu(3)}, []string{"scheduled [] preempted []", "scheduled [] preempted []"}},
		{Job{ID: "b2", PriorityClass: "top", Request: cpu(2)}, []string{"scheduled [b2] preempted []", "scheduled [a1] preempted [b1]", "scheduled [] preempted []"}},
	} {
		if err := s.Queue(step.job.ID[:1], step.job); err != nil {
			t.Fatal(err)
		}
		for _, want := range step.wants {
			r, err := s.Cycle(noon)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("scheduled %v preempted %v", r.Scheduled, r.Preempted); got != want {
				t.Errorf("after %s: %s, want %s", step.job.ID, got, want)
			}
		}
	}
}

// TestAlikeGangs: the gang of a1 finds nothing, and a2 starts. So a4, behind a gang like the first one, comes later than b2, which gets what is left.
func TestAlikeGangs(t *testing.T) {
	t.Parallel()
	of := config()
	of.LikeArmada = true
	s, err := NewScheduler(of, []Queue{{Name: "a", PriorityFactor: 1000}, {Name: "b", PriorityFactor: 1000}}, []Node{{Name: "n0", Total: cpu(4)}, {Name: "n1", Total: cpu(39)}})
	if err != nil {
		t.Fatal(err)
	}
	first, other := Gang{ID: "first", Cardinality: 2}, Gang{ID: "other", Cardinality: 2}
	before := []Job{{ID: "b1", Request: cpu(39)}}
	then := []Job{
		{ID: "a1", Request: cpu(20), Gang: first},
		{ID: "a1x", Request: cpu(20), Gang: first},
		{ID: "a2", Request: cpu(2)},
		{ID: "a3", Request: cpu(20), Gang: other},
		{ID: "a3x", Request: cpu(20), Gang: other},
		{ID: "a4", Request: cpu(2)},
		{ID: "b2", Request: cpu(2)},
	}
	for _, step := range []struct {
		jobs []Job
		want string
	}{{before, "[b1]"}, {then, "[a2 b2]"}} {
		for _, j := range step.jobs {
			if err := s.Queue(j.ID[:1], j); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := s.Cycle(noon); err != nil || fmt.Sprint(r.Scheduled) != step.want {
			t.Errorf("scheduled %v, %v, want %s", r.Scheduled, err, step.want)
		}
	}
}

// TestRoomAgain: when a1 runs, n0 becomes too small for it. When a1 has ended, n0 is a node like others, and a2 gets it, since less is free there.
func TestRoomAgain(t *testing.T) {
	t.Parallel()
	of := config()
	of.LikeArmada = true
	s, err := NewScheduler(of, []Queue{{Name: "a", PriorityFactor: 1000}}, with(4, 6).nodes)
	if err != nil {
		t.Fatal(err)
	}
	cycle := func(job Job) {
		t.Helper()
		if err := s.Queue("a", job); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Cycle(noon); err != nil || s.Node(job.ID) != "n0" {
			t.Errorf("%s runs on %q, %v, want n0", job.ID, s.Node(job.ID), err)
		}
	}
	cycle(Job{ID: "a1", Request: cpu(4)})
	if err := s.SetNodes(with(2, 6).nodes); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Cycle(noon); err != nil || len(got.Preempted) > 0 {
		t.Errorf("preempted %v, %v", got.Preempted, err)
	}
	s.Remove("a1")
	cycle(Job{ID: "a2", Request: cpu(1)})
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
	if err := s.SetNodes(append(nodes, nodes...)); err == nil || err.Error() != `node "n": named twice` {
		t.Errorf("a node that is named twice: %v", err)
	}
	if _, err := s.Cycle(noon.Add(-time.Hour)); err == nil || err.Error() != "the cycle of 2026-11-22 11:00:00 +0000 UTC comes after that of 2026-11-22 12:00:00 +0000 UTC" {
		t.Errorf("a cycle before the last one: %v", err)
	}
	if _, err := NewScheduler(config(), append(queues, queues...), nodes); err == nil || err.Error() != `queue "a": named twice` {
		t.Errorf("a queue that is named twice: %v", err)
	}
	s.Remove("x")
	for _, j := range []Job{{ID: "large", Request: Resources{0, 1 << 62}}, {ID: "large", Request: Resources{0, 1<<63 - 2}}, {ID: "larger", Request: Resources{0, 1<<63 - 2}}} {
		if err := s.Queue("a", j); err != nil {
			t.Errorf("what was queued before counts in the sum of requests: %v", err)
		}
		if j.Request[1] > 1<<62 {
			s.Remove(j.ID)
		}
	}
	now := cmp.Or(config().Now, noon)
	if got, err := s.Cycle(now); err != nil || !slices.Equal(got.Scheduled, []string{"good"}) {
		t.Errorf("the good job is not scheduled: %+v, %v", got, err)
	}
}

// TestOnlyFree: a gang that finds free nodes for some of its jobs, where there is nobody to displace, needs no full cycle, and does not
// keep another one from these nodes.
func TestOnlyFree(t *testing.T) {
	t.Parallel()
	config := Config{
		Now: time.Unix(0, 0), Resources: []string{"cpu"}, PriorityClasses: []PriorityClass{{Name: "p", IsFairSharePreemptible: true}}, DefaultPriorityClass: "p", LikeArmada: true,
	}
	s, err := NewScheduler(config, []Queue{{Name: "q", PriorityFactor: 1000}}, []Node{{Name: "a", Total: Resources{1}}, {Name: "b", Total: Resources{1}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range []Job{{ID: "1", Gang: Gang{ID: "x"}}, {ID: "2", Gang: Gang{ID: "x"}, AvoidedNodes: []string{"b"}}, {ID: "3", Gang: Gang{ID: "y"}}, {ID: "4", Gang: Gang{ID: "y"}}} {
		j.Request, j.Gang.Cardinality = Resources{1}, 2
		if err := s.Queue("q", j); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Cycle(time.Unix(1, 0))
	if want := []string{"3", "4"}; err != nil || !slices.Equal(r.Scheduled, want) || !s.calm {
		t.Errorf("scheduled %v (%v), calm: %v, want %v in a calm cycle", r.Scheduled, err, s.calm, want)
	}
}
