package scheduling

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// draw makes a random instance: few different numbers, so that much is equal.
func draw(r *rand.Rand) *situation {
	s := &situation{config: config(), running: map[string]string{}}
	r.Shuffle(len(s.config.PriorityClasses), func(i, k int) {
		s.config.PriorityClasses[i].IsFairSharePreemptible, s.config.PriorityClasses[k].IsFairSharePreemptible = s.config.PriorityClasses[k].IsFairSharePreemptible, s.config.PriorityClasses[i].IsFairSharePreemptible
	})
	for i := range 1 + r.IntN(20) {
		s.nodes = append(s.nodes, Node{
			Name: fmt.Sprint("n", i), Total: Resources{r.Int64N(3), r.Int64N(9), r.Int64N(9)},
			Labels: map[string]string{"rack": fmt.Sprint(r.IntN(3))},
		})
	}
	for q := range 1 + r.IntN(6) {
		s.queues = append(s.queues, Queue{Name: fmt.Sprint("q", q), PriorityFactor: []int64{500, 1000, 1000, 3000}[r.IntN(4)]})
	}
	gangs := 0
	for n := r.IntN(200); n > 0; {
		q := &s.queues[r.IntN(len(s.queues))]
		size := 1
		template := Job{PriorityClass: s.config.PriorityClasses[r.IntN(4)].Name}
		if r.IntN(4) == 0 {
			size = 1 + r.IntN(4)
			template.Gang = Gang{ID: fmt.Sprint("g", gangs), Cardinality: size, MinimumCardinality: r.IntN(size + 1)}
			if r.IntN(2) == 0 {
				template.Gang.NodeUniformityLabel = "rack"
			}
			if r.IntN(9) == 0 {
				template.Gang.Cardinality++
			}
			gangs++
		}
		running := r.IntN(2) == 0
		for range size {
			j := template
			j.ID, j.Priority, j.Submitted = fmt.Sprint("j", n), r.Int64N(2), noon.Add(time.Duration(r.IntN(9))*time.Second)
			j.Request = Resources{r.Int64N(2) * r.Int64N(2), r.Int64N(4), r.Int64N(4)}
			j.Held = r.IntN(30) == 0
			if r.IntN(10) == 0 {
				j.RetryAfter = noon.Add(time.Duration(r.IntN(3)-1) * time.Second)
			}
			if r.IntN(10) == 0 {
				j.AvoidedNodes = []string{"n0", "n3"}
			}
			if running && r.IntN(20) > 0 {
				j.Started = noon.Add(time.Duration(r.IntN(9)) * time.Second)
				s.running[j.ID] = fmt.Sprint("n", r.IntN(len(s.nodes)+1)*r.IntN(len(s.nodes)+1)/len(s.nodes))
			}
			q.Jobs = append(q.Jobs, j)
			n--
		}
	}
	return s
}

func (s *situation) shuffled(r *rand.Rand) *situation {
	c := *s
	c.config.PriorityClasses, c.nodes, c.queues = slices.Clone(s.config.PriorityClasses), slices.Clone(s.nodes), slices.Clone(s.queues)
	r.Shuffle(len(c.nodes), func(i, k int) { c.nodes[i], c.nodes[k] = c.nodes[k], c.nodes[i] })
	r.Shuffle(len(c.queues), func(i, k int) { c.queues[i], c.queues[k] = c.queues[k], c.queues[i] })
	classes := c.config.PriorityClasses
	r.Shuffle(len(classes), func(i, k int) { classes[i], classes[k] = classes[k], classes[i] })
	for q := range c.queues {
		jobs := slices.Clone(c.queues[q].Jobs)
		r.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
		c.queues[q].Jobs = jobs
	}
	return &c
}

func TestPermutationChangesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := draw(r)
		want, got := s.schedule(t), s.shuffled(r).schedule(t)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}

// TestIndexFindsWhatLookingAtAllNodesFinds compares both searches at each step of random cycles.
func TestIndexFindsWhatLookingAtAllNodesFinds(t *testing.T) {
	t.Parallel()
	displaces := 0
	for seed := range uint64(200) {
		s := draw(rand.New(rand.NewPCG(seed, 2)))
		c, err := newCycle(s.config, s.queues, s.nodes, s.running)
		if err != nil {
			t.Fatal(err)
		}
		all := make([]int32, len(c.nodes))
		for i := range all {
			all[i] = int32(i)
		}
		c.evict()
		c.index.build()
		for level := int32(c.levels) - 1; level >= 0; level-- {
			c.line.fill(level)
			for {
				g := c.selectNextQueuedGangToSchedule()
				if g == none {
					break
				}
				if j := c.gangs[g].members[0]; c.jobs[j].start == none && c.jobs[j].state == nothing {
					for _, displace := range []bool{true, false} {
						n, d := c.selectNodeForJob(j, nil, terms{displace, c.anything(), 0})
						wantN, wantD := c.selectNodeForJob(j, all, terms{displace, c.anything(), 0})
						if n != wantN || n != none && d != wantD {
							t.Fatalf("seed %d: job %s: node %d (%v), want %d (%v)", seed, c.jobs[j].ID, n, d, wantN, wantD)
						}
						if n != none && d.level != none {
							displaces++
						}
					}
				}
				c.selectNodesForGang(&c.gangs[g])
				c.checkSums(t)
			}
		}
	}
	if displaces < 500 {
		t.Errorf("only %d searches that displace", displaces)
	}
}

// checkSums computes everything anew that the cycle keeps up to date.
func (c *cycle) checkSums(t *testing.T) {
	t.Helper()
	free, held := make([]int64, len(c.amounts.free)), make([]int64, len(c.amounts.held))
	for n := range c.nodes {
		copy(c.of(free, int32(n)), c.nodes[n].Total)
	}
	available := make([]int64, len(c.amounts.available))
	for n := range len(c.nodes) * c.levels {
		copy(c.of(available, int32(n)), c.nodes[n/c.levels].Total)
	}
	for j := range c.jobs {
		job := &c.jobs[j]
		if job.state == nothing {
			continue
		}
		for r, amount := range c.request(int32(j)) {
			c.of(held, job.queue)[r] += amount
			if job.node < 0 {
				continue
			}
			c.of(free, job.node)[r] -= amount
			for level := range int32(c.levels) {
				if job.level > level || job.level == level && job.state == placed {
					c.of(available, job.node*int32(c.levels)+level)[r] -= amount
				}
			}
		}
	}
	if !slices.Equal(free, c.amounts.free) || !slices.Equal(held, c.amounts.held) || !slices.Equal(available, c.amounts.available) {
		t.Fatalf("sums differ: free %v, want %v; held %v, want %v", c.amounts.free, free, c.amounts.held, held)
	}
}

// TestLaws holds what every result must satisfy.
func TestLaws(t *testing.T) {
	t.Parallel()
	var seen struct{ scheduled, preempted, failed, queued int }
	for seed := range uint64(200) {
		s := draw(rand.New(rand.NewPCG(seed, 3)))
		r := s.schedule(t)
		s.checkLists(t, r)
		if diff := cmp.Diff(draw(rand.New(rand.NewPCG(seed, 3))), s, cmp.AllowUnexported(situation{})); diff != "" {
			t.Fatalf("seed %d: Schedule changes its input:\n%s", seed, diff)
		}
		seen.scheduled, seen.preempted = seen.scheduled+len(r.Scheduled), seen.preempted+len(r.Preempted)
		seen.failed, seen.queued = seen.failed+len(r.Failed), seen.queued+len(r.Unscheduled)
		used, kept := map[string]Resources{}, map[string]Resources{}
		total := map[string]Resources{}
		for _, n := range s.nodes {
			used[n.Name], kept[n.Name], total[n.Name] = make(Resources, 3), make(Resources, 3), n.Total
		}
		placed := map[string]int{}
		for _, q := range s.queues {
			for _, j := range q.Jobs {
				node, ok := r.NodeByJob[j.ID]
				before, ran := s.running[j.ID]
				if ran && ok && node != before {
					t.Fatalf("seed %d: %s moved from %s to %s", seed, j.ID, before, node)
				}
				if !ok || used[node] == nil {
					continue
				}
				placed[q.Name+j.Gang.ID]++
				if !ran && slices.Contains(j.AvoidedNodes, node) {
					t.Fatalf("seed %d: %s is on a node that it avoids", seed, j.ID)
				}
				for i, amount := range j.Request {
					used[node][i] += amount
					if ran {
						kept[node][i] += amount
					}
				}
			}
		}
		fits := func(j Job, node string) bool {
			for i, amount := range j.Request {
				if amount > 0 && used[node][i]+amount > total[node][i] {
					return false
				}
			}
			return true
		}
		for _, q := range s.queues {
			for _, j := range q.Jobs {
				node, on := r.NodeByJob[j.ID]
				if on && used[node] != nil && s.running[j.ID] == "" {
					for i, amount := range j.Request {
						if amount > 0 && used[node][i] > total[node][i] {
							t.Fatalf("seed %d: %s was scheduled on %s, which has too much", seed, j.ID, node)
						}
					}
				}
				if j.Gang.ID != "" {
					continue
				}
				if before := s.running[j.ID]; before != "" && !on && total[before] != nil && fits(j, before) {
					t.Fatalf("seed %d: %s was preempted though there is room", seed, j.ID)
				}
				for _, u := range r.Unscheduled {
					if u.Job != j.ID || u.Reason != NoRoom {
						continue
					}
					for _, n := range s.nodes {
						if fits(j, n.Name) && !slices.Contains(j.AvoidedNodes, n.Name) {
							t.Fatalf("seed %d: %s is queued though there is room on %s", seed, j.ID, n.Name)
						}
					}
				}
			}
		}
		for _, u := range append(slices.Clone(r.Scheduled), r.Failed...) {
			for _, q := range s.queues {
				for _, j := range q.Jobs {
					if j.ID == u && j.Gang.ID != "" && placed[q.Name+j.Gang.ID] < need(j.Gang) {
						t.Fatalf("seed %d: gang %s has %d jobs", seed, j.Gang.ID, placed[q.Name+j.Gang.ID])
					}
				}
			}
		}
	}
	if seen.scheduled == 0 || seen.preempted == 0 || seen.failed == 0 || seen.queued == 0 {
		t.Errorf("some outcome never occurs: %+v", seen)
	}
}

// checkLists finds out from both mappings what became of each job: scheduled, preempted, unchanged, or queued still.
func (s *situation) checkLists(t *testing.T, r Result) {
	t.Helper()
	var scheduled, preempted, queued []string
	for _, q := range s.queues {
		for _, j := range q.Jobs {
			before, ran := s.running[j.ID]
			now, has := r.NodeByJob[j.ID]
			switch {
			case !ran && has:
				scheduled = append(scheduled, j.ID)
			case ran && !has:
				preempted = append(preempted, j.ID)
			case ran && before != now:
				t.Fatalf("%s moved from %s to %s", j.ID, before, now)
			case !has:
				queued = append(queued, j.ID)
			}
		}
	}
	listed := slices.Clone(r.Failed)
	for _, u := range r.Unscheduled {
		listed = append(listed, u.Job)
	}
	for _, list := range []struct {
		what      string
		want, got []string
	}{{"scheduled", scheduled, r.Scheduled}, {"preempted", preempted, r.Preempted}, {"queued or failed", queued, listed}} {
		slices.Sort(list.want)
		if slices.Sort(listed); !slices.Equal(list.want, list.got) {
			t.Fatalf("%s: %v, want %v", list.what, list.got, list.want)
		}
	}
}

func need(g Gang) int {
	if g.MinimumCardinality > 0 {
		return g.MinimumCardinality
	}
	return g.Cardinality
}
