package notify

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	path   = "/services/a-path-that-nobody-may-see"
)

// TestSignature: the published test vector of Standard Webhooks.
func TestSignature(t *testing.T) {
	t.Parallel()
	other := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	r, err := NewReceiver("https://example.com", FormatJSON, secret+"\n"+other+"\n")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(r.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; len(got) != 2 || got[0] != want || got[1] == want {
		t.Errorf("signatures are %q, want %s and another", got, want)
	}
}

func TestReceiver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address, format, secrets string
		want                     error
	}{
		{"http://localhost:1/x", FormatJSON, secret, nil},
		{"https://example.com", FormatSlack, "", nil},
		{"http://example.com" + path, FormatSlack, "", ErrAddress},
		{"example.com" + path, FormatJSON, secret, ErrAddress},
		{"https://", FormatJSON, secret, ErrAddress},
		{"https://%zz" + path, FormatJSON, secret, ErrAddress},
		{"https://example.com", FormatJSON, " \n", ErrSecret},
		{"https://example.com", FormatJSON, "a-secret", ErrSecret},
		{"https://example.com", FormatJSON, "whsec_MfKQ9r8G", ErrSecret},
		{"https://example.com", FormatJSON, secret + " whsec_?", ErrSecret},
	} {
		if _, err := NewReceiver(c.address, c.format, c.secrets); err != c.want { //nolint:errorlint // exactly this one: it quotes nothing
			t.Errorf("%s %s %q: %v, want %v", c.address, c.format, c.secrets, err, c.want)
		}
	}
}

// receiver answers with the codes that it is given, one after the other, and then with 200.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	codes []int
	got   []got
}

type got struct {
	header http.Header
	body   []byte
}

func newReceiver(t *testing.T, codes ...int) *receiver {
	t.Helper()
	r := &receiver{codes: codes}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, got{req.Header, body})
		code := http.StatusOK
		if len(r.codes) > 0 {
			code, r.codes = r.codes[0], r.codes[1:]
		}
		w.Header().Set("Location", r.URL+"/elsewhere")
		w.WriteHeader(code)
	}))
	t.Cleanup(r.Close)
	return r
}

// sender sends to a receiver while the test runs.
func sender(t *testing.T, r *receiver, format string, c Config) (s *Sender, outcomes chan string, logged *bytes.Buffer, end func()) {
	t.Helper()
	to, err := NewReceiver(r.URL+path, FormatJSON, secret)
	if err != nil {
		t.Fatal(err)
	}
	to.slack = format == FormatSlack // for which NewReceiver wants https
	outcomes, logged = make(chan string, 100), &bytes.Buffer{}
	c.Receiver, c.Now, c.Log = to, time.Now, slog.New(slog.NewTextHandler(logged, nil))
	c.Sent, c.Lost = func() { outcomes <- "sent" }, func() { outcomes <- "lost" }
	s = NewSender(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	end = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(end)
	return s, outcomes, logged, end
}

var opened = Event{ID: ID("x", 1), Type: "breaker.opened", Time: time.Unix(1, 5), Text: `held <!channel> & more`, Data: map[string]any{"queue": "ml"}}

// TestRetry: what the receiver does not take is sent again, with the same id and a signature of its own, before what comes after it.
func TestRetry(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusOK)
	s, outcomes, logged, end := sender(t, r, FormatJSON, Config{First: time.Millisecond})
	second := opened
	second.ID = ID("x", 2)
	s.Notify(opened)
	s.Notify(second)
	for range 2 {
		if got := <-outcomes; got != "sent" {
			t.Errorf("a notification is %s", got)
		}
	}
	end()
	var ids []string
	for _, g := range r.got {
		id, at := g.header.Get("webhook-id"), g.header.Get("webhook-timestamp")
		ids = append(ids, id)
		if seconds, err := strconv.ParseInt(at, 10, 64); err != nil || time.Since(time.Unix(seconds, 0)) > time.Hour {
			t.Errorf("timestamp %q", at)
		}
		if want := s.Receiver.sign(id, at, g.body); g.header.Get("webhook-signature") != want || strings.Contains(id, ".") {
			t.Errorf("signature of %s: %q, want %q", id, g.header.Get("webhook-signature"), want)
		}
		var body struct {
			Type, Timestamp, Text string
			Data                  map[string]string
		}
		if err := json.Unmarshal(g.body, &body); err != nil || body.Type != opened.Type || body.Timestamp != "1970-01-01T00:00:01.000000005Z" || body.Text != opened.Text || body.Data["queue"] != "ml" {
			t.Errorf("%s: %v", g.body, err)
		}
	}
	if want := fmt.Sprint([]string{opened.ID, opened.ID, opened.ID, second.ID}); fmt.Sprint(ids) != want {
		t.Errorf("ids are %v, want %s", ids, want)
	}
	if text := logged.String(); strings.Count(text, "not taken; it is sent again") != 1 || strings.Contains(text, path) || strings.Contains(text, "MfKQ9r8G") {
		t.Errorf("the log has %s", text)
	}
}

// TestLost: what the receiver refuses, or does not take in time, is lost, and counted; what comes after it is sent.
func TestLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		codes  []int
		config Config
	}{
		{"refused", []int{http.StatusBadRequest}, Config{}},
		{"moved", []int{http.StatusFound}, Config{}},
		{"too old", []int{http.StatusBadGateway}, Config{Patience: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, c.codes...)
			s, outcomes, logged, end := sender(t, r, FormatJSON, c.config)
			s.Notify(opened)
			s.Notify(opened)
			if first, second := <-outcomes, <-outcomes; first != "lost" || second != "sent" {
				t.Errorf("%s, then %s", first, second)
			}
			end()
			if len(r.got) != 2 || !strings.Contains(logged.String(), "a notification is lost") || strings.Contains(logged.String(), path) {
				t.Errorf("%d requests; the log has %s", len(r.got), logged)
			}
		})
	}
}

// TestUnreachable: who notifies never waits, though nobody takes anything; the log has neither address nor secret.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.Close()
	s, outcomes, logged, end := sender(t, r, FormatJSON, Config{Queue: 2, First: time.Hour, Patience: 24 * time.Hour})
	for range 10 {
		s.Notify(opened)
	}
	end()
	if len(outcomes) != 10 {
		t.Errorf("%d of 10 are counted", len(outcomes))
	}
	for range len(outcomes) {
		if got := <-outcomes; got != "lost" {
			t.Errorf("a notification is %s", got)
		}
	}
	if strings.Contains(logged.String(), path) {
		t.Errorf("the log has %s", logged)
	}
	(*Sender)(nil).Notify(opened)
}

// TestSlack: Slack gets a text in which nothing of a user is a command, and no signature.
func TestSlack(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	s, outcomes, _, end := sender(t, r, FormatSlack, Config{})
	s.Notify(opened)
	<-outcomes
	end()
	var body map[string]string
	if err := json.Unmarshal(r.got[0].body, &body); err != nil || len(body) != 1 || body["text"] != "held &lt;!channel&gt; &amp; more" || r.got[0].header.Get("webhook-signature") != "" {
		t.Errorf("%s %v", r.got[0].body, err)
	}
}

// TestIDs: what happens at another time, or in another generation, is another event, also if all else is the same.
func TestIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, of := range [][]any{
		{"q", int64(1795881469476442893)}, {"q", int64(1795881469476442894)}, {"q", uint64(1 << 40)}, {"q", uint64(1<<40 + 1)}, {"q", 0}, {"q", "0"}, {"q"}, {"q", ""}, {"q,", ""},
	} {
		id := ID(of...)
		if seen[id] || id != ID(of...) {
			t.Errorf("%v is not told from the others", of)
		}
		seen[id] = true
	}
}
