package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// limit bounds everything that a test waits for.
const limit = 2 * time.Minute

// scratch is a directory for what the tests share; TestMain removes it.
var scratch string

// binary is the program under test, built once.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "refloatctl")
	_, err := output("go", "build", "-o", path, ".")
	return path, err
})

func TestMain(m *testing.M) {
	// Policies that a test has just written are read at once.
	if err := os.Setenv("REFLOAT_POLICIES_SETTLE", "0s"); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "refloatctl-test")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// output runs a program to its end, for what tests share.
func output(path string, args ...string) (string, error) {
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func binaryPath(t *testing.T) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// environ is that of the tests without our settings and what colors.
func environ(extra ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "REFLOAT_") || strings.HasPrefix(v, "NO_COLOR=") || strings.HasPrefix(v, "TERM=")
	})
	return append(env, extra...)
}

// result is what a finished command left behind.
type result struct {
	args     []string
	code     int
	out, err string
}

// ctl runs refloatctl to its end.
func ctl(t *testing.T, args ...string) result {
	t.Helper()
	return ctlIn(t, nil, args...)
}

// ctlIn runs refloatctl with more in its environment.
func ctlIn(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return runIn(t, env, []string{binaryPath(t)}, args...)
}

// runIn runs a program, whose command line begins with begin, as ctlIn does refloatctl.
func runIn(t *testing.T, env, begin []string, args ...string) result {
	t.Helper()
	readsShared(t, args)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, begin[0], append(slices.Clone(begin[1:]), args...)...)
	var out, err bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = environ(env...), &out, &err
	runErr := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("refloatctl %s did not end within %v\n%s%s", strings.Join(args, " "), limit, &out, &err)
	}
	if _, exited := runErr.(*exec.ExitError); runErr != nil && !exited { //nolint:errorlint // as Run documents it
		t.Fatal(runErr)
	}
	return result{args: args, code: cmd.ProcessState.ExitCode(), out: out.String(), err: err.String()}
}

// readsShared fails the test if a command would add to the data directory that tests share.
func readsShared(t *testing.T, args []string) {
	t.Helper()
	if len(args) > 0 && args[0] == "up" && slices.Contains(args, filepath.Join(scratch, "drained")) {
		t.Fatal("up on the data that tests share: work on a drainedCopy")
	}
}

// exits fails the test unless the command ended with the code.
func (r result) exits(t *testing.T, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("refloatctl %s: exit code %d, want %d\nstdout: %s\nstderr: %s", strings.Join(r.args, " "), r.code, code, tailOf(r.out), tailOf(r.err))
	}
	return r
}

// prints fails the test unless stdout and stderr together hold each text.
func (r result) prints(t *testing.T, texts ...string) result {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			t.Errorf("refloatctl %s does not say %q\nstdout: %s\nstderr: %s", strings.Join(r.args, " "), text, tailOf(r.out), tailOf(r.err))
		}
	}
	return r
}

func tailOf(s string) string {
	if len(s) > 4000 {
		return "…" + s[len(s)-4000:]
	}
	return s
}

// process is a refloatctl that runs.
type process struct {
	args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when it ended
	out  *lines
	err  *lines
}

// start starts refloatctl; it is killed at the end of the test at the latest.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startIn(t, nil, args...)
}

// startIn starts refloatctl with more in its environment.
func startIn(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	readsShared(t, args)
	p := &process{args: args, cmd: exec.Command(binaryPath(t), args...), done: make(chan struct{}), out: newLines(), err: newLines()}
	p.cmd.Env = environ(env...)
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		var both sync.WaitGroup
		both.Go(func() { p.out.read(stdout) })
		both.Go(func() { p.err.read(stderr) })
		both.Wait()
		_ = p.cmd.Wait() // its outcome stands in ProcessState
	}()
	t.Cleanup(func() { p.kill() })
	return p
}

// kill ends the process as a crash would, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// exits waits for the end and fails the test unless it has the code.
func (p *process) exits(t *testing.T, code int) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		t.Fatalf("refloatctl %s did not end\n%s", strings.Join(p.args, " "), tailOf(p.err.text()))
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("refloatctl %s: exit code %d (%v), want %d\n%s", strings.Join(p.args, " "), got, p.cmd.ProcessState, code, tailOf(p.err.text()))
	}
}

// lines collects what a process prints.
type lines struct {
	mu    sync.Mutex
	all   []string
	more  chan struct{} // closed and replaced with each line
	ended bool
}

func newLines() *lines { return &lines{more: make(chan struct{})} }

func (l *lines) read(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		l.mu.Lock()
		if line != "" {
			l.all = append(l.all, line)
		}
		l.ended = err != nil
		close(l.more)
		l.more = make(chan struct{})
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "")
}

// await returns the first line that holds the text.
func (l *lines) await(t *testing.T, text string) string {
	t.Helper()
	timeout := time.After(limit)
	for {
		l.mu.Lock()
		i := slices.IndexFunc(l.all, func(s string) bool { return strings.Contains(s, text) })
		found, more, ended := "", l.more, l.ended
		if i >= 0 {
			found = l.all[i]
		}
		l.mu.Unlock()
		switch {
		case i >= 0:
			return found
		case ended:
			t.Fatalf("the process ended and did not say %q:\n%s", text, tailOf(l.text()))
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("the process did not say %q:\n%s", text, tailOf(l.text()))
		}
	}
}

// until polls what cannot be waited for, until it holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick, timeout := time.NewTicker(5*time.Millisecond), time.After(limit)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

func sortedLines(s string) string {
	all := strings.SplitAfter(s, "\n")
	slices.Sort(all)
	return strings.Join(all, "")
}
