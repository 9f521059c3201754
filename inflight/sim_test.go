package inflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// simRedis runs write.lua itself in a Redis of maps, whose clock is the bubble's and an offset.
type simRedis struct {
	t      testing.TB
	mu     sync.Mutex
	state  *lua.LState
	script *lua.LFunction
	hashes map[string]map[string]string
	expire map[string]time.Time
	offset time.Duration
	runs   atomic.Int64
}

func newSimRedis(t testing.TB) *simRedis {
	s := &simRedis{t: t, state: lua.NewState(), hashes: map[string]map[string]string{}, expire: map[string]time.Time{}}
	t.Cleanup(s.state.Close)
	table := s.state.NewTable()
	s.state.SetField(table, "call", s.state.NewFunction(s.call))
	s.state.SetGlobal("redis", table)
	script, err := s.state.LoadString(writeLua)
	if err != nil {
		t.Fatal(err)
	}
	s.script = script
	return s
}

// old is the reply to a write whose number is not larger than the field's.
const old = "OLD"

// now is the time by the clock of Redis.
func (s *simRedis) now() time.Time { return time.Now().Add(s.offset) }

// call is redis.call of the script.
func (s *simRedis) call(state *lua.LState) int {
	args := make([]string, state.GetTop())
	for i := range args {
		args[i] = state.Get(i + 1).String()
	}
	list := state.NewTable()
	switch hash := s.hashes[at(args, 1)]; args[0] {
	case "TIME":
		micros := s.now().UnixMicro()
		list.Append(lua.LString(strconv.FormatInt(micros/1e6, 10)))
		list.Append(lua.LString(strconv.FormatInt(micros%1e6, 10)))
	case "HMGET":
		for _, field := range args[2:] {
			if v, ok := hash[field]; ok {
				list.Append(lua.LString(v))
			} else {
				list.Append(lua.LFalse)
			}
		}
	case "HGETALL":
		for field, v := range hash {
			list.Append(lua.LString(field))
			list.Append(lua.LString(v))
		}
	case "HDEL":
		delete(hash, args[2])
	case "HSET":
		if hash == nil {
			hash = map[string]string{}
			s.hashes[args[1]] = hash
		}
		for i := 2; i < len(args); i += 2 {
			hash[args[i]] = args[i+1]
		}
	case "PEXPIRE":
		ms, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil || ms <= 0 {
			s.t.Errorf("PEXPIRE of %q", args[2])
		}
		s.expire[args[1]] = s.now().Add(time.Duration(ms) * time.Millisecond)
	default:
		s.t.Errorf("the script calls %q", args)
	}
	state.Push(list)
	return 1
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

// run runs the script.
func (s *simRedis) run(key, id string, c *call) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs.Add(1)
	if end, ok := s.expire[key]; ok && !end.After(s.now()) {
		delete(s.hashes, key)
	}
	keys, argv := s.state.NewTable(), s.state.NewTable()
	keys.Append(lua.LString(key))
	store := new(redisStore)
	for _, a := range store.args(id, c)[4:] { // behind the key
		argv.Append(lua.LString(fmt.Sprint(a)))
	}
	s.state.SetGlobal("KEYS", keys)
	s.state.SetGlobal("ARGV", argv)
	if err := s.state.CallByParam(lua.P{Fn: s.script, NRet: 1, Protect: true}); err != nil {
		s.t.Errorf("script: %v", err)
		return ""
	}
	defer s.state.Pop(1)
	if reply := s.state.Get(-1); reply.Type() != lua.LTTable {
		return reply.String()
	}
	return old
}

// step sets the clock.
func (s *simRedis) step(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset += d
}

// flush loses all data.
func (s *simRedis) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.hashes)
}

// keys are those that have data.
func (s *simRedis) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.hashes))
}

// total is what the hash says is held, and the sum of its counts.
func (s *simRedis) total(key string) (total, sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for field, v := range s.hashes[key] {
		n := 0
		if field != "denied" {
			_, _ = fmt.Sscan(v, &n)
		}
		if field == "total" {
			total = n
		} else {
			sum += n
		}
	}
	return total, sum
}

// link is the way of one server to Redis. Each call takes a time each way, so that calls overtake each other, and with
// the given chances it is lost, its reply is lost, or it arrives a second time later.
type link struct {
	redis *simRedis
	mu    sync.Mutex
	rand  *rand.Rand
	near  time.Duration // the longest way
	loss  float64
	cut   bool

	refused string // a key whose calls Redis refuses
	times   int    // that it has been refused
}

var errLost = errors.New("connection lost")

func (l *link) draw() (to, back, again time.Duration, lost, replyLost, repeated bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	way := func() time.Duration { return time.Duration(l.rand.Int64N(int64(l.near) + 1)) }
	to, back, again = way(), way(), 20*way()
	return to, back, again, l.cut || l.rand.Float64() < l.loss, l.rand.Float64() < l.loss, l.rand.Float64() < l.loss
}

func (l *link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

func (l *link) set(near time.Duration, loss float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.near, l.loss = near, loss
}

func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

func (l *link) refuse(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = key
}

func (l *link) refusals() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.times
}

// refuses counts a call that Redis refuses.
func (l *link) refuses(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.name == l.refused {
		l.times++
	}
	return c.name == l.refused
}

func (l *link) write(ctx context.Context, id string, calls []*call) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range calls {
		to, back, again, lost, replyLost, repeated := l.draw()
		sent := *c // as the bytes that are under way
		wg.Go(func() {
			if lost {
				<-ctx.Done()
				c.answer("", ctx.Err())
				return
			}
			time.Sleep(to)
			if l.refuses(c) {
				c.answer("", errors.New("WRONGTYPE"))
				return
			}
			granted := l.redis.run(c.name, id, &sent)
			if repeated {
				go func() {
					time.Sleep(again)
					l.redis.run(c.name, id, &sent)
				}()
			}
			time.Sleep(back)
			switch {
			case replyLost || l.isCut():
				c.answer("", errLost)
			case granted == old:
				c.answer("", errors.New(old))
			default:
				c.answer(granted, nil)
			}
		})
	}
}

// world is some servers on one Redis, and counts what really runs.
type world struct {
	redis   *simRedis
	links   []*link
	servers []*Limiter

	mu      sync.Mutex
	running map[string]int
	most    map[string]int // that has run at once
	served  []int          // by server
	denied  []int
	failed  int
}

func newWorld(t testing.TB, servers int, seed uint64, near time.Duration, loss float64) *world {
	w := &world{redis: newSimRedis(t), running: map[string]int{}, most: map[string]int{}}
	w.served, w.denied = make([]int, servers), make([]int, servers)
	for i := range servers {
		k := &link{redis: w.redis, rand: rand.New(rand.NewPCG(seed, uint64(i))), near: near, loss: loss}
		l, err := newLimiter(Config{}, k)
		if err != nil {
			t.Fatal(err)
		}
		w.links, w.servers = append(w.links, k), append(w.servers, l)
	}
	t.Cleanup(func() {
		for _, l := range w.servers {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = l.Close(ctx)
			cancel()
		}
		time.Sleep(2 * time.Second) // of the bubble: sweeps end
	})
	return w
}

// job runs for a time on a server, if it gets n slots.
func (w *world) job(ctx context.Context, i int, key string, n, most int, p patience, runs time.Duration) error {
	h, err := w.servers[i].acquire(ctx, key, n, most, p, w.servers[i].countsOf(""))
	w.mu.Lock()
	switch {
	case err == nil:
		w.running[key] += n
		w.served[i]++
		w.most[key] = max(w.most[key], w.running[key])
	case errors.Is(err, ErrFull):
		w.denied[i]++
	default:
		w.failed++
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}

	time.Sleep(runs)
	w.mu.Lock()
	w.running[key] -= n
	w.mu.Unlock()
	slot := &Slot{hold: h}
	slot.Release()
	slot.Release() // nothing is released twice
	return nil
}
