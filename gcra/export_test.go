package gcra

import "time"

// SetMirrorClock puts the store's mirror on a clock of the test's.
func (r *Redis) SetMirrorClock(now func() time.Time) {
	r.once.Do(r.init)
	r.mirror.Now = now
}
