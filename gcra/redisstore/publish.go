package redisstore

import (
	_ "embed"
	"slices"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/send"
	"github.com/seed-e377111c/ratelimit/internal/published"
)

//go:embed publish.lua
var publishLua string

var publishScript = send.NewScript(publishLua)

// renewEvery is the time between two publications of the same policies. It is well below
// published.Live, or running servers would not count.
const renewEvery = 15 * time.Second

// publication is what the limiters of a store have told of their policies.
type publication struct {
	mu       sync.Mutex            // also while it is sent, so that an older text never replaces a newer one
	limiters map[any]func() string // what the policies are now; "" once the limiter is gone
	sent     []string              // the last texts that Redis has got
	at       time.Time             // when
}

// Publish keeps a text about a limiter's policies in Redis, for the command ratelimit: now, when it is
// called again for the limiter, and under traffic. It does not wait for Redis. A text of "" means that
// the limiter is gone.
func (s *Store) Publish(limiter any, text func() string) {
	go func() {
		s.published.mu.Lock()
		s.published.limiters[limiter] = text
		s.published.mu.Unlock()
		s.publish()
	}()
}

// publish publishes the policies if that is due, or if they have changed. An error has no consequence: the
// next mark comes with another try, and what is wrong with Redis the requests find out.
func (s *Store) publish() {
	p := &s.published
	p.mu.Lock()
	defer p.mu.Unlock()
	var texts []string
	for limiter, text := range p.limiters {
		if now := text(); now != "" {
			texts = append(texts, now)
		} else {
			delete(p.limiters, limiter)
		}
	}

	// What Redis has already is sent again only when it is due to end.
	slices.Sort(texts)
	if slices.Equal(texts, p.sent) && (texts == nil || time.Since(p.at) < renewEvery) {
		return
	}

	key := s.prefix + published.Suffix
	args := []any{1, key, s.counted.id, int64(published.Lasts / time.Second), published.MostBytes}
	for _, text := range texts {
		args = append(args, text)
	}
	call := send.Call{Args: args, Replies: 1, Learn: func([]int64) {}}
	if s.sender.Target(key).Run(publishScript, []send.Call{call}) == nil {
		p.sent, p.at = texts, time.Now()
	}
}
