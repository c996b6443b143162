package writer_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/test/standin"
)

// TestCampaign: many jobs with random outcomes, while users change jobs, our
// transactions are cut off at any label, a second ingester writes, evaluators are down,
// and Armada's scheduler restarts. In every case no job is lost, none runs twice at
// once, none is retried beyond its limits, and each ends as its script and the policy
// say. MIRROR_SEEDS sets the number of seeds if it is over 4.
func TestCampaign(t *testing.T) {
	t.Parallel()
	seeds := 4
	if n, err := strconv.Atoi(os.Getenv("MIRROR_SEEDS")); err == nil {
		seeds = n
	} else if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			c := newCampaign(t, seed)
			c.run()
		})
	}
}

func newCampaign(t *testing.T, seed int) *campaign {
	t.Helper()
	return &campaign{
		random: rand.New(rand.NewPCG(uint64(seed), 5)),
		deployment: deploy(t, standin.Config{
			Seed: uint64(seed), Executors: manyNodes(), SecondRaise: seed%2 == 1, MaxEvents: 1 + seed%3*50,
		}, writer.HoldBack, someRetries),
		touched: map[string]bool{},
	}
}

// manyNodes is more than a job can avoid.
func manyNodes() (all []standin.Executor) {
	for _, name := range []string{"east", "west"} {
		x := standin.Executor{Name: name, DeleteFailed: true}
		for i := range 8 {
			x.Nodes = append(x.Nodes, standin.Node{Name: fmt.Sprintf("%s-%d", name, i), Slots: 2})
		}
		all = append(all, x)
	}
	return all
}

type campaign struct {
	*deployment
	random  *rand.Rand
	jobs    []string
	touched map[string]bool // jobs with a request of a user
}

func (c *campaign) run() {
	c.t.Helper()
	for second := range 240 {
		if second < 60 && second%6 == 0 {
			c.submit()
		}
		c.disturb()
		c.step()
		if n := len(c.owners); n == 0 && c.random.IntN(10) == 0 {
			c.evaluatorsUp()
		}
	}
	c.hit = nil
	if len(c.owners) == 0 {
		c.evaluatorsUp()
	}
	c.right()
	for _, id := range c.jobs {
		c.check(c.Job(id))
	}
	if c.t.Failed() {
		for _, id := range c.jobs {
			r := c.Job(id)
			for _, l := range r.Leases {
				c.t.Log("lease", l)
			}
			for _, p := range r.Pods {
				c.t.Log("pod", id, p)
			}
		}
	}
}

func (c *campaign) submit() {
	c.t.Helper()
	var jobs []standin.Job
	for range 2 {
		j := standin.Job{Set: fmt.Sprintf("set-%d", c.random.IntN(4)), Grace: time.Duration(1+c.random.IntN(5)) * time.Second}
		for range c.random.IntN(6) {
			o := []standin.Outcome{
				standin.Fail(1), standin.Fail(2), standin.Fail(9), standin.OOM(), standin.Preempted(), standin.Preempted(),
				standin.Expired(), standin.NeverStarts(), standin.Returned(),
			}[c.random.IntN(9)]
			if c.random.IntN(5) == 0 && o != standin.Preempted() && o != standin.Expired() {
				o = o.Replayed()
			}
			j.Script = append(j.Script, o)
		}
		j.Script = append(j.Script, standin.Succeed())
		jobs = append(jobs, j)
	}
	c.jobs = append(c.jobs, c.Submit(jobs...)...)
}

func (c *campaign) disturb() {
	c.t.Helper()
	some := func() string {
		id := c.jobs[c.random.IntN(len(c.jobs))]
		c.touched[id] = true
		return id
	}
	switch c.random.IntN(30) {
	case 0:
		c.Cancel(some())
	case 1:
		c.Reprioritise(some(), uint32(c.random.IntN(5)))
	case 2:
		c.RestartScheduler()
	case 3:
		c.evaluatorsDown()
	case 4:
		if len(c.ingesters) == 1 {
			c.ingesterUp()
		}
	case 5, 6, 7:
		at, label := 1+c.random.IntN(4), []string{"loaded", "written", "before-commit", "committed"}[c.random.IntN(4)]
		c.hit = func(l string) error {
			if l != label {
				return nil
			}
			if at--; at == 0 {
				return errHit
			}
			return nil
		}
	}
}

// check compares a job without user requests with its script and someRetries.
func (c *campaign) check(r standin.Record) {
	c.t.Helper()
	if c.touched[r.ID] {
		return
	}
	state, runs := expected(r.Job.Script)
	if r.State != state || len(r.Pods) != runs {
		c.t.Errorf("job %s is %v after %d pods, want %v after %d: %+v", r.ID, r.State, len(r.Pods), state, runs, r)
	}
}

// expected is a simple model of someRetries, with Armada's own rule that requeues three
// returned leases.
func expected(script []standin.Outcome) (standin.State, int) {
	used := map[string]int{}
	for i, o := range script {
		rule, limit := ruleOf(o)
		if rule == "" {
			return standin.Succeeded, i + 1
		}
		if used[rule] >= limit {
			return standin.Failed, i + 1
		}
		used[rule]++
	}
	panic("the last outcome is a success")
}

func ruleOf(o standin.Outcome) (rule string, limit int) {
	for _, r := range []struct {
		of    standin.Outcome
		rule  string
		limit int
	}{
		{standin.Fail(1), "broken", 3},
		{standin.Fail(2), "slow", 3},
		{standin.Preempted(), "lost", 3},
		{standin.Expired(), "lost", 3},
		{standin.Returned(), "returned", 3},
		{standin.Succeed(), "", 0},
	} {
		if o == r.of || o == r.of.Replayed() {
			return r.rule, r.limit
		}
	}
	return "none", 0
}
