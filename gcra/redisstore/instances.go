package redisstore

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/send"
	"github.com/seed-e377111c/ratelimit/internal/diag"
)

//go:embed instances.lua
var instancesLua string

var instancesScript = send.NewScript(instancesLua)

// instances counts the stores that share the limits with this one, on the same Redis
// with the same Prefix. A store that a limiter uses marks itself after an admission, in the
// background, and learns how many others have done so. While Redis is away, the last count
// serves.
//
// The first marksLost counts after the store's own mark has been lost do not replace a higher
// one, as other marks may be gone too: too high a count costs requests in an outage, too low
// a count breaks the bound.
type instances struct {
	id    string
	due   atomic.Int64 // when to mark, by the store's clock; 0, that is never, before Local is called
	count atomic.Int64 // 0 before the first answer

	mu         sync.Mutex
	kept       int   // how many of the next counts do not replace a higher one
	configured int   // the least Instances of the limiters; 0 if none has a number
	exceeded   int64 // when the count has become larger than that; 0 if it is not
}

const (
	// markEvery is the time between two marks of a store. Many stores, up to maxInstances, mark
	// more seldom, on average every marksApart all together: a mark costs Redis about 10 us,
	// and 1 us for each that is there.
	markEvery  = 2 * time.Second
	marksApart = 20 * time.Millisecond

	// A mark lasts marksLost times as long as the last two were apart, so that stores
	// with few requests are counted too. Under traffic this is 6 s, and a store that
	// has stopped is no longer counted 8 s later. The first one lasts longer if Local was
	// called long before.
	marksLost   = 3
	longestMark = time.Minute

	// maxInstances bounds the value in Redis, at 25 bytes for a mark.
	maxInstances = 1000

	// tooLowFor is how long more stores than configured are no problem: a deployment
	// runs the old ones beside the new.
	tooLowFor = 5 * time.Minute
)

// use notes that a limiter with this Config.Instances uses the store, from now on.
func (c *instances) use(configured int, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if configured > 0 && (c.configured == 0 || configured < c.configured) {
		c.configured = configured
	}
	// The next admission marks, unless a limiter of this store has begun before.
	c.due.CompareAndSwap(0, max(now, 1))
}

// markAfter marks the store, if that is due, after an admission that was answered. A store that takes nothing grants nothing, so
// it does not count.
func (s *Store) markAfter(charges []buckets.Charge, now int64) {
	c := &s.counted
	due := c.due.Load()
	if due == 0 || now < due || !slices.ContainsFunc(charges, func(b buckets.Charge) bool { return b.Takes() }) {
		return
	}
	every := max(tat.Ticks(markEvery), c.count.Load()*tat.Ticks(marksApart))
	// One of the admissions that end at once marks.
	if !c.due.CompareAndSwap(due, now+every) {
		return
	}

	apart := every + now - due // from the last mark, or a little more
	go s.mark(min(marksLost*tat.Duration(apart), longestMark))
}

// mark marks the store for a time, and counts the marks.
func (s *Store) mark(lasts time.Duration) {
	key := s.prefix + "{instances}"
	t := s.sender.Target(key)
	err := t.Run(instancesScript, []send.Call{{
		Args:    []any{1, key, s.counted.id, lasts.Milliseconds(), longestMark.Milliseconds(), maxInstances},
		Replies: 1,
		Learn:   func(reply []int64) { s.noteInstances(reply[0]) },
	}})
	// Only a failure: that the server answers, the batch before has shown.
	if err != nil {
		s.health(t.Server).note(err, false)
	}
	s.publish()
}

// noteInstances learns a count; a negative one is the least that it may be. It logs
// when there are more stores than a limiter's Instances for a while.
func (s *Store) noteInstances(n int64) {
	c := &s.counted
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 {
		n, c.kept = -n, marksLost
	}
	if c.kept > 0 {
		c.kept--
		n = max(n, c.count.Load())
	}
	c.count.Store(n)

	// More than configured is a problem if it lasts.
	now := s.clock.Now()
	if c.configured == 0 || n <= int64(c.configured) {
		c.exceeded = 0
		return
	}
	if c.exceeded = cmp.Or(c.exceeded, now); now-c.exceeded < tat.Ticks(tooLowFor) {
		return
	}

	// A slow log does not hold up the next count.
	go s.log.Report(diag.InstancesTooLow, "", fmt.Sprintf("Instances is %d, but %d servers use this Redis", c.configured, n),
		"prefix", s.prefix, "hint", "leave Instances out, and the store counts them")
}
