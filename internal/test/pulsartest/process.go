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

// process is a part of the distribution as a child process, in a directory of its own:
//
//	conf       the shipped configuration with our settings
//	broker.log what every run printed
//	data       its data
//	log        other logs
type process struct {
	home   string
	dir    string
	memory string
	jvm    string
	part   part
	guard  *guard

	group int           // process group, 0 when none runs
	ended chan struct{} // closed when it has ended
}

// part is a part of the distribution. The arguments and settings that name its data are to begin with dataOf.
type part struct {
	args     []string // of bin/pulsar
	conf     string   // name of the shipped configuration
	env      string   // names the configuration to the part
	settings map[string]string
}

// dataOf stands for the directory of the data of a part.
const dataOf = "{data}"

func standalone(p ports, settings map[string]string) part {
	return part{
		[]string{
			"standalone", "--no-functions-worker", "--no-stream-storage", "--advertised-address", loopback,
			"--metadata-dir", dataOf + "/metadata", "--bookkeeper-dir", dataOf + "/bookkeeper", "--bookkeeper-port", strconv.Itoa(p.bookie),
		},
		"standalone.conf", "PULSAR_STANDALONE_CONF",
		with(settings, map[string]string{
			"bindAddress":         loopback,
			"allowEphemeralPorts": "true", // else the bookie does not take the port it is given, but one that a client may take
		}),
	}
}

func newProcess(o Options, of part) (*process, error) {
	dir, err := os.MkdirTemp("", "pulsartest-")
	if err != nil {
		return nil, err
	}
	c := &process{home: o.Home, dir: dir, memory: o.Memory, jvm: o.JVM, part: of}
	settings := map[string]string{}
	for name, value := range of.settings {
		settings[name] = c.named(value)
	}
	if err := writeConfig(c.conf(), filepath.Join(o.Home, "conf", of.conf), settings); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	const clean = `[ -z "$last" ] || kill -s KILL -- "-$last"; for i in 1 2 3 4 5; do rm -rf -- "$1" && exit 0; sleep 1; done`
	if c.guard, err = newGuard(clean, nil, dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

func (c *process) conf() string { return filepath.Join(c.dir, "conf") }
func (c *process) data() string { return filepath.Join(c.dir, "data") }
func (c *process) log() string  { return filepath.Join(c.dir, "broker.log") }

func (c *process) start(context.Context) error {
	out, err := os.OpenFile(c.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := c.command(c.part.args...)
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

// named puts the directory of the data into a setting or an argument.
func (c *process) named(text string) string { return strings.ReplaceAll(text, dataOf, c.data()) }

// command is one of bin/pulsar.
func (c *process) command(args ...string) *exec.Cmd {
	for i, arg := range args {
		args[i] = c.named(arg)
	}
	cmd := exec.Command(filepath.Join(c.home, "bin", "pulsar"), args...)
	cmd.Dir = c.dir
	cmd.Env = append(cmd.Environ(),
		c.part.env+"="+c.conf(),
		"PULSAR_MEM="+c.memory,
		"PULSAR_GC="+c.jvm,
		"PULSAR_GC_LOG= ",
		"PULSAR_LOG_DIR="+filepath.Join(c.dir, "log"))
	return cmd
}

// stop asks the process to end, and waits until it has.
func (c *process) stop(ctx context.Context) error {
	if c.group == 0 {
		return nil
	}
	if err := c.send(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		return fmt.Errorf("%s does not end: %w", c.part.args[0], ctx.Err())
	}
	return c.kill(ctx)
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
