package e2e

import (
	"context"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/test/pulsartest"
)

// TestBrokerOutage: while the broker is away for longer than a reader tries by
// itself, programs say that they are not ready, and what does not work; when it is
// back, policies can be changed at once, retries killed and paused, and nothing had
// to be restarted. A program ends in time though the broker hangs.
func TestBrokerOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("runs our programs on a real broker")
	}
	t.Parallel()
	broker := pulsartest.Start(t, pulsartest.Options{})
	w := newWorldOn(t, broker, 3)
	files := w.Policies
	w.Policies = ""
	a, in := w.evaluator("a", "--api", "127.0.0.1:0"), w.ingester("one")
	w.live(3, a)
	change := func(args ...string) error {
		ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
		defer cancel()
		return w.Change(ctx, "a", args...)
	}
	w.must(change("apply", "-f", files))
	w.feed("plain")

	w.must(broker.Kill())
	began := time.Now()
	w.until("the evaluator says that its reader has given up for now", func() bool {
		code, body := w.ready(a)
		return code == http.StatusServiceUnavailable && strings.Contains(body, "policies: since ")
	})
	w.until("the ingester says that it does not work", func() bool {
		code, body := w.ready(in)
		return code == http.StatusServiceUnavailable && strings.Contains(body, "events: since ")
	})
	if code, _ := w.get(a, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d; to restart it would help nothing", code)
	}
	w.until("the outage is longer than a reader tries", func() bool { return time.Since(began) > 40*time.Second })
	w.must(broker.Restart(w.ctx))
	back := time.Now()
	w.until("retries are killed", func() bool {
		err := change("kill", "retries", "--all", "--reason", "INC-1")
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
	t.Logf("policies were changed %v after the broker was back", time.Since(back).Round(time.Millisecond))
	w.must(change("resume", "retries", "--all", "--reason", "INC-1"))
	w.must(change("pause", "retries", "--all", "--for", "1h", "--reason", "INC-1"))
	w.until("both are ready again", func() bool {
		one, _ := w.ready(a)
		two, _ := w.ready(in)
		return one == http.StatusOK && two == http.StatusOK
	})
	t.Logf("both were ready %v after the broker was back", time.Since(back).Round(time.Millisecond))
	w.live(3, a)
	w.settledAndRight()

	w.must(broker.Pause())
	for _, p := range []*Process{a, in} {
		asked := time.Now()
		w.must(p.Signal(syscall.SIGTERM))
		code, err := p.ExitCode(w.ctx)
		w.must(err)
		if took := time.Since(asked); took > 2*keepAlive || code != 0 {
			t.Errorf("%s ended after %v with code %d, while the broker hangs", p.Name, took, code)
		}
	}
	w.must(broker.Resume())
}

func (w *world) ready(p *Process) (code int, body string) { return w.get(p, "/readyz") }

func (w *world) get(p *Process, path string) (code int, body string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Address()+path, nil)
	w.must(err)
	answer, err := http.DefaultClient.Do(r)
	w.must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	w.must(err)
	return answer.StatusCode, string(text)
}
