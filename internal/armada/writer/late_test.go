package writer_test

import (
	"testing"
	"time"

	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/test/standin"
)

// inTime has every kind of restart, with a termination slack of 10 s and a grace of 5 s.
const inTime = `
kind: RetrySettings
spec: {terminationSlack: 10s}
---
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: retries}
spec:
  retryLimit: 3
  defaultAction: Fail
  rules:
  - {name: broken, action: Retry, onExitCodes: {operator: In, values: [1]}, backoff: {initialDelay: 6s}}
  - {name: lost, action: Retry, onConditions: [Preempted, LeaseExpired], backoff: {initialDelay: 40s}}
---
{kind: Queue, name: queue, retryPolicies: [retries]}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: together}
spec: {maxRestarts: 1, backoff: {initialDelay: 6s}, parts: [{name: main, members: 3}]}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: pipeline}
spec: {maxRestarts: 1, parts: [{name: driver}, {name: workers, members: 3, after: [driver]}]}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: always}
spec: {parts: [{name: main, members: 3, minMembers: 1, restarts: {limit: 1, on: Always}}]}
`

// TestLateWrite: a run that we stop, or whose end its executor learns from our rows only, has its
// grace and the termination slack from the write on, however late that comes. What else a restart
// waits for began with the failure, and is not repeated.
func TestLateWrite(t *testing.T) {
	t.Parallel()
	const grace, slack = 5 * time.Second, 10 * time.Second
	ok, broken := standin.Succeed(), standin.Fail(9)
	gang := func(script ...standin.Outcome) standin.Job {
		return standin.Job{Set: "gangs", Gang: "g", Members: 3, Grace: grace, Script: script}
	}
	forever := standin.Forever()
	for name, jobs := range map[string][]standin.Job{
		"gang":                      {gang(standin.Fail(1).After(9*time.Second), ok), gang(forever, ok), gang(forever, ok)},
		"gang, one is preempted":    {gang(standin.Preempted().After(9*time.Second), ok), gang(forever, ok), gang(forever, ok)},
		"group":                     {inGroup("together", "main", 0, broken.After(9*time.Second), ok), inGroup("together", "main", 0, forever, ok), inGroup("together", "main", 0, forever, ok)},
		"group that holds its live": {inGroup("pipeline", "driver", 0, ok), inGroup("pipeline", "workers", 0, broken.After(12*time.Second), ok), inGroup("pipeline", "workers", 0, forever, ok), inGroup("pipeline", "workers", 0, forever, ok)},
		"unit that has succeeded":   {inGroup("always", "main", 0, ok.After(9*time.Second), ok.After(60*time.Second)), inGroup("always", "main", 0, forever, ok), inGroup("always", "main", 0, forever, ok)},
		"a preempted job":           {{Grace: grace, Script: script(1, standin.Preempted().After(9*time.Second), ok)}},
	} {
		for _, down := range []string{"nothing", "ingester", "evaluator"} {
			t.Run(name+", "+down+" is down", func(t *testing.T) {
				t.Parallel()
				d := deploy(t, standin.Config{Executors: manyNodes()}, writer.HoldBack, inTime)
				ids := d.Submit(jobs...)
				d.until("all run", func() bool {
					return d.count("SELECT count(*) FROM runs WHERE running AND NOT terminated") == min(len(jobs), 3)
				})
				const away = 60
				switch down {
				case "ingester":
					d.must(d.ingesters[0].Close())
					d.ingesters = nil
					d.steps(away)
					d.ingesterUp()
				case "evaluator":
					d.evaluatorsDown()
					d.steps(away)
					d.evaluatorsUp()
				}
				written := d.Now()
				if down == "nothing" {
					d.until("a restart is written", func() bool { return d.count("SELECT count(*) FROM refloat_waits") > 0 })
					written = d.Now()
				}
				d.right()
				stopped := 0
				for _, id := range ids {
					r := d.Job(id)
					for i := range r.Pods[1:] {
						before, next := r.Pods[i], r.Leases[i+1]
						if !before.Ended.After(written) {
							continue // it was over before the write
						}
						stopped++
						waited := next.At.Sub(written)
						if waited < grace+slack {
							t.Errorf("job %s is leased again %v after its live run was stopped, want %v: grace and slack", id, waited, grace+slack)
						}
						if most := grace + slack + 12*time.Second; waited > most && down != "nothing" {
							t.Errorf("job %s is leased again %v after its live run was stopped, want at most %v", id, waited, most)
						}
					}
					if r.State == standin.Failed || len(r.Pods) > 3 {
						t.Errorf("job %s is %v after %d pods", id, r.State, len(r.Pods))
					}
				}
				if stopped == 0 {
					t.Error("no run was stopped")
				}
			})
		}
	}
}
