package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestNotifiedOnce: of two evaluators, the one that decides partition 0 notifies of policies and overrides, also after it handed over and
// after it was killed. What is sent twice around a hand-over has one id.
func TestNotifiedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.Policies = ""
	var mu sync.Mutex
	ids := map[string]map[string]int{} // times by id, of each text
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Text string }
		text, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(text, &body); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if ids[body.Text] == nil {
			ids[body.Text] = map[string]int{}
		}
		ids[body.Text][r.Header.Get("Webhook-Id")]++
	}))
	t.Cleanup(receiver.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	w.must(os.WriteFile(secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600))
	evaluator := func(name string) *Process {
		return w.evaluator(name, "--api", "127.0.0.1:0", "--notify-url", receiver.URL, "--notify-secret-file", secret)
	}
	sent := func(p *Process) float64 { return w.scrape(p).Sum("refloat_notifications_total", `outcome="sent"`) }
	// notified makes a change by one evaluator, and waits until the receiver has heard of it.
	notified := func(by *Process, reason string) {
		t.Helper()
		w.must(w.Change(w.ctx, by.Name, "kill", "retries", "--queue", reason, "--reason", reason, "--force"))
		w.until("a notification of "+reason, func() bool {
			mu.Lock()
			defer mu.Unlock()
			for text := range ids {
				if strings.HasSuffix(text, ": "+reason) {
					return true
				}
			}
			return false
		})
	}
	a, b := evaluator("a"), evaluator("b")
	w.live(1, a, b)
	owner, other := a, b
	if w.scrape(a).Sum("refloat_partition_live") == 0 {
		owner, other = b, a
	}
	notified(other, "first")
	notified(owner, "second")
	w.until("the owner has sent both", func() bool { return sent(owner) == 2 })
	if n := sent(other); n != 0 {
		t.Errorf("who does not decide partition 0 sent %v notifications", n)
	}
	w.must(owner.Term(w.ctx))
	w.live(1, other)
	notified(other, "third")
	c := evaluator("c")
	other.Kill()
	w.live(1, c)
	notified(c, "fourth")
	mu.Lock()
	defer mu.Unlock()
	if len(ids) != 4 {
		t.Errorf("%d texts, want 4: %v", len(ids), ids)
	}
	for text, of := range ids {
		if len(of) != 1 {
			t.Errorf("%q has %d ids: %v", text, len(of), of)
		}
	}
}
