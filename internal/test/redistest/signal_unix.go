//go:build unix

package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// stop suspends a process and returns when it no longer runs.
func stop(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	stat := fmt.Sprintf("/proc/%d/stat", p.Pid)
	return poll(patience, func() error {
		b, err := os.ReadFile(stat)
		if err != nil {
			return nil // no procfs: only that the signal was sent is known
		}
		// "pid (name) state ...", proc_pid_stat(5); T is stopped.
		if i := bytes.LastIndexByte(b, ')'); i >= 0 && bytes.HasPrefix(b[i:], []byte(") T")) {
			return nil
		}
		return fmt.Errorf("process %d still runs after SIGSTOP", p.Pid)
	})
}

// cont resumes a process that stop has suspended.
func cont(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
