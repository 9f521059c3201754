package realmw

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// FuzzFields checks that the fields of draft 11 keep to the grammar of RFC 9651, by a parser of it,
// and that no window of a denial ends after its Retry-After.
func FuzzFields(f *testing.F) {
	f.Add("burst", int64(100), int64(time.Minute), int64(0), int64(1))
	f.Add(`q"\`, int64(10), int64(100*time.Millisecond), int64(3), int64(2))
	f.Add("odd", int64(7), int64(1_000_000_007), int64(1), int64(1))
	f.Add("huge", int64(1), int64(200*365*24)*int64(time.Hour), int64(1), int64(1))

	f.Fuzz(func(t *testing.T, name string, count, per, burst, cost int64) {
		if cost < 0 {
			t.Skip()
		}

		l, err := middleware.New(middleware.Config{Store: gcra.NewMemory(), Headers: middleware.HeadersDraft11},
			middleware.Policy{Name: name, Key: keyfunc.Const("all"), Limit: gcra.Limit{Count: count, Per: time.Duration(per), Burst: burst},
				Cost: func(*http.Request) int64 { return cost }},
			middleware.Policy{Name: "second", Key: keyfunc.Const("all"), Limit: gcra.PerMinute(5)})
		if err != nil {
			t.Skip()
		}

		for range 3 {
			w := httptest.NewRecorder()
			_, allowed := l.Allow(w, httptest.NewRequest("GET", "/", nil))
			retry, _ := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
			policies, err := httpsfv.UnmarshalList(w.Header().Values("RateLimit-Policy"))
			if err != nil {
				t.Fatalf("RateLimit-Policy: %q: %v", w.Header().Get("RateLimit-Policy"), err)
			}

			list, err := httpsfv.UnmarshalList(w.Header().Values("RateLimit"))
			if err != nil {
				t.Fatalf("RateLimit: %q: %v", w.Header().Get("RateLimit"), err)
			}

			for i, want := range []string{name, "second"} {
				p, q := policies[i].(httpsfv.Item), list[i].(httpsfv.Item)
				if p.Value != want || q.Value != want {
					t.Errorf("item %d: got %q and %q; want %q", i, p.Value, q.Value, want)
				}
				if w, _ := p.Params.Get("w"); w.(int64) < 1 {
					t.Errorf("w is %v; want more than 0", w)
				}
				if n, ok := q.Params.Get("t"); ok && (n.(int64) < 1 || !allowed && n.(int64) > retry) {
					t.Errorf("t is %v with Retry-After %d", n, retry)
				}
			}
		}
	})
}
