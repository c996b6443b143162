package filelog

import (
	"sync"
	"time"
)

const (
	pollFastest = 10 * time.Millisecond
	pollSlowest = 100 * time.Millisecond
)

// durable returns the durable end of the partition, and an error if no more will come.
// In a read-only log it reads what the writer's process has announced.
func (p *partition) durable() (mark, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.polled || p.ended != nil {
		return p.mark, p.ended
	}
	m, ok, err := p.synced.readWhole(1)
	if err != nil {
		return p.mark, err
	}
	if !ok {
		return p.mark, p.syncedDamage("both slots are damaged")
	}
	if m.next >= p.mark.next {
		p.mark = m
	}
	return p.mark, nil
}

// poller polls for the marks of another process, and wakes the readers. It polls less
// often while nothing changes.
type poller struct {
	mu         sync.Mutex
	quit, done chan struct{}
	stopped    bool
}

// start starts polling, once.
func (w *poller) start(parts []*partition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quit != nil || w.stopped {
		return
	}
	w.quit, w.done = make(chan struct{}), make(chan struct{})
	go w.loop(parts)
}

func (w *poller) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.quit != nil {
		close(w.quit)
		<-w.done
		w.quit = nil
	}
}

func (w *poller) loop(parts []*partition) {
	defer close(w.done)
	seen := make([]int64, len(parts))
	for i := range seen {
		seen[i] = -1
	}
	pause := pollFastest
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.quit:
			return
		}
		pause = min(pause*5/4, pollSlowest)
		for i, p := range parts {
			if p.poll(&seen[i]) {
				pause = pollFastest
			}
		}
		timer.Reset(pause)
	}
}

// poll wakes the partition's readers if its mark has advanced or can no longer be read.
// It reports whether it has advanced.
func (p *partition) poll(seen *int64) bool {
	p.mu.Lock()
	watched := len(p.readers) > 0
	p.mu.Unlock()
	if !watched {
		return false
	}
	m, err := p.durable()
	moved := m.next != *seen
	*seen = m.next
	if moved || err != nil {
		p.mu.Lock()
		p.wake()
		p.mu.Unlock()
	}
	return moved
}
