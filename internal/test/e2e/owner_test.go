package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

// TestHandOver: an evaluator that is asked to end leaves its partitions to the
// next at once, without waiting for the broker to notice.
func TestHandOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	a, b := w.evaluator("a"), w.evaluator("b")
	w.ingester("one")
	w.live(3, a, b)
	w.feed("plain")
	leaves, stays := a, b
	if w.scrape(a).Sum("refloat_partition_live") == 0 {
		leaves, stays = b, a
	}
	left := w.scrape(leaves).Sum("refloat_partition_live")
	began := time.Now()
	w.must(leaves.Term(w.ctx))
	gone := time.Since(began)
	w.live(3, stays)
	took := time.Since(began)
	t.Logf("%v partitions were handed over: %v until the end of the old owner, %v until the new one was live", left, gone, took)
	if took > 2*keepAlive { // as long as the broker waits for an owner that is gone
		t.Errorf("handing over took %v", took)
	}
	w.settledAndRight()
}

// TestNewMachine: an evaluator without local state goes on from a checkpoint,
// and folds what came after it.
func TestNewMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	a := w.evaluator("a")
	w.ingester("one")
	w.feed("plain")
	w.must(w.Settled(w.ctx))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	w.until("every partition has a checkpoint", func() bool {
		select {
		case <-tick.C:
			w.nudge()
		default:
		}
		m, n := w.scrape(a), 0
		for p := range 3 {
			if m.Sum("refloat_checkpoint_timestamp_seconds", fmt.Sprintf("partition=%q", fmt.Sprint(p))) > 0 {
				n++
			}
		}
		return n == 3
	})
	a.Kill()
	w.must(os.RemoveAll(w.Data("a")))
	w.feed("chaos")
	b := w.evaluator("b")
	w.live(3, b)
	if n := strings.Count(b.Text(), `msg="checkpoint restored"`); n != 3 {
		t.Errorf("%d checkpoints restored, want 3:\n%s", n, b.Tail())
	}
	if sum := w.settledAndRight(); sum.Messages < 1559+630 || sum.Claims != 6 {
		t.Errorf("%+v: want at least %d messages, and 6 claims", sum, 1559+630)
	}
}

// TestNoHistory: events were deleted that nobody has decided. Nobody goes on
// without being told to.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		decided bool   // what came before was, and its state is here
		lost    bool   // it was, and its state is not
		counted int    // what the chain then says of it
		finds   string // doctor, while the partition is refused
		doctor  int    // its exit code
	}{
		{"from the beginning", false, false, 1, "the first messages of partition 0 are deleted, and nothing is decided there yet", 0},
		{"since the last state", true, false, 1, "evaluators refuse partition 0 (history)", 1},
		{"and all states", true, true, 2, "evaluators refuse partition 0 (history)", 1}, // the state was rebuilt, and then the history accepted
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			if tt.decided {
				a := w.evaluator("a")
				w.ingester("one")
				w.feedOne("c0001")
				w.must(w.Settled(w.ctx))
				w.must(a.Term(w.ctx)) // which saves its state: what is killed may have saved less than it decided
			}
			if tt.lost {
				w.must(errors.Join(os.RemoveAll(w.Data("a")), os.RemoveAll(w.Checkpoints()), os.MkdirAll(w.Checkpoints(), 0o755)))
			}
			w.feedOne("c0002")
			w.truncate("events-partition-0")
			w.feedOne("c0003")
			before := w.decisions()
			b := w.evaluator("a")
			w.refused(b, "--accept-history-from beginning")
			t.Log(lastWith(b.Text(), "partition refused"))
			if after := w.decisions(); after != before {
				t.Errorf("the decision log ends at %v, was at %v", after, before)
			}
			if out, err := w.Ctl(w.ctx, "doctor", "--quiet"); exitCode(err) != tt.doctor || !strings.Contains(out, tt.finds) {
				t.Errorf("doctor: %v; want exit code %d and %q\n%s", err, tt.doctor, tt.finds, out)
			}
			b.Kill()
			c := w.evaluator("a", "--accept-history-from", "beginning")
			w.live(1, c)
			l, err := w.Open()
			w.must(err)
			defer l.Close()
			w.until("what is held is answered", func() bool {
				chain := w.chain(l)
				return chain.Accepted == tt.counted && chain.has("c0001") == tt.decided && !chain.has("c0002") && chain.has("c0003")
			})
			if n := w.scrape(c).Sum("refloat_refused"); n != 0 {
				t.Errorf("refused: %v, want 0", n)
			}
			if out, err := w.Ctl(w.ctx, "doctor", "--quiet"); exitCode(err) != 0 || strings.Contains(out, "RD047") {
				t.Errorf("doctor, when the history is accepted: %v\n%s", err, out)
			}
		})
	}
}

// TestEmptiedDecisions: without state and checkpoint, nobody begins a decision log
// where there was one, also not with a history that is accepted.
func TestEmptiedDecisions(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"emptied", "made again"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			a := w.evaluator("a")
			w.live(1, a)
			w.feedOne("c0001")
			w.until("a checkpoint", func() bool { return w.scrape(a).Sum("refloat_checkpoint_timestamp_seconds") > 0 })
			w.feedOne("c0002") // what came before is acknowledged with the next checkpoint
			w.until("events are acknowledged", func() bool { return w.acknowledged() })
			a.Kill()
			if name == "emptied" {
				w.truncate("decisions-partition-0")
			} else {
				w.recreate("decisions", 1)
			}
			w.must(errors.Join(os.RemoveAll(w.Data("a")), os.RemoveAll(w.Checkpoints()), os.MkdirAll(w.Checkpoints(), 0o755)))
			b := w.evaluator("a", "--accept-history-from", "beginning")
			w.refused(b, "--accept-empty-decisions")
			t.Log(lastWith(b.Text(), "partition refused"))
			b.Kill()
			w.live(1, w.evaluator("a", "--accept-history-from", "beginning", "--accept-empty-decisions"))
		})
	}
}

// acknowledged says whether evaluators acknowledged any events.
func (w *world) acknowledged() bool {
	w.t.Helper()
	k, err := pulsarlog.Connect(w.ctx, pulsarlog.Config{ServiceURL: w.URL, AdminURL: w.AdminURL, Namespace: w.namespace(), OperationTimeout: pulsartest.Patience})
	w.must(err)
	defer k.Close()
	topic, err := k.Open("events")
	w.must(err)
	defer topic.Close()
	at, err := topic.Acknowledged(0, "refloat-evaluator")
	return err == nil && at != eventlog.Start
}

// TestPartitions: events grows under us. Job sets then move, and counts do not
// move with them, so an operator must confirm.
func TestPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a := w.evaluator("a")
	w.ingester("one")
	w.live(2, a)
	w.feedOne("c0001")
	w.must(w.Settled(w.ctx))
	w.admin(http.MethodPost, w.path("events")+"/partitions", "3")
	ends := func(p *Process, message string) {
		t.Helper()
		code, err := p.ExitCode(w.ctx)
		w.must(err)
		if code == 0 || !strings.Contains(p.Text(), message) {
			t.Errorf("%s ended with code %d; want another, and %q:\n%s", p.Name, code, message, p.Tail())
		}
	}
	ends(a, "the number of partitions of events has changed")
	b, err := w.Evaluator("b", nil)
	w.must(err)
	w.processes = append(w.processes, b)
	ends(b, "events has 3 partitions and decisions has 2")
	_, err = w.Ctl(w.ctx, "topics", "create", "--grow")
	w.must(err)
	c := w.evaluator("c")
	w.refused(c, "--accept-partitions 3")
	c.Kill()
	d := w.evaluator("d", "--accept-partitions", "3")
	w.live(3, d)
	w.ingester("two")
	w.feedOne("c0002")
	w.settledAndRight()
}

// TestRecreated: a topic is deleted and made again under us. Nobody takes the
// new one for the old one.
func TestRecreated(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"events", "decisions"} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			a := w.evaluator("a")
			w.ingester("one")
			w.feedOne("c0001")
			w.must(w.Settled(w.ctx))
			before := w.chainNow()
			w.recreate(topic, 1)
			w.feedOne("c0001") // the same again
			w.until("the evaluator says that it does not go on", func() bool {
				return a.Ended() || w.scrape(a).Sum("refloat_refused") == 1
			})
			t.Log(lastWith(a.Text(), "partition refused"))
			a.Kill()
			next := []string{"a", "b"} // with its state, and without
			if topic == "decisions" {
				next = next[:1] // without, nothing tells that there was a chain
			}
			for _, name := range next {
				p := w.evaluator(name)
				w.refused(p, "")
				t.Logf("%s: %s", name, lastWith(p.Text(), "partition refused"))
				p.Kill()
			}
			l, err := w.Open()
			w.must(err)
			defer l.Close()
			after := NewChain()
			err = Each(l.Decisions, 0, func(m eventlog.Message) error {
				_, err := after.Offer(m.Payload)
				return err
			})
			// What the old owner had sent may land in the new topic: it is no chain.
			if topic == "decisions" && after.Seq > 0 || topic == "events" && err != nil {
				t.Errorf("%d envelopes are accepted (%v)", after.Seq, err)
			}
			if topic == "events" && (after.Decisions != before.Decisions || after.NotDecided != before.NotDecided || after.Answered != before.Answered) {
				t.Errorf("%d decisions and %d not decided for %d messages; were %d, %d and %d",
					after.Decisions, after.NotDecided, after.Answered, before.Decisions, before.NotDecided, before.Answered)
			}
			t.Logf("envelopes %d → %d, claims %d → %d", before.Seq, after.Seq, before.Claims, after.Claims)
		})
	}
}

// chainNow reads the decision log's first partition.
func (w *world) chainNow() *Chain {
	w.t.Helper()
	l, err := w.Open()
	w.must(err)
	defer l.Close()
	return w.chain(l)
}

func lastWith(text, part string) (last string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			last = strings.TrimSpace(line)
		}
	}
	return last
}

// refused waits until a program reports a refused partition and its reason.
func (w *world) refused(p *Process, why string) {
	w.t.Helper()
	w.until("the evaluator refuses", func() bool { return w.scrape(p).Sum("refloat_refused") >= 1 })
	line, err := p.Await(w.ctx, "partition refused")
	w.must(err)
	if !strings.Contains(line, why) {
		w.t.Errorf("it refuses with %s: want %q", line, why)
	}
	if w.scrape(p).Sum("refloat_partition_live", `partition="0"`) != 0 {
		w.t.Error("it refuses, and is live")
	}
}

// decisions is where the decision log's first partition ends.
func (w *world) decisions() eventlog.Position {
	w.t.Helper()
	l, err := w.Open()
	w.must(err)
	defer l.Close()
	end, err := l.Decisions.End(0)
	w.must(err)
	return end
}

// chain reads the decision log's first partition.
func (w *world) chain(l *Logs) *Chain {
	w.t.Helper()
	c := NewChain()
	w.must(Each(l.Decisions, 0, func(m eventlog.Message) error {
		_, err := c.Offer(m.Payload)
		return err
	}))
	return c
}

// has says whether there is a record of a copy's jobs.
func (c *Chain) has(copied string) bool {
	for r := range c.Records {
		if strings.HasPrefix(r.Job, copied) {
			return true
		}
	}
	return false
}
