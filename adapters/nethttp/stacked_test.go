package ratelimit_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// layerFunc makes a limiter on a store.
type layerFunc func(*gcra.Memory) func(http.Handler) http.Handler

// If one of several limiters denies, the response names one time for a retry: no
// effective window ends after Retry-After (draft 11, section 6), and Reset is
// Retry-After (draft 6, section 4). If no wait helps, or it is unknown which, no
// field names a time.
func TestStackedDenial(t *testing.T) {
	const both = ratelimit.HeadersDraft6 | ratelimit.HeadersDraft11
	layer := func(name string, l gcra.Limit, h ratelimit.Headers) layerFunc {
		return func(store *gcra.Memory) func(http.Handler) http.Handler {
			return ratelimit.New(ratelimit.Config{Store: store, Headers: h},
				ratelimit.Policy{Name: name, Key: keyfunc.RemoteAddr, Limit: l})
		}
	}

	never := func(h ratelimit.Headers) layerFunc {
		return func(store *gcra.Memory) func(http.Handler) http.Handler {
			return ratelimit.New(ratelimit.Config{Store: store, Headers: h, Logger: slog.New(slog.DiscardHandler)},
				ratelimit.Policy{Name: "export", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(3), Cost: func(*http.Request) int64 { return 4 }})
		}
	}

	closed := func(store *gcra.Memory) func(http.Handler) http.Handler {
		return ratelimit.New(ratelimit.Config{Store: store}, ratelimit.Policy{Name: "closed", OnFailure: ratelimit.FailClosed,
			Limit: gcra.PerMinute(5), Key: func(*http.Request) (string, error) { return "", fmt.Errorf("no key today") }})
	}

	minute, second := gcra.PerMinute(10), gcra.PerSecond(1)
	for _, test := range []struct {
		name   string
		layers []layerFunc
		status int
		want   string // of the fields in order: RateLimit-Limit, -Remaining, -Reset, -Policy, RateLimit, X-RateLimit-Reset, Retry-After
	}{
		{"two lists", []layerFunc{
			layer("outer", minute, ratelimit.HeadersDraft11), layer("inner", second, ratelimit.HeadersDraft11)}, 429,
			`|||"inner";q=1;w=1|"inner";r=0;t=1||1`},
		{"three lists", []layerFunc{
			layer("outer", minute, ratelimit.HeadersDraft11), layer("middle", gcra.PerHour(9), ratelimit.HeadersDraft11), layer("inner", second, ratelimit.HeadersDraft11)}, 429,
			`|||"inner";q=1;w=1|"inner";r=0;t=1||1`},
		{"both forms", []layerFunc{
			layer("outer", minute, both), layer("middle", gcra.PerHour(9), both), layer("inner", second, both)}, 429,
			`1|0|1|"inner";q=1;w=1|"inner";r=0;t=1||1`},
		{"draft 6", []layerFunc{layer("outer", minute, 0), layer("inner", second, 0)}, 429,
			`1|0|1|1;w=1|||1`},
		{"X inside draft 6", []layerFunc{layer("outer", minute, 0), layer("inner", second, ratelimit.HeadersXRateLimit)}, 429,
			`|||||1|1`},
		{"none inside both", []layerFunc{layer("outer", minute, both), layer("inner", second, ratelimit.HeadersNone)}, 429,
			`||||||1`},
		{"draft 6 inside draft 11", []layerFunc{layer("outer", minute, ratelimit.HeadersDraft11), layer("inner", second, 0)}, 429,
			`1|0|1|1;w=1|||1`},
		{"no wait helps, alone", []layerFunc{never(both | ratelimit.HeadersXRateLimit)}, 429,
			`|||"export";q=3;w=1|"export";r=3||`},
		{"no wait helps, draft 6", []layerFunc{layer("outer", minute, 0), never(0)}, 429,
			`|||3;w=1|||`},
		{"no wait helps, inside", []layerFunc{layer("outer", minute, both), never(both)}, 429,
			`|||"export";q=3;w=1|"export";r=3||`},
		{"cannot be decided", []layerFunc{layer("outer", minute, both), closed}, 503,
			`||||||1`},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, _ := newStore()
			h := http.Handler(http.HandlerFunc(hello))
			for i := range test.layers {
				h = test.layers[len(test.layers)-1-i](store)(h)
			}

			get := serve(t, h)
			get()
			res, _ := get()
			var got []string
			for _, name := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "RateLimit-Policy", "RateLimit", "X-RateLimit-Reset", "Retry-After"} {
				got = append(got, strings.Join(res.Header.Values(name), " & "))
			}

			if fields := strings.Join(got, "|"); res.StatusCode != test.status || fields != test.want {
				t.Errorf("got %d, %s\nwant %d, %s", res.StatusCode, fields, test.status, test.want)
			}

			retry, _ := strconv.Atoi(res.Header.Get("Retry-After"))
			list := regexp.MustCompile(`"(\\.|[^"\\])*"`).ReplaceAllString(strings.Join(res.Header.Values("RateLimit"), ","), "") // without names
			for _, window := range regexp.MustCompile(`;t=(\d+)`).FindAllStringSubmatch(list, -1) {
				if n, err := strconv.Atoi(window[1]); err != nil || n > retry {
					t.Errorf("%s ends after Retry-After, %d", window[0], retry)
				}
			}
		})
	}
}

// A limiter that denies does not refund the charges of limiters further out. So
// Retry-After is when the limiter that denied would let the request pass, and an
// outer one may deny it then.
func TestStackedRetryAfter(t *testing.T) {
	store, clock := newStore()
	outer := ratelimit.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(10).WithBurst(2)})
	inner := ratelimit.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "user", Key: keyfunc.Const("alice"), Limit: gcra.PerSecond(1)})

	apart := serve(t, outer(inner(http.HandlerFunc(hello))))
	for i, want := range []string{"200 ", "429 1", "429 5"} {
		res, _ := apart()
		if got := fmt.Sprint(res.StatusCode, " ", res.Header.Get("Retry-After")); got != want {
			t.Errorf("two limiters, request %d: got %s; want %s", i+1, got, want)
		}
		if i > 0 {
			clock.add(time.Second)
		}
	}

	// One limiter with both policies charges all or none.
	store, clock = newStore()
	together := serve(t, ratelimit.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(10).WithBurst(2)},
		ratelimit.Policy{Name: "user", Key: keyfunc.Const("alice"), Limit: gcra.PerSecond(1)})(http.HandlerFunc(hello)))

	for i, want := range []string{"200 ", "429 1", "200 "} {
		res, _ := together()
		if got := fmt.Sprint(res.StatusCode, " ", res.Header.Get("Retry-After")); got != want {
			t.Errorf("one limiter, request %d: got %s; want %s", i+1, got, want)
		}
		if i > 0 {
			clock.add(time.Second)
		}
	}
}
