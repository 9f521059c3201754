package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/examples/internal/process"
)

func TestMain(m *testing.M) { process.Main(m, main) }

var frameworkNames = []string{"nethttp", "gin", "echo", "echov5"}

// startAll runs a quickstart for each framework.
func startAll(t *testing.T, args ...string) []*process.Process {
	t.Helper()
	all := make([]*process.Process, len(frameworkNames))
	for i, name := range frameworkNames {
		all[i] = process.Start(t, append([]string{"-framework", name}, args...)...)
	}
	return all
}

// bearer is an Authorization line with a token.
func bearer(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: Bearer " + token
}

func claimsOf(user any) jwt.MapClaims {
	return jwt.MapClaims{"sub": user, "exp": time.Now().Add(time.Hour).Unix()}
}

// as is an Authorization line with the token of a user.
func as(t *testing.T, user string) string {
	t.Helper()
	return bearer(t, jwt.SigningMethodHS256, tokenKey, claimsOf(user))
}

// varies is what differs from one answer to the next, and Connection, which
// net/http writes in two places.
var varies = regexp.MustCompile(`(Date|Ratelimit-Reset|Retry-After|Connection): [^\r]*\r\n`)

// All frameworks answer alike, down to the byte. The requests come in this
// order, as they use up the limits.
func TestAlike(t *testing.T) {
	t.Parallel()
	all := startAll(t)
	for _, p := range all {
		p.MayLog = []string{" code=proxy-ignored "} // X-Forwarded-For below
	}

	const any = "any"
	hs256 := jwt.SigningMethodHS256
	denied := func(policy string) string { return `"violated-policies":["` + policy + `"]` }
	get := func(target string, headers ...string) string { return process.Request("GET", target, "", headers...) }
	post := func(form string) string { return process.Request("POST", "/login", form) }
	unauthorized := "want Authorization: Bearer"

	for _, step := range []struct {
		name, request string
		status        int
		body          string // a part of it
		header        string // a line that the answer has, "-Name" one that it does not have
	}{
		{"health", get("/healthz"), 200, `{"status":"ok"}`, "-RateLimit-Limit"},
		{"hello", get("/hello"), 200, `{"hello":"world"}`, "RateLimit-Remaining: 9"},
		{"a made-up address", get("/hello", "X-Forwarded-For: 192.0.2.1", "X-Real-IP: 192.0.2.1"), 200, "hello", "RateLimit-Remaining: 8"},
		{"a query", get("/hello?a=b;c"), 200, "hello", "RateLimit-Remaining: 7"},
		{"a full URL", get("http://api.example.com/hello"), 200, "hello", "RateLimit-Remaining: 6"},
		{"hello", get("/hello"), 200, "hello", "RateLimit-Remaining: 5"},
		{"hello", get("/hello"), 200, "hello", "RateLimit-Remaining: 4"},
		{"hello", get("/hello"), 200, "hello", "RateLimit-Remaining: 3"},
		{"hello", get("/hello"), 200, "hello", "RateLimit-Remaining: 2"},
		{"hello", get("/hello"), 200, "hello", "RateLimit-Remaining: 1"},
		{"the 10th hello", get("/hello"), 200, "hello", "RateLimit-Remaining: 0"},
		{"the 11th hello", get("/hello"), 429, denied("hello"), "Cache-Control: no-store"},
		{"health after the 11th hello", get("/healthz"), 200, "ok", "-RateLimit-Limit"},

		{"a login without a user", post("name=alice"), 400, "want a form such as user=alice", "RateLimit-Remaining: 4"},
		{"a login of a megabyte", post("user=" + strings.Repeat("a", 1<<20)), 400, any, "RateLimit-Remaining: 3"},
		{"a login without a user", post("user="), 400, "want a form", "RateLimit-Remaining: 2"},
		{"a login without a user", post("user="), 400, "want a form", "RateLimit-Remaining: 1"},
		{"the 5th login", post("user="), 400, "want a form", "RateLimit-Remaining: 0"},
		{"the 6th login", post("user=alice"), 429, denied("login"), "Cache-Control: no-store"},

		{"me", get("/me", as(t, "alice")), 200, `{"user":"alice"}`, "RateLimit-Remaining: 4"},
		{"a report", get("/report", as(t, "dave")), 200, `{"report":"of dave"}`, "RateLimit-Remaining: 2"},
		{"a user with odd characters", get("/me", as(t, "}{ \x00|%")), 200, "user", "RateLimit-Remaining: 4"},

		{"me without a token", get("/me"), 401, unauthorized, "WWW-Authenticate: Bearer"},
		{"a report without a token", get("/report"), 401, unauthorized, "-RateLimit-Limit"},
		{"basic authentication", get("/me", "Authorization: Basic YWxpY2U6"), 401, unauthorized, ""},
		{"a token and more", get("/me", as(t, "frank")+"x"), 401, unauthorized, ""},
		{"another key", get("/me", bearer(t, hs256, []byte("x"), claimsOf("frank"))), 401, unauthorized, ""},
		{"another method", get("/me", bearer(t, jwt.SigningMethodHS512, tokenKey, claimsOf("frank"))), 401, unauthorized, ""},
		{"no signature", get("/me", bearer(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claimsOf("frank"))), 401, unauthorized, ""},
		{"expired", get("/me", bearer(t, hs256, tokenKey, jwt.MapClaims{"sub": "frank", "exp": 1})), 401, unauthorized, ""},
		{"without expiry", get("/me", bearer(t, hs256, tokenKey, jwt.MapClaims{"sub": "frank"})), 401, unauthorized, ""},
		{"without a user", get("/me", as(t, "")), 401, unauthorized, ""},
		{"a number for a user", get("/me", bearer(t, hs256, tokenKey, claimsOf(7))), 401, unauthorized, ""},

		{"a token of a megabyte", get("/me", "Authorization: Bearer "+strings.Repeat("a", 1<<20)), 431, any, ""},
		{"no HTTP", "\x00\x01\x02 hello\r\n\r\n", 400, any, ""},
		{"still there", get("/healthz"), 200, "ok", ""},
	} {
		var first string
		for i, p := range all {
			answer := varies.ReplaceAllString(p.Send(step.request), "")
			if i == 0 {
				first = answer
			} else if answer != first {
				t.Errorf("%s: %s answers %.2000q\n%s answers %.2000q", step.name, frameworkNames[0], first, frameworkNames[i], answer)
			}
		}

		if process.Status(first) != step.status || step.body != any && !strings.Contains(process.Body(first), step.body) {
			t.Errorf("%s: got %.600q; want %d and %q", step.name, first, step.status, step.body)
		}

		name, value, _ := strings.Cut(step.header, ": ")
		if absent, found := strings.CutPrefix(name, "-"); found {
			if got := process.Header(first, absent); got != "" {
				t.Errorf("%s: got %s: %s; want none", step.name, absent, got)
			}
		} else if got := process.Header(first, name); got != value {
			t.Errorf("%s: got %s: %q; want %q", step.name, name, got, value)
		}
	}
}

// A denied user gets the same answer from all frameworks. A slow machine may
// refill 5 a second in between, so several users try.
func TestUserDenied(t *testing.T) {
	t.Parallel()
	for i, p := range startAll(t) {
		var answer string
		for try := 0; process.Status(answer) != 429; try++ {
			if try == 20 {
				t.Fatalf("%s: a user's second report at once is not denied: %q", frameworkNames[i], answer)
			}
			user := as(t, "user"+strconv.Itoa(try))
			p.Get("/report", user)
			answer = p.Get("/report", user)
		}

		if process.Header(answer, "Retry-After") != "1" || !strings.Contains(answer, `"violated-policies":["burst"]`) {
			t.Errorf("%s: got %q; want Retry-After: 1 and policy burst", frameworkNames[i], answer)
		}
		if got := process.Status(p.Get("/report", "Authorization: Bearer x")); got != 401 {
			t.Errorf("%s: a wrong token: got %d; want 401", frameworkNames[i], got)
		}
	}
}

// A client that waits for Retry-After passes.
func TestRetryAfter(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a limit to refill")
	}

	t.Parallel()
	all := startAll(t)
	longest := 0
	for i, p := range all {
		for n := range 10 {
			if answer := p.Get("/hello"); process.Status(answer) != 200 {
				t.Fatalf("%s: hello %d: got %q; want 200", frameworkNames[i], n+1, answer)
			}
		}

		answer := p.Get("/hello")
		wait, err := strconv.Atoi(process.Header(answer, "Retry-After"))
		if process.Status(answer) != 429 || err != nil || wait < 1 || wait > 6 {
			t.Fatalf("%s: hello 11: got %q; want 429 and a Retry-After of 1 to 6 seconds", frameworkNames[i], answer)
		}
		longest = max(longest, wait)
	}

	time.Sleep(time.Duration(longest) * time.Second) // one wait for all
	for i, p := range all {
		if answer := p.Get("/hello"); process.Status(answer) != 200 {
			t.Errorf("%s: after Retry-After: got %q; want 200", frameworkNames[i], answer)
		}
	}
}
