package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/test/e2e"
	"github.com/refloat/refloat/internal/test/pulsartest"
)

const (
	evaluators = 3
	ingesters  = 2
)

// campaign is one run of the program.
type campaign struct {
	settings   settings
	broker     *pulsartest.Broker
	deployment *e2e.Deployment
	logs       *e2e.Logs
	rogue      *e2e.Rogue
	evaluators []*member
	ingesters  []*member
	tails      []*tail
	feed       *feed
	journal    *os.File
	began      time.Time

	mu         sync.Mutex
	rng        *rand.Rand // not for the faults, which are drawn from the seed alone
	violations []string
	entries    []entry
	notes      notes
	sum        e2e.Sum
	checks     int
}

// entry is a line of the journal.
type entry struct {
	N        int       `json:"n"`
	At       time.Time `json:"at"`
	Kind     string    `json:"kind"`
	Target   int       `json:"target"`
	LengthMS int64     `json:"length_ms"`
	Owned    int       `json:"owned"` // by the evaluator that is hit; -1: unknown

	RecoveryMS int64 `json:"recovery_ms"` // until the slowest partition answered
	Slowest    int   `json:"slowest"`     // that partition
	DurableMS  int64 `json:"durable_ms"`  // until its probe was in the log
	ClaimMS    int64 `json:"claim_ms"`    // until its last claim before the answer; -1: it was not claimed
	AnswerMS   int64 `json:"answer_ms"`   // from the later of the two to the answer
	RowsMS     int64 `json:"rows_ms"`     // until all answers were in the job database
	Claims     int   `json:"claims"`      // in all partitions
	Restored   int   `json:"restored"`    // checkpoints
	OverMS     int64 `json:"over_ms"`     // until it was over: healed, started again
}

func (c *campaign) chance(share float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Float64() < share
}

func (c *campaign) violate(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := fmt.Sprintf(format, args...)
	c.violations = append(c.violations, v)
	fmt.Println("VIOLATION:", v)
}

// newCampaign builds, launches and creates everything that faults need.
func newCampaign(ctx context.Context, s settings) (_ *campaign, err error) {
	c := &campaign{settings: s, rng: rand.New(rand.NewPCG(s.seed, 5)), began: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	built, err := e2e.Build(ctx, s.dir)
	if err != nil {
		return nil, err
	}
	if c.broker, err = pulsartest.Launch(ctx, pulsartest.Options{}); err != nil {
		return nil, err
	}
	namespace, err := c.broker.NewNamespace(ctx)
	if err != nil {
		return nil, err
	}
	policies := filepath.Join(s.dir, "policies")
	if err := e2e.WriteGroupPolicies(s.policies, policies); err != nil {
		return nil, err
	}
	c.deployment = &e2e.Deployment{Programs: built, URL: c.broker.URL, AdminURL: c.broker.AdminURL, Namespace: namespace, Dir: s.dir, Policies: policies}
	if err := c.deployment.Create(ctx, s.partitions); err != nil {
		return nil, err
	}
	if c.logs, err = c.deployment.Open(); err != nil {
		return nil, err
	}
	for p := range s.partitions {
		c.tails = append(c.tails, newTail(c.logs.Decisions, p))
	}
	files, err := filepath.Glob(filepath.Join(s.recordings, "*[a-z].jsonl.gz"))
	if err != nil {
		return nil, err
	}
	var histories []string
	for _, f := range files {
		if !strings.Contains(filepath.Base(f), ".rows.") {
			histories = append(histories, f)
		}
	}
	if len(histories) == 0 {
		return nil, fmt.Errorf("no recordings in %s: run it in the repository, or set --recordings", s.recordings)
	}
	if c.feed, err = c.newFeed(histories); err != nil {
		return nil, err
	}
	if c.rogue, err = e2e.NewRogue(c.broker.URL, c.broker.AdminURL); err != nil {
		return nil, err
	}
	if c.journal, err = os.Create(filepath.Join(s.dir, "journal.jsonl")); err != nil {
		return nil, err
	}
	return c, c.makeFleet()
}

func (c *campaign) close() error {
	var errs []error
	for _, m := range c.members() {
		if p := m.running(); p != nil {
			m.take().Kill()
		}
		if m.proxy != nil {
			errs = append(errs, m.proxy.Close())
		}
	}
	if c.journal != nil {
		errs = append(errs, c.journal.Close())
	}
	if c.rogue != nil {
		errs = append(errs, c.rogue.Close())
	}
	if c.logs != nil {
		errs = append(errs, c.logs.Close())
	}
	if c.broker != nil {
		errs = append(errs, c.broker.Close())
	}
	return errors.Join(errs...)
}

// run makes the faults and checks what they left.
func (c *campaign) run(ctx context.Context) (violations []string, err error) {
	next, err := draw(c.settings.seed, c.settings.only, c.settings.partitions, c.settings.long())
	if err != nil {
		return nil, err
	}
	for _, m := range c.members() {
		if err := m.up(); err != nil {
			return nil, err
		}
	}
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	group, work := errgroup.WithContext(work)
	for _, t := range c.tails {
		group.Go(func() error { t.run(work); return nil })
	}
	group.Go(func() error { return c.feed.run(work) })
	group.Go(func() error { return c.tend(work) })
	err = c.faults(work, next)
	if err == nil {
		err = c.check(work, true)
	}
	cancel()
	err = errors.Join(err, group.Wait())
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.violations, err
}

// tend starts again what ended by itself.
func (c *campaign) tend(ctx context.Context) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		for _, m := range c.members() {
			if err := m.tend(); err != nil {
				return err
			}
		}
	}
}

func (c *campaign) faults(ctx context.Context, next func() fault) error {
	if _, err := c.await(ctx, time.Now(), 0, func() {}); err != nil { // all partitions answer
		return err
	}
	c.began = time.Now()
	for n := 1; c.settings.faults == 0 || n <= c.settings.faults; n++ {
		if c.settings.length > 0 && time.Since(c.began) > c.settings.length {
			return nil
		}
		f := next()
		e, err := c.one(ctx, n, f)
		if err != nil {
			return fmt.Errorf("fault %d (%s): %w", n, f.kind.name, err)
		}
		c.entries = append(c.entries, e)
		if err := json.NewEncoder(c.journal).Encode(e); err != nil {
			return err
		}
		fmt.Printf("%4d %-20s %2d %6.1f s, answered after %6.1f s, in the job database after %6.1f s, %d claims\n",
			n, e.Kind, e.Target, float64(e.LengthMS)/1e3, float64(e.RecoveryMS)/1e3, float64(e.RowsMS)/1e3, e.Claims)
		if every := c.settings.checkEvery; every > 0 && n%every == 0 {
			if err := c.check(ctx, false); err != nil {
				return err
			}
		}
		if len(c.violations) > 0 {
			return nil
		}
		select {
		case <-time.After(f.gap):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// one injects a fault, and waits until every partition has answered what was published after it, and until the
// fault is over.
func (c *campaign) one(ctx context.Context, n int, f fault) (entry, error) {
	e := entry{N: n, Kind: f.kind.name, Target: f.target, LengthMS: f.length.Milliseconds(), Owned: -1}
	if strings.Contains(f.kind.name, "evaluator") || strings.Contains(f.kind.name, "cut") || f.kind.name == "refuse" || f.kind.name == "reset" {
		e.Target = f.target % evaluators
		e.Owned = c.evaluatorOf(f).owned(ctx)
	}
	restored := c.restored()
	for _, t := range c.tails {
		t.forget()
	}
	e.At = time.Now()
	heal, err := f.kind.make(ctx, c, f)
	if err != nil {
		return e, err
	}
	over := make(chan error, 1)
	var ended time.Time
	go func() {
		select {
		case <-time.After(f.length):
		case <-ctx.Done():
		}
		err := heal(context.WithoutCancel(ctx))
		ended = time.Now()
		over <- err
	}()
	r, err := c.await(ctx, e.At, n, func() { err = errors.Join(err, <-over) })
	if err != nil {
		return e, err
	}
	e.OverMS = ended.Sub(e.At).Milliseconds()
	e.RecoveryMS, e.Slowest, e.DurableMS, e.ClaimMS, e.AnswerMS, e.Claims = r.recovery, r.slowest, r.durable, r.claim, r.answer, r.claims
	e.RowsMS = r.rows
	e.Restored = c.restored() - restored
	return e, nil
}

// recovered is how a fault was got over.
type recovered struct {
	recovery, durable, claim, answer, rows int64 // ms
	slowest, claims                        int
}

// await publishes a probe to each partition and waits until all are answered.
// over is called before it returns, and waits until the fault is.
func (c *campaign) await(ctx context.Context, since time.Time, n int, over func()) (r recovered, err error) {
	limit, cancel := context.WithTimeout(ctx, c.settings.limit)
	defer cancel()
	type place struct {
		at      eventlog.Position
		durable time.Time
		err     error
	}
	places := make([]chan place, c.settings.partitions)
	probes := make([]eventlog.Position, c.settings.partitions)
	for p := range places {
		places[p] = make(chan place, 1)
	}
	if err := c.feed.probe(ctx, n, func(p int, at eventlog.Position, err error) { places[p] <- place{at, time.Now(), err} }); err != nil {
		return r, err
	}
	for p, t := range c.tails {
		var x place
		select {
		case x = <-places[p]:
			err = x.err
		case <-limit.Done():
			err = fmt.Errorf("the probe of partition %d is not durable: %w", p, limit.Err())
		}
		var at, claimed time.Time
		claims := 0
		if err == nil {
			at, claimed, claims, err = t.answered(limit, x.at)
		}
		if err != nil {
			if ctx.Err() == nil {
				c.violate("fault %d: no recovery within %v: %v", n, c.settings.limit, err)
				err = nil
			}
			over()
			return r, err
		}
		probes[p] = x.at
		r.claims += claims
		if took := at.Sub(since).Milliseconds(); took >= r.recovery {
			r.recovery, r.slowest, r.durable, r.claim = took, p, x.durable.Sub(since).Milliseconds(), -1
			if !claimed.IsZero() {
				r.claim = claimed.Sub(since).Milliseconds()
			}
			r.answer = took - max(r.durable, r.claim, 0)
		}
	}
	err = c.deployment.Answered(limit, probes)
	r.rows = time.Since(since).Milliseconds()
	if err != nil && ctx.Err() == nil {
		c.violate("fault %d: the job database does not follow within %v: %v", n, c.settings.limit, err)
		err = nil
	}
	over()
	return r, err
}

// restored counts the checkpoints that evaluators have restored so far.
func (c *campaign) restored() (n int) {
	for _, m := range c.evaluators {
		text, _ := os.ReadFile(filepath.Join(c.settings.dir, m.name+".log"))
		n += strings.Count(string(text), `msg="checkpoint restored"`)
	}
	return n
}

// endAll stops all processes as an operator would; each must stop. A process that is still starting may report an
// error.
func (c *campaign) endAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, m := range c.members() {
		p := m.take()
		if err := p.Signal(syscall.SIGTERM); err != nil {
			continue // it ended by itself this moment
		}
		switch code, err := p.ExitCode(ctx); {
		case err != nil:
			c.violate("at the end: %v", err)
		case code != 0:
			c.notes.add(fmt.Sprintf("ended with code %d after SIGTERM: %s", code, lastLine(p.Tail())))
		}
	}
}

// check lets everything come to rest and looks at it.
func (c *campaign) check(ctx context.Context, last bool) error {
	began := time.Now()
	c.feed.paused.Store(true)
	defer c.feed.paused.Store(false)
	c.feed.work.Wait()
	limit, cancel := context.WithTimeout(ctx, c.settings.limit)
	defer cancel()
	if err := c.deployment.Settled(limit); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.violate("%v", err)
	}
	if last {
		c.endAll(ctx)
	}
	sum, violations, err := c.deployment.Check(ctx, nil)
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	for _, v := range violations {
		c.violate("%s", v)
	}
	for _, t := range c.tails {
		if t.broken != nil {
			c.violate("%v", t.broken)
		}
	}
	c.sum, c.checks = sum, c.checks+1
	fmt.Printf("     check: %d messages, %d failed runs, %d violations, in %.1f s\n", sum.Messages, sum.Failed, len(violations), time.Since(began).Seconds())
	return nil
}
