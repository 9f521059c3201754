package readme

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// What is only compiled.
var _ = []any{stores, keys, policies}

func stores() error {
	store := gcra.NewMemory()
	_ = store
	{
		store, err := redisstore.Open("redis://localhost:6379/0")
		if err != nil {
			return err
		}
		defer store.Close()

		if err := store.Ping(context.Background()); err != nil {
			log.Print("limits are kept in this process until Redis works: ", err)
		}
	}
	{
		store, err := redisstore.Open("redis://10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379")
		_, _ = store, err
	}
	{
		var pool *x509.CertPool
		opts, err := redisstore.Options("rediss://redis.internal:6379/0")
		if err != nil {
			return err
		}
		opts.TLSConfig.RootCAs = pool
		store := redisstore.New(redis.NewUniversalClient(opts))
		_ = store
	}
	{
		store := redisstore.New(redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName:            "mymaster",
			SentinelAddrs:         []string{"10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"},
			ContextTimeoutEnabled: true,
			DialTimeout:           500 * time.Millisecond, // a silent sentinel must not hold up the others
			ReadTimeout:           500 * time.Millisecond,
			MaxRetries:            -1,
			Protocol:              2, // TLS needs it; see redisstore.New
		}))
		store.Prefix = "shop:"
		store.Timeout = 20 * time.Millisecond
	}
	return nil
}

func sample() (cfg ratelimit.Config, policies []ratelimit.Policy) {
	now := time.Now() // stands still, so that nothing refills
	store := &gcra.Memory{Now: func() time.Time { return now }}
	client := keyfunc.RemoteAddr
	user := keyfunc.First(keyfunc.Subject(userOf), client)

	cfg = ratelimit.Config{Store: store}
	policies = []ratelimit.Policy{
		{Name: "burst", Key: user, Limit: gcra.PerSecond(10)},
		{Name: "daily", Key: user, Limit: gcra.PerDay(10_000)},
	}

	return cfg, policies
}

// limits checks that a server lets 10 of 12 pass.
func limits(t *testing.T, h http.Handler) {
	t.Helper()
	var got []int
	for range 12 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/hello", nil))
		got = append(got, w.Code)
	}
	want := append(slices.Repeat([]int{200}, 10), 429, 429)
	if !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}

type userKey struct{}

func userOf(ctx context.Context) string {
	name, _ := ctx.Value(userKey{}).(string)
	return name
}

func planOf(*http.Request) string { return "free" }

var secret []byte

func keys(owners map[string]string) {
	client := keyfunc.RemoteAddr
	{
		client := keyfunc.TrustedProxies("10.0.0.0/8", "2001:db8:1::/48")
		_ = client
	}
	{
		client := keyfunc.Forwarded("10.0.0.0/8")
		_ = client
	}
	{
		client := keyfunc.Header("CF-Connecting-IP", "173.245.48.0/20", "2400:cb00::/32") // and their other networks
		_ = client
	}
	{
		client := keyfunc.IPv6Prefix(56, keyfunc.TrustedProxies("10.0.0.0/8"))
		_ = client
	}
	{
		subject := keyfunc.JWTSubject(
			func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"},
			jwt.WithIssuer("https://login.example.com"))
		user := keyfunc.First(subject, client) // requests without a valid token are counted by address
		_ = user
	}
	{
		user := keyfunc.Subject(userOf) // func(context.Context) string
		_ = user
	}
	{
		tenant := keyfunc.APIKey("X-API-Key", func(_ context.Context, apiKey string) (string, bool) {
			name, ok := owners[apiKey]
			return name, ok
		})

		_ = []ratelimit.Policy{
			{Name: "tenant", Key: tenant, Limit: gcra.PerMinute(10_000)},
			{Name: "tenant-route", Key: keyfunc.Join(tenant, keyfunc.Route), Limit: gcra.PerMinute(1_000)},
		}
	}
}

func policies(user, client keyfunc.Func, store gcra.Store) {
	limit := ratelimit.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "burst", Key: user, Limit: gcra.PerSecond(10)},
		ratelimit.Policy{Name: "daily", Key: user, Limit: gcra.PerDay(10_000)},
	)
	_ = limit

	_ = []ratelimit.Policy{
		{Name: "login", Key: client, Limit: gcra.PerMinute(5), Routes: []string{"POST /login"}},
		{Name: "users", Key: client, Limit: gcra.PerMinute(60), Routes: []string{"GET /users/{id}", "GET /files/*path"}},
	}

	plan := func(r *http.Request) gcra.Limit {
		switch planOf(r) {
		case "free":
			return gcra.PerMinute(60)
		case "paid":
			return gcra.PerMinute(6_000).WithBurst(600)
		default:
			return gcra.Limit{} // this policy does not apply: internal traffic
		}
	}
	_ = ratelimit.Policy{Name: "plan", Key: user, LimitFor: plan, Limit: gcra.PerMinute(60)}

	cost := func(r *http.Request) int {
		if strings.HasSuffix(r.Pattern, " /report") {
			return 3
		}
		return 1
	}
	_ = ratelimit.Policy{Name: "units", Key: user, Limit: gcra.PerMinute(100), Cost: cost}

	_ = ratelimit.Policy{Name: "new-limit", Key: user, Limit: gcra.PerMinute(30), Shadow: true}

	_ = []ratelimit.Policy{
		{Name: "smooth", Key: user, Limit: gcra.PerSecond(5).WithBurst(1), MaxDelay: 2 * time.Second},
	}

	observe := func(_ *http.Request, d ratelimit.Decision) {
		for _, p := range d.Results {
			if p.Shadow && !p.Allowed {
				log.Printf("policy %s would have denied", p.Policy)
			}
		}
	}
	_ = observe

	cfg := ratelimit.Config{
		Store:     store,
		Instances: 3,
		Observe: func(_ *http.Request, d ratelimit.Decision) {
			if d.Err != nil {
				log.Print(d.Err)
			}
		},
	}
	_ = cfg
}

type query struct{}

func (query) run(*http.Request) (rows int64, err error) { return 7, nil }

func search(w http.ResponseWriter, r *http.Request) {
	d := ratelimit.FromContext(r.Context())
	rows, err := query{}.run(r)
	if err != nil {
		_ = d.Refund(r.Context()) // our fault: the client gets its units back
		http.Error(w, "sorry", http.StatusInternalServerError)
		return
	}
	_ = d.Spend(r.Context(), rows) // the next requests wait for it, this one is served
	fmt.Fprintln(w, rows, "rows")
}

func TestSpend(t *testing.T) {
	cfg, policies := sample()
	h := ratelimit.New(cfg, policies...)(http.HandlerFunc(search))
	for _, want := range []string{"9", "1", ""} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if got := w.Header().Get("RateLimit-Remaining"); want != "" && got != want {
			t.Errorf("got RateLimit-Remaining %s; want %s", got, want)
		}
	}
}

func fromConfiguration(store gcra.Store, text string, client keyfunc.Func) (func(http.Handler) http.Handler, error) {
	limit, err := gcra.ParseLimit(text) // "100/minute burst 20"
	if err != nil {
		return nil, err
	}
	limiter, err := middleware.New(middleware.Config{Store: store},
		middleware.Policy{Name: "client", Key: client, Limit: limit})
	if err != nil {
		return nil, err // every mistake at once, each with policy, field and value
	}

	return ratelimit.From(limiter), nil
}

func TestFromConfiguration(t *testing.T) {
	if _, err := fromConfiguration(gcra.NewMemory(), "100/minute burst 20", keyfunc.RemoteAddr); err != nil {
		t.Error(err)
	}
	if _, err := fromConfiguration(nil, "0/minute", nil); err == nil {
		t.Error("got no error for bad configuration")
	}
}

// down is a store that always fails.
type down struct{}

func (down) Take(context.Context, []gcra.Charge) (bool, error) { return false, errors.New("no answer") }
func (down) Refund(context.Context, []gcra.Charge) error       { return errors.New("no answer") }

// ask sends n requests to a server with two windows and prints the
// last response.
func ask(n int, cfg ratelimit.Config, outage ratelimit.FailureMode) {
	standard, policies := sample()
	if cfg.Store == nil {
		cfg.Store = standard.Store
	}
	for i := range policies {
		policies[i].OnFailure = outage
	}
	h := ratelimit.New(cfg, policies...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w := httptest.NewRecorder()
	for range n {
		w = httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/hello", nil))
	}
	fmt.Println("HTTP/1.1", w.Code, http.StatusText(w.Code))
	for _, name := range slices.Sorted(maps.Keys(w.Header())) {
		fmt.Printf("%s: %s\n", name, w.Header().Get(name))
	}
	fmt.Println()
	fmt.Print(w.Body)
}

func Example_draft6() {
	ask(1, ratelimit.Config{}, 0)
	// Output:
	// HTTP/1.1 200 OK
	// Ratelimit-Limit: 10
	// Ratelimit-Policy: 10;w=1
	// Ratelimit-Remaining: 9
	// Ratelimit-Reset: 1
}

func Example_refused() {
	ask(11, ratelimit.Config{}, 0)
	// Output:
	// HTTP/1.1 429 Too Many Requests
	// Cache-Control: no-store
	// Content-Type: application/problem+json
	// Ratelimit-Limit: 10
	// Ratelimit-Policy: 10;w=1
	// Ratelimit-Remaining: 0
	// Ratelimit-Reset: 1
	// Retry-After: 1
	//
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"The request was refused because a rate limit is used up.","violated-policies":["burst"]}
}

func Example_draft11() {
	ask(1, ratelimit.Config{Headers: ratelimit.HeadersDraft11}, 0)
	// Output:
	// HTTP/1.1 200 OK
	// Ratelimit: "burst";r=9;t=1, "daily";r=9999;t=9
	// Ratelimit-Policy: "burst";q=10;w=1, "daily";q=10000;w=86400
}

func Example_draft11Refused() {
	ask(11, ratelimit.Config{Headers: ratelimit.HeadersDraft11}, 0)
	// Output:
	// HTTP/1.1 429 Too Many Requests
	// Cache-Control: no-store
	// Content-Type: application/problem+json
	// Ratelimit: "burst";r=0;t=1, "daily";r=9990
	// Ratelimit-Policy: "burst";q=10;w=1, "daily";q=10000;w=86400
	// Retry-After: 1
	//
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"The request was refused because a rate limit is used up.","violated-policies":["burst"]}
}

func Example_both() {
	ask(1, ratelimit.Config{Headers: ratelimit.HeadersDraft6 | ratelimit.HeadersDraft11}, 0)
	// Output:
	// HTTP/1.1 200 OK
	// Ratelimit: "burst";r=9;t=1, "daily";r=9999;t=9
	// Ratelimit-Limit: 10
	// Ratelimit-Policy: "burst";q=10;w=1, "daily";q=10000;w=86400
	// Ratelimit-Remaining: 9
	// Ratelimit-Reset: 1
}

func Example_x() {
	ask(1, ratelimit.Config{Headers: ratelimit.HeadersXRateLimit}, 0)
	// Output:
	// HTTP/1.1 200 OK
	// X-Ratelimit-Limit: 10
	// X-Ratelimit-Remaining: 9
	// X-Ratelimit-Reset: 1
}

func Example_outageClosed() {
	ask(1, ratelimit.Config{Store: down{}}, ratelimit.FailClosed)
	// Output:
	// HTTP/1.1 503 Service Unavailable
	// Cache-Control: no-store
	// Content-Type: application/problem+json
	// Retry-After: 1
	//
	// {"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"detail":"The request was refused because the service cannot check its rate limits at the moment."}
}
