package policyfile

import "time"

// ReadRegular reads a file without the check before.
var ReadRegular = readRegular

// SetRetryDelay sets how long an error must last to be reported.
func (w *Watcher) SetRetryDelay(d time.Duration) { w.retryDelay = d }

// SetPollInterval sets how often the file is read without an event.
func (w *Watcher) SetPollInterval(d time.Duration) { w.pollInterval = d }
