//go:build unix

package policyfile

import "syscall"

// nonBlocking has a named pipe opened although nobody writes to it.
const nonBlocking = syscall.O_NONBLOCK
