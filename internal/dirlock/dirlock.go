// Package dirlock locks directories against a second writer.
//
// The lock is on the directory itself, so it holds although files in it are deleted.
// File systems that cannot lock directories are left to the lock files of their users.
package dirlock

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrHeld reports that somebody else has the lock.
var ErrHeld = errors.New("locked")

// describe names a process by its id, its program and its subcommand; arguments may
// hold secrets.
func describe(pid int) string {
	text := "process " + strconv.Itoa(pid)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(line) == 0 {
		return text
	}
	args := strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")
	command := filepath.Base(args[0])
	if len(args) > 1 && !strings.HasPrefix(args[1], "-") {
		command += " " + args[1]
	}
	return fmt.Sprintf("%s (%.60q)", text, command)
}
