package httpclient_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

// The error lists all mistakes.
func TestMistakes(t *testing.T) {
	_, err := httpclient.New(httpclient.Config{
		Base: (*http.Transport)(nil), Store: (*gcra.Memory)(nil), Margin: 1, MaxTries: -1, MaxWait: -time.Second,
		Policies: []httpclient.Policy{
			{},
			{Name: "a\n", Key: httpclient.ByHost, Limit: gcra.PerSecond(1)},
			{Name: strings.Repeat("x", 65), Key: httpclient.ByHost, Limit: gcra.PerSecond(1)},
			{Name: "b", Key: httpclient.ByHost, Limit: gcra.PerSecond(1), MaxDelay: -1},
			{Name: "b", Key: httpclient.ByHost, Limit: gcra.PerSecond(1)},
			{Name: "c", Key: httpclient.ByHost, Limit: gcra.Quota(1, gcra.Daily)},
		},
	})

	for _, want := range []string{
		"Base is a nil *http.Transport", "Store is nil", "Margin is 1; want less than 1, or 0 for 0.01", "MaxTries is -1", "MaxWait is -1s", "policy number 1: Name is missing", "policy number 1: Key is nil",
		"policy number 1: Limit is", `Name is "a\n"`, "Name has 65", `policy "b": MaxDelay is -1ns`, `policy "b": Name is taken`,
		`policy "c": Limit is 1/calendar day, a quota, which has no queue; want a rate`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want it to say %q", err, want)
		}
	}

	if n := strings.Count(err.Error(), "\n") + 1; n != 13 {
		t.Errorf("got %d mistakes; want 13:\n%v", n, err)
	}

	if _, err := httpclient.New(httpclient.Config{Policies: []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerSecond(1)}}}); err == nil {
		t.Error("policies without a store: got no error")
	}
	defer func() {
		if recover() == nil {
			t.Error("Must does not panic")
		}
	}()

	httpclient.Must(httpclient.New(httpclient.Config{MaxTries: -1}))
}

// An error about a limit has the numbers of the configuration, and no others that follow from a wrong margin.
func TestMarginMistakes(t *testing.T) {
	const notLess = "Margin is %v; want less than 1, or 0 for 0.01"
	for _, tt := range []struct {
		limit  gcra.Limit
		margin float64
		want   string // "" means no error
	}{
		{gcra.PerSecond(1), math.NaN(), fmt.Sprintf(notLess, "NaN")},
		{gcra.PerSecond(1), math.Inf(1), fmt.Sprintf(notLess, "+Inf")},
		{gcra.PerSecond(1), math.Inf(-1), ""},
		{gcra.Limit{Count: 1, Per: 366 * 24 * time.Hour}, -1, ""},
		{gcra.Limit{Count: 1, Per: 366 * 24 * time.Hour}, 0, `policy "default": Limit is 1/8784h0m0s and too long with a Margin of 0.01: a burst of 1 at 1 per 8871h50m24s takes longer than 366 days to refill`},
		{gcra.Limit{Count: 1e9, Per: time.Second}, 0, `policy "default": Limit is 1000000000/second: 1000000000 per 1s is faster than 1,000,000 a second, the fastest that can be kept`},
	} {
		_, err := httpclient.New(httpclient.Config{
			Store: gcra.NewMemory(), Margin: tt.margin, Policies: []httpclient.Policy{{Key: httpclient.ByHost, Limit: tt.limit}},
		})

		got := ""
		if err != nil {
			got = strings.TrimPrefix(err.Error(), "httpclient: ")
		}
		if got != tt.want {
			t.Errorf("%v with margin %v: got %q; want %q", tt.limit, tt.margin, got, tt.want)
		}
	}
}

// A negative MaxWait of an Adaptive is an error, as Base of a Transport at once.
func TestAdaptiveMistakes(t *testing.T) {
	a := &httpclient.Adaptive{MaxWait: -time.Second, Base: &partner{answers: []func() *http.Response{ok}}}
	const want = "httpclient: Adaptive.MaxWait is -1s; want more than 0, or 0 for 1m0s"
	body := watch("order")
	r := request(t, "PUT", url, nil)
	r.Body = body
	_, err := a.RoundTrip(r)
	_, newErr := httpclient.New(httpclient.Config{Base: a})
	for _, err := range []error{err, newErr} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v; want %s", err, want)
		}
	}
	if body.closes() != 1 {
		t.Errorf("body closed %d times; want once", body.closes())
	}
}

// A Base that returns neither a response nor an error, and a request without a URL, do not panic.
func TestNeitherResponseNorError(t *testing.T) {
	var events []httpclient.Event
	observe := func(_ *http.Request, e httpclient.Event) { events = append(events, e) }
	base := roundTrip(func(*http.Request) (*http.Response, error) { return nil, nil })
	for _, c := range []http.RoundTripper{
		&httpclient.Adaptive{Base: base, Observe: observe},
		transport(t, httpclient.Config{Base: base, Observe: observe}),
	} {
		for _, r := range []*http.Request{request(t, "GET", url, nil), {}} {
			if resp, err := c.RoundTrip(r); resp != nil || err != nil {
				t.Errorf("%T: got %v, %v; want what Base returns", c, resp, err)
			}
		}
	}

	for _, e := range events {
		if e.Reason != httpclient.Failed || e.Status != 0 {
			t.Errorf("observed %+v; want Failed without a status", e)
		}
	}
	if len(events) != 4 {
		t.Errorf("observed %d events; want 4", len(events))
	}
}

// New copies the policies and does not change the caller's slice.
func TestPoliciesAreCopied(t *testing.T) {
	policies := []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerSecond(1)}}
	s := &spy{Store: gcra.NewMemory()}
	tr := transport(t, httpclient.Config{Base: &partner{answers: []func() *http.Response{ok}}, Store: s, Policies: policies})
	if policies[0].Name != "" {
		t.Errorf("the caller's policy was named %q", policies[0].Name)
	}
	policies[0].Key = nil
	if _, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil || s.seen[0] != "host:api.example.com default" {
		t.Errorf("got %v, charges %q; want the policy default", err, s.seen)
	}
}
