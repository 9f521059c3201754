package gcra_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/seed-e377111c/ratelimit/gcra"
)

const year = 366 * 24 * time.Hour // the longest time to refill

func TestConstructors(t *testing.T) {
	for _, tt := range []struct{ got, want gcra.Limit }{
		{gcra.PerSecond(10), gcra.Limit{Count: 10, Per: time.Second}},
		{gcra.PerMinute(10), gcra.Limit{Count: 10, Per: time.Minute}},
		{gcra.PerHour(10), gcra.Limit{Count: 10, Per: time.Hour}},
		{gcra.PerDay(10), gcra.Limit{Count: 10, Per: 24 * time.Hour}},
		{gcra.PerDay(10).WithBurst(3), gcra.Limit{Count: 10, Per: 24 * time.Hour, Burst: 3}},
		{gcra.PerDay(10).WithBurst(3).WithBurst(0), gcra.PerDay(10)},
	} {
		if tt.got != tt.want {
			t.Errorf("got %#v; want %#v", tt.got, tt.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		limit gcra.Limit
		want  string // part of the error; "" for none
	}{
		{gcra.PerSecond(1), ""},
		{gcra.PerDay(1), ""},
		{gcra.PerDay(1).WithBurst(366), ""},
		{gcra.PerSecond(1_000_000), ""},
		{gcra.PerSecond(1_000_000).WithBurst(1), ""},
		{gcra.Limit{Count: 1, Per: time.Microsecond}, ""},
		{gcra.Limit{Count: 1, Per: year}, ""},
		{gcra.Limit{Count: 366, Per: year}, ""},
		{gcra.Limit{Count: 1_000_000 * int64(year/time.Second), Per: year}, ""},
		{gcra.Limit{Count: math.MaxInt64 / 1000, Per: math.MaxInt64, Burst: 1}, ""},

		{gcra.Limit{}, "count is 0"},
		{gcra.PerSecond(0), "count is 0"},
		{gcra.PerSecond(-1), "count is -1"},
		{gcra.PerSecond(math.MinInt64), "count is -9223372036854775808"},
		{gcra.Limit{Count: 1}, "period is 0s"},
		{gcra.Limit{Count: 1, Per: -1}, "period is -1ns"},
		{gcra.Limit{Count: 1, Per: math.MinInt64}, "period is"},
		{gcra.PerSecond(1).WithBurst(-1), "burst is -1"},
		{gcra.PerSecond(1).WithBurst(math.MinInt64), "burst is"},
		{gcra.PerSecond(1_000_001), "1,000,000 a second"},
		{gcra.PerSecond(math.MaxInt64), "1,000,000 a second"},
		{gcra.PerDay(math.MaxInt64), "1,000,000 a second"},
		{gcra.Limit{Count: 1, Per: time.Microsecond - 1}, "1,000,000 a second"},
		{gcra.Limit{Count: math.MaxInt64, Per: math.MaxInt64}, "1,000,000 a second"},
		{gcra.Limit{Count: 1, Per: year + 100}, "366 days"},
		{gcra.Limit{Count: 1, Per: math.MaxInt64}, "366 days"},
		{gcra.PerDay(1).WithBurst(367), "366 days"},
		{gcra.PerSecond(1).WithBurst(math.MaxInt64), "366 days"},
		{gcra.PerSecond(1_000_000).WithBurst(math.MaxInt64), "366 days"},
	} {
		err := tt.limit.Validate()
		if tt.want == "" {
			if err != nil {
				t.Errorf("%#v: got %v; want no error", tt.limit, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%#v: got %v; want an error with %q", tt.limit, err, tt.want)
		}
	}
}

// emission is T as a store uses it: the time after which one unit is back.
func emission(t testing.TB, l gcra.Limit) time.Duration {
	t.Helper()
	c := new(clock)
	r, err := gcra.Take(t.Context(), gcra.NewMemory(gcra.MemoryConfig{Now: c.now}), gcra.Charge{Limit: l, Cost: 1})
	if err != nil {
		t.Fatalf("%v: %v", l, err)
	}
	return r.ResetAfter
}

// The rate is exact to 0.05 % up to 10,000 a second, and to 5 % at the fastest.
func TestEmission(t *testing.T) {
	off := func(l gcra.Limit) float64 {
		limit := new(big.Rat).SetFrac64(int64(l.Per), l.Count)
		used := new(big.Rat).SetInt64(int64(emission(t, l)))
		r, _ := used.Quo(limit, used).Float64() // rate used / rate of the limit
		return math.Abs(r - 1)
	}

	for n := int64(1); n <= 10_000; n++ {
		l := gcra.PerSecond(n)
		if d := off(l); d > 0.0005 {
			t.Errorf("%v: off by %.4f %%; want at most 0.05 %%", l, 100*d)
		}
	}

	for _, tt := range []struct {
		limit gcra.Limit
		most  float64
	}{
		{gcra.PerMinute(7), 1e-6},
		{gcra.PerMinute(599_999), 0.0005},
		{gcra.PerHour(7), 1e-9},
		{gcra.PerDay(1), 0},
		{gcra.PerDay(7), 1e-9},
		{gcra.PerDay(864_000_000), 0.0005},
		{gcra.Limit{Count: 7, Per: year}, 1e-9},
		{gcra.PerSecond(99_999), 0.005},
		{gcra.PerSecond(300_000), 0.02},
		{gcra.PerSecond(666_667), 0.05},
		{gcra.PerSecond(952_380), 0.05},
		{gcra.PerSecond(952_381), 0.05},
		{gcra.PerSecond(999_999), 0.05},
		{gcra.PerSecond(1_000_000), 0},
	} {
		if d := off(tt.limit); d > tt.most {
			t.Errorf("%v: off by %.4f %%; want at most %.4f %%", tt.limit, 100*d, 100*tt.most)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for _, tt := range []struct {
		text string
		want gcra.Limit
	}{
		{"10/second", gcra.PerSecond(10)},
		{"100/minute", gcra.PerMinute(100)},
		{"5/hour", gcra.PerHour(5)},
		{"10000/day", gcra.PerDay(10_000)},
		{"100/minute burst 20", gcra.PerMinute(100).WithBurst(20)},
		{" 100/minute   burst 20 ", gcra.PerMinute(100).WithBurst(20)},
		{"100/minute burst 100", gcra.PerMinute(100).WithBurst(100)},
		{"25/5s", gcra.Limit{Count: 25, Per: 5 * time.Second}},
		{"1/1h30m", gcra.Limit{Count: 1, Per: 90 * time.Minute}},
		{"1/1s", gcra.PerSecond(1)},
		{"1000000/second", gcra.PerSecond(1_000_000)},
	} {
		got, err := gcra.ParseLimit(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseLimit(%q): got %#v, %v; want %#v", tt.text, got, err, tt.want)
		}
	}

	for _, tt := range []struct{ text, want string }{
		{"", "want a form such as"},
		{"100", "want a form such as"},
		{"100 / minute", "want a form such as"},
		{"100/minute burst", "want a form such as"},
		{"100/minute bust 20", "want a form such as"},
		{"100/minute burst 20 30", "want a form such as"},
		{"/minute", `count is ""`},
		{"x/minute", `count is "x"`},
		{"1.5/minute", `count is "1.5"`},
		{"+10/minute", `count is "+10"; want a whole number`},
		{"010/minute", `count is "010"; want a whole number`},
		{"9223372036854775808/day", "want 9223372036854775807 at most"},
		{"0/minute", "count is 0"},
		{"-1/minute", "count is -1"},
		{"100/", `period is ""`},
		{"100/fortnight", `period is "fortnight"`},
		{"100/minutes", `period is "minutes"`},
		{"100/0s", "period is 0s"},
		{"100/-5s", "period is -5s"},
		{"100/minute burst x", `burst is "x"`},
		{"100/minute burst 0", "burst is 0"},
		{"100/minute burst +5", `burst is "+5"`},
		{"100/minute burst -1", "burst is -1"},
		{"1000001/second", "1,000,000 a second"},
		{"1/day burst 400", "366 days"},
	} {
		got, err := gcra.ParseLimit(tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), fmt.Sprintf("%q", tt.text)) {
			t.Errorf("ParseLimit(%q): got %v; want an error with the text and %q", tt.text, err, tt.want)
		}
		if got != (gcra.Limit{}) {
			t.Errorf("ParseLimit(%q): got %#v with the error; want the zero Limit", tt.text, got)
		}
	}
}

// An error repeats at most a line of its input.
func TestParseLimitErrorIsBounded(t *testing.T) {
	long := strings.Repeat("9", 1<<20)
	for _, text := range []string{long, long + "/minute", "1/" + long, "1/minute burst " + long} {
		if _, err := gcra.ParseLimit(text); err == nil || len(err.Error()) > 500 {
			t.Errorf("ParseLimit of %d bytes: got an error of %d bytes; want at most 500", len(text), len(fmt.Sprint(err)))
		}
	}
}

func TestLimitString(t *testing.T) {
	for _, tt := range []struct {
		limit gcra.Limit
		want  string
	}{
		{gcra.PerSecond(10), "10/second"},
		{gcra.PerMinute(100).WithBurst(20), "100/minute burst 20"},
		{gcra.PerHour(1), "1/hour"},
		{gcra.PerDay(1), "1/day"},
		{gcra.Limit{Count: 25, Per: 5 * time.Second}, "25/5s"},
		{gcra.Limit{Count: 1, Per: 90 * time.Minute}, "1/1h30m0s"},
		{gcra.Limit{}, "0/0s"},
	} {
		if got := tt.limit.String(); got != tt.want {
			t.Errorf("%#v: got %q; want %q", tt.limit, got, tt.want)
		}
	}
}

// What ParseLimit returns is valid, and ParseLimit reads back what String writes of
// any valid limit.
func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{
		"10/second", "100/minute burst 20", "25/5s", "1/1h30m", "0/minute", "1/day burst 400", "+5/hour", "1/1us", "1/999ns",
		"9223372036854775807/day", "1/8784h", "1/8785h", "1 /s", "1/s", "/", "burst", "1/minute burst 0", "01/0h1m",
		"10000/calendar month", "10000/calendar month from 15", "500/calendar day Europe/Berlin", "1000/calendar week from 7 America/New_York",
		"1/calendar hour UTC", "1/calendar month from 1", "1/calendar day from", "0/calendar year", "1/calendar year Local", "1/calendar day ../UTC", "1/\u00b5s", "1/1\u00b5s",
	} {
		f.Add(text, int64(len(text)), int64(time.Second), int64(0))
	}

	f.Add("", int64(1_000_000), int64(time.Second), int64(1))
	f.Add("", int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add("", int64(math.MinInt64), int64(math.MinInt64), int64(math.MinInt64))
	f.Fuzz(func(t *testing.T, text string, count, per, burst int64) {
		l, err := gcra.ParseLimit(text)
		if err == nil {
			roundTrip(t, l)
		} else if l != (gcra.Limit{}) {
			t.Errorf("ParseLimit(%q): got %#v with %v; want the zero Limit", text, l, err)
		}

		l = gcra.Limit{Count: count, Per: time.Duration(per), Burst: burst}
		if l.Validate() == nil {
			roundTrip(t, l)
		} else if again, err := gcra.ParseLimit(l.String()); err == nil {
			t.Errorf("%#v is not valid, but ParseLimit(%q) gives %#v", l, l, again)
		} else if text, err := l.MarshalText(); err == nil && l != (gcra.Limit{}) {
			t.Errorf("%#v is not valid, but MarshalText gives %q", l, text)
		}
	})
}

func roundTrip(t *testing.T, l gcra.Limit) {
	t.Helper()
	if err := l.Validate(); err != nil {
		t.Errorf("%#v is not valid: %v", l, err)
	}
	if again, err := gcra.ParseLimit(l.String()); err != nil || again != l {
		t.Errorf("%#v: ParseLimit(%q) gives %#v, %v", l, l, again, err)
	}
	text, err := l.MarshalText()
	var again gcra.Limit
	if err != nil || string(text) != l.String() || again.UnmarshalText(text) != nil || again != l {
		t.Errorf("%#v: MarshalText gives %q, %v, and UnmarshalText of it %#v; want %q and the same limit", l, text, err, again, l)
	}
}

func TestCapacityAndInterval(t *testing.T) {
	for _, tt := range []struct {
		limit    gcra.Limit
		capacity int64
		interval time.Duration
	}{
		{gcra.PerMinute(60), 60, time.Second},
		{gcra.PerMinute(60).WithBurst(5), 5, time.Second},
		{gcra.PerSecond(3), 3, 333_333_300}, // to the nearest 100 ns
		{gcra.PerSecond(600_000), 600_000, 1700},
		{gcra.Limit{Count: 1000, Per: math.MaxInt64, Burst: 1}, 1, 9_223_372_036_854_800},
		{gcra.Limit{}, 0, 0},
		{gcra.PerSecond(0).WithBurst(7), 7, 0},
		{gcra.Limit{Count: 1, Per: math.MaxInt64}, 1, 0},
	} {
		if got := tt.limit.Capacity(); got != tt.capacity {
			t.Errorf("%+v: got capacity %d; want %d", tt.limit, got, tt.capacity)
		}
		if got := tt.limit.Interval(); got != tt.interval {
			t.Errorf("%+v: got interval %d; want %d", tt.limit, got, tt.interval)
		}
	}
}

// settings is a configuration file with limits.
type settings struct {
	Login gcra.Limit            `json:"login" yaml:"login"`
	Other *gcra.Limit           `json:"other" yaml:"other"`
	Plans map[string]gcra.Limit `json:"plans" yaml:"plans"`
}

func TestLimitInFiles(t *testing.T) {
	for _, format := range []struct {
		name      string
		text      string
		marshal   func(any) ([]byte, error)
		unmarshal func([]byte, any) error
	}{
		{"JSON", `{"login":"5/minute","other":"25/5s","plans":{"free":"100/hour burst 20","none":""}}`, json.Marshal, json.Unmarshal},
		{"YAML", "login: 5/minute\nother: 25/5s\nplans:\n  free: 100/hour burst 20\n  none: \"\"\n", yaml.Marshal,
			yaml.Unmarshal},
	} {
		t.Run(format.name, func(t *testing.T) {
			var s settings
			if err := format.unmarshal([]byte(format.text), &s); err != nil {
				t.Fatal(err)
			}
			if s.Login != gcra.PerMinute(5) || s.Other == nil || s.Other.String() != "25/5s" {
				t.Errorf("got login %v, other %v; want 5/minute, 25/5s", s.Login, s.Other)
			}

			if none, ok := s.Plans["none"]; s.Plans["free"] != gcra.PerHour(100).WithBurst(20) || !ok || none != (gcra.Limit{}) {
				t.Errorf("got plans %v; want 100/hour burst 20 and the zero Limit", s.Plans)
			}
			if got, err := format.marshal(s); err != nil || string(got) != format.text {
				t.Errorf("marshalled: got %s, %v; want %s", got, err, format.text)
			}

			for _, wrong := range []string{"100/fortnight", "0/minute", " "} {
				if err := format.unmarshal([]byte(`{"login": "`+wrong+`"}`), &s); err == nil || !strings.Contains(err.Error(), `gcra: limit "`+wrong+`"`) {
					t.Errorf("%q: got %v; want an error with the value", wrong, err)
				}
			}

			if err := format.unmarshal([]byte(`{"login": {"Count": 5}}`), &s); err == nil {
				t.Error("an object: got no error")
			}
			if s.Login != gcra.PerMinute(5) {
				t.Errorf("after errors: got %v; want 5/minute, unchanged", s.Login)
			}
			if got, err := format.marshal(settings{Login: gcra.PerMinute(-2)}); err == nil || !strings.Contains(err.Error(), "count is -2") {
				t.Errorf("an invalid limit: got %s, %v; want an error with the count", got, err)
			}
		})
	}
}
