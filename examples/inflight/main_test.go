package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-e377111c/ratelimit/inflight"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// The program on the page is this one.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/inflight.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "\n//\n//\tgo run ./examples/inflight\n")
	if !strings.Contains(string(page), "```go\n"+code+"```\n") {
		t.Error("docs/inflight.md does not show main.go")
	}
}

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
