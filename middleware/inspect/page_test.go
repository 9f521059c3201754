package inspect

import (
	"testing"
	"time"
)

func TestFormatting(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{number(0), "0"}, {number(999), "999"}, {number(1000), "1,000"}, {number(12345678), "12,345,678"},
		{share(0, 0), "0.0 %"}, {share(1, 100_000), "0.1 %"}, {share(1, 30), "3.3 %"}, {share(2, 3), "66.7 %"}, {share(3, 3), "100.0 %"},
		{share(99_999, 100_000), "99.9 %"}, {share(100_000, 100_000), "100.0 %"},
		{human(0), "0 s"}, {human(seconds(640 * time.Microsecond)), "0.64 ms"}, {human(seconds(1500 * time.Microsecond)), "1.5 ms"},
		{human(seconds(240 * time.Millisecond)), "240 ms"}, {human(seconds(1500 * time.Millisecond)), "1.5 s"}, {human(seconds(2 * time.Second)), "2 s"},
		{human(seconds(15 * time.Minute)), "15 min"}, {human(seconds(90 * time.Second)), "1 min 30 s"}, {human(seconds(25 * time.Hour)), "1 d 1 h"}, {human(seconds(36 * time.Second)), "36 s"}, {human(seconds(10_820 * time.Millisecond)), "10.8 s"}, {human(seconds(26*time.Hour + 90*time.Second)), "1 d 2 h"},
		{escape("ip:192.0.2.7 ünïcode"), "ip:192.0.2.7 ünïcode"}, {escape("a\x00\n\x1b\u202e\xff\ufffd"), `a\x00\n\x1b\u202e\xff�`}, {escape("\"a\"\\b\\\"'"), `"a"\b\"'`},
	} {
		if test.got != test.want {
			t.Errorf("got %q; want %q", test.got, test.want)
		}
	}
}

func TestChartTop(t *testing.T) {
	for most, want := range map[int64]int64{0: 2, 1: 2, 2: 2, 3: 4, 5: 10, 10: 10, 11: 20, 21: 40, 41: 100, 401: 1000, 1_234_567: 2_000_000} {
		c := new(chart)
		c.Allowed[7] = most
		if got := c.Top(); got != want {
			t.Errorf("a scale for %d: got %d; want %d", most, got, want)
		}
	}
}

// One denial among thousands is visible, and no bar exceeds the scale.
func TestChartPaths(t *testing.T) {
	c := new(chart)
	c.Allowed[0], c.Denied[0], c.ShadowDenied[59] = 9999, 1, 5000
	got := c.Paths()
	want := struct{ Allowed, Denied, ShadowDenied string }{
		"M0.12 2.50h0.76v97.50h-0.76z", "M0.12 0.00h0.76v2.50h-0.76z", "M59.12 50.00h0.76v50.00h-0.76z",
	}
	if got != want {
		t.Errorf("got %+v; want %+v", got, want)
	}
}
