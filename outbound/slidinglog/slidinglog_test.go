package slidinglog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// Invalid charges are errors with the field and its value.
func TestInvalid(t *testing.T) {
	for _, s := range []gcra.Store{newStore(t, redistest.Any(t), config{}), slidinglog.NewMemory(config{})} {
		for want, c := range map[string]gcra.Charge{
			"burst is 4; want 0 or 5":                            {Limit: gcra.PerSecond(5).WithBurst(4)},
			"limit is 5/calendar day; want a rate such as 25/5s": {Limit: gcra.Quota(5, gcra.Daily)},
			"MaxDebt is 1; want 0":                               {Limit: gcra.PerSecond(5), MaxDebt: 1},
			"MaxWait is -1ns":                                    {Limit: gcra.PerSecond(5), MaxWait: -1},
			"MaxDelay is -1ns":                                   {Limit: gcra.PerSecond(5), MaxDelay: -1},
			"MaxDelay is 8784h0m0.000000001s":                    {Limit: gcra.PerSecond(5), MaxDelay: gcra.MaxDelay + 1},
			"cost is -1":                                         {Limit: gcra.PerSecond(5), Cost: -1},
		} {
			c.Policy = "p"
			if _, err := gcra.Take(t.Context(), s, c); err == nil || !strings.Contains(err.Error(), `charge on policy "p": `+want) {
				t.Errorf("%T: got %v; want %s", s, err, want)
			}
		}
		if _, err := gcra.Take(t.Context(), s, gcra.Charge{Policy: "p", Limit: gcra.PerSecond(5).WithBurst(5), Cost: 1}); err != nil {
			t.Errorf("%T, a burst of 5 of 5: got %v", s, err)
		}
	}
}

// New returns an error for each mistake, with the field, its value and what would be right.
func TestMistakes(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { client.Close() })
	for _, tt := range []struct {
		client redis.UniversalClient
		cfg    config
		want   []string
	}{
		{nil, config{}, []string{"client is nil; want a *redis.Client"}},
		{(*redis.ClusterClient)(nil), config{}, []string{"client is nil; want a *redis.Client"}},
		{client, config{Prefix: "{a}:"}, []string{`Prefix is "{a}:"; want one without braces`}},
		{client, config{Timeout: -time.Second}, []string{"Timeout is -1s; want 1ms to 1m, or 0 (50ms)"}},
		{client, config{Timeout: 50}, []string{"Timeout is 50ns; want"}},
		{client, config{Now: time.Now}, []string{"Now is set; want nil"}},
		{nil, config{Prefix: "}", Timeout: -1, Now: time.Now}, []string{"client", "Prefix", "Timeout", "Now"}},
	} {
		r, err := slidinglog.New(tt.client, tt.cfg)
		if r != nil || err == nil {
			t.Errorf("%+v: got %v, %v; want an error", tt.cfg, r, err)
			continue
		}

		lines := strings.Split(err.Error(), "\n")
		for i, want := range tt.want {
			if len(lines) != len(tt.want) || !strings.HasPrefix(lines[i], "slidinglog: "+want) {
				t.Errorf("%+v: got %v; want a line with each of %q", tt.cfg, err, tt.want)
			}
		}
	}
}

// The zero Config works: New's keys begin with sl:.
func TestZeroConfig(t *testing.T) {
	client := redistest.Start(t).Client()
	r := storeOn(t, client, config{})
	for _, s := range []gcra.Store{r, slidinglog.NewMemory(config{})} {
		redistest.Eventually(t, patience, "a denial", func() bool {
			res, err := gcra.Take(t.Context(), s, hourly("p", 2, 1))
			return err == nil && !res.Allowed
		})
	}
	if n := client.Exists(t.Context(), "sl:{s}:p").Val(); n != 1 {
		t.Errorf("got keys %q; want sl:{s}:p", redistest.Keys(t, client, ""))
	}
}
