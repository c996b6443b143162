package pulsartest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	// ErrMissing reports that this machine has no broker to run; the message says what to do.
	ErrMissing = errors.New("no Pulsar broker here")

	// ErrForeign reports that the operation is not possible on an external broker.
	ErrForeign = errors.New("the broker is not ours")
)

// errPort says that a port was taken between the choice and its use.
var errPort = errors.New("port is taken")

const (
	loopback = "127.0.0.1"
	launches = 3               // attempts, each with other ports
	timeout  = 4 * time.Minute // timeout until a broker is usable on a busy machine, if the context has no deadline
	poll     = 100 * time.Millisecond
)

// Options set up a broker. The zero value is right for most tests.
type Options struct {
	Settings map[string]string // of the broker, over Defaults
	Way      Way               // where empty: REFLOAT_TEST_BROKER, or what the machine has
	Home     string            // of the distribution; where empty: REFLOAT_PULSAR_HOME or the cache
	Memory   string            // flags of the JVM: how much of it
	JVM      string            // other flags of the JVM: collector and compiler
}

// Broker is a running broker. Its methods may be called from several goroutines.
type Broker struct {
	URL      string // service, for clients
	AdminURL string // without a slash at the end
	Way      Way    // empty for an external broker

	mu     sync.Mutex
	life   life // nil for an external broker
	closed bool
}

// life abstracts from containers and processes. Start does not wait until the broker is usable; gone is closed
// when it exits.
type life interface {
	start(ctx context.Context) error
	kill(ctx context.Context) error
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	gone() <-chan struct{}
	tail() string // of its output
	remove(ctx context.Context) error
}

// ports are the same inside a container and outside, so that the address that
// the broker hands out in lookups is right in both places.
type ports struct{ service, web, bookie int }

// Launch runs a broker and waits until it is usable. Close ends it.
func Launch(ctx context.Context, o Options) (*Broker, error) {
	ctx, cancel := patient(ctx)
	defer cancel()
	o, err := o.complete(ctx)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		b, err := launch(ctx, o)
		if err == nil || attempt == launches || !errors.Is(err, errPort) {
			return b, err
		}
	}
}

// complete chooses what is not set.
func (o Options) complete(ctx context.Context) (Options, error) {
	env, err := readEnvironment()
	if err != nil {
		return o, err
	}
	o.Way, o.Home = cmp.Or(o.Way, env.way), cmp.Or(o.Home, env.home)
	o.Memory, o.JVM = cmp.Or(o.Memory, defaultMemory), cmp.Or(o.JVM, defaultJVM)
	o.Way, err = choose(ctx, o)
	return o, err
}

func launch(ctx context.Context, o Options) (*Broker, error) {
	p, err := freePorts()
	if err != nil {
		return nil, err
	}
	b := &Broker{
		URL:      fmt.Sprintf("pulsar://%s:%d", loopback, p.service),
		AdminURL: fmt.Sprintf("http://%s:%d", loopback, p.web),
		Way:      o.Way,
	}
	settings := with(Defaults(), o.Settings, map[string]string{
		"brokerServicePort": strconv.Itoa(p.service),
		"webServicePort":    strconv.Itoa(p.web),
		"advertisedAddress": loopback,
	})
	if o.Way == Container {
		b.life, err = newContainer(ctx, o, p, settings)
	} else {
		b.life, err = newProcess(o, standalone(p, settings))
	}
	if err != nil {
		return nil, err
	}
	if err := b.startAndWait(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Connect returns an external broker.
func Connect(ctx context.Context, url, adminURL string) (*Broker, error) {
	b := &Broker{URL: url, AdminURL: strings.TrimRight(adminURL, "/")}
	ctx, cancel := patient(ctx)
	defer cancel()
	return b, b.usable(ctx, nil)
}

// Close stops the broker and removes its data; closing again does nothing. An external broker is not touched.
func (b *Broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life == nil || b.closed {
		return nil
	}
	ctx, cancel := patient(context.Background())
	defer cancel()
	err := b.life.remove(ctx)
	b.closed = err == nil
	return err
}

// Kill ends the broker at once, as a crash does.
func (b *Broker) Kill() error { return b.signal("kill", life.kill) }

// Pause stops the broker in its tracks: connections stay open and nothing answers.
func (b *Broker) Pause() error { return b.signal("pause", life.pause) }

// Resume lets a paused broker go on.
func (b *Broker) Resume() error { return b.signal("resume", life.resume) }

func (b *Broker) signal(verb string, do func(life, context.Context) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ours(); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	ctx, cancel := patient(context.Background())
	defer cancel()
	if err := do(b.life, ctx); err != nil {
		return fmt.Errorf("%s the broker: %w", verb, err)
	}
	return nil
}

// Restart runs the broker again on its data and its ports, after killing it if
// it still runs, and waits until it is usable. On a busy machine a topic's first
// use may still be answered with an error; clients try again.
func (b *Broker) Restart(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ours(); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	ctx, cancel := patient(ctx)
	defer cancel()
	if err := b.life.kill(ctx); err != nil {
		return fmt.Errorf("kill before restart: %w", err)
	}
	if err := b.startAndWait(ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return nil
}

func (b *Broker) ours() error {
	switch {
	case b.life == nil:
		return ErrForeign
	case b.closed:
		return errors.New("the broker is closed")
	}
	return nil
}

func (b *Broker) startAndWait(ctx context.Context) error {
	if err := b.life.start(ctx); err != nil {
		return fmt.Errorf("start %s: %w", b.Way, err)
	}
	err := b.usable(ctx, b.life.gone())
	if err == nil {
		return nil
	}
	tail := b.life.tail()
	if strings.Contains(tail, "BindException") || strings.Contains(tail, "Address already in use") {
		err = errors.Join(err, errPort)
	}
	return fmt.Errorf("%w\nit printed last:\n%s", err, tail)
}

// usable waits until the broker is healthy.
func (b *Broker) usable(ctx context.Context, gone <-chan struct{}) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := b.healthy(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-gone:
			return errors.New("the broker ended before it was usable")
		case <-ctx.Done():
			return fmt.Errorf("broker at %s is not usable: %w (last answer: %w)", b.AdminURL, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// patient adds a deadline to a context that has none.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

// freePorts are the ports of a broker.
func freePorts() (ports, error) {
	free, err := FreePorts(3)
	if err != nil {
		return ports{}, err
	}
	return ports{service: free[0], web: free[1], bookie: free[2]}, nil
}

// FreePorts chooses n different ports on loopback below those that the kernel
// gives to outgoing connections: a client that dials a dead server from such a
// port could take the port of the server, or even reach itself.
func FreePorts(n int) ([]int, error) {
	const low, high, tries = 15000, 32000, 100
	var free []int
	for range n * tries {
		if len(free) == n {
			return free, nil
		}
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer l.Close() // only now: the ports differ
		free = append(free, port)
	}
	if len(free) == n {
		return free, nil
	}
	return nil, fmt.Errorf("found %d of %d free ports between %d and %d on %s in %d tries", len(free), n, low, high, loopback, n*tries)
}
