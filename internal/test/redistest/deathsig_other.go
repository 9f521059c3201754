//go:build !linux

package redistest

import "syscall"

// procAttr asks for nothing: only Linux can tie a process to its parent's life.
func procAttr() *syscall.SysProcAttr { return nil }
