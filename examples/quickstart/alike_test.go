package main

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// start3 runs a quickstart for each framework.
func start3(t *testing.T, args ...string) []*process {
	t.Helper()
	all := make([]*process, len(frameworkNames))
	for i, name := range frameworkNames {
		all[i] = start(t, nil, append([]string{"-framework", name}, args...)...)
	}
	return all
}

var (
	date  = regexp.MustCompile(`Date: [^\r]*`)
	wait  = regexp.MustCompile(`(Ratelimit-Reset|Retry-After): \d+`)
	token = regexp.MustCompile(`"token":"[^"]+"`)
)

// normal is an answer without what differs from one time to the next.
func normal(answer string) string {
	answer = date.ReplaceAllString(answer, "Date: ...")
	answer = wait.ReplaceAllString(answer, "$1: ...")
	return token.ReplaceAllString(answer, `"token":"..."`)
}

// same sends a request to all and returns the answer, which must be the same
// from all, byte for byte.
func same(t *testing.T, all []*process, request string) string {
	t.Helper()
	var first string
	for i, p := range all {
		answer := normal(p.send(request))
		if i == 0 {
			first = answer
		} else if answer != first {
			t.Errorf("%.120q:\n%s says %.2000q\n%s says %.2000q", request, frameworkNames[0], first, frameworkNames[i], answer)
		}
	}
	return first
}

// Every answer is the same from all frameworks, down to the byte. The requests
// come in this order, as they use the limits up.
func TestAlike(t *testing.T) {
	t.Parallel()
	all := start3(t)
	for _, p := range all {
		p.logs = []diag.Code{diag.ProxyIgnored, diag.JWTWithoutExp} // of two of the steps
	}
	const (
		notFound     = `{"error":"there is nothing here"}` + "\n"
		unauthorized = `{"error":"want the header Authorization: Bearer, with a token of POST /login"}` + "\n"
		wantLogin    = `{"error":"want a body such as {\"user\":\"alice\"}"}` + "\n"
		wantUser     = `{"error":"want a user of 1 to 64 bytes"}` + "\n"
		hello        = `{"hello":"world"}` + "\n"
		any          = "any"
	)
	refused := func(policy string) string {
		return `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,` +
			`"detail":"The request was denied because a rate limit is used up.","violated-policies":["` + policy + `"]}` + "\n"
	}
	wrongMethod := func(method string) string { return `{"error":"this is not done with ` + method + `"}` + "\n" }
	get := func(target string, headers ...string) string { return request("GET", target, "", headers...) }
	login := func(body string) string { return request("POST", "/login", body) }
	good := jwt.SigningMethodHS256
	key := []byte(demoKey)

	for _, step := range []struct {
		name    string
		request string
		status  int
		body    string
		header  string // a line that the answer has, "-Name" one that it has not
	}{
		{"health", get("/healthz"), 200, `{"status":"ok"}` + "\n", "-RateLimit-Limit"},
		{"health, HEAD", request("HEAD", "/healthz", ""), 200, "", "Content-Length: 16"},
		{"health, POST", request("POST", "/healthz", ""), 405, wrongMethod("POST"), "Allow: GET, HEAD"},

		{"hello", get("/hello"), 200, hello, "RateLimit-Remaining: 9"},
		{"hello with a query", get("/hello?a=b;c"), 200, hello, "RateLimit-Remaining: 8"},
		{"hello, HEAD", request("HEAD", "/hello", ""), 200, "", "RateLimit-Remaining: 7"},
		{"hello for an address that is made up", get("/hello", "X-Forwarded-For: 192.0.2.1", "X-Real-IP: 192.0.2.1"), 200, hello, "RateLimit-Remaining: 6"},
		{"hello for an address with a long zone", get("/hello", "X-Forwarded-For: fe80::1%"+strings.Repeat("z", 4000)), 200, hello, "RateLimit-Remaining: 5"},
		{"hello by a full URL", get("http://api.example.com/hello"), 200, hello, "RateLimit-Remaining: 4"},
		{"hello with another method on top", get("/hello", "X-HTTP-Method-Override: POST"), 200, hello, "RateLimit-Remaining: 3"},
		{"hello, POST", request("POST", "/hello", ""), 405, wrongMethod("POST"), "-RateLimit-Limit"},
		{"hello, OPTIONS", request("OPTIONS", "/hello", ""), 405, wrongMethod("OPTIONS"), "Allow: GET, HEAD"},
		{"hello, a method that nobody knows", request("FOO", "/hello", ""), 405, wrongMethod("FOO"), "Allow: GET, HEAD"},
		{"hello, CONNECT", request("CONNECT", "/hello", ""), 405, wrongMethod("CONNECT"), "Allow: GET, HEAD"},
		{"hello, remaining", get("/hello"), 200, hello, "RateLimit-Remaining: 2"},
		{"hello, remaining", get("/hello"), 200, hello, "RateLimit-Remaining: 1"},
		{"hello, the last", get("/hello"), 200, hello, "RateLimit-Remaining: 0"},
		{"hello, the 11th", get("/hello"), 429, refused("hello"), "Retry-After: ..."},
		{"hello, the 11th, HEAD", request("HEAD", "/hello", ""), 429, "", "Cache-Control: no-store"},
		{"health after the 11th hello", get("/healthz"), 200, any, "-RateLimit-Limit"},

		// One path has one spelling; no other gets past the limit.
		{"//hello", get("//hello"), 404, notFound, "-Location"},
		{"/hello/", get("/hello/"), 404, notFound, "-Location"},
		{"/./hello", get("/./hello"), 404, notFound, "-Location"},
		{"/x/../hello", get("/x/../hello"), 404, notFound, "-Location"},
		{"/h%65llo", get("/h%65llo"), 404, notFound, "-Location"},
		{"/hello%2f", get("/hello%2f"), 404, notFound, "-Location"},
		{"/HELLO, which a router might take for /hello", get("/HELLO"), 429, refused("hello"), ""},
		{"nothing", get("/nothing"), 404, notFound, "-RateLimit-Limit"},
		{"the inspector, without -inspect", get("/debug/ratelimit?token=x"), 404, notFound, "-Set-Cookie"},
		{"the root", get("/"), 404, notFound, "Content-Type: application/json"},
		{"nothing, HEAD", request("HEAD", "/nothing", ""), 404, "", "Content-Length: 34"},
		{"nothing, CONNECT", request("CONNECT", "api.example.com:80", ""), 404, notFound, ""},
		{"everything, OPTIONS", request("OPTIONS", "*", ""), 200, "", ""},

		{"a login", login(`{"user":"alice"}`), 200, `{"token":"..."}` + "\n", "Cache-Control: no-store"},
		{"a login, GET", get("/login"), 405, wrongMethod("GET"), "Allow: POST"},
		{"a login that is no JSON", login(`user=alice`), 400, wantLogin, "RateLimit-Remaining: 3"},
		{"a login of nobody", login(`{"user":""}`), 400, wantUser, "RateLimit-Remaining: 2"},
		{"a login of somebody long", login(`{"user":"` + strings.Repeat("a", 65) + `"}`), 400, wantUser, "RateLimit-Remaining: 1"},
		{"a login of a megabyte", login(`{"user":"` + strings.Repeat("a", 1<<20) + `"}`), 413, `{"error":"the body is above 1024 bytes"}` + "\n", "RateLimit-Remaining: 0"},
		{"the 6th login", login(`{"user":"alice"}`), 429, refused("login"), "Retry-After: ..."},

		{"me", get("/me", as(t, "alice")), 200, `{"user":"alice"}` + "\n", "RateLimit-Remaining: 4"},
		{"me, HEAD", request("HEAD", "/me", "", as(t, "bob")), 200, "", "RateLimit-Remaining: 4"},
		{"me, POST", request("POST", "/me", "", as(t, "carol")), 405, wrongMethod("POST"), "-RateLimit-Limit"},
		{"a report", get("/report", as(t, "dave")), 200, `{"report":"took three times the work","user":"dave"}` + "\n", "RateLimit-Remaining: 2"},
		{"a report, HEAD", request("HEAD", "/report", "", as(t, "erin")), 200, "", "RateLimit-Remaining: 2"},
		{"a name that is no key", get("/me", as(t, "}{ \x00|%")), 200, `{"user":"}{ \u0000|%"}` + "\n", "RateLimit-Remaining: 4"},

		{"me without a token", get("/me"), 401, unauthorized, "WWW-Authenticate: Bearer"},
		{"a report without a token", get("/report"), 401, unauthorized, "WWW-Authenticate: Bearer"},
		{"an empty token", get("/me", "Authorization: Bearer "), 401, unauthorized, ""},
		{"no bearer", get("/me", "Authorization: Basic YWxpY2U6"), 401, unauthorized, ""},
		{"a token and something else", get("/me", as(t, "frank")+"x"), 401, unauthorized, ""},
		{"two tokens", get("/me", as(t, "frank"), as(t, "grace")), 401, unauthorized, ""},
		{"another key", get("/me", bearer(t, good, []byte("x"), claims("frank"))), 401, unauthorized, ""},
		{"another method", get("/me", bearer(t, jwt.SigningMethodHS512, key, claims("frank"))), 401, unauthorized, ""},
		{"no signature", get("/me", bearer(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims("frank"))), 401, unauthorized, ""},
		{"another issuer", get("/me", bearer(t, good, key, claims("frank", func(c jwt.MapClaims) { c["iss"] = "x" }))), 401, unauthorized, ""},
		{"expired", get("/me", bearer(t, good, key, claims("frank", func(c jwt.MapClaims) { c["exp"] = 1 }))), 401, unauthorized, ""},
		{"without an end", get("/me", bearer(t, good, key, claims("frank", func(c jwt.MapClaims) { delete(c, "exp") }))), 401, unauthorized, ""},
		{"of nobody", get("/me", bearer(t, good, key, claims(""))), 401, unauthorized, ""},
		{"of a number", get("/me", bearer(t, good, key, claims("", func(c jwt.MapClaims) { c["sub"] = 7 }))), 401, unauthorized, ""},

		{"a token of a megabyte", get("/me", "Authorization: Bearer "+strings.Repeat("a", 1<<20)), 431, any, ""},
		{"a path of 8 KB", get("/" + strings.Repeat("a", 8<<10)), 404, notFound, ""},
		{"a path of 8 KB of slashes", get(strings.Repeat("/", 8<<10)), 404, notFound, ""},
		{"a header full of NULs", get("/me", "Authorization: Bearer "+strings.Repeat("\x00", 1000)), 400, any, ""},
		{"a host with a long zone", "GET /healthz HTTP/1.1\r\nHost: [fe80::1%25" + strings.Repeat("z", 4000) + "]\r\nConnection: close\r\n\r\n", 200, any, ""},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", 400, any, ""},
		{"no HTTP", "\x00\x01\x02 hello\r\n\r\n", 400, any, ""},
		{"alive", get("/healthz"), 200, `{"status":"ok"}` + "\n", ""},
	} {
		answer := same(t, all, step.request)
		if status(answer) != step.status || step.body != any && body(answer) != step.body {
			t.Errorf("%s: got %.600q; want %d and %q", step.name, answer, step.status, step.body)
		}
		name, value, _ := strings.Cut(step.header, ": ")
		if absent, ok := strings.CutPrefix(name, "-"); ok {
			if got := header(answer, absent); got != "" {
				t.Errorf("%s: got %s: %s; want none", step.name, absent, got)
			}
		} else if got := header(answer, name); got != value {
			t.Errorf("%s: got %s: %q; want %q", step.name, name, got, value)
		}
	}
}

// A user who is refused is told the same by all. Five a second come back fast:
// where the machine was too slow to see a refusal, another user tries.
func TestUserRefused(t *testing.T) {
	t.Parallel()
	var answers []string
	for i, p := range start3(t) {
		var answer string
		for try := 0; status(answer) != http.StatusTooManyRequests; try++ {
			if try == 20 {
				t.Fatalf("%s: a user's second report at once is not refused: %q", frameworkNames[i], answer)
			}
			user := as(t, "user"+strconv.Itoa(try))
			p.get("/report", user)
			answer = p.get("/report", user)
		}
		answers = append(answers, date.ReplaceAllString(answer, "Date: ..."))
		// Whoever is refused with a token is not served without it.
		if got := status(p.get("/report", "Authorization: Bearer x")); got != http.StatusUnauthorized {
			t.Errorf("%s: a wrong token: got %d; want 401", frameworkNames[i], got)
		}
	}
	if answers[1] != answers[0] || answers[2] != answers[0] {
		t.Errorf("got %q; want the same from all", answers)
	}
	if answer := answers[0]; header(answer, "Retry-After") != "1" || !strings.Contains(answer, `"violated-policies":["burst"]`) {
		t.Errorf("got %q; want Retry-After: 1 and policy burst", answer)
	}
}

// The 11th hello within a minute is refused, and who waits as told is served.
func TestRetryAfter(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a limit to refill")
	}
	t.Parallel()
	all := start3(t)
	longest := 0
	for i, p := range all {
		for n := range 10 {
			if answer := p.get("/hello"); status(answer) != http.StatusOK {
				t.Fatalf("%s: hello %d: got %q; want 200", frameworkNames[i], n+1, answer)
			}
		}
		answer := p.get("/hello")
		wait, err := strconv.Atoi(header(answer, "Retry-After"))
		if status(answer) != http.StatusTooManyRequests || err != nil || wait < 1 || wait > 6 {
			t.Fatalf("%s: hello 11: got %q; want 429 and a Retry-After of 1 to 6 seconds", frameworkNames[i], answer)
		}
		longest = max(longest, wait)
	}
	time.Sleep(time.Duration(longest) * time.Second) // one wait for all
	for i, p := range all {
		if answer := p.get("/hello"); status(answer) != http.StatusOK {
			t.Errorf("%s: after Retry-After: got %q; want 200", frameworkNames[i], answer)
		}
	}
}

// -headers chooses what a response tells, the same with all frameworks.
func TestHeaders(t *testing.T) {
	t.Parallel()
	hello := request("GET", "/hello", "")
	me := request("GET", "/me", "", as(t, "alice"))
	for mode, want := range map[string]struct{ hello, me string }{
		"draft6": {
			"Ratelimit-Limit: 10|Ratelimit-Policy: 10;w=60|Ratelimit-Remaining: 9|Ratelimit-Reset: 6",
			"Ratelimit-Limit: 5|Ratelimit-Policy: 5;w=1|Ratelimit-Remaining: 4|Ratelimit-Reset: 1",
		},
		"draft11": {
			`Ratelimit: "hello";r=9;t=6|Ratelimit-Policy: "hello";q=10;w=60`,
			`Ratelimit: "burst";r=4;t=1, "daily";r=99;t=864|Ratelimit-Policy: "burst";q=5;w=1, "daily";q=100;w=86400`,
		},
		"both": {
			`Ratelimit: "hello";r=9;t=6|Ratelimit-Limit: 10|Ratelimit-Policy: "hello";q=10;w=60|Ratelimit-Remaining: 9|Ratelimit-Reset: 6`,
			`Ratelimit: "burst";r=4;t=1, "daily";r=99;t=864|Ratelimit-Limit: 5|Ratelimit-Policy: "burst";q=5;w=1, "daily";q=100;w=86400|Ratelimit-Remaining: 4|Ratelimit-Reset: 1`,
		},
		"x": {
			"X-Ratelimit-Limit: 10|X-Ratelimit-Remaining: 9|X-Ratelimit-Reset: 6",
			"X-Ratelimit-Limit: 5|X-Ratelimit-Remaining: 4|X-Ratelimit-Reset: 1",
		},
		"none": {"", ""},
	} {
		all := start3(t, "-headers", mode)
		for _, step := range []struct{ request, want string }{{hello, want.hello}, {me, want.me}} {
			for i, p := range all {
				if got := limitLines(p.send(step.request)); got != step.want {
					t.Errorf("-headers %s: %s: %.12q: got\n%s; want\n%s", mode, frameworkNames[i], step.request, got, step.want)
				}
			}
		}
	}
}

// limitLines are the headers of an answer that tell of limits.
func limitLines(answer string) string {
	head, _, _ := strings.Cut(answer, "\r\n\r\n")
	var lines []string
	for line := range strings.SplitSeq(head, "\r\n") {
		if strings.Contains(line, "Ratelimit") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "|")
}
