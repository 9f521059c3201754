package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// api is a partner that denies the first request.
func api() *httptest.Server {
	var requests atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
}

// A partner allows 25 requests in 5 seconds and 300 a minute for each of our
// credentials. Processes that share a store take turns.
func Example() {
	partner := api()
	defer partner.Close()

	transport := httpclient.Must(httpclient.New(httpclient.Config{
		Store: gcra.NewMemory(), // or redisstore.Open("redis://...", redisstore.Config{})
		Policies: []httpclient.Policy{
			// Burst + Count is what the partner allows.
			{Name: "5s", Key: httpclient.ByCredential, Limit: gcra.Limit{Count: 20, Per: 5 * time.Second, Burst: 5}},
			{Name: "minute", Key: httpclient.ByCredential, Limit: gcra.PerMinute(280).WithBurst(20)},
		},
		Observe: func(_ *http.Request, e httpclient.Event) {
			fmt.Println(e.Reason, e.Status, "after", e.Tries, "tries")
		},
	}))

	client := &http.Client{Transport: transport}
	for range 2 {
		resp, err := client.Get(partner.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}

	// Output:
	// answered 200 after 2 tries
	// answered 200 after 1 tries
}

// A request that would have to wait too long fails at once and is not sent.
func ExampleNew_tooLong() {
	transport := httpclient.Must(httpclient.New(httpclient.Config{
		Store:    gcra.NewMemory(),
		Policies: []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerHour(1)}},
		Base:     roundTrip(func(*http.Request) (*http.Response, error) { return answer(200, http.NoBody), nil }),
	}))

	client := &http.Client{Transport: transport}
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "GET", "https://api.example.com/orders", nil)
		if err != nil {
			fmt.Println(err)
			return
		}

		resp, err := client.Do(r)
		var wait *turns.WaitError
		if errors.As(err, &wait) {
			fmt.Println("try again in", wait.Needed.Round(time.Hour))
			return
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}

	// Output:
	// 200
	// try again in 1h0m0s
}

// A POST is sent again only with an Idempotency-Key, or it might order twice.
func ExampleTransport_idempotencyKey() {
	partner := api()
	defer partner.Close()
	client := &http.Client{Transport: httpclient.Must(httpclient.New(httpclient.Config{}))}

	r, err := http.NewRequest("POST", partner.URL, strings.NewReader(`{"order":7}`))
	if err != nil {
		fmt.Println(err)
		return
	}

	r.Header.Set("Idempotency-Key", "b2f1c7d0-7")
	resp, err := client.Do(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode)

	// Output: 200
}

// Without the key the caller gets the denial at once.
func ExampleTransport_idempotencyKey_incorrect() {
	partner := api()
	defer partner.Close()
	client := &http.Client{Transport: httpclient.Must(httpclient.New(httpclient.Config{}))}

	resp, err := client.Post(partner.URL, "application/json", strings.NewReader(`{"order":7}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 429
}

// The limit is unknown: Adaptive finds the pace, and Transport repeats denied
// requests.
func ExampleTransport_adaptive() {
	partner := api()
	defer partner.Close()
	client := &http.Client{Transport: httpclient.Must(httpclient.New(httpclient.Config{
		Base: &httpclient.Adaptive{Base: http.DefaultTransport},
	}))}

	resp, err := client.Get(partner.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}

type tenantKey struct{}

// Your own key reads the tenant from the context; package keyfunc combines keys.
func ExamplePolicy_key() {
	tenant := func(r *http.Request) (string, error) {
		name, ok := r.Context().Value(tenantKey{}).(string)
		if !ok {
			return "", errors.New("no tenant")
		}
		return "tenant:" + name, nil
	}
	policy := httpclient.Policy{Name: "tenant", Key: keyfunc.Join(tenant, httpclient.ByHost), Limit: gcra.PerSecond(5)}

	ctx := context.WithValue(context.Background(), tenantKey{}, "acme")
	r, err := http.NewRequestWithContext(ctx, "GET", "https://api.example.com/orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(policy.Key(r))

	// Output: join:tenant:acme|host:api.example.com <nil>
}
