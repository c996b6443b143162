package pulsarlog

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar/backoff"
)

// guard closes a producer between the client's attempts to reconnect it. During one, the client closes the producer on
// the connection that it lost, and leaves it open on the new one: the broker would then give the exclusive producer to
// nobody else for as long as the process is connected.
//
// The client's back-off policy tells it where an attempt begins and ends; the zero value is not usable.
type guard struct {
	turn   chan struct{} // full during an attempt, and during Close
	closed chan struct{} // closed when the producer is
}

func newGuard() *guard {
	return &guard{turn: make(chan struct{}, 1), closed: make(chan struct{})}
}

// policy is to be called where the client begins to reconnect. It waits until the producer may be connected.
func (g *guard) policy(delays backoff.Policy) backoff.Policy {
	g.begin()
	return &guarded{delays, g}
}

// begin waits for the turn to connect. Once the producer is closed there is no more to wait for: the client makes no
// attempt then.
func (g *guard) begin() {
	select {
	case g.turn <- struct{}{}:
	case <-g.closed:
	}
}

func (g *guard) end() {
	select {
	case <-g.turn:
	default: // closed
	}
}

// givenUpPoll is how often close looks whether the client gave the producer up, which it does not tell.
const givenUpPoll = 50 * time.Millisecond

// close calls f when no attempt is under way, or returns when the client has closed the producer by itself. It must be
// called once.
func (g *guard) close(f func(), givenUp func() bool) {
	defer close(g.closed)
	poll := time.NewTicker(givenUpPoll)
	defer poll.Stop()
	for {
		select {
		case g.turn <- struct{}{}:
			f()
			return
		case <-poll.C:
			if givenUp() {
				return
			}
		}
	}
}

// guarded is a policy that waits by itself, and is then told to begin again.
type guarded struct {
	delays backoff.Policy
	guard  *guard
}

// Next is called after an attempt that failed. It returns when the next one may begin.
func (p *guarded) Next() time.Duration {
	p.guard.end()
	wait := time.NewTimer(p.delays.Next())
	defer wait.Stop()
	select {
	case <-wait.C:
		p.guard.begin()
	case <-p.guard.closed:
	}
	return 0
}

// Reset is called after an attempt that succeeded.
func (p *guarded) Reset() {
	p.delays.Reset()
	p.guard.end()
}

func (p *guarded) IsMaxBackoffReached() bool { return p.delays.IsMaxBackoffReached() }
