package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// broken is a store that does not answer, or panics.
type broken struct{ panics bool }

var errBroken = errors.New("store is broken")

func (b broken) Take(context.Context, []gcra.Charge) (bool, error) {
	if b.panics {
		panic(errBroken)
	}
	return false, errBroken
}

func (b broken) Refund(ctx context.Context, charges []gcra.Charge) error {
	_, err := b.Take(ctx, charges)
	return err
}

var _ = fault(63, "a_panic_is_the_policys_outage", func(t *testing.T, o *outcome) {
	o.injected = "panics in Key, LimitFor, Cost, Skip and the store; nil"
	panicking := func(*http.Request) (string, error) {
		var nobody *http.Request
		return nobody.Host, nil
	}
	two := gcra.PerDay(2)
	eachFramework(t, func(t *testing.T, f framework) {
		for name, tt := range map[string]struct {
			store  gcra.Store
			policy middleware.Policy
		}{
			"Key":       {nil, middleware.Policy{Name: "all", Key: panicking, Limit: two}},
			"an abort":  {nil, middleware.Policy{Name: "all", Key: func(*http.Request) (string, error) { panic(http.ErrAbortHandler) }, Limit: two}},
			"LimitFor":  {nil, middleware.Policy{Name: "all", Key: everybody, Limit: two, LimitFor: func(*http.Request) gcra.Limit { panic("no plan") }}},
			"Cost":      {nil, middleware.Policy{Name: "all", Key: everybody, Limit: two, Cost: func(*http.Request) int { panic("no cost") }}},
			"Skip":      {nil, middleware.Policy{Name: "all", Key: everybody, Limit: two, Skip: func(*http.Request) bool { panic("no idea") }}},
			"the store": {broken{panics: true}, middleware.Policy{Name: "all", Key: everybody, Limit: two}},
			"an error":  {broken{}, middleware.Policy{Name: "all", Key: everybody, Limit: two}},
		} {
			for outage, want := range map[middleware.FailureMode][]int{
				middleware.FailLocal:  {200, 200, 429, 429},
				middleware.FailOpen:   {200, 200, 200, 429}, // by the other policy
				middleware.FailClosed: {503, 503, 503, 503},
			} {
				if tt.store != nil && outage == middleware.FailOpen {
					continue // the other policy cannot be decided either, and goes by itself
				}
				if name == "Cost" && outage == middleware.FailLocal {
					want = []int{200, 429, 429, 429} // a client may have made it fail, so it takes all there is
				}
				tt.policy.Name, tt.policy.OnFailure = "panics", outage
				s := openSite(t, o, setup{framework: f, Config: middleware.Config{Store: tt.store}, policies: []middleware.Policy{
					tt.policy, {Name: "other", Key: everybody, Limit: gcra.PerDay(3)}}})
				expect(t, fmt.Sprintf("%s, outage way %d", name, outage), s.statuses(t, "GET /ok", 4), want)
				expect(t, name+": decisions with an error", s.failed.Load(), 4)
			}
		}
	})
	var memory *gcra.Memory
	var store *redisstore.Store
	for name, s := range map[string]gcra.Store{"nil": nil, "nil *Memory": memory, "nil *Redis": store} {
		if _, err := middleware.New(middleware.Config{Store: s}, middleware.Policy{Name: "all", Key: everybody, Limit: two}); err == nil {
			t.Errorf("a store that is %s was accepted", name)
		}
	}
})

var _ = fault(65, "the_writer_is_not_wrapped", func(t *testing.T, o *outcome) {
	o.injected = "flush, upgrade, deadlines through a limiter"
	for _, f := range frameworks {
		more := make(chan struct{})
		var mu sync.Mutex
		writers := make(map[string]bool)
		s := openSite(t, o, setup{framework: f, policies: []middleware.Policy{
			{Name: "all", Key: everybody, Limit: gcra.PerDay(100), Skip: func(r *http.Request) bool { return r.Header.Get("X-Skip") != "" }}},
			handler: func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				_, readsFrom := w.(io.ReaderFrom)
				writers[fmt.Sprintf("%v, ReaderFrom %v", reflect.TypeOf(w), readsFrom)] = true
				mu.Unlock()
				rc := http.NewResponseController(w)
				for what, err := range map[string]error{
					"SetWriteDeadline": rc.SetWriteDeadline(time.Now().Add(time.Minute)), "SetReadDeadline": rc.SetReadDeadline(time.Now().Add(time.Minute))} {
					if err != nil {
						t.Errorf("%s: %s: %v", f.name, what, err)
					}
				}
				switch {
				case r.Header.Get("Upgrade") != "":
					conn, rw, err := rc.Hijack()
					if err != nil {
						t.Errorf("%s: Hijack: %v", f.name, err)
						return
					}
					defer conn.Close()
					_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
					_ = rw.Flush()
					_, _ = io.CopyN(conn, rw, 5)
				case r.Header.Get("Accept") == "text/event-stream":
					_, _ = io.WriteString(w, "data: 1\n\n")
					if err := rc.Flush(); err != nil {
						t.Errorf("%s: Flush: %v", f.name, err)
					}
					<-more
				}
			}})
		a := s.do(t, "GET /ok", "X-Skip: 1")
		expect(t, f.name+": skipped", []any{a.StatusCode, a.Header.Get("RateLimit-Limit")}, []any{200, ""})
		expect(t, f.name+": limited", s.do(t, "GET /ok").Header.Get("RateLimit-Limit"), "100")

		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/ok", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", "text/event-stream")
		res, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		event := make([]byte, 9)
		_, err = io.ReadFull(res.Body, event) // comes while the handler still runs
		expect(t, f.name+": the first event", []any{string(event), err}, []any{"data: 1\n\n", nil})
		close(more)
		_ = readAnswer(t, res)

		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET /ok HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		br := bufio.NewReader(conn)
		if res, err := http.ReadResponse(br, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: upgrade: got %v, %v; want 101", f.name, res, err)
		}
		_, _ = io.WriteString(conn, "hello")
		echoed := make([]byte, 5)
		_, err = io.ReadFull(br, echoed)
		expect(t, f.name+": after the upgrade", []any{string(echoed), err}, []any{"hello", nil})
		mu.Lock()
		if len(writers) != 1 {
			t.Errorf("%s: the handler got writers %v; want the same with and without a limit", f.name, writers)
		}
		mu.Unlock()
	}
})

var _ = fault(66, "a_stream_holds_nobody_up", func(t *testing.T, o *outcome) {
	o.injected = "50 open streams; bodies that never come"
	eachFramework(t, func(t *testing.T, f framework) {
		release := make(chan struct{})
		s := openSite(t, o, setup{framework: f, policies: []middleware.Policy{
			{Name: "all", Key: everybody, Limit: gcra.PerDay(1000)},
			{Name: "uploads", Key: everybody, Limit: gcra.PerDay(1), Routes: []string{"PUT /ok"}}},
			handler: func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					_ = http.NewResponseController(w).Flush()
					<-release
				}
				_, _ = io.Copy(w, r.Body)
			}})
		var streams sync.WaitGroup
		for range 50 {
			streams.Go(func() { s.do(t, "POST /ok") })
		}
		for s.handled.Load() < 50 {
			time.Sleep(time.Millisecond)
		}
		expect(t, "meanwhile", s.statuses(t, "GET /ok", 20), slices.Repeat([]int{200}, 20))
		time.Sleep(phase(0, 20*time.Second))
		close(release)
		streams.Wait()

		// The decision comes before the body, and reads none of it.
		expect(t, "upload", s.do(t, "PUT /ok").StatusCode, 200)
		a := s.raw(t, "PUT /ok HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\nthe beginning of")
		if a == nil || a.StatusCode != http.StatusTooManyRequests {
			t.Errorf("an upload beyond the limit, of which the body is not sent: got %v; want 429", a)
		}
	})
})

// cors is what a CORS middleware does, as far as the order with a limiter goes.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" {
			w.Header().Set("Access-Control-Allow-Origin", origin)
			if isPreflight(r) {
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// isPreflight is what a Skip goes by: not any OPTIONS, but one that browsers
// send of their own accord.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

var _ = fault(67, "a_preflight_may_go_uncounted_and_nothing_else", func(t *testing.T, o *outcome) {
	o.injected = "CORS outside and inside of the limiter"
	preflight := []string{"Origin: https://app.example", "Access-Control-Request-Method: PUT"}
	eachFramework(t, func(t *testing.T, f framework) {
		for name, wrap := range map[string]func(http.Handler) http.Handler{"outside": cors, "inside": nil} {
			s := openSite(t, o, setup{framework: f, wrap: wrap, policies: []middleware.Policy{{Name: "all", Key: everybody, Limit: gcra.PerDay(2), Skip: isPreflight}}})
			for range 5 {
				a := s.do(t, "OPTIONS /ok", preflight...)
				expect(t, name+": preflight", []any{a.StatusCode < 300, a.Header.Get("RateLimit-Limit")}, []any{true, ""})
			}
			expect(t, name+": OPTIONS", s.do(t, "OPTIONS /ok").Header.Get("RateLimit-Remaining"), "1")
			expect(t, name+": OPTIONS with half of it", s.do(t, "OPTIONS /ok", preflight[1]).Header.Get("RateLimit-Remaining"), "0")
			a := s.do(t, "PUT /ok", preflight[0])
			expect(t, name+": the request itself", a.StatusCode, 429)
			if name == "outside" { // so that a script may read the refusal
				expect(t, name+": the refusal's CORS field", a.Header.Get("Access-Control-Allow-Origin"), "https://app.example")
			}
		}
	})
})

var _ = fault(68, "no_method_is_a_way_around", func(t *testing.T, o *outcome) {
	o.injected = "HEAD, OPTIONS, X-HTTP-Method-Override"
	eachFramework(t, func(t *testing.T, f framework) {
		s := openSite(t, o, setup{framework: f, policies: []middleware.Policy{
			{Name: "all", Key: everybody, Limit: gcra.PerDay(5)},
			{Name: "login", Key: everybody, Limit: gcra.PerDay(1), Routes: []string{"POST /login"}}}})
		override := []string{"X-HTTP-Method-Override: GET", "X-HTTP-Method: GET", "X-Method-Override: GET"}
		expect(t, "login", s.do(t, "POST /login", override...).StatusCode, 200)
		expect(t, "login again", s.do(t, "POST /login", override...).StatusCode, 429)
		expect(t, "login, overridden in the query", s.do(t, "POST /login?_method=GET", override...).StatusCode, 429)
		var left []string
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "HEAD", "OPTIONS"} {
			a := s.do(t, method+" /ok", override...)
			left = append(left, fmt.Sprint(a.StatusCode, " ", a.Header.Get("RateLimit-Remaining")))
		}
		expect(t, "status and remaining", left, []string{"200 3", "200 2", "200 1", "200 0", "429 0", "429 0"})
	})
})
