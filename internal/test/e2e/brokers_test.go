package e2e

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/test/pulsartest"
)

// newCluster is a deployment on two brokers.
func newCluster(t *testing.T, partitions int) (*world, *pulsartest.Cluster) {
	t.Helper()
	if os.Getenv("BROKERS") == "" {
		t.Skip("make brokers runs this: it takes minutes, and four Java processes")
	}
	c := pulsartest.StartCluster(t)
	return newWorldOn(t, c.Front, partitions), c
}

// served is why one waits on.
func served(all bool) error {
	if !all {
		return errors.New("not all topics are served there")
	}
	return nil
}

// TestTwoBrokers moves the leadership and all topics between two brokers under load, and then one broker is gone for good.
func TestTwoBrokers(t *testing.T) {
	const partitions = 6
	w, c := newCluster(t, partitions)
	a, b := w.evaluator("a"), w.evaluator("b")
	one, two := w.ingester("one"), w.ingester("two")
	w.live(partitions, a, b)
	l := newLoad(w, 60)
	decides := func(what string) {
		t.Helper()
		w.live(partitions, a, b)
		for _, p := range []*Process{a, b} {
			before := w.scrape(p).Sum("refloat_answered_messages_total")
			w.until(what+": "+p.Name+" decides", func() bool { return w.scrape(p).Sum("refloat_answered_messages_total") > before })
		}
	}
	servedBy := func(broker int) bool {
		for _, topic := range []string{"events-partition-0", "decisions-partition-0", "decisions-partition-5", "policies"} {
			at, err := c.Owner(w.ctx, w.Topic(topic))
			if err != nil || at != broker {
				return false
			}
		}
		return true
	}
	decides("at first")
	move := func(to int) {
		t.Helper()
		for range 20 { // the broker may have just started
			w.must(Within(w.ctx, limit, func(ctx context.Context) error { return c.Move(ctx, w.Namespace, to) }))
			if Within(w.ctx, 10*time.Second, func(context.Context) error { return served(servedBy(to)) }) == nil {
				return
			}
		}
		t.Fatal("the bundles are not moved")
	}
	for _, to := range []int{1, 0, 1} {
		move(to)
		decides("the bundles were moved")
	}
	leader, err := c.Leader(w.ctx)
	w.must(err)
	w.must(c.Brokers[leader].Kill())
	w.until("the other one leads", func() bool {
		now, err := c.Leader(w.ctx)
		return err == nil && now == 1-leader
	})
	decides("the leader has moved")
	w.must(c.Brokers[leader].Restart(w.ctx))
	w.until("both brokers are active", func() bool {
		n, err := c.Active(w.ctx)
		return err == nil && n == 2
	})
	move(leader)
	decides("the restarted one serves all")
	w.must(c.Brokers[leader].Kill()) // for good
	w.until("the last one serves all", func() bool { return servedBy(1 - leader) })
	decides("one broker is gone")
	l.end()
	sum := w.settledAndRight()
	if sum.Failed == 0 {
		t.Errorf("%+v: no failed run shows nothing", sum)
	}
	for _, p := range []*Process{a, b, one, two} {
		if p.Ended() {
			t.Errorf("%s has ended:\n%s", p.Name, p.Tail())
		}
	}
	t.Logf("%d messages, %d failed runs, %d claims, ignored: %v", sum.Messages, sum.Failed, sum.Claims, sum.Ignored)
}

// TestOlderBackup restores both brokers' data from a backup that lacks events that were decided. What has seen more than
// the log now has names it and stops; nothing continues the log, at positions that are used again for something else.
func TestOlderBackup(t *testing.T) {
	w, c := newCluster(t, 1)
	a, in := w.evaluator("a"), w.ingester("one")
	w.live(1, a)
	w.feedOne("c0001")
	w.must(w.Settled(w.ctx))
	w.must(c.Keep(w.ctx))
	t.Log("the backup is made")
	kept := w.chainNow()
	w.live(1, a)
	w.feedOne("c0002")
	w.must(w.Settled(w.ctx))
	seen := w.chainNow()
	if seen.Decisions <= kept.Decisions {
		t.Fatalf("%d decisions, and %d before: nothing was decided after the backup", seen.Decisions, kept.Decisions)
	}
	w.must(c.Restore(w.ctx))
	t.Log("the backup is restored")
	w.feedOne("c0003") // at positions of c0002
	const lost = "it has lost messages that were read from it"
	w.until("both stop", func() bool {
		return w.scrape(a).Sum("refloat_refused") >= 1 && strings.Contains(a.Text(), lost) && strings.Contains(in.Text(), lost)
	})
	t.Log(lastWith(a.Text(), lost))
	a.Kill()
	in.Kill()
	refuses := func(name, why string) {
		t.Helper()
		p := w.evaluator(name)
		w.refused(p, why)
		t.Log(lastWith(p.Text(), "partition refused"))
		p.Kill()
	}
	const ahead = "a log lacks what it once held: the state of partition 0 follows from "
	refuses("a", ahead)
	refuses("b", ahead) // it restores a checkpoint
	if n := w.chainNow().Decisions; n != kept.Decisions {
		t.Fatalf("%d decisions in the restored log, %d in the backup", n, kept.Decisions)
	}
	// One that has seen nothing of what was lost goes on, where the log has other messages then.
	w.must(errors.Join(os.RemoveAll(w.Checkpoints()), os.MkdirAll(w.Checkpoints(), 0o755)))
	fresh := w.evaluator("c")
	w.live(1, fresh)
	w.until("it decides what came after the backup", func() bool { return w.chainNow().has("c0003") })
	w.must(fresh.Term(w.ctx))
	refuses("a", ahead)
	in = w.ingester("one")
	w.until("the ingester stops", func() bool { return strings.Contains(in.Text(), "partition is not ingested") })
	t.Log(lastWith(in.Text(), "partition is not ingested"))
	after := w.chainNow()
	for run, n := range after.Records {
		if n != 1 {
			t.Errorf("run %v has %d records", run, n)
		}
	}
	if after.has("c0002") {
		t.Error("what was lost is decided again")
	}
}
