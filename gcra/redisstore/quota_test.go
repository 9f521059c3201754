package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
)

const (
	aDay  = 24 * time.Hour
	aYear = 365 * aDay
)

// hourlyQuota charges one of n units of a calendar hour.
func hourlyQuota(subject string, n int64) gcra.Charge {
	return gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.Quota(n, gcra.Hourly), Cost: 1}
}

// endOfHour is when the period of hourlyQuota ends.
func endOfHour(now time.Time) time.Time { return now.Truncate(time.Hour).Add(time.Hour) }

// A key of a quota names its calendar, and expires soon after the period ends.
func TestQuotaKeys(t *testing.T) {
	client := anyRedis(t)
	r := newStore(t, client, config{})
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		calendar gcra.Calendar
		want     string
	}{
		{gcra.Hourly, "{s}:p~hour"},
		{gcra.Monthly.From(15), "{s}:p~month15"},
		{gcra.Daily.In(berlin), "{s}:p~day.Europe/Berlin"},
		{gcra.Weekly.From(7).In(berlin), "{s}:p~week7.Europe/Berlin"},
	} {
		c := gcratest.MustTake(t, r, gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.Quota(5, tt.calendar), Cost: 1})[0]
		ttl := client.PTTL(t.Context(), r.Prefix()+tt.want).Val()
		if ttl < c.Result.ResetAfter-time.Minute || ttl > c.Result.ResetAfter+11*time.Second {
			t.Errorf("%v: the key %s%s expires in %v; want within 10 s after the period, which ends in %v", c.Limit, r.Prefix(), tt.want, ttl, c.Result.ResetAfter)
		}
	}
}

// RetryAfter of a cached denial leads into the next period also if the last answer, by which
// the store knows the clock of Redis, came late.
func TestQuotaDenialAfterALateAnswer(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	r := newStore(t, client, config{DenialTTL: aDay})
	r.SetClock(server.now)
	gcratest.MustTake(t, r, hourlyQuota("s", 1))
	gcratest.MustTake(t, r, hourlyQuota("s", 1)) // denied
	late := time.Duration(0)
	client.AddHook(scriptHook(func(redis.Cmder) error { server.advance(late); return nil }))
	late = 40 * time.Millisecond
	gcratest.MustTake(t, r, hourlyQuota("other", 1))
	late = 0

	c := gcratest.MustTake(t, r, hourlyQuota("s", 1))[0]
	if n := r.Stats().CachedDenials; n == 0 || c.Result.Allowed {
		t.Fatalf("got %+v, %d cached denials; want a cached denial", c.Result, n)
	}
	server.advance(c.Result.RetryAfter)
	if again := gcratest.MustTake(t, r, hourlyQuota("s", 1))[0]; !again.Result.Allowed {
		t.Errorf("after %v: got %+v; want allowed", c.Result.RetryAfter, again.Result)
	}
}

// While Redis is away, Local goes on from what it has said of each quota, by its clock. Before its first answer Local's clock may
// be a little off: the end of the period that it knows does not move.
func TestLocalQuota(t *testing.T) {
	t.Parallel()
	for skew, first := range map[time.Duration]bool{
		0: true, 5 * time.Millisecond: true, -5 * time.Millisecond: true, 30 * time.Second: true, -30 * time.Second: true,
		1: false, 3 * aYear: false, -aYear: false,
	} {
		client := anyRedis(t)
		server := stopClock(t, client)
		r := newStore(t, client, config{DenialTTL: time.Second})
		r.SetClock(func() time.Time { return server.now().Add(skew) })
		if first {
			gcratest.MustTake(t, r.Local(1), hourlyQuota("s", 5))
			gcratest.MustTake(t, r.Local(1), hourlyQuota("s", 5))
			gcratest.MustTake(t, r, hourlyQuota("other", 5)) // Redis answers
		} else {
			gcratest.MustTake(t, r, hourlyQuota("s", 5))
			gcratest.MustTake(t, r, hourlyQuota("s", 5))
		}

		for i, want := range []bool{true, true, true, false} {
			if c := gcratest.MustTake(t, r.Local(1), hourlyQuota("s", 5))[0]; c.Result.Allowed != want || !c.Period.Equal(endOfHour(server.now())) {
				t.Errorf("off by %v, call %d: got %+v until %v; want allowed %v", skew, i, c.Result, c.Period, want)
			}
		}

		server.advance(time.Hour)
		if c := gcratest.MustTake(t, r.Local(1), hourlyQuota("s", 5))[0]; !c.Result.Allowed || c.Result.Remaining != 4 {
			t.Errorf("off by %v, the next hour: got %+v; want 4 of 5", skew, c.Result)
		}
	}
}

// A denial of a quota that is owed says when the period ends, as others do.
func TestQuotaThatIsOwedSaysWhenItEnds(t *testing.T) {
	r := openStore(t, "redis://127.0.0.1:1/0", config{}) // nothing listens there

	limit := gcra.Quota(2, gcra.Yearly)
	var period time.Time
	for i := range 3 {
		charges := []gcra.Charge{{Subject: "a", Policy: "q", Limit: limit, Cost: 1}}
		allowed, err := r.Local(1).Take(t.Context(), charges)
		res := charges[0].Result
		if err != nil || allowed != (i < 2) {
			t.Fatalf("charge %d: got %v, %v; want 2 allowed", i, allowed, err)
		}

		if allowed {
			period = charges[0].Period
		} else if res.RetryAfter <= 0 || res.RetryAfter != res.ResetAfter || !charges[0].Period.Equal(period) {
			t.Errorf("got %+v in the period until %v; want a RetryAfter until %v", res, charges[0].Period, period)
		}
	}
}

// An admission may have a calendar for each of its charges, and a refund a period.
func TestQuotasOfManyCalendars(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client) // no hour ends meanwhile
	r := newStore(t, client, config{})
	r.SetClock(server.now)
	const most = 256
	zones := []string{
		"UTC", "Europe/Berlin", "Africa/Cairo", "Asia/Kolkata", "Asia/Tokyo", "Australia/Sydney",
		"America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles",
	}

	var charges []gcra.Charge
	for i := range most {
		calendar := gcra.Monthly.From(1 + i%28).In(time.FixedZone(zones[i/28], 0))
		charges = append(charges, gcra.Charge{Subject: fmt.Sprint("s", i), Policy: "p", Limit: gcra.Quota(5, calendar), Cost: int64(1 + i%5)})
	}
	for i, c := range gcratest.MustTake(t, r, charges...) {
		if want := int64(4 - i%5); c.Result.Remaining != want {
			t.Errorf("calendar %d: got %d left; want %d", i, c.Result.Remaining, want)
		}
	}

	charges = nil
	for i := range most {
		charges = append(charges, gcratest.MustTake(t, r, hourlyQuota(fmt.Sprint("s", i), 5))...)
		charges[i].Period = charges[i].Period.Add(time.Duration(-i) * time.Hour)
	}
	if err := r.Refund(t.Context(), charges); err != nil {
		t.Error(err)
	}
	for i, c := range charges {
		want := int64(4)
		if i == 0 {
			want = 5
		}
		c.Peek = true
		if got := gcratest.MustTake(t, r, c)[0].Result.Remaining; got != want {
			t.Errorf("%s: got %d left; want %d", c.Subject, got, want)
		}
	}
}

// A damaged value of a quota denies until its period ends, if at all. A refund, a
// settlement into debt and a rate beside it are no errors meanwhile.
func TestDamagedValuesOfAQuota(t *testing.T) {
	t.Parallel()
	for _, tt := range anyAndEmbedded {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client := tt.open(t)
			server := stopClock(t, client)
			for i, value := range damagedValues {
				r, skew := newStore(t, client, config{}), []time.Duration{0, -2 * time.Hour, aYear}[i%3] // of the process
				r.SetClock(func() time.Time { return server.now().Add(skew) })
				damage(t, client, r.Prefix()+"{s}:p~hour", value)

				rate := gcra.Charge{Subject: "s", Policy: "rate", Limit: gcra.PerHour(100), Cost: 1}
				for range 2 {
					got := gcratest.MustTake(t, r, hourlyQuota("s", 5), rate)
					if got[0].Result.ResetAfter > time.Hour || got[0].Result.RetryAfter > time.Hour || got[0].Result.Never || !got[0].Period.Equal(endOfHour(server.now())) {
						t.Fatalf("%q: got %+v until %v; want at most until the hour ends", value, got[0].Result, got[0].Period)
					}
					if err := r.Refund(t.Context(), got); err != nil {
						t.Fatalf("%q: refund: %v", value, err)
					}
				}

				gcratest.MustTake(t, r, hourlyQuota("s", 5000))
				server.advance(endOfHour(server.now()).Sub(server.now()))
				if got := gcratest.MustTake(t, r, hourlyQuota("s", 5), rate)[0].Result; !got.Allowed || got.Remaining != 4 {
					t.Fatalf("%q, the next hour: got %+v; want 4 of 5 left", value, got)
				}
			}
		})
	}
}
