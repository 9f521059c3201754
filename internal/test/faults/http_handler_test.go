package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// broken is a store that does not answer.
type broken struct{}

var errBroken = errors.New("store is broken")

func (broken) Take(context.Context, []gcra.Charge) (bool, error)       { return false, errBroken }
func (broken) Refund(ctx context.Context, charges []gcra.Charge) error { return errBroken }

func TestFault63PanicFollowsOnFailure(t *testing.T) {
	o := apart(t, "panics in Key, LimitFor, Cost and Skip")
	two := gcra.PerDay(2)
	eachFramework(t, func(t *testing.T, f sitetest.Framework) {
		for name, p := range map[string]middleware.Policy{
			"Key":      {Key: func(*http.Request) (string, error) { panic("no user") }, Limit: two},
			"an abort": {Key: func(*http.Request) (string, error) { panic(http.ErrAbortHandler) }, Limit: two},
			"LimitFor": {Key: sitetest.Everybody, Limit: two, LimitFor: func(*http.Request) gcra.Limit { panic("no plan") }},
			"Cost":     {Key: sitetest.Everybody, Limit: two, Cost: func(*http.Request) int64 { panic("no cost") }},
			"Skip":     {Key: sitetest.Everybody, Limit: two, Skip: func(*http.Request) bool { panic("no idea") }},
		} {
			for mode, want := range map[middleware.FailureMode][]int{
				middleware.FailLocal:  {200, 200, 429, 429},
				middleware.FailOpen:   {200, 200, 200, 429}, // by the other policy
				middleware.FailClosed: {503, 503, 503, 503},
			} {
				if name == "Cost" && mode == middleware.FailLocal {
					want = []int{200, 429, 429, 429} // a client may have caused the panic, so it takes the whole burst
				}
				p.Name, p.OnFailure = "panics", mode
				s := openSite(t, o, sitetest.Config{Build: f.Build, Config: middleware.Config{Logger: silence}, Policies: []middleware.Policy{p, {Name: "other", Key: sitetest.Everybody, Limit: gcra.PerDay(3)}}})
				expect(t, fmt.Sprintf("%s, failure mode %d", name, mode), s.Statuses(t, "GET /ok", 4), want)
				expect(t, name+": decisions with an error", s.failed.Load(), 4)
			}
		}
	})
}

// TestFrameworks has streams and upgrades behind a limiter.
func TestFault65WriterIsNotWrapped(t *testing.T) {
	o := apart(t, "a handler with and without a limit")
	eachFramework(t, func(t *testing.T, f sitetest.Framework) {
		writers := make(chan http.ResponseWriter, 1)
		s := openSite(t, o, sitetest.Config{Build: f.Build, Policies: []middleware.Policy{
			{Name: "all", Key: sitetest.Everybody, Limit: gcra.PerDay(100), Skip: func(r *http.Request) bool { return r.Header.Get("X-Skip") != "" }}},
			Handler: func(w http.ResponseWriter, _ *http.Request) {
				rc, later := http.NewResponseController(w), time.Now().Add(time.Minute)
				if err := errors.Join(rc.SetWriteDeadline(later), rc.SetReadDeadline(later)); err != nil {
					t.Errorf("setting deadlines: %v", err)
				}
				writers <- w
			}})
		a := s.Do(t, "GET /ok", "X-Skip: 1")
		without := <-writers
		expect(t, "skipped", []any{a.StatusCode, a.Header.Get("RateLimit-Limit")}, []any{200, ""})
		expect(t, "limited", s.Do(t, "GET /ok").Header.Get("RateLimit-Limit"), "100")
		if with := <-writers; reflect.TypeOf(with) != reflect.TypeOf(without) {
			t.Errorf("the handler got a %T; want the %T that it gets without a limit", with, without)
		}
	})
}

func TestFault66OpenStreamsDelayNoOther(t *testing.T) {
	o := apart(t, "50 open streams; bodies that never come")
	eachFramework(t, func(t *testing.T, f sitetest.Framework) {
		release := make(chan struct{})
		s := openSite(t, o, sitetest.Config{Build: f.Build, Policies: []middleware.Policy{
			{Name: "all", Key: sitetest.Everybody, Limit: gcra.PerDay(1000)},
			{Name: "uploads", Key: sitetest.Everybody, Limit: gcra.PerDay(1), Routes: []string{"PUT /ok"}}},
			Handler: func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					_ = http.NewResponseController(w).Flush()
					<-release
				}
				_, _ = io.Copy(w, r.Body)
			}})
		var streams sync.WaitGroup
		for range 50 {
			streams.Go(func() { s.Do(t, "POST /ok") })
		}
		for s.Handled.Load() < 50 {
			time.Sleep(time.Millisecond)
		}
		expect(t, "meanwhile", s.Statuses(t, "GET /ok", 20), slices.Repeat([]int{200}, 20))
		time.Sleep(phase(0, 20*time.Second))
		close(release)
		streams.Wait()

		// The limiter decides before the body arrives, and reads none of it.
		expect(t, "upload", s.Do(t, "PUT /ok").StatusCode, 200)
		a := s.Raw(t, "PUT /ok HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\nthe beginning of")
		if a == nil || a.StatusCode != http.StatusTooManyRequests {
			t.Errorf("an upload beyond the limit without its body: got %v; want 429", a)
		}
	})
}

// cors is a small CORS middleware.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" {
			w.Header().Set("Access-Control-Allow-Origin", origin)
			if isPreflight(r) {
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// isPreflight is a Skip for the OPTIONS requests that browsers send by themselves,
// and for no others.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

func TestFault67OnlyPreflightsGoUncounted(t *testing.T) {
	o := apart(t, "CORS outside and inside of the limiter")
	preflight := []string{"Origin: https://app.example", "Access-Control-Request-Method: PUT"}
	eachFramework(t, func(t *testing.T, f sitetest.Framework) {
		outside := func(a sitetest.App) http.Handler { return cors(f.Build(a)) }
		for name, build := range map[string]func(sitetest.App) http.Handler{"outside": outside, "inside": f.Build} {
			s := openSite(t, o, sitetest.Config{Build: build, Policies: []middleware.Policy{{Name: "all", Key: sitetest.Everybody, Limit: gcra.PerDay(2), Skip: isPreflight}}})
			for range 5 {
				a := s.Do(t, "OPTIONS /ok", preflight...)
				expect(t, name+": preflight", []any{a.StatusCode < 300, a.Header.Get("RateLimit-Limit")}, []any{true, ""})
			}
			expect(t, name+": OPTIONS", s.Do(t, "OPTIONS /ok").Header.Get("RateLimit-Remaining"), "1")
			expect(t, name+": OPTIONS with half of it", s.Do(t, "OPTIONS /ok", preflight[1]).Header.Get("RateLimit-Remaining"), "0")
			a := s.Do(t, "PUT /ok", preflight[0])
			expect(t, name+": the request itself", a.StatusCode, 429)
			if name == "outside" { // so that a script can read the response
				expect(t, name+": CORS field of the denied request", a.Header.Get("Access-Control-Allow-Origin"), "https://app.example")
			}
		}
	})
}

func TestFault68NoMethodAvoidsTheLimit(t *testing.T) {
	o := apart(t, "HEAD, OPTIONS, X-HTTP-Method-Override")
	eachFramework(t, func(t *testing.T, f sitetest.Framework) {
		s := openSite(t, o, sitetest.Config{Build: f.Build, Policies: []middleware.Policy{
			{Name: "all", Key: sitetest.Everybody, Limit: gcra.PerDay(5)},
			{Name: "login", Key: sitetest.Everybody, Limit: gcra.PerDay(1), Routes: []string{"POST /login"}}}})
		override := []string{"X-HTTP-Method-Override: GET", "X-HTTP-Method: GET", "X-Method-Override: GET"}
		expect(t, "login", s.Do(t, "POST /login", override...).StatusCode, 200)
		expect(t, "login again", s.Do(t, "POST /login", override...).StatusCode, 429)
		expect(t, "login, overridden in the query", s.Do(t, "POST /login?_method=GET", override...).StatusCode, 429)
		var left []string
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "HEAD", "OPTIONS"} {
			a := s.Do(t, method+" /ok", override...)
			left = append(left, fmt.Sprint(a.StatusCode, " ", a.Header.Get("RateLimit-Remaining")))
		}
		expect(t, "status and remaining", left, []string{"200 3", "200 2", "200 1", "200 0", "429 0", "429 0"})
	})
}
