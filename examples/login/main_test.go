package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	echov5 "github.com/labstack/echo/v5"

	ratelimitecho "github.com/seed-e377111c/ratelimit/adapters/echo"
	ratelimitechov5 "github.com/seed-e377111c/ratelimit/adapters/echov5"
	ratelimitgin "github.com/seed-e377111c/ratelimit/adapters/gin"
	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/examples/internal/smoke"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func TestMain(m *testing.M) { smoke.Main(m, main) }

func TestStart(t *testing.T) { smoke.Start(t) }

// frameworks mount the sign-in as docs/login.md does.
var frameworks = map[string]func(cfg ratelimit.Config, client keyfunc.Func, check checker) http.Handler{
	"gin": func(cfg ratelimit.Config, client keyfunc.Func, check checker) http.Handler {
		router := gin.New()
		router.POST("/login", ratelimitgin.New(cfg, policies(client)...), gin.WrapF(signIn(check)))
		return router
	},
	"echo": func(cfg ratelimit.Config, client keyfunc.Func, check checker) http.Handler {
		e := echo.New()
		e.POST("/login", echo.WrapHandler(signIn(check)), ratelimitecho.New(cfg, policies(client)...))
		return e
	},
	"echov5": func(cfg ratelimit.Config, client keyfunc.Func, check checker) http.Handler {
		e := echov5.New()
		e.POST("/login", echov5.WrapHandler(signIn(check)), ratelimitechov5.New(cfg, policies(client)...))
		return e
	},
}

// client is the address that a test sends from.
var client = keyfunc.TrustedProxies("127.0.0.0/8")

// Each attack succeeds on a naive sign-in with one mistake, and fails on this one.
func TestAttacks(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	byAccount := func(account, _ string) string { return account }
	byAddress := func(_, address string) string { return address }
	for _, attack := range []struct {
		name      string
		naive     *naive
		succeeded func(*site) (how string)
	}{
		{"guesses in parallel", &naive{late: true}, inParallel},
		{"own sign-ins clear the count", &naive{key: byAddress, clears: true}, clearCount},
		{"lock out the owner of an account", &naive{key: byAccount}, lockOut},
		{"typos lock an office", &naive{key: byAddress}, lockOffice},
		{"an outage locks users out", &naive{outages: true}, outageLocks},
		{"guesses are free during an outage", &naive{}, outageIsFree},
		{"hang up before the answer", &naive{}, hangUp},
		{"another spelling of an account", &naive{spelling: true}, spell},
		{"a typo after a lock locks again", &naive{keeps: true}, typoAfterLock},
		{"find out which accounts exist", &naive{onlyKnown: true}, enumerate},
		{"a day of guesses", &naive{}, patient},
		{"one password for many accounts", &naive{}, spray},
		{"one account from many addresses", &naive{}, distribute},
	} {
		t.Run(attack.name, func(t *testing.T) {
			s := newSite(t)
			attack.naive.now = s.now
			s.serve(attack.naive.handler(client, s.check))
			if how := attack.succeeded(s); how == "" {
				t.Error("naive: the attack failed, so this test shows nothing")
			}

			s = newSite(t)
			s.serve(newHandler(gcra.NewMemory(gcra.MemoryConfig{Now: s.now}), client, s.check))
			if how := attack.succeeded(s); how != "" {
				t.Error(how)
			}

			for name, build := range frameworks {
				s = newSite(t)
				s.serve(build(ratelimit.Config{Store: gcra.NewMemory(gcra.MemoryConfig{Now: s.now}), Headers: ratelimit.HeadersNone}, client, s.check))
				if how := attack.succeeded(s); how != "" {
					t.Errorf("%s: %s", name, how)
				}
			}
		})
	}
}

// On Redis, two servers count together.
func TestAttacksOnRedis(t *testing.T) {
	url := redistest.Start(t).URL()
	for _, succeeded := range []func(*site) string{inParallel, clearCount, spell} {
		s := newSite(t)
		var servers [2]http.Handler
		for i := range servers {
			store, err := redisstore.Open(url, redisstore.Config{Timeout: 20 * time.Second}) // for busy machines
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			servers[i] = newHandler(store, client, s.check)
		}

		var next atomic.Int64
		s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			servers[next.Add(1)%2].ServeHTTP(w, r)
		}))
		s.victim = fmt.Sprintf("victim%d", time.Now().UnixNano())
		if how := succeeded(s); how != "" {
			t.Error(how)
		}
	}
}

func inParallel(s *site) string {
	const guesses = 50
	open := make(chan struct{})
	var seen sync.WaitGroup
	seen.Add(guesses)
	s.before = func(context.Context) { seen.Done(); <-open }
	var done sync.WaitGroup
	for i := range guesses {
		done.Go(func() {
			if s.send("192.0.2.66", s.victim, fmt.Sprint("guess ", i)).code == http.StatusTooManyRequests {
				seen.Done()
			}
		})
	}

	seen.Wait()
	close(open)
	done.Wait()
	return s.tooMany(5)
}

func clearCount(s *site) string {
	for range 10 {
		for range 2 {
			s.send("192.0.2.66", s.victim, "guess")
		}
		s.pass(time.Second)
		s.send("192.0.2.66", "mallory", "right")
	}
	return s.tooMany(5)
}

func lockOut(s *site) string {
	for range 20 {
		s.send("192.0.2.66", s.victim, "guess")
	}
	return s.denied("the owner", "198.51.100.7", s.victim)
}

func lockOffice(s *site) string {
	for range 20 {
		s.send("198.51.100.7", "colleague", "typo")
	}
	s.pass(time.Second)
	return s.denied("another user of the office", "198.51.100.7", s.victim)
}

func outageLocks(s *site) string {
	s.fail = errors.New("the directory is away")
	for range 20 {
		if got := s.send("198.51.100.7", s.victim, "right").code; got != http.StatusServiceUnavailable && got != http.StatusTooManyRequests {
			s.t.Errorf("in the outage: got %d; want 503 or 429", got)
		}
	}
	s.fail = nil
	s.pass(time.Second)
	return s.denied("the user, a second after the outage", "198.51.100.7", s.victim)
}

func outageIsFree(s *site) string {
	s.fail = errors.New("the directory is away")
	for range 100 {
		s.send("192.0.2.66", s.victim, "guess")
	}
	return s.tooMany(10)
}

// hangUp sends guesses and is gone before the directory has answered.
func hangUp(s *site) string {
	for range 20 {
		checking := make(chan context.Context)
		answer := make(chan struct{})
		s.before = func(ctx context.Context) { checking <- ctx; <-answer }
		ctx, cancel := context.WithCancel(s.t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.sendUntil(ctx, "192.0.2.66", s.victim, "guess")
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
	return s.tooMany(5)
}

func spell(s *site) string {
	for _, spelling := range []string{"", " ", "  ", "\t"} {
		for range 5 {
			s.send("192.0.2.66", spelling+strings.ToUpper(s.victim)+spelling, "guess")
			s.send("192.0.2.66", s.victim+spelling, "guess")
		}
		s.pass(time.Second)
	}
	return s.tooMany(5)
}

func typoAfterLock(s *site) string {
	for range 6 {
		s.pass(s.send("198.51.100.7", s.victim, "typo").retryAfter)
	}
	s.pass(10 * time.Minute)
	s.send("198.51.100.7", s.victim, "typo")
	return s.denied("the user, after one more typo", "198.51.100.7", s.victim)
}

func enumerate(s *site) string {
	var answers [2]string
	for i, account := range []string{s.victim, "nobody"} {
		for range 8 {
			got := s.send("192.0.2.66", account, "guess")
			answers[i] += fmt.Sprintln(got.code, got.retryAfter, got.body)
		}
		s.pass(time.Second)
	}
	if answers[0] != answers[1] {
		return fmt.Sprintf("a known account answers\n%s\nand an unknown one\n%s", answers[0], answers[1])
	}
	return ""
}

// patient obeys Retry-After for a day.
func patient(s *site) string {
	for passed := time.Duration(0); passed < 24*time.Hour; {
		wait := s.send("192.0.2.66", s.victim, "guess").retryAfter
		s.pass(wait)
		passed += wait
	}
	return s.tooMany(5 + 6 + 22) // at once; after 1, 2, 4, 8, 16 and 32 minutes; each hour
}

func spray(s *site) string {
	for i := range 400 {
		s.send("192.0.2.66", fmt.Sprint("user", i), "123456")
		s.pass(time.Second / 10)
	}
	return s.tooMany(300 + 3) // which refill in 40 s
}

func distribute(s *site) string {
	for i := range 30 {
		for range 5 {
			s.send(fmt.Sprint("203.0.113.", i), s.victim, "guess")
		}
	}
	// The owner is locked out too, and not for long.
	if got := s.send("198.51.100.7", s.victim, "right"); got.retryAfter > 72*time.Second {
		return fmt.Sprintf("the owner waits %v after the attack; want at most 72 s", got.retryAfter)
	}
	return s.tooMany(50)
}

// Each wrong password beyond the fifth doubles the wait, up to an hour. The right one
// passes when the wait is over, and clears nothing. A day clears all.
func TestWaits(t *testing.T) {
	s := newSite(t)
	s.serve(newHandler(gcra.NewMemory(gcra.MemoryConfig{Now: s.now}), client, s.check))
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
	var stores [3]*redisstore.Store
	var servers [3]http.Handler
	for i := range stores {
		store, err := redisstore.Open(server.URL(), redisstore.Config{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		stores[i], servers[i] = store, newHandler(store, client, s.check)
	}
	redistest.Eventually(t, 30*time.Second, "the servers to count each other", func() bool {
		for _, h := range servers {
			s.serve(h)
			s.send("192.0.2.1", "somebody", "right")
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

// Sign-ins that succeed are limited by the policy login-requests alone.
func TestOfficeSignsIn(t *testing.T) {
	s := newSite(t)
	s.serve(newHandler(gcra.NewMemory(gcra.MemoryConfig{Now: s.now}), client, s.check))
	for i := range 400 {
		if got := s.send("198.51.100.7", fmt.Sprint("user", i%100), "right").code; got != http.StatusOK {
			t.Fatalf("sign-in %d: got %d; want 200", i+1, got)
		}
		s.pass(time.Second / 10)
	}
}

// The users of the example can sign in.
func TestUsers(t *testing.T) {
	check := newUsers().check
	for _, c := range []struct {
		account, password string
		right             bool
	}{
		{"alice", "wonderland", true}, {"bob", "builder", true},
		{"alice", "builder", false}, {"alice", "", false}, {"nobody", "", false}, {"", "", false},
	} {
		if right, err := check(t.Context(), c.account, c.password); right != c.right || err != nil {
			t.Errorf("%q, %q: got %v, %v; want %v", c.account, c.password, right, err, c.right)
		}
	}
}

// site is a server with a sign-in, and its directory.
type site struct {
	t      *testing.T
	url    string
	victim string
	start  time.Time
	passed atomic.Int64   // since start
	idle   sync.WaitGroup // no request is in the server

	before  func(r context.Context) // a check begins for a request with this context
	fail    error                   // of the directory
	checked atomic.Int64            // passwords, of others than mallory, or that were not right
}

func newSite(t *testing.T) *site {
	return &site{t: t, victim: "victim", start: time.Now(), before: func(context.Context) {}}
}

func (s *site) now() time.Time       { return s.start.Add(time.Duration(s.passed.Load())) }
func (s *site) pass(d time.Duration) { s.passed.Add(int64(d)) }

// request is the context key of the request's own context, which ends when the client is
// gone.
type request struct{}

func (s *site) serve(h http.Handler) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.idle.Add(1)
		defer s.idle.Done()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), request{}, r.Context())))
	}))
	s.t.Cleanup(server.Close)
	s.url = server.URL + "/login"
}

// check knows one password for all accounts.
func (s *site) check(ctx context.Context, _, password string) (right bool, err error) {
	if password != "right" || s.fail != nil {
		s.checked.Add(1)
	}
	s.before(ctx.Value(request{}).(context.Context))
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return password == "right" && s.fail == nil, s.fail
}

func (s *site) tooMany(most int64) string {
	if got := s.checked.Load(); got > most {
		return fmt.Sprintf("%d passwords were checked; want at most %d", got, most)
	}
	return ""
}

func (s *site) denied(who, address, account string) string {
	if got := s.send(address, account, "right"); got.code != http.StatusOK {
		return fmt.Sprintf("%s: got %d, Retry-After %v; want 200", who, got.code, got.retryAfter)
	}
	return ""
}

type answer struct {
	code       int
	retryAfter time.Duration
	body       string
}

func (s *site) send(address, account, password string) answer {
	got, err := s.sendUntil(s.t.Context(), address, account, password)
	if err != nil {
		s.t.Error(err)
	}
	return got
}

func (s *site) sendUntil(ctx context.Context, address, account, password string) (answer, error) {
	form := url.Values{"account": {account}, "password": {password}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(form))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Forwarded-For", address)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	seconds, _ := strconv.Atoi(w.Header.Get("Retry-After"))
	return answer{w.StatusCode, time.Duration(seconds) * time.Second, string(body)}, err
}
