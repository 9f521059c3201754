package test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// strict is a server with limits on the times at which requests arrive: count requests in any window of
// length per or, if fixed, in each of the windows that follow each other from the first request.
type strict struct {
	short, long gcra.Limit
	fixed       bool

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
		if n < 0 {
			return false
		}
		age := now.Sub(s.at[n]) // of the oldest request that may fill the window
		if s.fixed {
			return age <= now.Sub(s.at[0])%l.Per
		}
		return age < l.Per
	}

	if full(s.short) || full(s.long) {
		s.denied++
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	s.at = append(s.at, now)
}

// callStrict sends n requests through four Transports for ten callers each, as fast as they may, and
// checks that the server denies none. It returns the time from the first to the last.
func callStrict(t *testing.T, s *strict, n int64, url string, config func() httpclient.Config, tt recipe) (took time.Duration) {
	t.Helper()
	var begun atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		cfg := config()
		cfg.MaxWait = 2 * time.Minute
		cfg.Policies = []httpclient.Policy{
			{Name: "short", Key: httpclient.ByHost, Limit: tt.own(s.short, tt.short)},
			{Name: "long", Key: httpclient.ByHost, Limit: tt.own(s.long, tt.long)},
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
					_, err = io.Copy(io.Discard, resp.Body)
					if err = errors.Join(err, resp.Body.Close()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}

	wg.Wait()
	if s.denied > 0 || len(s.at) != int(n) {
		t.Errorf("the server denied %d requests and allowed %d; want 0 and %d", s.denied, len(s.at), n)
	}

	return s.at[len(s.at)-1].Sub(s.at[0])
}

// A recipe keeps limits of a server, with a sliding log or with bursts of GCRA for each of them.
type recipe struct {
	name        string
	log         bool
	short, long int64
}

var recipes = []recipe{{"sliding log", true, 0, 0}, {"GCRA, bursts", false, 5, 20}, {"GCRA, evenly", false, 1, 1}}

// own is the limit of a client: with GCRA, the sum of burst and count is the server's count.
func (recipe) own(l gcra.Limit, burst int64) gcra.Limit {
	return gcra.Limit{Count: l.Count - burst, Per: l.Per, Burst: burst}
}

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
	t.Parallel()
	for _, tt := range recipes {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &strict{short: gcra.Limit{Count: 25, Per: 5 * time.Second}, long: gcra.PerMinute(300)}
				var store gcra.Store = gcra.NewMemory()
				if tt.log {
					store = slidinglog.NewMemory(slidinglog.Config{})
				}
				network := network{s, 49 * time.Millisecond}
				callStrict(t, s, 325, "http://partner.example/", func() httpclient.Config { return httpclient.Config{Base: network, Store: store} }, tt)
			})
		})
	}
}

// The same holds for a real server and a real Redis. In the short form the windows are one and three
// seconds, and the margin 0.9 seconds, more than a busy machine delays a request; in the long form they are 5
// seconds and a minute, and the margin is the default. Evenly spaced requests are sent in the long form only:
// every pause of a busy machine brings some of them together.
func TestStrictServer(t *testing.T) { // not beside the others, see TestMain
	short, minute, n, margin, tried := gcra.PerSecond(25), gcra.Limit{Count: 75, Per: 3 * time.Second}, int64(105), 0.9, recipes[:2]
	if long {
		short, minute, n, margin, tried = gcra.Limit{Count: 25, Per: 5 * time.Second}, gcra.PerMinute(300), 325, 0, recipes
	}
	tab := newTable(t, "server's windows", "client's limits", "sent", "denied", "took")
	for _, tt := range tried {
		for _, windows := range []string{"strict", "fixed"} {
			t.Run(tt.name+", "+windows, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				s := &strict{short: short, long: minute, fixed: windows == "fixed"}
				site := httptest.NewServer(s)
				t.Cleanup(site.Close)
				took := callStrict(t, s, n, site.URL, func() httpclient.Config {
					base := &http.Transport{MaxIdleConnsPerHost: 10}
					t.Cleanup(base.CloseIdleConnections)
					cfg := httpclient.Config{Base: base, Margin: margin}
					var err error
					if tt.log {
						cfg.Store, err = slidinglog.New(server.Client(), slidinglog.Config{Timeout: 20 * time.Second})
					} else {
						cfg.Store, err = redisstore.New(server.Client(), redisstore.Config{Timeout: 20 * time.Second})
					}
					if err != nil {
						t.Error(err)
					}
					return cfg
				}, tt)
				tab.add(windows, tt.name, len(s.at)+s.denied, s.denied, took.Round(100*time.Millisecond))
			})
		}
	}
}
