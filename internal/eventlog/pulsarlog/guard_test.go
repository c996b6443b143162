package pulsarlog

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// reconnecting is a producer of a client that reconnects, in the way of the real one: it calls for a policy, makes
// attempts with the policy's delays between them until one succeeds or gives the producer up, and makes none once
// the producer is closed.
type reconnecting struct {
	testing.TB
	guard   *guard
	state   sync.Mutex
	closed  bool
	trying  atomic.Bool
	orphans int // attempts that succeeded after the producer was closed
}

func (r *reconnecting) isClosed() bool {
	r.state.Lock()
	defer r.state.Unlock()
	return r.closed
}

func (r *reconnecting) close() {
	if r.trying.Load() {
		r.Error("the producer is closed during an attempt to connect it")
	}
	r.giveUp()
}

func (r *reconnecting) giveUp() {
	r.state.Lock()
	defer r.state.Unlock()
	r.closed = true
}

func (r *reconnecting) reconnect(attempt func() error) {
	policy := r.guard.policy(&delays{})
	for {
		if r.isClosed() {
			return
		}
		r.trying.Store(true)
		err := attempt()
		r.trying.Store(false)
		switch {
		case errors.Is(err, errGaveUp):
			r.giveUp()
			return
		case err == nil:
			if r.isClosed() {
				r.orphans++
			}
			policy.Reset()
			return
		}
		<-time.After(policy.Next())
	}
}

var (
	errFails  = errors.New("no connection")
	errGaveUp = errors.New("fenced")
)

// A producer is closed between attempts to connect it, whenever that is, and the client's goroutine always ends.
func TestGuard(t *testing.T) {
	t.Parallel()
	const attempt = 70 * time.Millisecond
	for name, c := range map[string]struct {
		fails int // attempts that fail before the last one
		last  error
	}{
		"reconnects at once": {0, nil}, "reconnects": {3, nil}, "is fenced at once": {0, errGaveUp}, "is fenced": {2, errGaveUp}, "never": {1 << 20, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for after := time.Duration(0); after < 1500*time.Millisecond; after += 9 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					r := &reconnecting{TB: t, guard: newGuard()}
					var client sync.WaitGroup
					client.Go(func() {
						for n := 0; !r.isClosed(); { // loses its connection again and again
							r.reconnect(func() error {
								<-time.After(attempt)
								if n++; n <= c.fails {
									return errFails
								}
								n = 0
								return c.last
							})
							<-time.After(attempt)
						}
					})
					<-time.After(after)
					begun := time.Now()
					r.guard.close(r.close, r.isClosed)
					if took := time.Since(begun); took > 2*attempt {
						t.Errorf("closed %v after the first attempt began, it took %v", after, took)
					}
					client.Wait()
					if r.orphans > 0 || !r.isClosed() {
						t.Errorf("closed after %v: %d orphans, closed %t", after, r.orphans, r.isClosed())
					}
				})
			}
		})
	}
}
