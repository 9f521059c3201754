package ratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/internal/test/nginxtest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// A real cache in front does not store a denial, though it stores the other
// responses that middleware further out marks for it. Whether nginx obeys
// X-Accel-Expires or Cache-Control depends on its version and on their order, so
// here it ignores Cache-Control.
func TestNginxDoesNotStoreADenial(t *testing.T) {
	store := doubles.NewStore()
	limit := ratelimit.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1)})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Accel-Expires", "600")
		w.Header().Set("ETag", `"1"`)
		limit(http.HandlerFunc(hello)).ServeHTTP(w, r)
	}))

	t.Cleanup(origin.Close)
	client := nginxtest.Start(t, "proxy_cache_path cache keys_zone=zone:1m;", `
		proxy_cache zone;
		proxy_ignore_headers Cache-Control;
		add_header X-Cache $upstream_cache_status always;
		location / { proxy_pass `+origin.URL+`; }`)

	get := func(path, want string) {
		t.Helper()
		res := fetch(t, client, "http://cache"+path)
		if got := fmt.Sprint(res.StatusCode, " ", res.Header.Get("X-Cache")); got != want {
			t.Errorf("GET %s: got %s; want %s", path, got, want)
		}
	}

	get("/a", "200 MISS")
	get("/a", "200 HIT")
	get("/b", "429 MISS")
	store.Add(time.Hour)
	get("/b", "200 MISS")
}

// fetch sends a GET, and drops the body of the response.
func fetch(t *testing.T, client *http.Client, url string) *http.Response {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res
}

// A client whose uploads are denied gets 429, and all others are served. nginx sends a body that it has
// and, with its defaults, closes each connection: a server that answers without reading resets it. nginx
// would answer 502, and after one upload to each server all requests, for ten seconds.
func TestNginxDeniedUploads(t *testing.T) {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "uploads", Key: keyfunc.RemoteAddr, Limit: gcra.PerDay(1), Routes: []string{"POST /"}})
	servers := ""
	for range 2 {
		app := httptest.NewServer(limit(http.HandlerFunc(hello)))
		t.Cleanup(app.Close)
		servers += "server " + app.Listener.Addr().String() + "; "
	}
	client := nginxtest.Start(t, "upstream app { "+servers+"}", "client_max_body_size 100m; location / { proxy_pass http://app; }")

	if res, err := client.Post("http://app/", "", nil); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("the first upload: got %v, %v; want 200", res, err)
	}
	for _, size := range []int{300e3, 1e6, 10e6, 60e6} {
		body := strings.Repeat("x", size)
		for range 4 {
			res, err := client.Post("http://app/", "", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if other := fetch(t, client, "http://app/"); res.StatusCode != http.StatusTooManyRequests || other.StatusCode != http.StatusOK {
				t.Errorf("%d bytes: got %d, and %d for others; want 429, 200", size, res.StatusCode, other.StatusCode)
			}
		}
	}
}
