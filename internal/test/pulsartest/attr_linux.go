package pulsartest

import "syscall"

// ownGroup keeps a signal to our group, such as Ctrl-C, from a child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// tied is ownGroup for a child that dies with the thread that started it.
func tied() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
