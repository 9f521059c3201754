package faults

import (
	"errors"
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
