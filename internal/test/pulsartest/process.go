package pulsartest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a broker as a child process, in a directory of its own:
//
//	standalone.conf      the shipped configuration with our settings
//	broker.log           what every run printed
//	metadata, bookkeeper its data
//	log                  other logs
type process struct {
	home   string
	dir    string
	memory string
	jvm    string
	ports  ports
	guard  *guard

	group int           // process group, 0 when none runs
	ended chan struct{} // closed when it has ended
}

func newProcess(o Options, p ports, settings map[string]string) (*process, error) {
	dir, err := os.MkdirTemp("", "pulsartest-")
	if err != nil {
		return nil, err
	}
	c := &process{home: o.Home, dir: dir, memory: o.Memory, jvm: o.JVM, ports: p}
	settings = with(settings, map[string]string{
		"bindAddress":         loopback,
		"allowEphemeralPorts": "true", // else the bookie does not take the port it is given, but one that a client may take
	})
	if err := writeConfig(c.conf(), filepath.Join(o.Home, "conf", "standalone.conf"), settings); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	const clean = `[ -z "$last" ] || kill -s KILL -- "-$last"; for i in 1 2 3 4 5; do rm -rf -- "$1" && exit 0; sleep 1; done`
	if c.guard, err = newGuard(clean, nil, dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

func (c *process) conf() string { return filepath.Join(c.dir, "standalone.conf") }
func (c *process) log() string  { return filepath.Join(c.dir, "broker.log") }

func (c *process) start(context.Context) error {
	out, err := os.OpenFile(c.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(c.home, "bin", "pulsar"), "standalone", "--no-functions-worker", "--no-stream-storage",
		"--advertised-address", loopback,
		"--metadata-dir", filepath.Join(c.dir, "metadata"),
		"--bookkeeper-dir", filepath.Join(c.dir, "bookkeeper"),
		"--bookkeeper-port", strconv.Itoa(c.ports.bookie))
	cmd.Dir = c.dir
	cmd.Env = append(cmd.Environ(),
		"PULSAR_STANDALONE_CONF="+c.conf(),
		"PULSAR_MEM="+c.memory,
		"PULSAR_GC="+c.jvm,
		"PULSAR_GC_LOG= ",
		"PULSAR_LOG_DIR="+filepath.Join(c.dir, "log"))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = tied()

	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the child dies with this thread, which therefore waits for it
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	c.group, c.ended = cmd.Process.Pid, ended
	return c.guard.send(strconv.Itoa(c.group))
}

func (c *process) kill(ctx context.Context) error {
	if c.group == 0 {
		return nil
	}
	if err := c.send(syscall.SIGKILL); err != nil {
		return err
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		return fmt.Errorf("process %d does not end: %w", c.group, ctx.Err())
	}
	c.group = 0
	return c.guard.send("")
}

// pause returns when the process has stopped: the signal only asks for it, and until then the broker answers.
func (c *process) pause(ctx context.Context) error {
	if err := c.send(syscall.SIGSTOP); err != nil {
		return err
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.group))
		if err != nil {
			return nil //nolint:nilerr // no such file system, or no such process
		}
		if at := bytes.LastIndexByte(stat, ')'); at >= 0 && bytes.HasPrefix(stat[at:], []byte(") T")) {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("process %d does not stop: %w", c.group, ctx.Err())
		}
	}
}

func (c *process) resume(context.Context) error { return c.send(syscall.SIGCONT) }
func (c *process) gone() <-chan struct{}        { return c.ended }

// send signals the process group. Until we have waited for its end, no other process can reuse its id.
func (c *process) send(s syscall.Signal) error {
	if c.group == 0 {
		return errors.New("it does not run")
	}
	if err := syscall.Kill(-c.group, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func (c *process) tail() string {
	text, err := os.ReadFile(c.log())
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text))
}

// lastLines is the end of a log as it fits into an error; the broker prints its
// whole configuration on one line.
func lastLines(text string) string {
	const lines, width = 40, 300
	all := strings.Split(strings.TrimSpace(text), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		all[i] = line[:min(width, len(line))]
	}
	return strings.Join(all, "\n")
}

func (c *process) remove(ctx context.Context) error {
	if err := c.kill(ctx); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(c.dir), c.guard.release())
}
