package armadabox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/refloat/refloat/internal/test/e2e"
	"github.com/refloat/refloat/internal/test/pgtest"
	"github.com/refloat/refloat/internal/test/pulsartest"
	"github.com/refloat/refloat/internal/test/scenario"
)

// Options say which Armada to run.
type Options struct {
	Ours            e2e.Programs                 // built from the checkout
	Executors       map[string]scenario.Executor // by name
	ExecutorTimeout time.Duration                // how long an executor may be silent
	Partitions      int                          // of events
	Policies        string                       // directory of policy files that our API gets; what FollowArmada leaves to it
	FollowArmada    bool                         // our policies are Armada's
	OursFirst       bool                         // our ingester writes Armada's tables from the first message, not Armada's own
	Scheduler       map[string]any               // more of the scheduler's configuration
	Scheduling      map[string]any               // more of its section scheduling
	Prepare         func(*Armada) error          // runs when the server serves, before the scheduler starts
}

// Armada is a control plane that runs. Its programs go by these names: redis,
// server, scheduler, scheduleringester, eventingester, executor-NAME for each
// executor, evaluator and ingester, evaluator-NAME and ingester-NAME (more of ours); and broker and postgres, which are servers.
type Armada struct {
	Options
	Box
	Dir         string // configuration, logs, our state
	Broker      *pulsartest.Broker
	Postgres    *pgtest.Server
	Namespace   string // public/…
	SchedulerDB string // URL of the scheduler's database

	API string // address of our policy API

	lookoutDB, server, scheduler, redis string // addresses

	t       testing.TB
	mu      sync.Mutex
	running []*e2e.Process // in the order of their start
}

func pool(e scenario.Executor) string { return cmp.Or(e.Pool, "default") }

// timeout bounds the start and the end of a program on a busy machine.
const timeout = 2 * time.Minute

// Start runs an Armada until the test ends.
func Start(t testing.TB, box Box, o Options) *Armada {
	t.Helper()
	a := &Armada{Options: o, Box: box, Dir: t.TempDir(), t: t}
	a.Broker = pulsartest.Start(t, pulsartest.Options{})
	a.Postgres = pgtest.Start(t, true)
	a.SchedulerDB, a.lookoutDB = a.Postgres.Database(t), a.Postgres.Database(t)
	a.Namespace = a.Broker.Namespace(t)
	a.Broker.CreateTopic(t, a.Topic("events"), o.Partitions)
	a.Broker.CreateTopic(t, a.Topic("control-plane"), 1)
	a.configure(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	t.Cleanup(a.end)
	if err := a.begin(ctx); err != nil {
		t.Fatal(err)
	}
	return a
}

// begin starts everything in the order that works.
func (a *Armada) begin(ctx context.Context) error {
	if _, err := a.box(ctx, "lookout", "--migrateDatabase", "--config", a.config("lookout")); err != nil {
		return err
	}
	if _, err := a.box(ctx, "scheduler", "migrateDatabase", "--config", a.base("scheduler"), "--config", a.config("scheduler")); err != nil {
		return err
	}
	first := []string{"redis", "server", "scheduler", "scheduleringester", "eventingester"}
	if a.OursFirst {
		if _, err := a.Refloatctl(ctx, "topics", "create"); err != nil {
			return err
		}
		first = []string{"redis", "server", "scheduler", "evaluator", "ingester", "eventingester"}
	}
	for name := range a.Executors {
		first = append(first, "executor-"+name)
	}
	for _, name := range first {
		if err := a.Run(ctx, name); err != nil {
			return err
		}
		if name == "server" && a.Prepare != nil {
			if err := a.Prepare(a); err != nil {
				return err
			}
		}
	}
	if !a.OursFirst {
		return nil
	}
	return a.Apply(ctx)
}

// Apply gives the policies to our API, which may still have to start.
func (a *Armada) Apply(ctx context.Context) error {
	var last error
	err := e2e.Until(ctx, func() (bool, error) {
		_, last = a.Refloatctl(ctx, "apply", "-f", a.Policies, "--server", a.API, "--reason", "of the suite")
		return last == nil || a.Died() != nil, nil
	})
	return errors.Join(err, last)
}

// base is a configuration file that came with the box.
func (a *Armada) base(name string) string {
	return filepath.Join(a.Box.Dir, "overrides", name+".yaml")
}

// program is how a program is started. Where it serves an address, it has
// started when that accepts connections.
func (a *Armada) program(name string) (path string, args []string, serves string, err error) {
	config := []string{"--config", a.base(name), "--config", a.config(name)}
	if executor, ok := cutExecutor(name); ok {
		e, ok := a.Executors[executor]
		if !ok {
			return "", nil, "", fmt.Errorf("no executor is called %s", executor)
		}
		return a.Program, []string{"execsim", "-id", executor, "-nodes", strconv.Itoa(e.Nodes), "-pool", pool(e), "-url", a.scheduler}, "", nil
	}
	switch name {
	case "redis":
		_, port, err := net.SplitHostPort(a.redis)
		return a.Redis, []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", a.Dir}, a.redis, err
	case "server":
		return a.Program, append([]string{name}, config...), a.server, nil
	case "scheduler":
		return a.Program, append([]string{name, "run"}, config...), a.scheduler, nil
	case "scheduleringester", "eventingester":
		return a.Program, append([]string{name}, config...), "", nil
	case "evaluator":
		return a.Ours.Evaluator, append(a.evaluator(name, "state"), "--api", a.API, "--job-db", a.SchedulerDB), a.API, nil
	}
	if strings.HasPrefix(name, "evaluator-") {
		return a.Ours.Evaluator, a.evaluator(name, "state-"+name), "", nil
	}
	if name == "ingester" || strings.HasPrefix(name, "ingester-") {
		return a.Ours.Ingester, append(a.cluster(), "--job-db", a.SchedulerDB, "--mode", "holdback", "--listen", "127.0.0.1:0", "--instance", name), "", nil
	}
	return "", nil, "", fmt.Errorf("no program is called %s", name)
}

// evaluator has its own state; the checkpoints are shared by all evaluators.
func (a *Armada) evaluator(name, state string) []string {
	args := append(a.cluster(), "--data", filepath.Join(a.Dir, state), "--checkpoints", "file://"+filepath.Join(a.Dir, "checkpoints"),
		"--checkpoint-every", "5s", "--listen", "127.0.0.1:0", "--instance", name)
	if a.FollowArmada {
		args = append(args, "--follow-armada", a.server, "--follow-armada-every", "1s")
	}
	return args
}

func (a *Armada) cluster() []string {
	return []string{"--pulsar", a.Broker.URL, "--pulsar-admin", a.Broker.AdminURL, "--pulsar-namespace", filepath.Base(a.Namespace)}
}

// box runs a program of the box to its end.
func (a *Armada) box(ctx context.Context, args ...string) (string, error) {
	return run(ctx, a.Box.Dir, a.Program, args...)
}

// Armadactl runs the real armadactl.
func (a *Armada) Armadactl(ctx context.Context, args ...string) (string, error) {
	return a.box(ctx, append(append([]string{"armadactl"}, args...), "--config", a.config("ctl"))...)
}

// ArmadactlOnOurs runs the real armadactl against our API.
func (a *Armada) ArmadactlOnOurs(ctx context.Context, args ...string) (string, error) {
	return a.box(ctx, append(append([]string{"armadactl"}, args...), "--config", a.config("ctl"), "--context", "ours")...)
}

// Refloatctl runs our refloatctl, with the flags for the cluster unless it is for
// a data directory or for the API.
func (a *Armada) Refloatctl(ctx context.Context, args ...string) (string, error) {
	if !slices.Contains(args, "--data") && !slices.Contains(args, "--server") {
		args = slices.Concat(args, a.cluster())
	}
	return run(ctx, a.Dir, a.Ours.Ctl, args...)
}

func run(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %q: %w\n%s", filepath.Base(program), args, err, out)
	}
	return string(out), nil
}

// Run starts a program, with more arguments than usual if any are given, and waits until
// it serves.
func (a *Armada) Run(ctx context.Context, name string, more ...string) error {
	if a.Process(name) != nil {
		return fmt.Errorf("%s runs already", name)
	}
	path, args, serves, err := a.program(name)
	if err != nil {
		return err
	}
	p, err := e2e.StartIn(a.Box.Dir, name, filepath.Join(a.Dir, name+".log"), path, slices.Concat(args, more)...)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.running = append(a.running, p)
	a.mu.Unlock()
	if serves == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = e2e.Until(ctx, func() (bool, error) {
		if p.Ended() {
			return false, errors.New("it ended")
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", serves)
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
	if err != nil {
		return fmt.Errorf("%s does not serve %s: %w\n%s", name, serves, err, p.Tail())
	}
	return nil
}

// Process is a program that was started and not ended by us; nil where there is none.
func (a *Armada) Process(name string) *e2e.Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := a.index(name); i >= 0 {
		return a.running[i]
	}
	return nil
}

func (a *Armada) index(name string) int {
	return slices.IndexFunc(a.running, func(p *e2e.Process) bool { return p.Name == name })
}

// Signal sends a signal to a program.
func (a *Armada) Signal(name string, s syscall.Signal) error {
	p := a.Process(name)
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	return p.Signal(s)
}

// Kill ends a program as a crash does.
func (a *Armada) Kill(name string) error {
	p := a.forget(name)
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	p.Kill()
	return nil
}

// Stop asks a program to end, and waits until it did.
func (a *Armada) Stop(ctx context.Context, name string) error {
	p := a.forget(name)
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := p.Signal(syscall.SIGTERM)
	if err == nil {
		_, err = p.ExitCode(ctx)
	}
	if err != nil {
		p.Kill()
	}
	return err
}

// forget takes a program that is to end from those that run.
func (a *Armada) forget(name string) *e2e.Process {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.index(name)
	if i < 0 {
		return nil
	}
	p := a.running[i]
	a.running = slices.Delete(a.running, i, i+1)
	return p
}

// Died names the programs that ended without being asked to.
func (a *Armada) Died() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.running {
		if p.Ended() {
			names = append(names, p.Name)
		}
	}
	return names
}

// end kills the running processes in reverse order, and prints their output if the test failed.
func (a *Armada) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range slices.Backward(a.running) {
		_ = p.Signal(syscall.SIGCONT) // a paused one; one that has ended is gone
		p.Kill()
		if a.t.Failed() {
			a.t.Logf("%s printed last:\n%s", p.Name, p.Tail())
		}
	}
	if dir := os.Getenv("ARMADA_LOGS"); dir != "" {
		a.keep(dir)
	}
}

// keep copies the logs to a directory.
func (a *Armada) keep(dir string) {
	logs, err := filepath.Glob(filepath.Join(a.Dir, "*.log"))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	for _, log := range logs {
		text, failed := os.ReadFile(log)
		err = errors.Join(err, failed, os.WriteFile(filepath.Join(dir, filepath.Base(log)), text, 0o600))
	}
	if err != nil {
		a.t.Logf("keep the logs in %s: %v", dir, err)
	}
}
