//go:build unix && !linux

package e2e

import "syscall"

// tied is for a child that gets no signal of our terminal. Here nothing ends it
// when we are killed.
func tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
