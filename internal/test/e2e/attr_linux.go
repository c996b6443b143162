package e2e

import "syscall"

// tied is for a child that gets no signal of our terminal and dies with the
// thread that started it.
func tied() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
