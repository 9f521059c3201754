package faults

import (
	"errors"
	"net/http"
	"reflect"
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
