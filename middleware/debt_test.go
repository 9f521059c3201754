package middleware_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// A settlement after a Reload does not erase the debt of the larger limit, nor the debt of
// the request before it.
func TestSettleAcrossReload(t *testing.T) {
	store, _ := newStore()
	large := middleware.Policy{Name: "p", Key: key("k"), Limit: gcra.PerMinute(1000), MaxDebt: 5000}
	small := middleware.Policy{Name: "p", Key: key("k"), Limit: gcra.PerMinute(1000).WithBurst(10), MaxDebt: 20}
	l := limiter(t, middleware.Config{Store: store}, small)
	before := l.Decide(get("/"))
	if err := l.Reload(large); err != nil {
		t.Fatal(err)
	}

	d := l.Decide(get("/"))
	wantMissing(t, d.Settle(t.Context(), 5000, "p"), nil)
	for _, cost := range []int64{5, 2, 500} {
		wantMissing(t, before.Settle(t.Context(), cost, "p"), map[string]int64{"p": cost - 1})
	}

	if got := left(t, store, "k", "p", larger(large.Limit, 9000)) - 9000; got != -4001 {
		t.Errorf("got %d left; want -4001: the 5000 and the estimate of the request before", got)
	}
}

func TestMaxDebtIsChecked(t *testing.T) {
	memory := gcra.NewMemory()
	for name, tt := range map[string]struct {
		store gcra.Store
		limit gcra.Limit
		debt  int64
		want  string // "" is valid
	}{
		"none":            {memory, five, 0, ""},
		"most of a rate":  {memory, gcra.PerDay(1), 365, ""},
		"beyond a year":   {memory, gcra.PerDay(1), 366, "MaxDebt is 366, which makes 1/day burst 367 of 1/day: a burst of 367 at 1 per 24h0m0s takes longer than 366 days to refill"},
		"negative":        {memory, five, -1, "MaxDebt is -1; want 0 (none) to 100000000000000"},
		"overflow":        {memory, five, 1<<63 - 1, "MaxDebt is 9223372036854775807; want 0 (none) to 100000000000000"},
		"most of a quota": {memory, gcra.Quota(9e9-1, gcra.Hourly), 1, ""},
		"a large quota":   {memory, gcra.Quota(9e9, gcra.Hourly), 1, "MaxDebt is 1, which makes 9000000001/calendar hour of 9000000000/calendar hour: quota is 9000000001; want 1 to 9000000000"},
		"a strict window": {strict{memory}, five, 1, "MaxDebt is 1, which makes 5/minute burst 6 of 5/minute: no strict window"},
	} {
		_, err := middleware.New(middleware.Config{Store: tt.store}, middleware.Policy{Name: name, Key: key("k"), Limit: tt.limit, MaxDebt: tt.debt})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v; want %q", name, err, tt.want)
		}
	}

	// The MaxDebt of a request's own limit is checked when it comes.
	l := limiter(t, middleware.Config{Store: memory, Logger: unread}, middleware.Policy{
		Name: "own", Key: key("k"), MaxDebt: 366, LimitFor: func(*http.Request) gcra.Limit { return gcra.PerDay(1) }, OnFailure: middleware.FailClosed})
	if d := l.Decide(get("/")); d.Allowed || d.Err == nil || !strings.Contains(d.Err.Error(), "MaxDebt of LimitFor is 366") {
		t.Errorf("LimitFor: got allowed %v, %v; want a failure", d.Allowed, d.Err)
	}
}

// larger is a limit whose buckets hold n units more: their Remaining shows debt.
func larger(l gcra.Limit, n int64) gcra.Limit {
	if l.IsQuota() {
		return gcra.Quota(l.Count+n, l.Calendar())
	}
	return l.WithBurst(l.Capacity() + n)
}
