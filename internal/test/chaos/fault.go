package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/refloat/refloat/internal/test/e2e"
)

// fault is one that was drawn.
type fault struct {
	kind   *kind
	target int           // who; of the evaluators, the ingesters or the partitions
	length time.Duration // until it is over
	gap    time.Duration // from its recovery to the next
}

// kind is a kind of fault. make begins it and returns what ends it.
type kind struct {
	name     string
	means    string
	weight   int
	from, to time.Duration // how long it lasts
	make     func(ctx context.Context, c *campaign, f fault) (heal func(ctx context.Context) error, err error)
}

// The broker gives up a connection after twice its keep-alive of 5 s.
const (
	short = 4 * time.Second
	stale = 11 * time.Second
)

func kinds() []*kind {
	ms, s := time.Millisecond, time.Second
	return []*kind{
		{"kill evaluator", "SIGKILL, started again", 14, 0, 3 * s, killEvaluator},
		{"kill ingester", "SIGKILL, started again", 6, 0, 3 * s, killIngester},
		{"kill all", "SIGKILL of all five, started again", 3, 0, 2 * s, killAll},
		{"end evaluator", "SIGTERM, started again", 8, 0, 3 * s, endEvaluator},
		{"end ingester", "SIGTERM, started again", 4, 0, 2 * s, endIngester},
		{"stop evaluator", "SIGSTOP, SIGCONT before the broker notices", 7, 200 * ms, short, stopEvaluator},
		{"stop evaluator long", "SIGSTOP, SIGCONT after the broker gave it up", 10, stale, 17 * s, stopEvaluator},
		{"stop ingester", "SIGSTOP, SIGCONT", 4, 1 * s, 15 * s, stopIngester},
		{"wipe evaluator", "SIGKILL, its local state deleted, started again", 7, 0, 2 * s, wipeEvaluator},
		{"kill broker", "SIGKILL, started again on its data", 9, 0, 2 * s, killBroker},
		{"outage", "the broker is killed and away for 1 s; then policies are changed through every evaluator", 4, s, s, outage},
		{"outage long", "the same for 35 s, longer than a reader reports nothing", 2, 35 * s, 35 * s, outage},
		{"outage very long", "the same for 120 s", 1, 120 * s, 120 * s, outage},
		{"stop broker", "SIGSTOP, SIGCONT", 4, 500 * ms, 9 * s, stopBroker},
		{"unload", "a partition of decisions or events moves", 8, 0, 0, unload},
		{"fence", "a rogue takes the right to publish, and keeps it", 8, 100 * ms, 3 * s, fence},
		{"stranger", "a rogue publishes garbage and old envelopes", 8, 0, 100 * ms, stranger},
		{"cut", "nothing passes between one evaluator and the broker", 9, 1 * s, 20 * s, cut(e2e.Blackhole)},
		{"cut one way", "nothing passes in one direction", 6, 1 * s, 20 * s, cutOneWay},
		{"refuse", "connections of one evaluator are reset, new ones too", 4, 1 * s, 10 * s, cut(e2e.Refused)},
		{"reset", "connections of one evaluator are reset", 5, 0, 0, resetOnce},
	}
}

// longFault is how long a fault may last in a campaign as short as the one of CI.
const longFault = 30 * time.Second

// draw draws faults from a seed, without end; long ones only where asked for, or by name.
func draw(seed uint64, only string, partitions int, long bool) (func() fault, error) {
	rng := rand.New(rand.NewPCG(seed, 4))
	var from []*kind
	for _, k := range kinds() {
		if only == "" && (long || k.from < longFault) || k.name == only {
			for range k.weight {
				from = append(from, k)
			}
		}
	}
	if len(from) == 0 {
		return nil, errors.New("--only names no kind of fault")
	}
	return func() fault {
		k := from[rng.IntN(len(from))]
		f := fault{kind: k, length: k.from, gap: time.Duration(rng.Int64N(int64(2 * time.Second)))}
		if k.to > k.from {
			f.length += time.Duration(rng.Int64N(int64(k.to - k.from)))
		}
		f.target = rng.IntN(evaluators * ingesters * 2 * partitions)
		return f
	}, nil
}

func (c *campaign) evaluatorOf(f fault) *member { return c.evaluators[f.target%evaluators] }
func (c *campaign) ingesterOf(f fault) *member  { return c.ingesters[f.target%ingesters] }
func (c *campaign) decisionsOf(f fault) string {
	return c.logs.Decisions.PartitionName(f.target % c.settings.partitions)
}

func again(m *member) func(context.Context) error {
	return func(context.Context) error { return m.up() }
}

func killEvaluator(_ context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	m := c.evaluatorOf(f)
	m.take().Kill()
	return again(m), nil
}

func killIngester(_ context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	m := c.ingesterOf(f)
	m.take().Kill()
	return again(m), nil
}

func killAll(_ context.Context, c *campaign, _ fault) (func(context.Context) error, error) {
	for _, m := range c.members() {
		m.take().Kill()
	}
	return func(context.Context) error {
		var errs []error
		for _, m := range c.members() {
			errs = append(errs, m.up())
		}
		return errors.Join(errs...)
	}, nil
}

func endEvaluator(_ context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	return c.end(c.evaluatorOf(f))
}

func endIngester(_ context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	return c.end(c.ingesterOf(f))
}

// end asks a member to end; it must, well.
func (c *campaign) end(m *member) (func(context.Context) error, error) {
	p := m.take()
	if err := p.Signal(syscall.SIGTERM); err != nil && !p.Ended() {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		code, err := p.ExitCode(ctx)
		switch {
		case err != nil:
			c.violate("%s does not end after SIGTERM", m.name)
			p.Kill()
		case code != 0:
			c.notes.add("ended with a code after SIGTERM: " + lastLine(p.Tail()))
		}
		return m.up()
	}, nil
}

func stopEvaluator(_ context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	return stop(c.evaluatorOf(f))
}

func stopIngester(_ context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	return stop(c.ingesterOf(f))
}

func stop(m *member) (func(context.Context) error, error) {
	p := m.running()
	if p.Ended() {
		return func(context.Context) error { return nil }, nil
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func(context.Context) error { return p.Signal(syscall.SIGCONT) }, nil
}

func wipeEvaluator(_ context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	m := c.evaluatorOf(f)
	m.take().Kill()
	if err := os.RemoveAll(c.deployment.Data(m.name)); err != nil {
		return nil, err
	}
	return again(m), nil
}

func killBroker(_ context.Context, c *campaign, _ fault) (func(context.Context) error, error) {
	if err := c.broker.Kill(); err != nil {
		return nil, err
	}
	return c.broker.Restart, nil
}

// outage takes the broker away for a while. When it is back, policies can be changed
// through every evaluator that lived through it.
func outage(_ context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	if err := c.broker.Kill(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := c.broker.Restart(ctx); err != nil {
			return err
		}
		c.changePolicies(ctx, f.length)
		return nil
	}, nil
}

// changeWithin is how long after an outage a change of policies may take.
const changeWithin = 30 * time.Second

// changePolicies pauses and resumes an unused queue through each evaluator.
func (c *campaign) changePolicies(ctx context.Context, away time.Duration) {
	for _, m := range c.evaluators {
		for _, line := range [][]string{{"kill", "retries"}, {"resume", "retries"}} {
			err := e2e.Within(ctx, changeWithin, func(ctx context.Context) error {
				return c.deployment.Change(ctx, m.name, append(line, "--queue", "chaos-"+m.name, "--force", "--reason", "outage")...)
			})
			if err != nil {
				c.violate("%v after an outage of %v policies cannot be changed through %s: %v", changeWithin, away, m.name, err)
			}
		}
	}
}

func stopBroker(_ context.Context, c *campaign, _ fault) (func(context.Context) error, error) {
	if err := c.broker.Pause(); err != nil {
		return nil, err
	}
	return func(context.Context) error { return c.broker.Resume() }, nil
}

func nothing(context.Context) error { return nil }

func unload(_ context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	p := f.target % c.settings.partitions
	name := c.logs.Decisions.PartitionName(p)
	if f.target/c.settings.partitions%2 == 0 {
		name = c.logs.Events.PartitionName(p)
	}
	return nothing, c.broker.Unload(name)
}

func fence(ctx context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	return c.intrude(ctx, f)
}

func stranger(ctx context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	old := c.tails[f.target%c.settings.partitions].replay()
	cropped := old[:len(old)/2]
	return c.intrude(ctx, f, []byte("a stranger's message"), old, cropped, old)
}

// intrude returns when the rogue has the right to publish, or could not get it.
func (c *campaign) intrude(ctx context.Context, f fault, messages ...[]byte) (func(context.Context) error, error) {
	leave, err := c.rogue.Fence(ctx, c.decisionsOf(f), messages...)
	if err != nil {
		c.notes.add("the rogue did not come in: " + err.Error())
		return nothing, nil
	}
	return func(context.Context) error { leave(); return nil }, nil
}

func cut(how e2e.Cut) func(context.Context, *campaign, fault) (func(context.Context) error, error) {
	return func(_ context.Context, c *campaign, f fault) (func(context.Context) error, error) {
		proxy := c.evaluatorOf(f).proxy
		proxy.Set(how)
		return func(context.Context) error { proxy.Set(e2e.Whole); return nil }, nil
	}
}

func cutOneWay(ctx context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	how := e2e.Deaf
	if f.target/evaluators%2 == 0 {
		how = e2e.Mute
	}
	return cut(how)(ctx, c, f)
}

func resetOnce(_ context.Context, c *campaign, f fault) (func(context.Context) error, error) {
	c.evaluatorOf(f).proxy.Reset()
	return nothing, nil
}
