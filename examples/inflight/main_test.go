package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/seed-e377111c/ratelimit/inflight"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// The fourth export at once is denied, and one that comes later is not.
func TestExports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, err := inflight.NewMemory(inflight.Config{})
		if err != nil {
			t.Fatal(err)
		}
		handler := running.Handler(inflight.Limit{Name: "exports", Key: keyfunc.RemoteAddr, Max: 3})(http.HandlerFunc(export))
		post := func(codes chan<- int) {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/export", nil))
			codes <- w.Code
		}

		codes := make(chan int, 5)
		for range 4 {
			go post(codes)
		}
		if first := <-codes; first != http.StatusTooManyRequests {
			t.Errorf("the first answer is %d; want 429", first)
		}
		for range 3 {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("got %d; want 200", code)
			}
		}
		if post(codes); <-codes != http.StatusOK {
			t.Error("a later export is denied")
		}
		if err := running.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
