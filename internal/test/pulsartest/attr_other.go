//go:build unix && !linux

package pulsartest

import "syscall"

// ownGroup keeps a signal to our group, such as Ctrl-C, from a child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// tied is ownGroup: here only the guard ends a child that we leave behind.
func tied() *syscall.SysProcAttr { return ownGroup() }
