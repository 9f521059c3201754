package test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/nginxtest"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

// nginx denies with a 429 and says nothing else. It allows 5 requests a second and delays two more. All
// callers slow down after a denial, so that 40 requests of Transport cost at most 10 denials, and a quarter of what
// Adaptive sends at most is denied.
func TestNginx(t *testing.T) {
	t.Parallel()
	tab := newTable(t, columns...)
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(origin.Close)
	client := nginxtest.Start(t, "limit_req_zone $http_client zone=api:1m rate=5r/s;", `
		limit_req zone=api burst=2;
		limit_req_status 429;
		location / { proxy_pass `+origin.URL+`; }`)
	w := workload{callers: 5, calls: 8, config: httpclient.Config{Base: client.Transport}, request: get("http://nginx/")}
	w.run(t, tab, "nginx, 5 a second", func(t *testing.T, client string, x *exchanges) {
		most := 50
		if client != "Transport" {
			most = 40 * 4 / 3
		}
		if len(x.log) > most {
			t.Errorf("sent %d requests; want at most %d", len(x.log), most)
		}
		if took := x.log[len(x.log)-1].sent.Sub(x.log[0].sent); long && took.Seconds() > 10 {
			t.Errorf("took %v; want at most 10s", took)
		}
	})
}
