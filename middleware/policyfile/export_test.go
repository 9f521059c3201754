package policyfile

import "time"

// OpenRegular opens a file without the check before.
var OpenRegular = openRegular

// SetRetryDelay sets how long an error must last to be reported.
func (w *Watcher) SetRetryDelay(d time.Duration) { w.retryDelay = d }

// SetPollInterval sets how often the file is read without an event.
func (w *Watcher) SetPollInterval(d time.Duration) { w.pollInterval = d }
