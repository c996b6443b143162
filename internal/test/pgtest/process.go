package pgtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// process is one server and its directory: data, the socket, the log.
type process struct {
	dir, bin string
	fsync    bool
	port     int                 // of 127.0.0.1; 0: only the socket
	as       *syscall.Credential // nil: as we are

	server   *osexec.Cmd // nil: not running
	ended    chan struct{}
	watchdog *osexec.Cmd
	leash    io.Closer // closed, or we are gone: the watchdog acts
}

// watch waits for the end of its input, which is the end of the process that started it, then kills the server,
// whose child processes then exit, and removes its directory. A child may still write, hence the retries.
const watch = `cat >/dev/null
p=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -s KILL "$p" 2>/dev/null
for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$1" 2>/dev/null && exit 0; sleep 0.1; done`

// launch starts a server on fresh data.
func launch(fsync bool, port int) (*process, error) {
	return launchOn(&process{fsync: fsync, port: port}, func(p *process) *osexec.Cmd {
		return p.command("initdb", "-D", p.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	})
}

// launchStandby starts a server that streams from another one.
func launchStandby(of *process, port int) (*process, error) {
	return launchOn(&process{fsync: of.fsync, port: port}, func(p *process) *osexec.Cmd {
		return p.command("pg_basebackup", "-h", of.dir, "-p", strconv.Itoa(of.socketPort()), "-U", "postgres", "-D", p.data(), "-R", "-X", "stream", "-c", "fast", "-N")
	})
}

// launchOn starts a server on the data that a command makes.
func launchOn(p *process, makes func(*process) *osexec.Cmd) (_ *process, err error) {
	if p.bin, err = find(); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		if p.as, err = unprivileged(); err != nil {
			return nil, err
		}
	}
	if p.dir, err = os.MkdirTemp("", "refloat-pg-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.remove())
		}
	}()
	if p.as != nil {
		if err := os.Chown(p.dir, int(p.as.Uid), int(p.as.Gid)); err != nil {
			return nil, err
		}
	}
	if err := p.guard(); err != nil {
		return nil, err
	}
	cmd := makes(p)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, out)
	}
	return p, p.run()
}

// find returns the directory of the newest programs.
func find() (string, error) {
	if initdb, err := osexec.LookPath("initdb"); err == nil {
		if bin, err := filepath.EvalSymlinks(initdb); err == nil && runnable(filepath.Dir(bin)) {
			return filepath.Dir(bin), nil
		}
	}
	bins, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	slices.SortFunc(bins, func(a, b string) int { return version(b) - version(a) })
	for _, bin := range bins {
		if runnable(bin) {
			return bin, nil
		}
	}
	return "", errNone
}

func runnable(bin string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := osexec.LookPath(filepath.Join(bin, name)); err != nil {
			return false
		}
	}
	return true
}

func version(bin string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	if err != nil {
		return 0
	}
	return n
}

func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

// socketPort is the number in the name of the socket.
func (p *process) socketPort() int { return cmp.Or(p.port, 5432) }

func (p *process) data() string { return filepath.Join(p.dir, "data") }

func (p *process) url(database string) string {
	q := url.Values{"host": {p.dir}, "user": {"postgres"}}
	if p.port != 0 {
		q.Set("port", strconv.Itoa(p.port))
	}
	return (&url.URL{Scheme: "postgres", Path: "/" + database, RawQuery: q.Encode()}).String()
}

// command runs in a process group of its own, so that an interrupt at the
// terminal reaches the tests only.
func (p *process) command(name string, args ...string) *osexec.Cmd {
	cmd := osexec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: p.as}
	return cmd
}

func (p *process) guard() error {
	cmd := osexec.Command("/bin/sh", "-c", watch, "watchdog", p.dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	leash, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the watchdog: %w", err)
	}
	p.watchdog, p.leash = cmd, leash
	return nil
}

// run starts the server and waits until it answers. A killed predecessor may still hold its shared memory for a
// moment: then the new one exits at once, and is started again.
func (p *process) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := p.start(ctx)
		if err == nil || ctx.Err() != nil || !errors.Is(err, errEnded) {
			return err
		}
		<-again.C
	}
}

var errEnded = errors.New("it ended")

func (p *process) start(ctx context.Context) error {
	onOff := "off"
	if p.fsync {
		onOff = "on"
	}
	listen := ""
	if p.port != 0 {
		listen = "127.0.0.1"
	}
	cmd := p.command("postgres", "-D", p.data(), "-k", p.dir,
		"-c", "listen_addresses="+listen, "-c", "port="+strconv.Itoa(p.socketPort()), "-c", "fsync="+onOff, "-c", "synchronous_commit="+onOff, "-c", "full_page_writes="+onOff,
		"-c", "max_connections=60", "-c", "shared_buffers=64MB", "-c", "max_wal_size=1GB")
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	p.server, p.ended = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // "signal: killed"
		close(p.ended)
	}()
	if err := p.await(ctx); err != nil {
		text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
		return errors.Join(fmt.Errorf("postgres does not answer: %w\n%s", err, text), p.kill())
	}
	return nil
}

func (p *process) await(ctx context.Context) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		conn, err := pgx.Connect(ctx, p.url("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return err
		case <-p.ended:
			return errEnded
		case <-again.C:
		}
	}
}

// stop asks the server for a fast shutdown, and kills it when it takes too long.
func (p *process) stop() error {
	if p.server == nil {
		return nil
	}
	if err := p.server.Process.Signal(os.Interrupt); err != nil {
		return errors.Join(err, p.kill())
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	select {
	case <-p.ended:
		p.server = nil
		return nil
	case <-limit.C:
		return errors.Join(errors.New("it does not end"), p.kill())
	}
}

// kill kills the server and its child processes at once: a surviving one would finish its work and commit.
func (p *process) kill() error {
	if p.server == nil {
		return nil
	}
	pid := p.server.Process.Pid
	err := syscall.Kill(pid, syscall.SIGSTOP) // so that it starts no others
	for _, child := range children(pid) {
		_ = syscall.Kill(child, syscall.SIGKILL) // it may just have ended
	}
	err = errors.Join(err, p.server.Process.Kill())
	<-p.ended
	p.server = nil
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// children lists the children of a process if there is a /proc. Elsewhere they exit by themselves when they notice
// that their parent is gone.
func children(parent int) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// "pid (name) state ppid …", and a name may hold anything
		_, rest, _ := strings.Cut(string(text[max(bytes.LastIndexByte(text, ')'), 0):]), " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// remove kills the server and has the watchdog remove its directory.
func (p *process) remove() error {
	if p.watchdog == nil {
		return os.RemoveAll(p.dir)
	}
	err := errors.Join(p.kill(), p.leash.Close(), p.watchdog.Wait())
	p.watchdog = nil
	if _, gone := os.Stat(p.dir); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("%s is still there", p.dir))
	}
	return err
}
