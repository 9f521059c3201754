package middleware_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// A rate and a monthly quota: the quota gives all back when the month ends, and the
// fields say how long the month is and when it ends.
func TestQuotaHeaders(t *testing.T) {
	store, clock := newStore() // 1 January 2026
	clock.Add(31 * 24 * time.Hour)
	l := limiter(t, middleware.Config{Store: store, Headers: middleware.HeadersDraft6 | middleware.HeadersXRateLimit},
		middleware.Policy{Name: "rate", Key: key("k"), Limit: gcra.PerSecond(10)},
		middleware.Policy{Name: "monthly", Key: key("k"), Limit: gcra.Quota(2, gcra.Monthly)})

	lists := limiter(t, middleware.Config{Store: store, Headers: middleware.HeadersDraft11},
		middleware.Policy{Name: "rate", Key: key("j"), Limit: gcra.PerSecond(10)},
		middleware.Policy{Name: "monthly", Key: key("j"), Limit: gcra.Quota(2, gcra.Monthly)})

	for _, tt := range []struct {
		after time.Duration
		want  string // status, fields
	}{
		{0, "200 2;w=2419200, 2 limit, 1 left, reset 2147483, retry "},
		{27 * 24 * time.Hour, "200 2;w=2419200, 2 limit, 0 left, reset 86400, retry "},
		{23 * time.Hour, "429 2;w=2419200, 2 limit, 0 left, reset 3600, retry 3600"},
		{time.Hour - 1, "429 2;w=2419200, 2 limit, 0 left, reset 1, retry 1"},
		{1, "200 2;w=2678400, 2 limit, 1 left, reset 2147483, retry "}, // March has 31 days
	} {
		clock.Add(tt.after)
		res, d := allow(l, get("/"))
		h := res.Header
		got := strings.Join([]string{res.Status[:3], " ", h.Get("RateLimit-Policy"), ", ", h.Get("RateLimit-Limit"), " limit, ", h.Get("RateLimit-Remaining"),
			" left, reset ", h.Get("RateLimit-Reset"), ", retry ", h.Get("Retry-After")}, "")
		if got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}

		if h.Get("X-RateLimit-Reset") != h.Get("RateLimit-Reset") || h.Get("X-RateLimit-Limit") != "2" {
			t.Errorf("got X-RateLimit-Reset %s, -Limit %s; want as RateLimit-Reset, 2", h.Get("X-RateLimit-Reset"), h.Get("X-RateLimit-Limit"))
		}

		if n := len(d.Results); n != 2 || d.Results[1].Limit != gcra.Quota(2, gcra.Monthly) {
			t.Errorf("got %+v; want both policies", d.Results)
		}
	}

	res, _ := allow(lists, get("/"))
	if got, want := res.Header.Get("RateLimit-Policy"), `"rate";q=10;w=1, "monthly";q=2;w=2678400`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	if got, want := res.Header.Get("RateLimit"), `"rate";r=9;t=1, "monthly";r=1;t=2147483`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// strict is a store that does not keep every limit: no quotas, and no burst but the count.
type strict struct{ gcra.Store }

func (strict) CheckLimit(l gcra.Limit) error {
	if l.IsQuota() || l.Capacity() != l.Count {
		return errors.New("no strict window")
	}
	return nil
}
