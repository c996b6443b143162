package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/refloat/refloat/internal/test/gangtest"
)

// TestNotifications: up notifies of a group that failed, of overrides and of policies; neither secret nor path is in its log.
func TestNotifications(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	var mu sync.Mutex
	var got []string
	ids := map[string]bool{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Type, Text string }
		text, _ := io.ReadAll(r.Body)
		err := json.Unmarshal(text, &body)
		mu.Lock()
		defer mu.Unlock()
		if id := r.Header.Get("webhook-id"); err != nil || ids[id] || !strings.HasPrefix(r.Header.Get("webhook-signature"), "v1,") {
			t.Errorf("%v %s %v", r.Header, text, err)
		} else {
			ids[id] = true
		}
		got = append(got, body.Type+" "+body.Text)
	}))
	t.Cleanup(receiver.Close)
	dir := t.TempDir()
	feed := filepath.Join(dir, "gang.jsonl.gz")
	if err := gangtest.Write(feed, 8); err != nil {
		t.Fatal(err)
	}
	data, policies := filepath.Join(dir, "data"), writeFile(t, dir, "p.yaml", gangtest.Policies)
	p, at := served(t, data, "--feed", feed, "--policies", policies, "--policies-settle", "0s", "--notify-url", receiver.URL+"/hidden-path", "--notify-secret-file", writeFile(t, dir, "secret", secret))
	has := func(want string) {
		t.Helper()
		until(t, want, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Contains(strings.Join(got, "\n"), want)
		})
	}
	has("policies.changed Refloat: policy generation 1: ")
	has("group.failed Refloat: group pair of queue ml and job set run-7 has failed: ReachedMaxRestarts")
	at("kill", "retries", "--all", "--reason", "INC-7").exits(t, exitFine)
	has("retries.killed Refloat: retries of all queues are killed; by ")
	at("resume", "retries", "--all", "--reason", "over").exits(t, exitFine)
	has("retries.resumed Refloat: no longer: retries of all queues are killed; by ")
	writeFile(t, dir, "p.yaml", "kind: RetrySettings\nnothing: [\n")
	has("policies.refused Refloat: the policy files of " + policies + " are refused (invalid)")
	p.ends(t)
	if text := p.err.text(); strings.Contains(text, "hidden-path") || strings.Contains(text, "MfKQ9r8G") {
		t.Errorf("the log has an address or a secret:\n%s", text)
	}
	if r := ctl(t, "up", "--data", data, "--notify-url", receiver.URL+"/hidden-path", "--print-config").exits(t, exitFine); strings.Contains(r.out, "hidden-path") {
		t.Errorf("--print-config prints\n%s", r.out)
	}
}
