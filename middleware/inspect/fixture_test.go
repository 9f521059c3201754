package inspect_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/inspect"
)

// who keys by the header Who.
func who(r *http.Request) (string, error) { return r.Header.Get("Who"), nil }

func everybody(*http.Request) bool { return true }

// scene is a limiter with an Inspector, on a clock.
type scene struct {
	t testing.TB
	*doubles.Clock
	store   gcra.Store
	limiter *middleware.Limiter
	page    *inspect.Inspector
}

func newScene(t testing.TB, policies ...middleware.Policy) *scene {
	t.Helper()
	c := new(doubles.Clock)
	return newSceneOn(t, c, gcra.NewMemory(gcra.MemoryConfig{Now: c.Now}), policies...)
}

func newSceneOn(t testing.TB, c *doubles.Clock, store gcra.Store, policies ...middleware.Policy) *scene {
	t.Helper()
	limiter, err := middleware.New(middleware.Config{Store: store}, policies...)
	if err != nil {
		t.Fatal(err)
	}
	page, err := inspect.NewAt(c.Now, inspect.Config{Authorize: everybody}, limiter)
	if err != nil {
		t.Fatal(err)
	}
	return &scene{t, c, store, limiter, page}
}

// send sends the page a request and returns the response.
func (s *scene) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.page.ServeHTTP(w, r)
	return w
}

// html returns the page as a browser gets it, json as a program does.
func (s *scene) html(query string) string {
	s.t.Helper()
	w := s.send(httptest.NewRequest("GET", "/"+query, nil))
	if got := w.Header().Get("Content-Type"); got != "text/html; charset=utf-8" {
		s.t.Fatalf("GET %s: got %d %s, %s; want a page", query, w.Code, got, w.Body)
	}
	return w.Body.String()
}

func (s *scene) json(query string) report {
	s.t.Helper()
	r := httptest.NewRequest("GET", "/"+query, nil)
	r.Header.Set("Accept", "application/json")
	return reportIn(s.t, s.send(r))
}

// report is the page's JSON.
type report struct {
	Watched   float64 `json:"watched_seconds"`
	Decisions struct {
		Total, Denied, Degraded int64
		Reason                  string `json:"degraded_reason"`
	}
	Policies []struct {
		Name         string
		Limit        string
		LimitFor     bool `json:"limit_for"`
		Limits       []string
		Kinds        []string
		Routes       []string
		CostFor      bool `json:"cost_for"`
		Skips        bool
		Shadow       bool
		MaxDelay     float64 `json:"max_delay_seconds"`
		MaxDebt      int64   `json:"max_debt"`
		OnFailure    string  `json:"on_failure"`
		Allowed      int64
		Denied       int64
		ShadowDenied int64 `json:"shadow_denied"`
		Chart        struct{ Allowed, Denied []int64 }
		MostDenied   []struct {
			Subject string
			AtLeast int64 `json:"at_least"`
		} `json:"most_denied"`
	}
	Store struct {
		Kind  string
		Stats *redisstats.Stats
	}
	Subject *struct {
		Subject string
		Buckets []struct {
			Policy, Limit string
			Override      string
			OverrideName  string `json:"override_name"`
			PeriodEnds    string `json:"period_ends"`
			IfLimit       bool   `json:"if_limit"`
			Left, Burst   int64
			FullAfter     float64 `json:"full_after_seconds"`
		}
		Reset []string
		Error string
	}
}

func reportIn(t testing.TB, w *httptest.ResponseRecorder) (r report) {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Fatalf("got %d %s, %s; want JSON", w.Code, got, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// post returns a reset as a program sends it.
func post(form string) *http.Request {
	r := httptest.NewRequest("POST", "/debug/ratelimit", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// left returns "policy left/burst" for each bucket of a subject.
func (s *scene) left(subject string) string {
	s.t.Helper()
	var all []string
	for _, b := range s.json("?subject=" + url.QueryEscape(subject)).Subject.Buckets {
		all = append(all, fmt.Sprintf("%s %d/%d", b.Policy, b.Left, b.Burst))
	}
	return strings.Join(all, ", ")
}

// ask has the limiter decide n requests of a client.
func (s *scene) ask(n int, who, path string) {
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Who", who)
	for range n {
		s.limiter.Decide(r)
	}
}
