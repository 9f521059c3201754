package policyfile

import "time"

// Open opens a file without a look at what it is before.
var OpenRegular = openRegular

// SetDoubt sets how long a mistake must last to be told.
func (w *Watcher) SetRetryDelay(d time.Duration) { w.retryDelay = d }

// SetPoll sets how often the file is read unasked.
func (w *Watcher) SetPollInterval(d time.Duration) { w.pollInterval = d }
