package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/refloat/refloat/internal/test/e2e"
)

// member is one of our programs, over all its lives.
type member struct {
	name  string
	proxy *e2e.Proxy // nil: an ingester
	start func() (*e2e.Process, error)

	mu      sync.Mutex
	process *e2e.Process
	down    bool // on purpose
	lives   int
	deaths  []string // not on purpose: what was said last
	without int      // lives without a lease
}

// up starts the member.
func (m *member) up() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.start()
	if err != nil {
		return err
	}
	m.process, m.down = p, false
	m.lives++
	return nil
}

// take marks the member as down on purpose and returns its process.
func (m *member) take() *e2e.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = true
	return m.process
}

func (m *member) running() *e2e.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process
}

// tend restarts the member if it has exited, as a supervisor would.
func (m *member) tend() error {
	m.mu.Lock()
	ended := m.process != nil && m.process.Ended() && !m.down
	if ended {
		m.deaths = append(m.deaths, lastLine(m.process.Tail()))
	}
	m.mu.Unlock()
	if !ended {
		return nil
	}
	return m.up()
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// owned is how many partitions the evaluator decides, as it says.
func (m *member) owned(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	metrics, err := m.running().Scrape(ctx)
	if err != nil {
		return -1
	}
	return int(metrics.Sum("refloat_partition_live"))
}

// makeFleet names the members; nothing runs yet.
func (c *campaign) makeFleet() error {
	for i := range evaluators {
		proxy, err := e2e.NewProxy(c.broker.URL, c.broker.AdminURL)
		if err != nil {
			return err
		}
		m := &member{name: fmt.Sprintf("evaluator-%d", i), proxy: proxy}
		m.start = func() (*e2e.Process, error) {
			without := c.chance(c.settings.leaseless)
			if without {
				m.without++
			}
			proxy.Shared.Store(without)
			return c.deployment.Evaluator(m.name, proxy, "--api", "127.0.0.1:0")
		}
		c.evaluators = append(c.evaluators, m)
	}
	for i := range ingesters {
		m := &member{name: fmt.Sprintf("ingester-%d", i)}
		m.start = func() (*e2e.Process, error) { return c.deployment.Ingester(m.name) }
		c.ingesters = append(c.ingesters, m)
	}
	return nil
}

func (c *campaign) members() []*member {
	return append(c.evaluators[:evaluators:evaluators], c.ingesters...)
}
