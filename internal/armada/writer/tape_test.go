package writer_test

import (
	"errors"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/armada/writer"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/projection"
	"github.com/refloat/refloat/internal/test/standin"
)

// tape is a history that has ended, with the chain that covers it.
type tape struct {
	events, decisions eventlog.Topic
	from              time.Time // before all events
}

// forRecordings makes many different decisions on the queues of the recordings.
const forRecordings = `
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: much}
spec:
  retryLimit: 3
  defaultAction: Retry
  backoff: {initialDelay: 40s, multiplier: 2}
  rules:
  - {name: returned, action: Fail, onConditions: [LeaseReturned, Unschedulable]}
  - {name: oom, action: Retry, onConditions: [OOMKilled], antiAffinity: {mode: node}}
  - {name: lost, action: Retry, onConditions: [Preempted, LeaseExpired]}
---
apiVersion: armadaproject.io/v1
kind: RetryPolicy
metadata: {name: little}
spec:
  retryLimit: 1
  defaultAction: Fail
  rules:
  - {name: lost, action: Retry, onConditions: [Preempted, LeaseExpired], antiAffinity: {mode: node}}
  - {name: code, action: Retry, onExitCodes: {operator: NotIn, values: [0]}, antiAffinity: {mode: node}}
---
{kind: Queue, name: vision-train, retryPolicies: [much]}
---
{kind: Queue, name: risk-batch, retryPolicies: [little]}
---
{kind: Queue, name: genomics, retryPolicies: [much], mode: Shadow}
`

const recordings = "../../../testdata/recordings"

// recorded is a recording, decided by policies.
func recorded(t testing.TB, name, policies string) *tape {
	t.Helper()
	return recordedTimes(t, name, policies, 1)
}

// recordedTimes is a recording with each message repeated n times.
func recordedTimes(t testing.TB, name, policies string, times int) *tape {
	t.Helper()
	return decidedAs(t, slices.Values(entriesOf(t, name)), policies, tapeOptions{times: times})
}

// recordedIn is a recording that is decided by a version of the semantics.
func recordedIn(t testing.TB, semantics uint32, name, policies string) *tape {
	t.Helper()
	return decidedAs(t, slices.Values(entriesOf(t, name)), policies, tapeOptions{times: 1, semantics: semantics})
}

func entriesOf(t testing.TB, name string) []recording.Entry {
	t.Helper()
	entries, err := recording.ReadFile(filepath.Join(recordings, name+".jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

type tapeOptions struct {
	times     int    // how often each message comes
	semantics uint32 // 0: that of an empty log
}

func decidedAs(t testing.TB, entries iter.Seq[recording.Entry], policies string, o tapeOptions) *tape {
	t.Helper()
	fs, start := vfs.NewMem(), time.Unix(1_600_000_000, 0)
	open := func(dir string, partitions int) *filelog.Log {
		log, err := filelog.Open(filelog.Config{FS: fs, Dir: dir, Partitions: partitions, Manual: true, Now: func() time.Time { return start }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = log.Close() })
		return log
	}
	events, decisions, set := open("events", 3), open("decisions", 3), open("policies", 1)
	for e := range entries {
		if err := events.Append(e.Partition, slices.Repeat([]eventlog.Message{e.Message}, o.times)); err != nil {
			t.Fatal(err)
		}
	}
	if err := events.Commit(); err != nil {
		t.Fatal(err)
	}
	parsed, err := policyfile.Parse([]policyfile.File{{Name: "policies.yaml", Data: []byte(policies)}})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := policylog.Encode(&policylog.Proposal{Set: parsed, Author: "test", Time: start.UnixNano()})
	if err != nil {
		t.Fatal(err)
	}
	if err := set.AppendSync(t.Context(), 0, []eventlog.Message{{Payload: payload}}); err != nil {
		t.Fatal(err)
	}
	for p := range 3 {
		decide(t, p, events, decisions, set, o.semantics)
	}
	return &tape{events: events, decisions: decisions, from: start}
}

// decide decides all events of a partition, a few messages per envelope.
func decide(t testing.TB, p int, events eventlog.Topic, decisions, set *filelog.Log, semantics uint32) {
	t.Helper()
	store, err := projection.OpenStore(projection.StoreConfig{FS: vfs.NewMem(), Dir: "state", Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	policies, err := policylog.Open(set)
	if err != nil {
		t.Fatal(err)
	}
	o := evaluator.NewOwner(evaluator.Config{
		Semantics: semantics, Partition: p, Store: store, Events: events, Decisions: decisions, Policies: policies, MaxMessages: 7,
		Publisher: decisions.Publisher(p), Random: seeded{rand.New(rand.NewPCG(uint64(p), 11))},
	})
	for now, idle := int64(1), 0; idle < 3; now++ {
		did, err := o.Advance(now)
		if err == nil {
			err = decisions.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
		if idle++; did {
			idle = 0
		}
	}
	if err := errors.Join(o.Close(), policies.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
}

func eventsIn(t testing.TB, payload []byte) int {
	t.Helper()
	var seq pb.EventSequence
	if err := proto.Unmarshal(payload, &seq); err != nil {
		t.Fatal(err)
	}
	return len(seq.Events)
}

// lived is the history of a deployment, including its copies among the events.
func lived(t *testing.T) *tape {
	c := newCampaign(t, 3)
	from := c.Now()
	for second := range 40 {
		if second%6 == 0 {
			c.submit()
		}
		c.step()
	}
	c.right()
	return &tape{events: c.Log(), decisions: c.decisions, from: from.Add(-24 * time.Hour)}
}

const inGroups = `
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
  - {name: broken, action: Retry, onExitCodes: {operator: In, values: [1]}}
  - {name: slow, action: Retry, onExitCodes: {operator: In, values: [2]}, backoff: {initialDelay: 30s}}
  - {name: lost, action: Retry, onConditions: [Preempted, LeaseExpired]}
---
{kind: Queue, name: queue, retryPolicies: [retries]}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: pipeline}
spec: {maxRestarts: 2, completed: Keep, backoff: {initialDelay: 20s}, parts: [{name: driver}, {name: workers, members: 5, minMembers: 4, parallelism: 2, after: [driver]}]}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: together}
spec: {maxRestarts: 1, parts: [{name: main, members: 3}]}
---
apiVersion: refloat.github.io/v1
kind: GroupPolicy
metadata: {name: apart}
spec: {rules: [{name: leave, action: Leave}], parts: [{name: main, replicas: 2, members: 2, minMembers: 1}]}
`

// inGroup is a job of the group of a policy, in a job set of its own.
func inGroup(policy, part string, replica int, script ...standin.Outcome) standin.Job {
	return standin.Job{Set: policy, Script: script, Grace: 5 * time.Second, Annotations: map[string]string{
		"refloat.github.io/group": "g", "refloat.github.io/group-policy": policy,
		"refloat.github.io/part": part, "refloat.github.io/replica": strconv.Itoa(replica),
	}}
}

// livedInGroups is the history of a deployment whose jobs are in groups and gangs: members
// are held, released, restarted, stopped, cancelled and reprioritised.
func livedInGroups(t *testing.T) *tape {
	d := deploy(t, standin.Config{Executors: manyNodes()}, writer.HoldBack, inGroups)
	from := d.Now()
	ok, broken := standin.Succeed(), standin.Fail(9)
	gang := func(name string, script ...standin.Outcome) standin.Job {
		return standin.Job{Set: "gangs", Gang: name, Members: 3, Script: script}
	}
	pipeline := d.Submit(
		inGroup("pipeline", "driver", 0, ok.After(12*time.Second)),
		inGroup("pipeline", "workers", 0, ok), inGroup("pipeline", "workers", 0, standin.Fail(2), broken, ok),
		inGroup("pipeline", "workers", 0, broken, ok), inGroup("pipeline", "workers", 0, standin.Preempted(), ok),
		inGroup("pipeline", "workers", 0, ok),
	)
	together := d.Submit(
		inGroup("together", "main", 0, ok), inGroup("together", "main", 0, broken.After(9*time.Second)), inGroup("together", "main", 0, standin.Forever()),
	)
	d.Submit(
		inGroup("apart", "main", 0, broken.After(6*time.Second)), inGroup("apart", "main", 0, broken.After(6*time.Second)),
		inGroup("apart", "main", 1, ok.After(9*time.Second)), inGroup("apart", "main", 1, standin.Forever()),
	)
	d.Submit(gang("fails", standin.Fail(1), ok), gang("fails", ok.After(20*time.Second)), gang("fails", standin.Fail(1), ok))
	d.Submit(gang("lost", standin.Expired(), ok), gang("lost", standin.Expired(), standin.Fail(2), ok), gang("lost", ok))
	d.Submit(gang("ends", broken.After(9*time.Second)), gang("ends", ok), gang("ends", standin.Forever()))
	cancelled := d.Submit(gang("cancelled", standin.Forever()), gang("cancelled", ok), gang("cancelled", standin.Forever()))
	d.steps(3)
	d.Reprioritise(pipeline[1], 7) // both are held
	d.Cancel(pipeline[5])
	d.Cancel(cancelled[0])
	d.until("a group waits to restart", func() bool { return d.count("SELECT count(*) FROM refloat_waits WHERE waiting") > 0 })
	d.RestartScheduler()
	d.Reprioritise(together[0], 3)
	d.until("all jobs are over", d.Done)
	d.unable = nil // a restart soon after a release cannot hold the member back: docs/operate.md
	d.right()
	for _, name := range []string{"MemberHeld", "MemberReleased", "MemberRestart", "MemberStopped", "UnitEnded", "GroupEnded"} {
		if n := d.count("SELECT count(*) FROM refloat_group_records WHERE name = $1", name); n == 0 {
			t.Errorf("no %s in the history", name)
		}
	}
	return &tape{events: d.Log(), decisions: d.decisions, from: from.Add(-24 * time.Hour)}
}
