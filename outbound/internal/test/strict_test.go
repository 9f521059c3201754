package test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// strict is a server with limits on the times at which requests arrive: count requests in any window of length per.
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
		if n < 0 {
			return false
		}
		return now.Sub(s.at[n]) < l.Per
	}

	if full(s.short) || full(s.long) {
		s.denied++
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	s.at = append(s.at, now)
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

// The default margin keeps 25 per 5 seconds and 300 per minute where the requests arrive, if some take up to
// 49 ms longer than others. Ten callers of each of four Transports send as fast as they may.
func TestMargin(t *testing.T) {
	t.Parallel()
	for _, tt := range recipes {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const n = 325
				s := &strict{short: gcra.Limit{Count: 25, Per: 5 * time.Second}, long: gcra.PerMinute(300)}
				cfg := httpclient.Config{
					Base: network{s, 49 * time.Millisecond}, Store: gcra.NewMemory(), MaxWait: 2 * time.Minute,
					Policies: []httpclient.Policy{
						{Name: "short", Key: httpclient.ByHost, Limit: tt.own(s.short, tt.short)},
						{Name: "long", Key: httpclient.ByHost, Limit: tt.own(s.long, tt.long)},
					},
				}
				if tt.log {
					cfg.Store = slidinglog.NewMemory(slidinglog.Config{})
				}

				var begun atomic.Int64
				var wg sync.WaitGroup
				for range 4 {
					transport := httpclient.Must(httpclient.New(cfg))
					for range 10 {
						wg.Go(func() {
							for begun.Add(1) <= n {
								if _, err := transport.RoundTrip(get("http://partner.example/")(t, 0)); err != nil {
									t.Error(err)
								}
							}
						})
					}
				}

				wg.Wait()
				if s.denied > 0 || len(s.at) != n {
					t.Errorf("the server denied %d requests and allowed %d; want 0 and %d", s.denied, len(s.at), n)
				}
			})
		})
	}
}
