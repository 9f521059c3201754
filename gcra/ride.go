package gcra

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// ride is what travels to one server to be taken by one script, all or none:
// an admission, or on a cluster what it takes from one subject. It owns copies,
// so that its caller may leave while it is under way.
type ride struct {
	fares    []fare
	refund   bool
	deadline time.Time // when its caller gives up; it does not depart after that

	// The answer, once done has received.
	admitted bool
	err      error
	done     chan struct{} // receives one value
	timer    *time.Timer   // for the caller to wait with
}

// fare is one charge of a ride.
type fare struct {
	demand
	key    string
	hash   uint64 // in the mirror
	shadow bool
	ahead  int64 // the answer: how far ahead of now the TAT stood when its turn came
	trip   int64 // the mirror's answer may fall short by this much
}

var rides = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &ride{done: make(chan struct{}, 1), timer: t}
}}

func newRide(refund bool) *ride {
	rd := rides.Get().(*ride)
	rd.fares, rd.refund, rd.admitted, rd.err = rd.fares[:0], refund, false, nil
	return rd
}

// free gives the ride back. A ride that has boarded may be freed only by who
// has received from done: until then it belongs to its lane.
func (rd *ride) free() { rides.Put(rd) }

func (rd *ride) finish() { rd.done <- struct{}{} }

// fail answers a ride that does not depart.
func (rd *ride) fail(err error) {
	rd.err = fmt.Errorf("gcra: redis: %w", err)
	rd.finish()
}

// settle takes the script's reply over.
func (rd *ride) settle(reply []int64) {
	rd.admitted = reply[0] >= 0
	for i := range rd.fares {
		rd.fares[i].ahead = reply[i]
		if !rd.admitted {
			rd.fares[i].ahead = -reply[i] - 1
		}
	}
}

// taken reports whether fare f, which rides along, was taken.
func (rd *ride) taken(f *fare) bool { return rd.admitted && f.admits(f.ahead) }

// wait returns when the ride is back, or with an error when the caller's time
// is up first. The ride goes on and is not the caller's to free then.
func (rd *ride) wait(ctx context.Context, timeout time.Duration) error {
	rd.timer.Reset(timeout)
	defer rd.timer.Stop()
	select {
	case <-rd.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gcra: redis: %w", ctx.Err())
	case <-rd.timer.C:
		return fmt.Errorf("gcra: redis: no answer within %v: %w", timeout, context.DeadlineExceeded)
	}
}

// tag is the part of a key from which its server follows on a cluster: its
// subject.
func tag(key string) string { return key[:strings.IndexByte(key, '}')] }
