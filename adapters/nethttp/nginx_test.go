package ratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/nginxtest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// A real cache in front does not store a denial, though it stores the other
// responses that middleware further out marks for it. Whether nginx obeys
// X-Accel-Expires or Cache-Control depends on its version and on their order, so
// here it ignores Cache-Control.
func TestNginxDoesNotStoreADenial(t *testing.T) {
	store, clock := newStore()
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
		res, _ := fetch(t, client, "http://cache"+path)
		if got := fmt.Sprint(res.StatusCode, " ", res.Header.Get("X-Cache")); got != want {
			t.Errorf("GET %s: got %s; want %s", path, got, want)
		}
	}

	get("/a", "200 MISS")
	get("/a", "200 HIT")
	get("/b", "429 MISS")
	clock.add(time.Hour)
	get("/b", "200 MISS")
}
