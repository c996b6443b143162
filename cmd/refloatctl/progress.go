package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress is a line that is rewritten in place on a terminal; into a pipe it prints nothing.
type progress struct {
	mu   sync.Mutex
	on   bool
	last time.Time
	wide int
}

func newProgress() *progress { return &progress{on: term.IsTerminal(int(os.Stderr.Fd()))} }

// sayShared is say for several goroutines.
func (p *progress) sayShared(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.say(format, args...)
}

// say shows a line, at most ten times a second.
func (p *progress) say(format string, args ...any) {
	if !p.on || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last = time.Now()
	line := fmt.Sprintf(format, args...)
	fmt.Fprintf(os.Stderr, "\r%s%s", line, strings.Repeat(" ", max(0, p.wide-len(line))))
	p.wide = len(line)
}

// done removes the line.
func (p *progress) done() {
	if p.on && p.wide > 0 {
		fmt.Fprintf(os.Stderr, "\r%s\r", strings.Repeat(" ", p.wide))
		p.wide = 0
	}
}
