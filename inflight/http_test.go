package inflight

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func user(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }

// memory returns a limiter in memory, which is closed at the end of the test.
func memory(t *testing.T, cfg Config) *Limiter {
	t.Helper()
	l, err := NewMemory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second) // of the bubble
	})
	return l
}

// get serves a request of a user.
func get(h http.Handler, name string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/export", nil)
	r.Header.Set("X-User", name)
	h.ServeHTTP(w, r)
	return w
}

// sleeper is a handler that runs for a second.
var sleeper = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) })

// Which requests get what, while another one of alice runs under the same limit.
func TestHandler(t *testing.T) {
	broken := errors.New("no claims")
	fails := func(*http.Request) (string, error) { return "", broken }
	for _, tt := range []struct {
		name   string
		limit  Limit
		first  string
		second string
		status int
	}{
		{"a second request of the user", Limit{Key: user}, "alice", "alice", 429},
		{"another user", Limit{Key: user}, "alice", "bob", 200},
		{"two slots", Limit{Key: user, Max: 2}, "alice", "alice", 200},
		{"the service itself", Limit{Key: keyfunc.Const("export")}, "alice", "bob", 503},
		{"anonymous requests count together", Limit{Key: user}, "", "", 429},
		{"SkipAnonymous", Limit{Key: user, SkipAnonymous: true}, "", "", 200},
		{"Skip", Limit{Key: user, Skip: func(*http.Request) bool { return true }}, "alice", "alice", 200},
		{"Shadow", Limit{Key: user, Shadow: true}, "alice", "alice", 200},
		{"a key that fails is anonymous", Limit{Key: fails}, "alice", "bob", 429},
		{"a key that fails open", Limit{Key: fails, OnFailure: middleware.FailOpen}, "alice", "alice", 200},
		{"a key that fails closed", Limit{Key: fails, OnFailure: middleware.FailClosed}, "alice", "bob", 503},
		{"a shadow that fails closed", Limit{Key: fails, OnFailure: middleware.FailClosed, Shadow: true}, "alice", "bob", 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen []*Decision
				l := memory(t, Config{
					Observe: func(_ *http.Request, d *Decision) { seen = append(seen, d) },
					Logger:  slog.New(slog.DiscardHandler),
				})
				tt.limit.Name = "exports"
				tt.limit.Max = max(tt.limit.Max, 1)
				h := l.Handler(tt.limit)(sleeper)
				go get(h, tt.first)
				synctest.Wait()
				w := get(h, tt.second)
				if w.Code != tt.status {
					t.Errorf("got %d; want %d", w.Code, tt.status)
				}
				if tt.limit.Skip == nil && !tt.limit.SkipAnonymous {
					d := seen[len(seen)-1]
					if d.Allowed != (tt.status == 200) || d.Name != "exports" || d.Err != nil && !errors.Is(d.Err, broken) {
						t.Errorf("observed %+v", d)
					}
				}
				if w.Code == 200 {
					return
				}

				var problem struct {
					Type, Title, Detail string
					Status              int
				}
				header := w.Header()
				err := json.Unmarshal(w.Body.Bytes(), &problem)
				if err != nil || problem.Status != tt.status || problem.Title == "" || problem.Detail == "" {
					t.Errorf("body is %s, error %v", w.Body, err)
				}
				got := header.Get("Retry-After") + " " + header.Get("Cache-Control") + " " + header.Get("Content-Type")
				if got != "1 no-store application/problem+json" {
					t.Errorf("header is %v", header)
				}
			})
		})
	}
}

// A slot is free when its handler has returned, has panicked or has given it back, also if that is a little later than
// its response.
func TestHandlerReleases(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"returns": func(http.ResponseWriter, *http.Request) {},
		"panics":  func(http.ResponseWriter, *http.Request) { panic("boom") },
		"releases": func(_ http.ResponseWriter, r *http.Request) {
			FromContext(r.Context()).Release()
			time.Sleep(time.Second)
		},
		"is late": func(http.ResponseWriter, *http.Request) { time.Sleep(40 * time.Millisecond) },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := memory(t, Config{})
			first := l.Handler(Limit{Name: "a", Key: user, Max: 1})(l.Handler(Limit{Name: "b", Key: user, Max: 1})(h))
			go func() {
				defer func() { _ = recover() }()
				get(first, "alice")
			}()
			synctest.Wait()
			for _, limit := range []string{"a", "b"} {
				if w := get(l.Handler(Limit{Name: limit, Key: user, Max: 1})(http.NotFoundHandler()), "alice"); w.Code != 404 {
					t.Errorf("after a handler that %s, limit %s: got %d; want 404", name, limit, w.Code)
				}
			}
		})
	}
	FromContext(t.Context()).Release() // nil
}

// A denial by a rate inside gives the slot back before it is written.
func TestRatesInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory(t, Config{})
		rates, err := middleware.New(middleware.Config{
			Store: gcra.NewMemory(), Observe: ReleaseDenied,
			Deny: func(w http.ResponseWriter, r *http.Request, d *middleware.Decision) {
				time.Sleep(time.Second) // to a client that reads slowly
				w.WriteHeader(d.Status())
			},
		}, middleware.Policy{Name: "p", Key: user, Limit: gcra.PerHour(1)})
		if err != nil {
			t.Fatal(err)
		}
		limit := l.Handler(Limit{Name: "exports", Key: user, Max: 1})
		h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r, ok := rates.Allow(w, r); ok && FromContext(r.Context()) == nil {
				t.Error("the handler does not find its slot")
			}
		}))
		get(h, "alice")
		go get(h, "alice") // denied by the rate
		synctest.Wait()
		if w := get(limit(http.NotFoundHandler()), "alice"); w.Code != 404 {
			t.Errorf("while a denial is written: got %d; want 404", w.Code)
		}
	})
}

// While Redis does not decide, OnFailure does. After Close all are denied.
func TestOnFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 1, 0, 0)
		w.servers[0].log.Logger = slog.New(slog.DiscardHandler)
		w.links[0].setCut(true)
		const status = "open 200 200, closed 503 503, local 200 429"
		var got []string
		for mode, name := range []string{"local", "open", "closed"} {
			h := w.servers[0].Handler(Limit{Name: name, Key: user, Max: 2, OnFailure: middleware.FailureMode(mode)})(sleeper)
			first := make(chan int)
			go func() { first <- get(h, "alice").Code }()
			time.Sleep(100 * time.Millisecond)
			second := get(h, "alice").Code
			got = append(got, name, http.StatusText(<-first), http.StatusText(second))
		}
		want := "local OK Too Many Requests open OK OK closed Service Unavailable Service Unavailable"
		if got := strings.Join(got, " "); got != want {
			t.Errorf("got %s; want %s (%s)", got, want, status)
		}
		w.links[0].setCut(false)
		if err := w.servers[0].Close(t.Context()); err != nil {
			t.Error(err)
		}
		if w := get(w.servers[0].Handler(Limit{Name: "x", Key: user, Max: 2, OnFailure: middleware.FailOpen})(sleeper), "alice"); w.Code != 503 {
			t.Errorf("after Close: got %d; want 503", w.Code)
		}
	})
}

// A slot that is held too long, or forgotten, counts no longer, and a line says so.
func TestForgottenSlots(t *testing.T) {
	for name, lose := range map[string]bool{"held": false, "garbage": true} {
		var mu sync.Mutex
		var out bytes.Buffer
		logged := func() string { mu.Lock(); defer mu.Unlock(); return out.String() }
		logger := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return out.Write(b)
		}), nil))
		l, err := NewMemory(Config{MaxHold: 10 * time.Millisecond, Logger: logger})
		if lose {
			l, err = NewMemory(Config{Logger: logger})
		}
		if err != nil {
			t.Fatal(err)
		}
		slot, err := l.Acquire(t.Context(), "tenant:7", 1)
		if err != nil {
			t.Fatal(err)
		}
		kept := []*Slot{slot}
		if lose {
			kept = nil
		}
		for begin := time.Now(); ; runtime.GC() {
			if next, err := l.Acquire(t.Context(), "tenant:7", 1); err == nil && strings.Contains(logged(), "slot-not-released") {
				next.Release()
				break
			}
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("%s: the slot still counts, or no line says why not: %s", name, logged())
			}
			time.Sleep(5 * time.Millisecond)
		}
		for _, s := range kept {
			s.Release()
		}
		_ = l.Close(t.Context())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Mistakes are errors that say what would be right.
func TestMistakes(t *testing.T) {
	l, err := NewMemory(Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Gate(Limit{Name: "a:b", OnFailure: 7})
	for _, want := range []string{"Name", "Key", "Max", "OnFailure"} {
		if err == nil || !strings.Contains(err.Error(), want+" is ") {
			t.Errorf("got %v; want a mistake in %s", err, want)
		}
	}
	if _, err := NewMemory(Config{MaxHold: -1, Prefix: "{"}); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("got %v; want two mistakes", err)
	}
	for _, n := range []int{0, -1, 4} {
		if slot, err := l.AcquireN(t.Context(), "a", n, 3); slot != nil || err == nil || errors.Is(err, ErrFull) {
			t.Errorf("AcquireN of %d: got %v", n, err)
		}
	}
}
