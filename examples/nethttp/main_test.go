package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/examples/internal/smoke"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
)

func TestMain(m *testing.M) { smoke.Main(m, main) }

func TestStart(t *testing.T) { smoke.Start(t) }

func TestExample(t *testing.T) { smoke.Test(t, newHandler) }

// GET /usage shows what a rate and a quota have left, charges neither, and can be opened
// by a client that is denied.
func TestUsage(t *testing.T) {
	now := time.Now() // stands still, so that nothing refills
	token := smoke.Token(t, "alice")
	server := httptest.NewServer(newHandler(gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})))
	defer server.Close()

	show := func(token, want string) []policyUsage {
		t.Helper()
		list := getUsage(t, server, token)
		var got []string
		for _, p := range list {
			got = append(got, fmt.Sprintf("%s %s: %d used, %d left", p.Policy, p.Limit, p.Used, p.Left))
		}

		if strings.Join(got, "; ") != want {
			t.Errorf("got  %s\nwant %s", strings.Join(got, "; "), want)
		}
		return list
	}

	show(token, "burst 10/second: 0 used, 10 left; monthly 10000/calendar month: 0 used, 10000 left")
	for i := range 11 {
		if got, want := status(t, server, "/hello", token), []int{http.StatusOK, http.StatusTooManyRequests}[i/10]; got != want {
			t.Errorf("request %d: got %d; want %d", i+1, got, want)
		}
	}

	list := show(token, "burst 10/second: 10 used, 0 left; monthly 10000/calendar month: 10 used, 9990 left")
	year, month, _ := now.UTC().Date()
	resets := []time.Time{now.Add(time.Second), time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)}
	for i, p := range list {
		// The page adds the clock, which goes on, to what the store says.
		if late := p.ResetsAt.Sub(resets[i]); late < -time.Second || late > time.Since(now)+time.Second {
			t.Errorf("%s: resets at %v; want %v", p.Policy, p.ResetsAt, resets[i])
		}
	}

	if got := status(t, server, "/usage", token); got != http.StatusTooManyRequests {
		t.Errorf("the third GET /usage in a second: got %d; want 429", got)
	}

	// Anonymous requests use up no month: an office's could lock its users out.
	now = now.Add(time.Second)
	if got := status(t, server, "/hello", ""); got != http.StatusOK {
		t.Errorf("without a token: got %d; want 200", got)
	}
	show("", "burst 10/second: 1 used, 9 left")
}

// Without its Redis the server does not show a count of its own.
func TestUsageIsUnknown(t *testing.T) {
	def := slog.Default() // which gets the problem
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(def)
	server := httptest.NewServer(newHandler(doubles.Down{}))
	defer server.Close()
	if got := status(t, server, "/usage", ""); got != http.StatusServiceUnavailable {
		t.Errorf("got %d; want 503", got)
	}
}

// get sends a request with the token of a user, or with none.
func get(t *testing.T, server *httptest.Server, path, token string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func status(t *testing.T, server *httptest.Server, path, token string) int {
	t.Helper()
	w := get(t, server, path, token)
	defer w.Body.Close()
	return w.StatusCode
}

func getUsage(t *testing.T, server *httptest.Server, token string) (list []policyUsage) {
	t.Helper()
	w := get(t, server, "/usage", token)
	defer w.Body.Close()
	if err := json.NewDecoder(w.Body).Decode(&list); err != nil || w.StatusCode != http.StatusOK {
		t.Fatalf("GET /usage: got %s, %v", w.Status, err)
	}
	return list
}
