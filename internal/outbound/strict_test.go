package outbound

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/adapters/httpclient"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/slidinglog"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// strict is a server that allows count requests in any window of length per, by the times at which
// they arrive, for two windows.
type strict struct {
	short, long gcra.Limit

	mu     sync.Mutex
	at     []time.Time // of the allowed requests
	denied int
}

func (s *strict) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	full := func(l gcra.Limit) bool {
		n := len(s.at) - int(l.Count)
		return n >= 0 && now.Sub(s.at[n]) < l.Per
	}
	if full(s.short) || full(s.long) {
		s.denied++
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	s.at = append(s.at, now)
}

// callStrict sends n requests through four Transports for ten callers each, as fast as they may, and
// checks that the server denies none. A limit's burst is 0 for a sliding log; with GCRA, the sum
// of burst and count is the server's count.
func callStrict(t *testing.T, s *strict, n int64, url string, config func() httpclient.Config, shortBurst, longBurst int64) {
	t.Helper()
	own := func(l gcra.Limit, burst int64) gcra.Limit {
		return gcra.Limit{Count: l.Count - burst, Per: l.Per, Burst: burst}
	}
	var begun atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		cfg := config()
		cfg.MaxWait = 2 * time.Minute
		cfg.Policies = []httpclient.Policy{
			{Name: "short", Key: httpclient.ByHost, Limit: own(s.short, shortBurst)},
			{Name: "long", Key: httpclient.ByHost, Limit: own(s.long, longBurst)},
		}
		client := &http.Client{Transport: httpclient.Must(httpclient.New(cfg))}
		for range 10 {
			wg.Go(func() {
				for begun.Add(1) <= n {
					resp, err := client.Get(url)
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
	if s.denied > 0 || len(s.at) != int(n) {
		t.Errorf("the server denied %d requests and allowed %d; want 0 and %d", s.denied, len(s.at), n)
	}
	t.Logf("%d requests within %v", n, s.at[len(s.at)-1].Sub(s.at[0]))
}

// recipes are the bursts of a sliding log and of GCRA.
var recipes = []struct {
	name        string
	log         bool
	short, long int64
}{{"sliding log", true, 0, 0}, {"GCRA, bursts", false, 5, 20}, {"GCRA, evenly", false, 1, 1}}

// network delays requests to a server by up to so long.
type network struct {
	server http.Handler
	delay  time.Duration
}

func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(rand.N(n.delay))
	w := httptest.NewRecorder()
	n.server.ServeHTTP(w, r)
	return w.Result(), nil
}

// The default margin keeps 25 per 5 seconds and 300 per minute where the requests arrive, if some
// take up to 49 ms longer than others.
func TestMargin(t *testing.T) {
	for _, tt := range recipes {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &strict{short: gcra.Limit{Count: 25, Per: 5 * time.Second}, long: gcra.PerMinute(300)}
				var store gcra.Store = gcra.NewMemory()
				if tt.log {
					store = slidinglog.NewMemory()
				}
				network := network{s, 49 * time.Millisecond}
				callStrict(t, s, 325, "http://partner.example/", func() httpclient.Config { return httpclient.Config{Base: network, Store: store} }, tt.short, tt.long)
			})
		})
	}
}

// The same holds for a real server and a real Redis. The windows are one and three seconds, and the
// margin 0.9 seconds, more than a busy machine delays a request. With RATELIMIT_LONG set the windows
// are 5 seconds and a minute, and the margin is the default. Evenly spaced requests are not sent: every
// pause of the machine would bring some of them together.
func TestStrictServer(t *testing.T) {
	short, long, n, margin := gcra.PerSecond(25), gcra.Limit{Count: 75, Per: 3 * time.Second}, int64(105), 0.9
	if os.Getenv("RATELIMIT_LONG") != "" {
		short, long, n, margin = gcra.Limit{Count: 25, Per: 5 * time.Second}, gcra.PerMinute(300), 325, 0
	} else if testing.Short() {
		t.Skip("takes 10 seconds")
	}
	t.Parallel()
	for _, tt := range recipes[:2] {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := &strict{short: short, long: long}
			site := httptest.NewServer(s)
			t.Cleanup(site.Close)
			callStrict(t, s, n, site.URL, func() httpclient.Config {
				base := &http.Transport{MaxIdleConnsPerHost: 10}
				t.Cleanup(base.CloseIdleConnections)
				cfg := httpclient.Config{Base: base, Margin: margin}
				if tt.log {
					log := slidinglog.NewRedis(server.Client())
					log.Timeout = 20 * time.Second
					cfg.Store = log
				} else {
					cell := redisstore.New(server.Client())
					cell.Timeout = 20 * time.Second
					cfg.Store = cell
				}
				return cfg
			}, tt.short, tt.long)
		})
	}
}
