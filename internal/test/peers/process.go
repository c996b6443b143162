package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a child that dies with us.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func startProgram(b broker, dir string) (*process, error) {
	path, args := b.program()
	return start(filepath.Join(dir, "log"), path, args...)
}

func start(logFile, path string, args ...string) (*process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		defer close(p.ended)
		runtime.LockOSThread() // the child dies with this thread, which therefore waits for it
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
	}()
	return p, <-started
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// cpu is the time of the processor so far.
func (p *process) cpu() time.Duration {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ticks := 0
	for _, t := range f[11:13] {
		n, _ := strconv.Atoi(t)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// peak is the largest resident size so far, in MB.
func (p *process) peak() float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kb, _ := strconv.ParseFloat(strings.Fields(after)[0], 64)
	return kb / 1000
}

// allocated is how much disk a directory takes, in MB.
func allocated(dir string) float64 {
	var blocks int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // files come and go
		}
		if info, err := d.Info(); err == nil {
			blocks += info.Sys().(*syscall.Stat_t).Blocks
		}
		return nil
	})
	return float64(blocks) * 512 / 1e6
}
