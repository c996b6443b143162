package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Programs are ours, built.
type Programs struct{ Evaluator, Ingester, Ctl string }

// Build builds them into a directory. It works anywhere in the module.
func Build(ctx context.Context, dir string) (Programs, error) {
	const at = "github.com/refloat/refloat/cmd/"
	out, err := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), at+"evaluator", at+"ingester", at+"refloatctl").CombinedOutput()
	if err != nil {
		return Programs{}, fmt.Errorf("build our programs: %w\n%s", err, out)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	return Programs{Evaluator: in("evaluator"), Ingester: in("ingester"), Ctl: in("refloatctl")}, nil
}

// Process is a program of ours that runs.
type Process struct {
	Name string
	Log  string        // file with the output of all its lives
	Done chan struct{} // closed when it ended

	cmd  *exec.Cmd
	from int64 // of the log, where this life begins
}

// Start starts a program. It gets no setting of ours from the environment.
func Start(name, log, program string, args ...string) (*Process, error) {
	return StartIn("", name, log, program, args...)
}

// StartIn is Start in a directory.
func StartIn(dir, name, log, program string, args ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	at, err := out.Seek(0, 2)
	if err != nil {
		return nil, err
	}
	p := &Process{Name: name, Log: log, Done: make(chan struct{}), from: at, cmd: exec.Command(program, args...)}
	p.cmd.Dir = dir
	for _, v := range p.cmd.Environ() {
		if !strings.HasPrefix(v, "REFLOAT_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = out, out, tied()
	started := make(chan error)
	go func() {
		defer close(p.Done)
		runtime.LockOSThread() // the child dies with this thread, which therefore waits for it
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // ProcessState has the outcome
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// Signal sends a signal to a program that has not ended.
func (p *Process) Signal(s syscall.Signal) error {
	select {
	case <-p.Done:
		return fmt.Errorf("%s has ended (%v):\n%s", p.Name, p.cmd.ProcessState, p.Tail())
	default:
		return p.cmd.Process.Signal(s)
	}
}

// Kill kills the program, like a crash, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.Done
}

// Ended says whether the program has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// ExitCode waits for the program's end.
func (p *Process) ExitCode(ctx context.Context) (int, error) {
	select {
	case <-p.Done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s does not end: %w\n%s", p.Name, ctx.Err(), p.Tail())
	}
}

// Term asks the program to end, and waits until it did, well.
func (p *Process) Term(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if code, err := p.ExitCode(ctx); err != nil || code != 0 {
		return errors.Join(err, fmt.Errorf("%s ended with code %d after SIGTERM:\n%s", p.Name, code, p.Tail()))
	}
	return nil
}

// Text is what the program printed in this life.
func (p *Process) Text() string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(b[min(p.from, int64(len(b))):])
}

// Tail is the end of that.
func (p *Process) Tail() string {
	const limit = 3000
	s := p.Text()
	return s[max(0, len(s)-limit):]
}

// Await waits until the program printed a text, and returns the first line with it.
func (p *Process) Await(ctx context.Context, text string) (string, error) {
	var line string
	err := Until(ctx, func() (bool, error) {
		for l := range strings.Lines(p.Text()) {
			if strings.Contains(l, text) {
				line = strings.TrimSuffix(l, "\n")
				return true, nil
			}
		}
		if p.Ended() {
			return false, fmt.Errorf("%s ended (%v)", p.Name, p.cmd.ProcessState)
		}
		return false, nil
	})
	if err != nil {
		return "", fmt.Errorf("%s does not say %q: %w\n%s", p.Name, text, err, p.Tail())
	}
	return line, nil
}

var serving = regexp.MustCompile(`msg="serving [^"]*" address=([0-9.:]+)`)

// Address is where the program serves its metrics, once it does.
func (p *Process) Address() string {
	m := serving.FindStringSubmatch(p.Text())
	if m == nil {
		return ""
	}
	return m[1]
}

// Until asks again and again until it holds, there is an error, or ctx ends.
func Until(ctx context.Context, holds func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
