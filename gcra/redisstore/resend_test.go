package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// An answerHook is called with the keys of each command that has been answered without an error. Its error becomes the command's.
type answerHook func(keys string) error

func (answerHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h answerHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		return cmp.Or(h.answer(cmd), err)
	}
}

func (h answerHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		err = next(ctx, cmds)
		for _, cmd := range cmds {
			err = cmp.Or(err, h.answer(cmd))
		}
		return err
	}
}

func (h answerHook) answer(cmd redis.Cmder) error {
	if cmd.Err() != nil {
		return nil
	}
	err := h(keysOf(cmd))
	if err != nil {
		cmd.SetErr(err)
	}
	return err
}

// keysOf is the keys of a script, with a space after each.
func keysOf(cmd redis.Cmder) (keys string) {
	for _, arg := range cmd.Args() {
		if key, ok := arg.(*string); ok {
			keys += *key + " "
		}
	}
	return keys
}

// An errorReply is an error that a server answers.
type errorReply string

func (e errorReply) Error() string { return string(e) }
func (errorReply) RedisError()     {}

const errTryAgain = errorReply("TRYAGAIN Multiple keys request during rehashing of slot")

// bySubjectWith returns a store on a server of kind BySubject, with the hook.
func bySubjectWith(t *testing.T, hook answerHook) *redisstore.Store {
	t.Helper()
	client := patientClient(t, redistest.NewFirstKeyProxy(t).Addr)
	client.AddHook(hook)
	r := settled(t, newStore(t, client, config{Logger: quiet}))
	return r
}

// A request that is sent again, as its slot moves, waits for no batch in flight: these may have more time than is left
// to the request.
func TestRequestSentAgainIsNotLate(t *testing.T) {
	var held, tries atomic.Int64
	release := make(chan struct{})
	r := bySubjectWith(t, func(keys string) error {
		switch {
		case strings.Contains(keys, "{fresh"):
			held.Add(1)
			<-release
		case strings.Contains(keys, "{moving}"):
			if tries.Add(1); held.Load() < 2 {
				return errTryAgain
			}
		}

		return nil
	})

	moving := make(chan error)
	go func() {
		_, err := gcra.Take(context.Background(), r, hourly("moving", 10))
		moving <- err
	}()

	redistest.Eventually(t, patience, "the first try", func() bool { return tries.Load() > 0 })
	var fresh sync.WaitGroup
	for i := range 2 {
		fresh.Go(func() {
			if _, err := gcra.Take(context.Background(), r, hourly(fmt.Sprint("fresh", i), 10)); err != nil {
				t.Errorf("fresh: %v", err)
			}
		})
		redistest.Eventually(t, patience, "the batch of a fresh request", func() bool { return held.Load() == int64(i+1) })
	}

	// Both batches that may be in flight have as much time as a call.
	select {
	case err := <-moving:
		if err != nil {
			t.Errorf("sent again: %v; want an answer", err)
		}
	case <-time.After(patience / 2):
		t.Error("the request that is sent again waits for other batches")
	}

	close(release)
	fresh.Wait()
}

// A request that is sent again, when little of its time is left, takes none from those that have not been sent before.
func TestRequestSentAgainLeavesOthersTheirTime(t *testing.T) {
	t.Parallel()
	const left = 2 * time.Second // of the Timeout, when the request comes back

	var later, tries atomic.Int64
	release := make(chan struct{})
	r := bySubjectWith(t, func(keys string) error {
		if !strings.Contains(keys, "{moving}") {
			return nil
		}
		if tries.Add(1) == 1 {
			later.Store(int64(patience - left))
			return errTryAgain
		}

		<-release // the batch is not answered in time
		return nil
	})

	r.SetClock(func() time.Time { return time.Now().Add(time.Duration(later.Load())) })

	ctx, stop := context.WithCancel(t.Context())
	var fresh sync.WaitGroup
	for i := range 32 {
		fresh.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if _, err := gcra.Take(context.Background(), r, hourly(fmt.Sprint("fresh ", i, " ", n), 10)); err != nil {
					t.Errorf("fresh: %v; want an answer", err)
					return
				}
			}
		})
	}

	if _, err := gcra.Take(context.Background(), r, hourly("moving", 10)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("sent again: %v; want that no answer came in time", err)
	}
	stop()
	close(release)
	fresh.Wait()
}
