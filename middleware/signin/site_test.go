package signin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	ratelimitecho "github.com/seed-e377111c/ratelimit/adapters/echo"
	ratelimitgin "github.com/seed-e377111c/ratelimit/adapters/gin"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/signin"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(diagtest.Quiet(m).Run())
}

// client is the address that a test sends from.
var client = keyfunc.TrustedProxies("127.0.0.0/8")

// credentials are what the applications read, as leniently as their framework can.
type credentials struct {
	Username string `form:"username" json:"username" query:"username"`
	Password string `form:"password" json:"password" query:"password"`
}

// checker reports whether the password is right, or that it could not find out.
type checker func(ctx context.Context, account, password string) (right bool, err error)

func (check checker) outcome(ctx context.Context, in credentials) (signin.Outcome, int) {
	right, err := check(ctx, strings.ToLower(strings.TrimSpace(in.Username)), in.Password)
	switch {
	case err != nil:
		return signin.Failed, http.StatusServiceUnavailable
	case right:
		return signin.Right, http.StatusOK
	}
	return signin.Wrong, http.StatusUnauthorized
}

// frameworks mount the sign-in as docs/login.md does.
var frameworks = map[string]func(*signin.Guard, checker) http.Handler{
	"net/http": func(guard *signin.Guard, check checker) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/login", guard.Handler(func(w http.ResponseWriter, r *http.Request) signin.Outcome {
			in := credentials{r.FormValue("username"), r.FormValue("password")}
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
				_ = json.NewDecoder(r.Body).Decode(&in)
			}
			outcome, status := check.outcome(r.Context(), in)
			w.WriteHeader(status)
			return outcome
		}))
		return mux
	},
	"gin": func(guard *signin.Guard, check checker) http.Handler {
		router := gin.New()
		router.Any("/login", ratelimitgin.From(guard.Limiter()), func(c *gin.Context) {
			outcome, status := signin.Wrong, http.StatusBadRequest
			defer func() { guard.Settle(c.Request.Context(), outcome) }()
			var in credentials
			if c.ShouldBind(&in) == nil {
				outcome, status = check.outcome(context.WithoutCancel(c.Request.Context()), in)
			}
			c.Status(status)
		})
		return router
	},
	"echo": func(guard *signin.Guard, check checker) http.Handler {
		e := echo.New()
		e.Any("/login", func(c echo.Context) error {
			outcome, status := signin.Wrong, http.StatusBadRequest
			defer func() { guard.Settle(c.Request().Context(), outcome) }()
			var in credentials
			if c.Bind(&in) == nil {
				outcome, status = check.outcome(context.WithoutCancel(c.Request().Context()), in)
			}
			return c.NoContent(status)
		}, ratelimitecho.From(guard.Limiter()))
		return e
	},
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
	given   atomic.Int64            // attempts that are to be given back
	store   *memory                 // if it is in use
	log     *slog.Logger            // nil: a problem fails the tests
}

// memory is a store that counts the attempts that were given back.
func (s *site) memory() gcra.Store {
	s.store = &memory{Memory: gcra.NewMemory(gcra.MemoryConfig{Now: s.now})}
	return s.store
}

type memory struct {
	*gcra.Memory
	back atomic.Int64
}

func (m *memory) Refund(ctx context.Context, charges []gcra.Charge) error {
	defer m.back.Add(1)
	return m.Memory.Refund(ctx, charges)
}

// handler is the application, in a framework.
func (s *site) handler(framework string, store gcra.Store) http.Handler {
	return frameworks[framework](newGuard(s.t, middleware.Config{Store: store, Logger: s.log}, signin.JSON("username")), s.check)
}

func newGuard(t *testing.T, cfg middleware.Config, account keyfunc.Func) *signin.Guard {
	t.Helper()
	guard, err := signin.New(cfg, account, client)
	if err != nil {
		t.Fatal(err)
	}
	return guard
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

func (s *site) wantChecked(want int64) {
	s.t.Helper()
	if got := s.checked.Load(); got != want {
		s.t.Errorf("%d passwords were checked; want %d", got, want)
	}
}

func (s *site) guess(n int, address, account string) {
	for range n {
		s.send(address, account, "guess")
	}
}

func (s *site) passes(who, address, account string) {
	if got := s.send(address, account, "right"); got.code != http.StatusOK {
		s.t.Errorf("%s: got %d, Retry-After %v; want 200", who, got.code, got.retryAfter)
	}
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
	if got.code == http.StatusOK || got.code == http.StatusServiceUnavailable {
		given := s.given.Add(1)
		redistest.Eventually(s.t, 30*time.Second, "the attempt to be given back", func() bool { return s.store == nil || s.store.back.Load() >= given })
	}
	return got
}

func (s *site) sendUntil(ctx context.Context, address, account, password string) (answer, error) {
	body, _ := json.Marshal(credentials{account, password})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forwarded-For", address)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	seconds, _ := strconv.Atoi(w.Header.Get("Retry-After"))
	return answer{w.StatusCode, time.Duration(seconds) * time.Second, string(text)}, err
}
