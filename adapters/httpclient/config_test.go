package httpclient_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/adapters/httpclient"
	"github.com/seed-e377111c/ratelimit/gcra"
)

// The error lists all mistakes.
func TestMistakes(t *testing.T) {
	_, err := httpclient.New(httpclient.Config{
		Store: (*gcra.Memory)(nil), Margin: 1, MaxTries: -1, MaxWait: -time.Second,
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
		"Store is nil", "Margin is 1; want less than 1, or 0 for 0.01", "MaxTries is -1", "MaxWait is -1s", "policy number 1: Name is missing", "policy number 1: Key is nil",
		"policy number 1: Limit is", `Name is "a\n"`, "Name has 65", `policy "b": MaxDelay is -1ns`, `policy "b": Name is taken`,
		`policy "c": Limit is 1/calendar day, a quota, which has no queue; want a rate`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want it to say %q", err, want)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 12 {
		t.Errorf("got %d mistakes; want 12:\n%v", n, err)
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
