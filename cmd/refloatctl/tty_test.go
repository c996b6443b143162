//go:build linux

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// TestTerminal: on a terminal headings are bold and long work shows progress;
// NO_COLOR takes the former away.
func TestTerminal(t *testing.T) {
	t.Parallel()
	data := drainedData(t)
	explain := []string{"explain", firstJob(t, data), "--data", data}
	if out := onTerminal(t, nil, explain...); !strings.Contains(out, "\x1b[1mDecision\x1b[0m") {
		t.Errorf("headings are not bold: %q", out)
	}
	if out := onTerminal(t, []string{"NO_COLOR=1"}, explain...); strings.Contains(out, "\x1b") || !strings.Contains(out, "Decision") {
		t.Errorf("with NO_COLOR: %q", out)
	}
	out := onTerminal(t, []string{"NO_COLOR=1"}, "import", recordingFile("plain"), "--log", filepath.Join(t.TempDir(), "log"))
	if !strings.Contains(out, "\rimporting ") || strings.Contains(out, "\x1b") {
		t.Errorf("no progress: %q", out)
	}
	if last := out[strings.LastIndex(out, "\r")+1:]; strings.Contains(last, "importing") {
		t.Errorf("the progress stays: %q", out)
	}
}

// onTerminal runs refloatctl with a terminal as stdout and stderr.
func onTerminal(t *testing.T, env []string, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	defer master.Close()
	var unlock, number int32
	for request, arg := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlock, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
			t.Fatal(errno)
		}
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binaryPath(t), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environ(append(env, "TERM=xterm")...), slave, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	var out bytes.Buffer
	// At the end of its last writer a terminal gives EIO.
	if _, err := io.Copy(&out, master); err != nil && !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", strings.Join(args, " "), err)
	}
	return strings.ReplaceAll(out.String(), "\r\n", "\n")
}
