package show

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Progress is a line that is rewritten in place on a terminal; into a pipe it prints nothing.
type Progress struct {
	mu   sync.Mutex
	on   bool
	last time.Time
	wide int
}

// NewProgress returns one on stderr.
func NewProgress() *Progress { return &Progress{on: term.IsTerminal(int(os.Stderr.Fd()))} }

// SayShared is Say for several goroutines.
func (p *Progress) SayShared(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Say(format, args...)
}

// Say shows a line, at most ten times a second.
func (p *Progress) Say(format string, args ...any) {
	if !p.on || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last = time.Now()
	line := fmt.Sprintf(format, args...)
	fmt.Fprintf(os.Stderr, "\r%s%s", line, strings.Repeat(" ", max(0, p.wide-len(line))))
	p.wide = len(line)
}

// Done removes the line.
func (p *Progress) Done() {
	if p.on && p.wide > 0 {
		fmt.Fprintf(os.Stderr, "\r%s\r", strings.Repeat(" ", p.wide))
		p.wide = 0
	}
}
