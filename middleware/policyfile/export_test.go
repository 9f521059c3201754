package policyfile

import "time"

// Open opens a file without a look at what it is before.
var Open = open

// SetDoubt sets how long a mistake must last to be told.
func (w *Watcher) SetDoubt(d time.Duration) { w.doubt = d }

// SetPoll sets how often the file is read unasked.
func (w *Watcher) SetPoll(d time.Duration) { w.pollEvery = d }
