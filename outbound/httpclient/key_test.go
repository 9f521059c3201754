package httpclient_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

// spy is a Store that records the subjects and policies of its charges.
type spy struct {
	gcra.Store
	mu   sync.Mutex
	seen []string
}

func (s *spy) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	s.mu.Lock()
	for _, c := range charges {
		s.seen = append(s.seen, c.Subject+" "+c.Policy)
	}
	s.mu.Unlock()
	return s.Store.Take(ctx, charges)
}

// A credential is not in the store's charges, its keys or an error.
func TestCredentialIsASecret(t *testing.T) {
	client := redistest.Any(t)
	redis, err := redisstore.New(client, redisstore.Config{Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}

	s := &spy{Store: redis}
	tr := transport(t, httpclient.Config{
		Base: &partner{answers: []func() *http.Response{says(429, "Retry-After: 3600")}}, Store: s, MaxWait: 100 * time.Millisecond,
		Policies: []httpclient.Policy{
			{Name: "a", Key: httpclient.ByCredential, Limit: gcra.PerMinute(2)},
			{Name: "b", Key: httpclient.ByHeader("X-Api-Key"), Limit: gcra.PerMinute(3)},
		},
	})

	var errs []string
	for range 4 {
		_, err := tr.RoundTrip(request(t, "GET", url, nil, "Authorization: Bearer hunter2", "X-Api-Key: hunter3"))
		errs = append(errs, fmt.Sprintf("%v %+v", err, err))
	}

	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 4 { // of each policy the queue and the calls
		t.Fatalf("got keys %q, %v; want 4", keys, err)
	}
	for _, text := range slices.Concat(errs, s.seen, keys) {
		if strings.Contains(text, "hunter") || strings.Contains(text, "Bearer") {
			t.Errorf("got %q; want no credential", text)
		}
	}

	if len(s.seen) == 0 || !strings.HasPrefix(s.seen[0], "credential:") {
		t.Errorf("the store got %q; want a hash of the credential", s.seen)
	}
}

func TestKeys(t *testing.T) {
	for _, tt := range []struct {
		name  string
		key   func(*http.Request) (string, error)
		url   string
		token string
		want  string
	}{
		{"host", httpclient.ByHost, "https://api.example.com/x", "", "host:api.example.com"},
		{"case", httpclient.ByHost, "https://API.Example.com", "", "host:api.example.com"},
		{"https's port", httpclient.ByHost, "https://api.example.com:443", "", "host:api.example.com"},
		{"http's port", httpclient.ByHost, "http://api.example.com:80", "", "host:api.example.com"},
		{"https's port over http", httpclient.ByHost, "http://api.example.com:443", "", "host:api.example.com:443"},
		{"port", httpclient.ByHost, "https://api.example.com:8443", "", "host:api.example.com:8443"},
		{"IPv6", httpclient.ByHost, "http://[2001:DB8::1]/", "", "host:2001:db8::1"},
		{"IPv6 and port", httpclient.ByHost, "http://[2001:db8::1]:81/", "", "host:[2001:db8::1]:81"},
		{"credential", httpclient.ByCredential, url, "Bearer hunter2", "credential:%x"},
		{"no credential", httpclient.ByCredential, url, "", ""},
		{"header", httpclient.ByHeader("authorization"), url, "Bearer hunter2", "header:%x"},
		{"no header", httpclient.ByHeader("X-Api-Key"), url, "Bearer hunter2", ""},
	} {
		r := request(t, "GET", tt.url, nil)
		if tt.token != "" {
			r.Header.Set("Authorization", tt.token)
		}
		want := strings.Replace(tt.want, "%x", hunter2, 1)
		if got, err := tt.key(r); got != want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", tt.name, got, err, want)
		}
	}
}
