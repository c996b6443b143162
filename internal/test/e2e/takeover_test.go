package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog"
)

// TestTakeOver kills one evaluator and stops another for longer than the broker
// waits, while a recording is fed: the decisions are those of one machine.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	a, b, c := w.evaluator("a"), w.evaluator("b"), w.evaluator("c")
	w.ingester("one")
	w.ingester("two")
	w.live(3, a, b, c)
	fed := make(chan error, 1)
	go func() {
		_, err := w.Ctl(w.ctx, "feed", recordingFile("plain"), "--pace", "20x")
		fed <- err
	}()
	answered := func(p *Process) float64 { return w.scrape(p).Sum("refloat_answered_messages_total") }
	all := []*Process{a, b, c}
	slices.SortFunc(all, func(x, y *Process) int {
		return int(w.scrape(y).Sum("refloat_partition_live") - w.scrape(x).Sum("refloat_partition_live"))
	})
	killed, stopped := all[0], all[1]
	w.until("something is answered", func() bool { return answered(killed) > 0 })
	killed.Kill()
	w.must(stopped.Signal(syscall.SIGSTOP))
	resume := time.After(2*keepAlive + 2*time.Second)
	select {
	case <-resume:
	case <-w.ctx.Done():
	}
	w.must(stopped.Signal(syscall.SIGCONT))
	w.must(<-fed)
	sum := w.settledAndRight()
	if want := oneMachine(t, w, "plain"); !slices.Equal(sum.Running, want) {
		t.Errorf("running hashes %v, one machine has %v", sum.Running, want)
	}
	if sum.Messages != 1559 || sum.Failed == 0 {
		t.Errorf("%+v: want 1559 messages and failed runs", sum)
	}
	t.Logf("%+v", sum)
}

// oneMachine is the running hash of each partition when `refloatctl up` decides
// a recording on the embedded log.
func oneMachine(t *testing.T, w *world, name string) (running []string) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	out, err := exec.CommandContext(w.ctx, w.Programs.Ctl, "up", "--data", data, "--policies", w.Policies,
		"--feed", recordingFile(name), "--quiet", "--exit-when-drained").CombinedOutput()
	if err != nil {
		t.Fatalf("refloatctl up: %v\n%s", err, out)
	}
	logs, err := app.Dir(data).OpenLogs(0, app.Access{})
	w.must(err)
	defer logs.Close()
	for p := range logs.Events.Partitions() {
		v, err := audit.Verify(w.ctx, logs.Audit(), p)
		w.must(err)
		running = append(running, v.Progress.Running.String())
	}
	return running
}

// TestCheckFails drops one message of each kind from what Check reads: it must
// find each.
func TestCheckFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.evaluator("a")
	w.ingester("one")
	w.feed("chaos")
	w.settledAndRight()
	for _, tt := range []struct {
		name string
		drop func(topic eventlog.Topic, m eventlog.Message) bool
	}{
		{"an envelope", func(topic eventlog.Topic, m eventlog.Message) bool {
			return w.isTopic(topic, "decisions") && m.Position.Entry > 0 // the first is a claim; there may be but one more
		}},
		{"an event", func(topic eventlog.Topic, m eventlog.Message) bool { return w.isTopic(topic, "events") }},
	} {
		sum, violations, err := w.Check(w.ctx, Leaving(tt.drop))
		w.must(err)
		if len(violations) == 0 {
			t.Errorf("%s was dropped, and Check found nothing: %+v", tt.name, sum)
		} else {
			t.Logf("%s was dropped: %s", tt.name, violations[0])
		}
	}
}
