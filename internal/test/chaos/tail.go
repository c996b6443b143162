package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/test/e2e"
)

// tail follows one partition of the decision log while the campaign runs.
type tail struct {
	partition int
	topic     eventlog.Topic

	mu      sync.Mutex
	chain   *e2e.Chain
	steps   []step // accepted, since forget was called
	changed chan struct{}
	sample  []byte            // an envelope that was accepted some time ago
	known   map[[32]byte]bool // hashes of what was accepted
	late    map[string]int    // ignored and never accepted, by reason
	broken  error
}

// step is an accepted envelope and when it was seen.
type step struct {
	at    time.Time
	inTo  eventlog.Position
	claim bool
}

func newTail(topic eventlog.Topic, p int) *tail {
	return &tail{partition: p, topic: topic, chain: e2e.NewChain(), changed: make(chan struct{}), known: map[[32]byte]bool{}, late: map[string]int{}}
}

// run follows until ctx ends. A log that contradicts itself is noted in broken.
func (t *tail) run(ctx context.Context) {
	at := eventlog.Start
	for ctx.Err() == nil {
		err := e2e.Follow(ctx, t.topic, t.partition, &at, func(m eventlog.Message) error { return t.take(m.Payload) })
		if err != nil && !errors.Is(err, eventlog.ErrTransient) {
			t.mu.Lock()
			t.broken = fmt.Errorf("decisions of partition %d after %v: %w", t.partition, at, err)
			t.wake()
			t.mu.Unlock()
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

func (t *tail) take(raw []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.chain.Claims
	ignored, err := t.chain.Offer(raw)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(raw)
	if ignored != "" {
		if !t.known[hash] {
			t.late[ignored]++
		}
		return nil
	}
	t.known[hash] = true
	if t.sample == nil || rand.IntN(200) == 0 {
		t.sample = raw
	}
	t.steps = append(t.steps, step{time.Now(), t.chain.InTo, t.chain.Claims > before})
	t.wake()
	return nil
}

func (t *tail) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// forget drops the steps so far.
func (t *tail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = nil
}

// replay is an old envelope.
func (t *tail) replay() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sample
}

// answered waits until an event is answered. It returns when, when the last
// claim before that was accepted (zero: none since forget), and how many were.
func (t *tail) answered(ctx context.Context, event eventlog.Position) (at, claimed time.Time, claims int, err error) {
	for {
		t.mu.Lock()
		changed := t.changed
		at, claimed, claims, err = time.Time{}, time.Time{}, 0, t.broken
		for _, s := range t.steps {
			if s.claim {
				claimed, claims = s.at, claims+1
			}
			if s.inTo.Compare(event) >= 0 {
				at = s.at
				break
			}
		}
		t.mu.Unlock()
		if err != nil || !at.IsZero() {
			return at, claimed, claims, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return at, claimed, claims, fmt.Errorf("partition %d does not answer the event at %v: %w", t.partition, event, ctx.Err())
		}
	}
}
