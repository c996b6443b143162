package writer_test

import (
	"errors"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/events/pb"
	"github.com/refloat/refloat/internal/evaluator"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/filelog"
	"github.com/refloat/refloat/internal/eventlog/recording"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policy/policylog"
	"github.com/refloat/refloat/internal/projection"
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
	entries, err := recording.ReadFile(filepath.Join(recordings, name+".jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return decidedTimes(t, slices.Values(entries), policies, times)
}

func decidedTimes(t testing.TB, entries iter.Seq[recording.Entry], policies string, times int) *tape {
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
		if err := events.Append(e.Partition, slices.Repeat([]eventlog.Message{e.Message}, times)); err != nil {
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
		decide(t, p, events, decisions, set)
	}
	return &tape{events: events, decisions: decisions, from: start}
}

// decide decides all events of a partition, a few messages per envelope.
func decide(t testing.TB, p int, events eventlog.Topic, decisions, set *filelog.Log) {
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
		Partition: p, Store: store, Events: events, Decisions: decisions, Policies: policies, MaxMessages: 7,
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
