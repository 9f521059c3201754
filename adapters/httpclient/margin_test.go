package httpclient_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/adapters/httpclient"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/slidinglog"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// strictPartner is a server that allows 25 requests in any window of length per and 300 in any of
// 12 times that, by the times at which they arrive.
type strictPartner struct {
	per time.Duration

	mu     sync.Mutex
	at     []time.Time // of the allowed requests
	denied int
}

func (p *strictPartner) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	full := func(count int, per time.Duration) bool {
		return len(p.at) >= count && now.Sub(p.at[len(p.at)-count]) < per
	}
	if full(25, p.per) || full(300, 12*p.per) {
		p.denied++
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	p.at = append(p.at, now)
}

// A partner with strict windows denies none of 325 requests that four Transports send for ten callers
// each, as fast as they may. Its windows are half a second and 6 seconds, and the margin 300 ms, more
// than a busy machine delays a request. With RATELIMIT_LONG set the windows are 5 seconds and a minute,
// and the margin is the default.
func TestStrictPartner(t *testing.T) {
	per, margin := time.Second, 0.05
	if os.Getenv("RATELIMIT_LONG") != "" {
		per, margin = 5*time.Second, 0
	} else if testing.Short() {
		t.Skip("takes 13 seconds")
	}
	t.Parallel()
	server := redistest.Start(t)
	log := func() gcra.Store {
		s := slidinglog.NewRedis(server.Client())
		s.Timeout = 20 * time.Second
		return s
	}
	cell := func() gcra.Store {
		s := redisstore.New(server.Client())
		s.Timeout = 20 * time.Second
		return s
	}
	for _, tt := range []struct {
		name        string
		store       func() gcra.Store
		short, long gcra.Limit
	}{
		{"sliding log", log, gcra.Limit{Count: 25, Per: per}, gcra.Limit{Count: 300, Per: 12 * per}},
		{"GCRA, evenly", cell, gcra.Limit{Count: 25, Per: per, Burst: 1}, gcra.Limit{Count: 300, Per: 12 * per, Burst: 1}},
		{"GCRA, bursts", cell, gcra.Limit{Count: 21, Per: per, Burst: 5}, gcra.Limit{Count: 281, Per: 12 * per, Burst: 20}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &strictPartner{per: per}
			site := httptest.NewServer(p)
			t.Cleanup(site.Close)
			var begun atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				base := &http.Transport{MaxIdleConnsPerHost: 10}
				t.Cleanup(base.CloseIdleConnections)
				client := &http.Client{Transport: transport(t, httpclient.Config{
					Base: base, Store: tt.store(), Margin: margin, MaxWait: 2 * time.Minute,
					Policies: []httpclient.Policy{
						{Name: tt.name + ", short", Key: httpclient.ByHost, Limit: tt.short},
						{Name: tt.name + ", long", Key: httpclient.ByHost, Limit: tt.long},
					},
				})}
				for range 10 {
					wg.Go(func() {
						for begun.Add(1) <= 325 {
							resp, err := client.Get(site.URL)
							if err != nil {
								t.Error(err)
								return
							}
							_, _ = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
					})
				}
			}
			wg.Wait()
			if p.denied > 0 || len(p.at) != 325 {
				t.Errorf("the partner denied %d requests and allowed %d; want 0 and 325", p.denied, len(p.at))
			}
			t.Logf("325 requests within %v", p.at[len(p.at)-1].Sub(p.at[0]))
		})
	}
}
