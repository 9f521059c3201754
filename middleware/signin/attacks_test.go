package signin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

const attacker, office = "192.0.2.66", "198.51.100.7"

// attacks are what sign-ins with mistakes suffer from. Each sends as much as it can, and says how
// many passwords are checked: no more, and also no fewer, or it would show nothing.
var attacks = []struct {
	name    string
	checked int64
	run     func(*site)
}{
	{"guesses in parallel", 5, inParallel},
	{"own sign-ins clear the count", 5, clearCount},
	{"lock out the owner of an account", 5, func(s *site) {
		s.guess(20, attacker, s.victim)
		s.passes("the owner", office, s.victim)
	}},
	{"typos lock an office", 5, func(s *site) {
		s.guess(20, office, "colleague")
		s.pass(time.Second)
		s.passes("another user of the office", office, s.victim)
	}},
	{"an outage locks users out", 10, func(s *site) {
		s.fail = errors.New("the directory is away")
		for range 20 {
			s.send(office, s.victim, "right")
		}
		s.fail = nil
		s.pass(time.Second)
		s.passes("the user, a second after the outage", office, s.victim)
	}},
	{"guesses are free during an outage", 10, func(s *site) {
		s.fail = errors.New("the directory is away")
		s.guess(100, attacker, s.victim)
	}},
	{"hang up before the answer", 5, hangUp},
	{"another spelling of an account", 5, spell},
	{"a typo after a lock locks again", 6, func(s *site) {
		for range 6 {
			s.pass(s.send(office, s.victim, "typo").retryAfter)
		}
		s.pass(10 * time.Minute)
		s.guess(1, office, s.victim)
		s.passes("the user, after one more typo", office, s.victim)
	}},
	{"find out which accounts exist", 10, func(s *site) {
		var answers [2]string
		for i, account := range []string{s.victim, "nobody"} {
			for range 8 {
				answers[i] += fmt.Sprintln(s.send(attacker, account, "guess"))
			}
			s.pass(time.Second)
		}
		if answers[0] != answers[1] {
			s.t.Errorf("a known account answers\n%s\nand an unknown one\n%s", answers[0], answers[1])
		}
	}},
	{"a day of guesses that obey Retry-After", 5 + 6 + 22, func(s *site) { // at once; after 1, 2, 4, 8, 16 and 32 minutes; each hour
		for s.passed.Load() < int64(24*time.Hour) {
			s.pass(s.send(attacker, s.victim, "guess").retryAfter)
		}
	}},
	{"one password for many accounts", 300 + 3, func(s *site) { // which refill in 40 s
		for i := range 400 {
			s.guess(1, attacker, fmt.Sprint("user", i))
			s.pass(time.Second / 10)
		}
	}},
	{"one account from many addresses", 50, func(s *site) {
		for i := range 30 {
			s.guess(5, fmt.Sprint("203.0.113.", i), s.victim)
		}
		// The owner is locked out too, and not for long.
		if got := s.send(office, s.victim, "right"); got.retryAfter > 72*time.Second {
			s.t.Errorf("the owner waits %v after the attack; want at most 72 s", got.retryAfter)
		}
	}},
}

func TestAttacks(t *testing.T) {
	for _, attack := range attacks {
		for framework := range frameworks {
			t.Run(attack.name+"/"+framework, func(t *testing.T) {
				s := newSite(t)
				s.serve(s.handler(framework, s.memory()))
				attack.run(s)
				s.wantChecked(attack.checked)
			})
		}
	}
}

// On Redis, two servers count together.
func TestAttacksOnRedis(t *testing.T) {
	url := redistest.Start(t).URL()
	for n, attack := range []func(*site){inParallel, clearCount, spell} {
		s := newSite(t)
		var servers [2]http.Handler
		for i := range servers {
			store, err := redisstore.Open(url, redisstore.Config{Prefix: fmt.Sprintf("%d:", n), Timeout: 20 * time.Second}) // for busy machines
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			servers[i] = s.handler("net/http", store)
		}

		var next atomic.Int64
		s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { servers[next.Add(1)%2].ServeHTTP(w, r) }))
		attack(s)
		// In parallel a guess that one subject denies takes a unit of another for a moment, and may cost a second guess that unit.
		if got := s.checked.Load(); got < 1 || got > 5 {
			t.Errorf("attack %d: %d passwords were checked; want 1 to 5", n, got)
		}
	}
}

func inParallel(s *site) {
	const guesses = 50
	open := make(chan struct{})
	var seen, done sync.WaitGroup
	seen.Add(guesses)
	s.before = func(context.Context) { seen.Done(); <-open }
	for range guesses {
		done.Go(func() {
			if s.send(attacker, s.victim, "guess").code == http.StatusTooManyRequests {
				seen.Done()
			}
		})
	}

	seen.Wait()
	close(open)
	done.Wait()
}

func clearCount(s *site) {
	for range 10 {
		s.guess(2, attacker, s.victim)
		s.pass(time.Second)
		s.send(attacker, "mallory", "right")
	}
}

func spell(s *site) {
	for _, spelling := range []string{"", " ", "  ", "\t"} {
		s.guess(5, attacker, spelling+strings.ToUpper(s.victim)+spelling)
		s.guess(5, attacker, s.victim+spelling)
		s.pass(time.Second)
	}
}

// hangUp sends guesses and is gone before the directory has answered.
func hangUp(s *site) {
	for range 20 {
		checking := make(chan context.Context)
		answer := make(chan struct{})
		s.before = func(ctx context.Context) { checking <- ctx; <-answer }
		ctx, cancel := context.WithCancel(s.t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.sendUntil(ctx, attacker, s.victim, "guess")
		}()

		select {
		case <-ended: // denied
		case r := <-checking:
			cancel()
			<-r.Done() // the server has noticed
			close(answer)
			<-ended
		}
		cancel()
		s.idle.Wait()
	}
}

// Each wrong password beyond the fifth doubles the wait, up to an hour. The right one
// passes when the wait is over, and clears nothing. A day clears all.
func TestWaits(t *testing.T) {
	s := newSite(t)
	s.serve(s.handler("net/http", s.memory()))
	fiveTypos := func() {
		t.Helper()
		for i := range 5 {
			if got := s.send("192.0.2.1", "victim", "typo").code; got != http.StatusUnauthorized {
				t.Errorf("typo %d: got %d; want 401", i+1, got)
			}
		}
	}

	fiveTypos()
	for _, minutes := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		got := s.send("192.0.2.1", "victim", "right")
		if want := time.Duration(minutes) * time.Minute; got.code != http.StatusTooManyRequests || got.retryAfter != want {
			t.Errorf("got %d, Retry-After %v; want 429, %v", got.code, got.retryAfter, want)
		}

		s.pass(got.retryAfter)
		for _, password := range []string{"right", "typo"} {
			want := map[string]int{"right": http.StatusOK, "typo": http.StatusUnauthorized}[password]
			if got := s.send("192.0.2.1", "victim", password).code; got != want {
				t.Errorf("%s after %d minutes: got %d; want %d", password, minutes, got, want)
			}
		}
	}

	s.pass(24 * time.Hour)
	fiveTypos()
	if got := s.send("192.0.2.1", "victim", "right").retryAfter; got != time.Minute {
		t.Errorf("a day later: got Retry-After %v; want 1 minute", got)
	}
}

// While Redis is away a server knows its share only: one typo is not taken for many.
func TestTypoInAnOutage(t *testing.T) {
	server := redistest.Start(t)
	s := newSite(t)
	s.log = slog.New(slog.DiscardHandler)
	var stores [3]*redisstore.Store
	var servers [3]http.Handler
	for i := range stores {
		store, err := redisstore.Open(server.URL(), redisstore.Config{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		stores[i], servers[i] = store, s.handler("net/http", store)
	}
	redistest.Eventually(t, 30*time.Second, "the servers to count each other", func() bool {
		for _, h := range servers {
			s.serve(h)
			s.send("192.0.2.9", "somebody", "right") // another client, whose requests of a second may be used up
		}
		return stores[2].Stats().Instances == 3
	})

	server.Kill()
	if got := s.send("192.0.2.1", "victim", "typo").code; got != http.StatusUnauthorized {
		t.Errorf("a typo: got %d; want 401", got)
	}
	if got := s.send("192.0.2.1", "victim", "right"); got.code != http.StatusOK && got.retryAfter > 3*time.Minute {
		t.Errorf("the right password: got %d, Retry-After %v; want at most a minute of three servers", got.code, got.retryAfter)
	}
}
