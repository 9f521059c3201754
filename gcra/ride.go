package gcra

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// ride is what travels to one server to be taken by one script, all or none:
// an admission, or on a cluster what it takes from one subject. It owns copies,
// so that its caller may leave while it is under way.
type ride struct {
	fares    []fare
	refund   bool
	deadline int64 // by the mirror's clock: it is answered by then, if only with an error

	// The answer, once done has received.
	admitted bool
	err      error
	done     chan struct{} // receives one value
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

var rides = sync.Pool{New: func() any { return &ride{done: make(chan struct{}, 1)} }}

func newRide(refund bool) *ride {
	rd := rides.Get().(*ride)
	rd.fares, rd.refund, rd.admitted, rd.err = rd.fares[:0], refund, false, nil
	return rd
}

// free gives the ride back. A ride that has boarded may be freed only by who
// has received from done: until then it belongs to its lane.
func (rd *ride) free() { rides.Put(rd) }

func (rd *ride) finish() { rd.done <- struct{}{} }

// fail answers a ride with an error.
func (rd *ride) fail(err error) {
	rd.err = &failure{err}
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

// wait returns when the ride is answered, or with an error when the caller's
// context ends first. The ride goes on and is not the caller's to free then.
func (rd *ride) wait(ctx context.Context) error {
	leave := ctx.Done()
	if leave == nil {
		<-rd.done
		return nil
	}
	select {
	case <-rd.done:
		return nil
	case <-leave:
		return fmt.Errorf("gcra: redis: %w", ctx.Err())
	}
}

// tag is the part of a key from which its server follows on a cluster: its
// subject.
func tag(key string) string { return key[:strings.IndexByte(key, '}')] }
