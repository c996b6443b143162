// Package notify sends notifications to one receiver over HTTP: signed, as the convention Standard Webhooks has it, or in
// Slack's format. Who notifies never waits: what waits to be sent is in a queue of bounded length, in memory alone.
//
// A notification may arrive more than once, always with the same id. It is lost if the queue is full, the receiver refuses
// it or does not take it within Patience, or the process ends; what is lost is counted.
package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The formats of notifications.
const (
	FormatJSON  = "json"
	FormatSlack = "slack"
)

// Event is what happened.
type Event struct {
	ID   string // the same for the same event, whoever notifies of it; ID makes one
	Type string // such as breaker.opened
	Time time.Time
	Text string         // for people, on one line
	Data map[string]any // for programs
}

// ID makes an id of what identifies an event.
func ID(parts ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v", parts))
	return "refloat_" + hex.EncodeToString(sum[:16])
}

// Receiver is who gets notifications.
type Receiver struct {
	address *url.URL // of which the path may be secret
	slack   bool
	secrets [][]byte
}

// ErrAddress and ErrSecret say what a receiver needs. They do not quote what was given.
var (
	ErrAddress = errors.New("want an address such as https://hooks.example.com/refloat; http does for JSON, which is signed, and not for Slack, whose address is a secret")
	ErrSecret  = errors.New("want whsec_ and 24 to 64 random bytes in base64, as `echo whsec_$(openssl rand -base64 32)` prints; a second one, after a space or on a line of its own, signs too while it is replaced")
)

// NewReceiver returns a receiver of one of the formats. Notifications in JSON are signed with each of the secrets, which
// spaces and lines separate. Errors: ErrAddress, ErrSecret.
func NewReceiver(address, format, secrets string) (*Receiver, error) {
	r := &Receiver{slack: format == FormatSlack}
	var err error
	if r.address, err = url.Parse(address); err != nil || r.address.Host == "" || r.address.Scheme != "https" && (r.slack || r.address.Scheme != "http") {
		return nil, ErrAddress
	}
	for secret := range strings.FieldsSeq(secrets) {
		text, marked := strings.CutPrefix(secret, "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		if !marked || err != nil || len(key) < 24 || len(key) > 64 {
			return nil, ErrSecret
		}
		r.secrets = append(r.secrets, key)
	}
	if !r.slack && len(r.secrets) == 0 {
		return nil, ErrSecret
	}
	return r, nil
}

// request returns the request that sends an event at a time.
func (r *Receiver) request(ctx context.Context, e *Event, now time.Time) (*http.Request, error) {
	var message any = struct {
		Type      string         `json:"type"`
		Timestamp string         `json:"timestamp"`
		Text      string         `json:"text"`
		Data      map[string]any `json:"data"`
	}{e.Type, e.Time.UTC().Format(time.RFC3339Nano), e.Text, e.Data}
	if r.slack {
		message = map[string]string{"text": strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(e.Text)}
	}
	body, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.address.String(), bytes.NewReader(body))
	if err != nil {
		return nil, ErrAddress
	}
	req.Header.Set("Content-Type", "application/json")
	if r.slack {
		return req, nil
	}
	at := strconv.FormatInt(now.Unix(), 10)
	req.Header.Set("Webhook-Id", e.ID)
	req.Header.Set("Webhook-Timestamp", at)
	req.Header.Set("Webhook-Signature", r.sign(e.ID, at, body))
	return req, nil
}

// sign returns a signature by each secret, of the id, the time of the attempt and the body, with full stops between them.
func (r *Receiver) sign(id, at string, body []byte) string {
	var signatures []string
	for _, secret := range r.secrets {
		mac := hmac.New(sha256.New, secret)
		fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(signatures, " ")
}

// Config configures a Sender. Receiver, Now and Log are required.
type Config struct {
	Receiver *Receiver
	Now      func() time.Time
	Log      *slog.Logger
	Sent     func() // notified when the receiver has taken one; nil: nobody is
	Lost     func() // notified of each that it will not get; nil: nobody is

	Queue    int           // how many may wait; default 1000
	First    time.Duration // before the second attempt; default 1 s; then longer and longer, up to a minute, with jitter
	Patience time.Duration // how old a notification may be that is tried again; default 1 h
	Timeout  time.Duration // of one attempt; default 15 s
}

// Sender sends notifications, one after the other, in order.
type Sender struct {
	Config
	client *http.Client
	queue  chan waiting
}

type waiting struct {
	Event
	since time.Time
}

// NewSender returns a sender. Run sends.
func NewSender(c Config) *Sender {
	c.First = cmp.Or(c.First, time.Second)
	c.Patience = cmp.Or(c.Patience, time.Hour)
	c.Timeout = cmp.Or(c.Timeout, 15*time.Second)
	c.Queue = cmp.Or(c.Queue, 1000)
	for _, hook := range []*func(){&c.Sent, &c.Lost} {
		if *hook == nil {
			*hook = func() {}
		}
	}
	return &Sender{Config: c, queue: make(chan waiting, c.Queue), client: &http.Client{
		Timeout:       c.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Notify queues an event, or loses it if too many wait. A nil Sender has nobody to notify.
func (s *Sender) Notify(e Event) {
	if s == nil {
		return
	}
	select {
	case s.queue <- waiting{e, s.Now()}:
	default:
		s.lost(&e, errors.New("too many wait to be sent"))
	}
}

func (s *Sender) lost(e *Event, err error) {
	s.Lost()
	s.Log.Error("a notification is lost", slog.String("type", e.Type), slog.String("id", e.ID), slog.Any("error", err))
}

// Run sends what is queued until ctx ends; what waits then is lost.
func (s *Sender) Run(ctx context.Context) error {
	for {
		select {
		case w := <-s.queue:
			if err := s.send(ctx, &w); err != nil {
				s.lost(&w.Event, err)
			} else {
				s.Sent()
			}
		case <-ctx.Done():
			for range len(s.queue) {
				w := <-s.queue
				s.lost(&w.Event, ctx.Err())
			}
			return nil
		}
	}
}

// send sends one event, and tries again.
func (s *Sender) send(ctx context.Context, w *waiting) error {
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.MaxInterval = s.First, max(s.First, time.Minute)
	left := max(s.Patience-s.Now().Sub(w.since), 1) // one attempt at least
	warned := false
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, s.attempt(ctx, &w.Event) },
		backoff.WithBackOff(delays), backoff.WithMaxElapsedTime(left), backoff.WithNotify(func(err error, _ time.Duration) {
			if !warned {
				s.Log.Warn("a notification was not taken; it is sent again", slog.String("type", w.Type), slog.String("id", w.ID), slog.Any("error", err))
			}
			warned = true
		}))
	return err
}

// attempt sends an event once. An answer that another attempt cannot change is a permanent error.
func (s *Sender) attempt(ctx context.Context, e *Event) error {
	req, err := s.Receiver.request(ctx, e, s.Now())
	if err != nil {
		return backoff.Permanent(err)
	}
	resp, err := s.client.Do(req)
	if with, ok := errors.AsType[*url.Error](err); ok {
		err = with.Err // without the address
	}
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 1<<16) // so that the connection can be used again
	_ = resp.Body.Close()
	err = fmt.Errorf("the receiver answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	switch code := resp.StatusCode; {
	case code/100 == 2:
		return nil
	case code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooEarly && code != http.StatusTooManyRequests:
		return backoff.Permanent(err)
	case seconds > 0:
		return errors.Join(err, backoff.RetryAfter(seconds))
	}
	return err
}
