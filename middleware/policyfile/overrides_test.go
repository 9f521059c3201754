package policyfile_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// overriding returns a policy with one override, whose subjects begin at 5:44.
func overriding(subjects string) string {
	return one("overrides: [{limit: 9/minute, subjects: [" + subjects + "]}]")
}

// A whole key wins over a network, and a longer network over a shorter one. A key that is
// a network is an exception if a network of the file contains it.
func TestOverrides(t *testing.T) {
	policy := parse(t, one(`overrides:
  - limit: 1/second
    subjects: ["sub:alice", 'sub:issuer|a%7Cb', "join:ip:192.0.2.9|route:GET /", alice, 192.0.2.9, "ip:10.0.0.0/8", "ip:2001:DB8::/32"]
  - {limit: 2/second burst 5, subjects: ["ip:10.1.0.0/16", "ip:10.0.0.0/16", "ip:2001:db8:1::/48"]}
  - {limit: 3/second, subjects: ["ip:10.1.2.0/24", "ip:10.1.255.0/24", "ip:2001:db8:1:2::/64"]}
  - {limit: 10/calendar month, subjects: ["ip:10.1.2.3"]}
  - limit: 4/second
    subjects:
      - sub:bob
      - ip:10.1.9.0/24
      - ip:2001:db9:1::/48
  - {limit: none, subjects: ["ip:10.1.2.4/32", "ip:2001:db8:1:3::/64"]}
  - {limit: banned, subjects: ["ip:10.1.7.0/24", "sub:mallory"]}
`))[0]

	for subject, want := range map[string]string{
		"sub:alice":                        "1/second",
		"sub:issuer|a%7Cb":                 "1/second",
		"join:ip:192.0.2.9|route:GET /":    "1/second",
		"join:ip:10.0.0.1|route:GET /":     "",
		"alice":                            "1/second",
		"192.0.2.9":                        "1/second",
		"sub:bob":                          "4/second",
		"ip:10.1.9.9":                      "4/second",
		"ip:2001:db9:1:1::/64":             "4/second",
		"sub:Alice":                        "",
		"":                                 "",
		"10.0.0.1":                         "",
		"ip:9.255.255.255":                 "",
		"ip:10.0.0.0":                      "2/second burst 5",
		"ip:10.2.0.0":                      "1/second",
		"ip:10.1.0.1":                      "2/second burst 5",
		"ip:10.1.2.0":                      "3/second",
		"ip:10.1.2.3":                      "10/calendar month",
		"ip:10.1.2.4":                      "none",
		"ip:10.1.2.5":                      "3/second",
		"ip:10.1.3.0":                      "2/second burst 5",
		"ip:10.1.7.7":                      "banned",
		"sub:mallory":                      "banned",
		"ip:10.255.255.255":                "1/second",
		"ip:11.0.0.0":                      "",
		"ip:":                              "",
		"ip:10.1.2":                        "",
		"ip:10.0.0.0/33":                   "",
		"ip:10.1.2.3:80":                   "",
		"ip:::ffff:10.1.2.3":               "",
		"ip:2001:db8:1:2::/64":             "3/second",
		"ip:2001:db8:1:3::/64":             "none",
		"ip:2001:db8:1:4::/64":             "2/second burst 5",
		"ip:2001:db8:2::/64":               "1/second",
		"ip:2001:db8:1::/48":               "2/second burst 5", // of keyfunc.IPv6Prefix(48, ...)
		"ip:2001:db8::/40":                 "1/second",         // wider than the networks in it
		"ip:2001:d00::/24":                 "",
		"ip:2001:db9::/64":                 "",
		"ip:2001:db8:1:2:3::":              "3/second",
		"ip:10.1.2.0/24":                   "3/second",
		"ip:10.1.0.0/17":                   "2/second burst 5",
		"ip:0.0.0.0/0":                     "",
		"ip:2001:db8:1:2::1%eth0":          "3/second",
		strings.Repeat("ip:10.1.2.3", 100): "",
	} {
		got := ""
		if o, ok := policy.Override(subject); ok {
			if got = o.Limit.String(); o.Banned {
				got = "banned"
			}
		}
		if got != want {
			t.Errorf("%.50q: got %q; want %q", subject, got, want)
		}
	}

	if policies := parse(t, one("")); policies[0].Override != nil {
		t.Error("without overrides: got an Override; want nil")
	}
}

// Overrides win over plans.
func TestOverridesOfPlans(t *testing.T) {
	policies := parse(t, `policies:
- {name: plan, key: user, plans: {free: 6/minute, pro: 60/minute}, overrides: [{limit: 600/minute, subjects: [u]}]}
`)
	l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()}, policies...))
	for user, want := range map[string]string{"u": "600/minute", "v": "60/minute"} {
		if d := l.Decide(get("User", user, "Plan", "pro")); d.Err != nil || d.Results[0].Limit.String() != want {
			t.Errorf("%s: got %+v; want %s", user, d, want)
		}
	}
}

// Overrides change while requests run: none is lost, and keys keep what they have used.
func TestReloadOverridesUnderLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	file := func(burst int) {
		t.Helper()
		write(t, path, fmt.Sprintf("policies:\n- name: a\n  key: user\n  limit: 1/hour\n  overrides: [{limit: 1/hour burst %d, subjects: [alice]}, {limit: none, subjects: ['user-%d']}]\n", burst, burst))
	}

	file(1000)
	policies, err := policyfile.Load(path, funcs)
	if err != nil {
		t.Fatal(err)
	}

	limiter := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()}, policies...))
	w := &policyfile.Watcher{Path: path, Funcs: funcs, Limiter: limiter}
	handler := ratelimit.From(limiter)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for i := range 100 {
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, get("User", "alice"))
				limit, _ := strconv.Atoi(answer.Header().Get("RateLimit-Limit"))
				if answer.Code != http.StatusOK || limit < 1000 {
					t.Errorf("request %d: got %d and limit %d; want 200 and the override", i, answer.Code, limit)
				}
			}
		})
	}

	for burst := 1001; burst <= 1020; burst++ {
		file(burst)
		if err := w.Reload(); err != nil {
			t.Error(err)
		}
	}

	clients.Wait()
	if d := limiter.Decide(get("User", "alice")); d.Results[0].Remaining != 1020-401 {
		t.Errorf("after 401 requests: got %d left of 1020; want 619", d.Results[0].Remaining)
	}
	for user, want := range map[string]int{"user-1020": 0, "user-1019": 1} {
		if d := limiter.Decide(get("User", user)); len(d.Results) != want {
			t.Errorf("%s: got %+v; want %d policies", user, d.Results, want)
		}
	}
}

// Ten thousand overrides fit into a file.
func TestManyOverrides(t *testing.T) {
	policy := parse(t, overriding(manySubjects(10_000)))[0]
	for _, subject := range []string{"ip:10.0.1.0", "sub:user-9998", "ip:2001:db8:270f:8000::/64"} {
		o, ok := policy.Override(subject)
		if !ok || o.Limit != gcra.PerMinute(9) {
			t.Errorf("%s: got %v, %t; want the override", subject, o.Limit, ok)
		}
		if strings.HasPrefix(subject, "sub:") && o.Name != subject {
			t.Errorf("%s: got the name %q; want the subject", subject, o.Name)
		}
	}
}

// manySubjects returns the text of n different subjects: networks of both kinds and users.
func manySubjects(n int) string {
	subjects := make([]string, n)
	for i := range subjects {
		switch i % 4 {
		case 0:
			subjects[i] = fmt.Sprintf(`"ip:10.%d.%d.0/24"`, i>>8, i&255)
		case 1:
			subjects[i] = fmt.Sprintf(`"ip:10.%d.%d.0"`, i>>8, i&255)
		case 2:
			subjects[i] = fmt.Sprintf(`"sub:user-%d"`, i)
		case 3:
			subjects[i] = fmt.Sprintf(`"ip:2001:db8:%x:8000::/50"`, i)
		}
	}
	return strings.Join(subjects, ",\n    ")
}

// Each mistake in overrides has a position, the value found and the value wanted.
func TestOverrideMistakes(t *testing.T) {
	const (
		wantList     = `a list such as [{limit: 1000/minute, subjects: ["sub:alice"]}]`
		wantOne      = `its fields, such as {limit: 1000/minute, subjects: ["sub:alice"]}`
		wantLimit    = "a limit such as 1000/minute, or none, or banned"
		wantSubjects = `a list of keys and networks such as ["sub:alice", "ip:198.51.100.0/24"]`
		wantKey      = `a key in quotes such as "sub:alice"`
		wantAddr     = `want an address or a network such as "ip:192.0.2.7" or "ip:2001:db8::/64"`
	)

	for text, want := range map[string][]string{
		one("overrides:"):        {"5:3: overrides is empty; want " + wantList + ", or leave it out"},
		one("overrides: []"):     {"5:14: overrides is empty; want " + wantList + ", or leave it out"},
		one("overrides: none"):   {`5:14: overrides is "none"; want ` + wantList},
		one("overrides: {a: b}"): {"5:14: overrides is a mapping; want " + wantList},
		one("overrides: [a, 7]"): {`5:15: the override is "a"; want ` + wantOne, "5:18: the override is 7; want " + wantOne},
		one("overrides: [{}]"):   {"5:15: the override is empty; want " + wantOne},
		one("overrides: [*a]"):   {"5:15: the override is an alias (*), which is not supported; want " + wantOne},
		one("override: []"):      {`5:3: field "override" is unknown; want name, key, anonymous, limit, plans, overrides, routes, cost, shadow, max_delay, max_debt or on_failure`},
		one("overrides: [{limits: 1/second, limit: none, subjects: [a]}]"): {`5:16: field "limits" is unknown; want limit or subjects`},
		one("overrides: [{limit: 1/second, subjects: [a], limit: none}]"):  {`5:48: "limit" is repeated, it is first in line 5; want it once`},

		one("overrides: [{limit: , subjects: [a]}]"):                     {"5:16: limit is empty; want " + wantLimit},
		one("overrides: [{limit: 7, subjects: [a]}]"):                    {"5:23: limit is 7; want a limit such as 1000/minute, or none, or banned"},
		one("overrides: [{limit: null, subjects: [a]}]"):                 {"5:23: limit is null; want " + wantLimit},
		one("overrides: [{limit: unlimited, subjects: [a]}]"):            {`5:23: limit is "unlimited"; want ` + wantLimit},
		one("overrides: [{limit: 0/minute, subjects: [a]}]"):             {`5:23: limit is "0/minute": count is 0; want at least 1`},
		one("overrides: [{limit: none, subjects: }]"):                    {"5:29: subjects is empty; want " + wantSubjects},
		one("overrides: [{limit: none, subjects: []}]"):                  {"5:39: subjects is empty; want " + wantSubjects},
		one("overrides: [{limit: none, subjects: a}]"):                   {`5:39: subjects is "a"; want ` + wantSubjects},
		one("cost: 10\n  overrides: [{limit: 9/minute, subjects: [a]}]"): {"5:9: cost is 10 and the limit allows at most 9 at once; no request could ever pass"},
		one("cost: 9\n  overrides: [{limit: 9/minute, subjects: [a]}]"):  nil,
		one("max_debt: 10000\n  overrides: [{limit: 1/hour, subjects: [a]}, {limit: 7/minute, subjects: [b]}]"): {
			"6:23: max_debt is 10000, which makes 1/hour burst 10001 of 1/hour: a burst of 10001 at 1 per 1h0m0s takes longer than 366 days to refill",
		},
		one("overrides: [{limit: 9000000000/calendar hour, subjects: [a]}]\n  max_debt: 1"): {
			"5:23: max_debt is 1, which makes 9000000001/calendar hour of 9000000000/calendar hour: quota is 9000000001; want 1 to 9000000000 in a calendar hour",
		},
		strings.Replace(one(""), "5/minute", "none", 1):                               {"4:10: limit is \"none\"; want a limit such as 100/minute"},
		"policies: [{name: a, key: user, overrides: [{limit: none, subjects: [a]}]}]": {"1:12: the policy has no limit; want limit or plans"},

		overriding(`sub:alice`): {"5:44: subject is a mapping; want " + wantKey}, // as the YAML parser reads it
		overriding(`7, "", [a], &b c, true`): {
			"5:44: subject is 7; want " + wantKey, `5:47: subject is ""; want ` + wantKey, "5:51: subject is a list; want " + wantKey,
			"5:56: subject is an anchor (&), which is not supported; want " + wantKey, "5:62: subject is true; want " + wantKey,
		},
		overriding(`a, b, a`): {`5:50: "a" is repeated, it is first in line 5; want it once`},
		one("overrides:\n  - {limit: none, subjects: [a]}\n  - {limit: 1/second, subjects: [b, a]}"): {`7:37: "a" is repeated, it is first in line 6; want it once`},

		// The same network or address in other words.
		overriding(`"ip:2001:db8::/64", "ip:2001:DB8:0:0::/64"`): {`5:64: "ip:2001:db8::/64" is repeated, it is first in line 5; want it once`},
		overriding(`"ip:192.0.2.7", "ip:192.0.2.7/32"`):          {`5:60: "ip:192.0.2.7" is repeated, it is first in line 5; want it once`},

		overriding(`"ip:"`):                     {`5:44: subject is "ip:": ` + wantAddr},
		overriding(`"ip:office"`):               {`5:44: subject is "ip:office": ` + wantAddr},
		overriding(`"ip: 192.0.2.7"`):           {`5:44: subject is "ip: 192.0.2.7": ` + wantAddr},
		overriding(`"ip:192.0.2.7:80"`):         {`5:44: subject is "ip:192.0.2.7:80": ` + wantAddr},
		overriding(`"ip:192.0.2.0/33"`):         {`5:44: subject is "ip:192.0.2.0/33": ` + wantAddr},
		overriding(`"ip:192.0.2.0/-1"`):         {`5:44: subject is "ip:192.0.2.0/-1": ` + wantAddr},
		overriding(`"ip:192.0.2.0/"`):           {`5:44: subject is "ip:192.0.2.0/": ` + wantAddr},
		overriding(`"ip:192.0.2.0/24x"`):        {`5:44: subject is "ip:192.0.2.0/24x": ` + wantAddr},
		overriding(`"ip:192.0.2.7/24"`):         {`5:44: subject is "ip:192.0.2.7/24": the address has bits beyond its first 24; want "ip:192.0.2.0/24"`},
		overriding(`"ip:2001:db8::1/32"`):       {`5:44: subject is "ip:2001:db8::1/32": the address has bits beyond its first 32; want "ip:2001:db8::/32"`},
		overriding(`"ip:2001:db8::1"`):          {`5:44: subject is "ip:2001:db8::1": IPv6 clients count by their network, of 64 bits or less; want one such as "ip:2001:db8::/64"`},
		overriding(`"ip:2001:db8::/96"`):        {`5:44: subject is "ip:2001:db8::/96": IPv6 clients count by their network, of 64 bits or less; want one such as "ip:2001:db8::/64"`},
		overriding(`"ip:fe80::1%eth0"`):         {`5:44: subject is "ip:fe80::1%eth0": IPv6 clients count by their network, of 64 bits or less; want one such as "ip:fe80::/64"`},
		overriding(`"ip:::ffff:192.0.2.7"`):     {`5:44: subject is "ip:::ffff:192.0.2.7": it is an IPv4 address in IPv6 form; want "ip:192.0.2.7"`},
		overriding(`"ip:::ffff:192.0.2.7/120"`): {`5:44: subject is "ip:::ffff:192.0.2.7/120": it is an IPv4 address in IPv6 form; want "ip:192.0.2.0/24"`},
		overriding(`"192.0.2.7/24"`):            {`5:44: subject is "192.0.2.7/24": keys that are addresses begin with ip:; want "ip:192.0.2.0/24"`},
		overriding(`'2001:db8::/32'`):           {`5:44: subject is "2001:db8::/32": keys that are addresses begin with ip:; want "ip:2001:db8::/32"`},
		overriding(`"ip:0.0.0.0/0", "ip:::/0"`): nil,
	} {
		_, err := policyfile.Parse("p.yaml", []byte(text), funcs)
		for i := range want {
			want[i] = "p.yaml:" + want[i]
		}
		if got := joinedErrors(err); !slices.Equal(got, want) {
			t.Errorf("%q: got\n%s\nwant\n%s", text, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
