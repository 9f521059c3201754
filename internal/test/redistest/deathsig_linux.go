package redistest

import "syscall"

// procAttr has the kernel kill the process when the thread that started it is
// gone, and so when the test binary is, however it ended. See [Server.spawn]
// for how that thread is kept.
func procAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
