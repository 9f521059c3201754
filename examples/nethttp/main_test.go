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
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/race"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
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

	show := func(want string) []policyUsage {
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

	show("burst 10/second: 0 used, 10 left; monthly 10000/calendar month: 0 used, 10000 left")
	for i := range 11 {
		if got, want := status(t, server, "/hello", token), []int{http.StatusOK, http.StatusTooManyRequests}[i/10]; got != want {
			t.Errorf("request %d: got %d; want %d", i+1, got, want)
		}
	}

	list := show("burst 10/second: 10 used, 0 left; monthly 10000/calendar month: 10 used, 9990 left")
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
}

// On Redis all servers show the same.
func TestUsageOnRedis(t *testing.T) {
	url, token := redistest.Start(t).URL(), smoke.Token(t, "alice")
	var servers [2]*httptest.Server
	for i := range servers {
		store, err := redisstore.Open(url, redisstore.Config{Timeout: 20 * time.Second}) // for busy machines
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		servers[i] = httptest.NewServer(newHandler(store))
		defer servers[i].Close()
	}

	for range 3 {
		if got := status(t, servers[0], "/hello", token); got != http.StatusOK {
			t.Fatalf("got %d; want 200", got)
		}
	}

	for _, server := range servers {
		list := getUsage(t, server, token)
		if len(list) != 2 || list[1].Policy != "monthly" || list[1].Used != 3 || list[1].Left != 9997 || list[0].Used > 3 {
			t.Errorf("got %+v; want 3 used of the month, and no more of the second", list)
		}
	}
}

// Without its Redis the server does not show a count of its own.
func TestUsageIsUnknown(t *testing.T) {
	redis := redistest.Start(t)
	store, err := redisstore.Open(redis.URL(), redisstore.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	server := httptest.NewServer(newHandler(store))
	defer server.Close()
	redis.Kill()
	if got := status(t, server, "/usage", ""); got != http.StatusServiceUnavailable {
		t.Errorf("got %d; want 503", got)
	}
}

// A scanner behind the proxy of an office sends more requests without a token than the
// quota has. The office can sign in all the same.
func TestAnonymousRequestsLockNoSignIn(t *testing.T) {
	race.Skip(t)

	now := time.Now()
	token := smoke.Token(t, "alice")
	server := httptest.NewServer(newHandler(gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})))
	defer server.Close()
	if got := status(t, server, "/hello", token); got != http.StatusOK { // or the log asks where the users are
		t.Fatalf("a user: got %d; want 200", got)
	}
	for i := range 10_001 {
		now = now.Add(time.Second / 9)
		if got := status(t, server, "/hello", ""); got != http.StatusOK {
			t.Fatalf("request %d of the scanner: got %d; want 200", i+1, got)
		}
	}

	w, err := server.Client().Post(server.URL+"/login", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK {
		t.Errorf("a login: got %s, Retry-After %q; want 200", w.Status, w.Header.Get("Retry-After"))
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
