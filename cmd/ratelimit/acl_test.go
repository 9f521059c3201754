package main

import (
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/overrides"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/middleware/fleet"
)

// rules returns the words of a user's line in SECURITY.md.
func rules(t *testing.T, user string) []string {
	t.Helper()
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER ` + user + ` (.*)$`).FindSubmatch(text)
	if line == nil {
		t.Fatalf("SECURITY.md has no line ACL SETUSER %s", user)
	}
	return strings.Fields(strings.ReplaceAll(string(line[1]), "PASSWORD", "password"))
}

// as grants a user the rules, and returns the URL for it.
func as(t *testing.T, s *redistest.Server, user string, rules []string) string {
	t.Helper()
	args := []any{"acl", "setuser", user, "reset"}
	for _, rule := range rules {
		args = append(args, rule)
	}

	for _, command := range [][]any{args, {"script", "flush"}} {
		if err := s.Client().Do(t.Context(), command...).Err(); err != nil {
			t.Skipf("%v: %v", command, err) // Redis 6.2 has no rights to read only
		}
	}

	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, "password")
	return u.String()
}

// An operator needs exactly the rights that SECURITY.md lists.
func TestOperatorACL(t *testing.T) {
	s := redistest.Start(t)
	policies := file(t, sample)
	commands := func(url string) (failed []string) {
		for _, args := range [][]string{
			{"top"},
			{"peek", "ip:192.0.2.7", "--policies", policies},
			{"reset", "ip:192.0.2.7", "--policies", policies},
			{"override", "set", "ip:192.0.2.7", "none", "--for", "1h"},
			{"override", "list"},
			{"override", "unset", "ip:192.0.2.7"},
			{"ban", "ip:192.0.2.7", "--for", "1h"},
			{"override", "list", "--json"},
		} {
			if code, _, stderr := ran(append(args, "--redis", url)...); code != 0 {
				failed = append(failed, args[0]+": "+stderr)
			}
		}
		return failed
	}

	all := rules(t, "operator")
	busy(t, s)
	if failed := commands(as(t, s, "operator", all)); len(failed) > 0 {
		t.Errorf("with %q: %q", all, failed)
	}

	for i, rule := range all {
		if !strings.HasPrefix(rule, "+") && !strings.HasPrefix(rule, "~") {
			continue
		}
		busy(t, s)
		if failed := commands(as(t, s, "operator", slices.Delete(slices.Clone(all), i, i+1))); len(failed) == 0 {
			t.Errorf("without %s nothing failed; want only necessary words in the line", rule)
		}
	}
}

// A server reads overrides with the rights that SECURITY.md lists, and cannot write them.
func TestServerACL(t *testing.T) {
	s := redistest.Start(t)
	for _, database := range []string{"/0", "/3"} {
		if code, _, stderr := ran("ban", "ip:192.0.2.7", "--for", "1h", "--redis", "redis://"+s.Addr+database); code != 0 {
			t.Fatal(stderr)
		}
	}

	for name, extra := range map[string]string{"limiter-fleet": "", "fleet": "", "limiter-fleet/3": "+select", "fleet/3": "+select"} {
		t.Run(name, func(t *testing.T) {
			user, _, other := strings.Cut(name, "/")
			c := &command{redis: as(t, s, user, append(rules(t, user), strings.Fields(extra)...)), prefix: "rl:"}
			if other {
				c.redis = strings.TrimSuffix(c.redis, "/0") + "/3"
			}
			client, err := c.connect()
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()

			store, err := c.store(client)
			if err != nil {
				t.Fatal(err)
			}
			found, err := fleet.New(t.Context(), fleet.Config{Store: store})
			if err != nil {
				t.Fatal(err)
			}
			redistest.Eventually(t, patience, "the ban", func() bool {
				o, ok := found.Find("client", "ip:192.0.2.7")
				return ok && o.Banned
			})

			key := overrides.Key("rl:")
			for _, args := range [][]any{{"hset", key, "f", "v"}, {"hdel", key, "f"}, {"del", key}, {"set", key, "v"}, {"eval", "return redis.call('HSET', KEYS[1], 'f', 'v')", 1, key}, {"pexpire", key, 1}, {"rename", key, "x"}} {
				if err := client.Do(t.Context(), args...).Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "ACL failure") && !strings.Contains(err.Error(), "permission") {
					t.Errorf("%v: got %v; want that it is not allowed", args, err)
				}
			}

			if user == "limiter-fleet" {
				check := gcra.Charge{Subject: "ip:192.0.2.7", Policy: "client", Limit: gcra.PerHour(10)}
				if _, err := gcra.Take(t.Context(), store, check); err != nil {
					t.Errorf("a check: %v", err)
				}
			}
		})
	}
}
