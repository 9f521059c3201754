package retryafter

import (
	"cmp"
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Answer is what the status and header of a response say about the server's limit. Of several
// limits it describes the one that is used up first at an even use.
type Answer struct {
	Denied bool          // the response is a denial
	Down   bool          // it is a 503 that is no denial
	Later  bool          // it is a denial, or a 503 with Retry-After
	Wait   time.Duration // until Later; 0 if the server does not say
	Never  bool          // no wait helps: the denial says so, or names its policy and no time

	Policy    string        // distinguishes the limits of one server
	Remaining float64       // units; -1 if absent
	Capacity  float64       // the largest possible remaining; 0 if absent
	Window    time.Duration // of the limit; 0 if absent
	Rate      float64       // units a second; 0 if absent
	Derived   bool          // Rate is computed from Remaining and Reset
	Reset     time.Duration // the time until the limit resets, whatever the server means by that; 0 if absent
	Date      time.Time     // of the response by the server's clock; zero if absent
	Old       bool          // the response comes from a cache, which says so
	Resource  string        // that the limit is for, where the server names one; Policy alone does not tell them apart

	Others [3]Limit // that the response tells of besides; the zero Limit is none
}

// Limit has the fields of an Answer that describe a limit.
type Limit struct {
	Policy              string
	Remaining, Capacity float64
	Window, Reset       time.Duration
	Rate                float64
}

// Limits returns the limit of the Answer itself, and Others.
func (a *Answer) Limits() (all [4]Limit) {
	all[0] = Limit{a.Policy, a.Remaining, a.Capacity, a.Window, a.Reset, a.Rate}
	copy(all[1:], a.Others[:])
	return all
}

// forms are the fields of servers that send one limit as three fields, beside the drafts 7 to 11.
// The first form of which a response has the remaining counts.
// An exact reset goes before one that is rounded, and used and remaining stand in for a limit.
var forms = [...]struct{ limit, otherLimit, remaining, reset, exact, used string }{
	// Drafts 3 to 6 of draft-ietf-httpapi-ratelimit-headers; GitLab has a Unix time.
	{"Ratelimit-Limit", "", "Ratelimit-Remaining", "Ratelimit-Reset", "", ""},
	// GitHub (Unix time), Atlassian and Vimeo (ISO dates), Discord, Reddit (decimals, no limit):
	// docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api,
	// developer.atlassian.com/cloud/jira/platform/rate-limiting, developer.vimeo.com/guidelines/rate-limiting,
	// discord.com/developers/docs/topics/rate-limits, support.reddithelp.com/hc/articles/16160319875092
	{"X-Ratelimit-Limit", "", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Reset-After", "X-Ratelimit-Used"},
	// Twitter: docs.x.com/x-api/fundamentals/rate-limits
	// Zendesk (no reset): developer.zendesk.com/api-reference/introduction/rate-limits
	{"X-Rate-Limit-Limit", "X-Rate-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset", "", ""},
	// OpenAI and Groq (durations): platform.openai.com/docs/guides/rate-limits
	{"X-Ratelimit-Limit-Requests", "", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests", "", ""},
}

// shopify is the field of Shopify's REST API, such as 32/40: shopify.dev/docs/api/usage/limits
const shopify = "X-Shopify-Shop-Api-Call-Limit"

// Read reads Retry-After, drafts 3 to 11 of draft-ietf-httpapi-ratelimit-headers, and the fields
// of forms. A malformed field counts as absent. So do the fields of a limit in a response that a cache
// has kept: they are old, and the server has not counted the request.
//
// A reset is believed for twice the time in which the limit gives all its units, where that is told.
//
// A denial is a 429; a 503 or 403 with nothing remaining; and, as GitHub sends it, a 403 with
// Retry-After. Any other 503 says that the server is down, and nothing of a limit. Without Retry-After,
// Wait is the reset of a denial that has nothing remaining or does not say.
func Read(now time.Time, status int, h http.Header) Answer {
	a := Answer{Remaining: -1}
	a.Date, _ = parseDate(h.Get("Date"))
	if age, _ := number(h.Get("Age")); age > 0 { // a cache that has just asked the server may say 0
		a.Old = true
	} else {
		a.readFields(now, status, h)
		a.Resource = h.Get("X-Ratelimit-Resource")
	}
	a.Reset = believed(a.Reset, a.Window, a.Capacity, a.Rate)
	for i := range a.Others {
		o := &a.Others[i]
		o.Reset = believed(o.Reset, o.Window, o.Capacity, o.Rate)
	}
	if !mayDeny(status) {
		return a
	}

	wait, ok := Parse(h, now)
	down := status == http.StatusServiceUnavailable
	a.Denied = ok && !down || status == http.StatusTooManyRequests || a.Remaining == 0
	a.Down = down && !a.Denied
	a.Later = ok || a.Denied

	switch {
	case !a.Later:
	case ok:
		a.Wait = wait
	case a.Remaining <= 0:
		a.Wait = a.Reset
	}

	// Our middleware denies so what costs more than the limit ever allows: with a remaining in a list alone.
	untold := a.Remaining < 0 || a.Remaining > 0 && strings.HasPrefix(a.Policy, `"`)
	a.Never = status == http.StatusTooManyRequests && !ok && a.Reset == 0 && untold && h.Get("RateLimit-Policy") != ""

	// Bytes, or requests at the same time, are nothing to pace by.
	if otherUnits(list(h, "RateLimit-Policy"))[a.Policy] {
		a = Answer{Denied: a.Denied, Down: a.Down, Later: a.Later, Wait: a.Wait, Remaining: -1}
	}
	a.Never = a.Never || a.Later && cmp.Or(h.Get("X-Should-Retry"), h.Get("Stripe-Should-Retry")) == "false"
	return a
}

func believed(reset, window time.Duration, capacity, rate float64) time.Duration {
	if window == 0 {
		return reset
	}
	return min(reset, 2*max(window, duration(capacity/rate)))
}

func mayDeny(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == http.StatusForbidden
}

func (a *Answer) readFields(now time.Time, status int, h http.Header) {
	if a.readLists(status, h) || a.readDictionary(now, status, h) {
		return
	}

	for _, form := range forms {
		limit := cmp.Or(h.Get(form.limit), h.Get(form.otherLimit))
		if limit == "" && form.used != "" {
			limit = sum(h.Get(form.used), h.Get(form.remaining), 1)
		}
		if a.readTriple(now, status, h, limit, h.Get(form.remaining), cmp.Or(h.Get(form.exact), h.Get(form.reset))) {
			return
		}
	}

	if used, limit, ok := strings.Cut(h.Get(shopify), "/"); ok {
		a.readTriple(now, status, h, limit, sum(limit, used, -1), "")
	}
}

// readLists reads the lists of drafts 8 to 11: the item with the least remaining for the time until it
// has more, of several that are used up the one with the longest time, and its policy.
// It reports whether there is one. Only a denial may be by a policy of another unit than requests.
//
//	RateLimit-Policy: "burst";q=10;w=1, "daily";q=10000;w=86400
//	RateLimit: "burst";r=9;t=1, "daily";r=9999;t=9
func (a *Answer) readLists(status int, h http.Header) bool {
	policies := list(h, "Ratelimit-Policy") // as a Header has it: another spelling allocates
	others := otherUnits(policies)
	var all [1 + len(a.Others)]Limit
	n, first, least := 0, 0, math.Inf(1)
	for item := range split(list(h, "RateLimit"), ',') {
		name, params := cutName(item)
		remaining, ok := number(value(params, ';', "r"))
		if !ok || name == "" || n == len(all) || others[name] && !mayDeny(status) {
			continue
		}

		reset, _ := number(value(params, ';', "t"))
		all[n] = Limit{Policy: name, Remaining: remaining, Reset: duration(reset)}
		rate := remaining / max(reset, 1)
		longer := rate == 0 && duration(reset) > all[first].Reset // of two that are used up
		if rate < least || rate == least && longer {
			least, first = rate, n
		}
		n++
	}
	if n == 0 {
		return false
	}

	for item := range split(policies, ',') {
		name, params := cutName(item)
		for i := range all[:n] {
			if l := &all[i]; l.Policy == name {
				l.readWindow(value(params, ';', "q"), value(params, ';', "w"))
				l.Capacity, _ = number(value(params, ';', "q"))
			}
		}
	}

	l := all[first]
	a.Policy, a.Remaining, a.Capacity, a.Window, a.Reset, a.Rate = l.Policy, l.Remaining, l.Capacity, l.Window, l.Reset, l.Rate
	all[first] = all[0]
	copy(a.Others[:], all[1:n])
	return true
}

// otherUnits returns the policies whose quota unit is not requests, the default.
func otherUnits(policies string) map[string]bool {
	if !strings.Contains(policies, "qu=") {
		return nil
	}

	others := map[string]bool{}
	for item := range split(policies, ',') {
		name, params := cutName(item)
		unit := strings.Trim(value(params, ';', "qu"), `" `)
		others[name] = name != "" && unit != "" && unit != "requests"
	}
	return others
}

// readDictionary reads the field of draft 7. It reports whether it has a remaining.
//
//	RateLimit: limit=100, remaining=42, reset=35
//	RateLimit-Policy: 100;w=60
func (a *Answer) readDictionary(now time.Time, status int, h http.Header) bool {
	fields := list(h, "RateLimit")
	return a.readTriple(now, status, h, value(fields, ',', "limit"), value(fields, ',', "remaining"), value(fields, ',', "reset"))
}

// readTriple reads the values of three fields. It reports whether remaining is a number. Without one
// it reads the reset alone.
//
//	RateLimit-Limit: 100
//	RateLimit-Remaining: 42
//	RateLimit-Reset: 35
//	RateLimit-Policy: 100;w=60
func (a *Answer) readTriple(now time.Time, status int, h http.Header, limit, remaining, reset string) bool {
	wait := resetIn(now, h, reset)
	n, ok := number(remaining)
	if !ok {
		a.Reset = cmp.Or(a.Reset, wait)
		return false
	}

	a.Remaining, a.Reset = n, wait
	limit, _, _ = strings.Cut(limit, ",") // draft 3: 100, 100;w=60
	a.Policy = limit
	a.Capacity, _ = number(limit)

	for item := range split(list(h, "RateLimit-Policy"), ',') {
		quota, params, _ := strings.Cut(item, ";")
		var l Limit
		l.readWindow(quota, value(params, ';', "w"))
		if a.Rate, a.Window = l.Rate, l.Window; a.Rate > 0 {
			a.Policy = item
			return true // the triple describes the first policy
		}
	}

	// Reset is the time until the bucket is full, except in a denial: there it is the time until
	// the next request passes.
	if !mayDeny(status) && a.Reset > 0 && a.Capacity > n {
		a.Rate, a.Derived = (a.Capacity-n)/a.Reset.Seconds(), true
	}
	return true
}

func (l *Limit) readWindow(quota, window string) {
	q, ok := number(quota)
	w, ok2 := number(window)
	if ok && ok2 && q > 0 && w > 0 {
		l.Rate, l.Window = q/w, duration(w)
	}
}

// resetIn returns the time until a reset: seconds; a Unix time in seconds, as GitHub sends it, or in
// milliseconds; a duration such as 6m0s or 12ms; or a date. A time of day counts from the Date of the
// response, as in [Parse].
func resetIn(now time.Time, h http.Header, field string) time.Duration {
	field = strings.TrimSpace(field)
	if field == "" {
		return 0 // as most responses have few of the fields
	}

	if n, ok := number(field); ok {
		switch {
		case n < 1e8: // three years
			return duration(n)
		case n < 1e12:
			n *= 1000
		}
		return until(time.UnixMilli(int64(n)), now, h)
	}

	if d, err := time.ParseDuration(field); err == nil {
		return min(max(d, 0), Max)
	}
	if at, ok := parseDate(field); ok {
		return until(at, now, h)
	}
	return 0
}

// duration returns seconds as a duration from 0 to [Max].
func duration(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 0), Max.Seconds()) * float64(time.Second))
}

// number reads a non-negative number of at most 15 digits before the point, and any behind it.
func number(s string) (float64, bool) {
	s = strings.TrimSpace(s)
	whole, _, decimal := strings.Cut(s, ".")
	if whole == "" || len(strings.TrimLeft(whole, "0")) > 15 || strings.Trim(s, "0123456789.") != "" || decimal && s[len(s)-1] == '.' {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}

// sum returns a + sign·b, at least 0, or "" unless both are numbers.
func sum(a, b string, sign float64) string {
	x, ok := number(a)
	y, ok2 := number(b)
	if !ok || !ok2 {
		return ""
	}
	return strconv.FormatFloat(max(x+sign*y, 0), 'f', -1, 64)
}

// list returns the list or dictionary in a field, whose lines are one (RFC 9651, section 4.2).
func list(h http.Header, field string) string { return strings.Join(h.Values(field), ",") }

// split iterates over the parts that are not empty. A separator inside a string does not end a part.
func split(line string, separator byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line != "" {
			end := indexUnquoted(line, separator)
			if part := strings.TrimSpace(line[:end]); part != "" && !yield(part) {
				return
			}
			line = line[min(end+1, len(line)):]
		}
	}
}

// cutName splits "burst";q=10;w=1 after the name. The name keeps its quotes; it is "" if the item
// is not a string.
func cutName(item string) (name, params string) {
	end := indexUnquoted(item, ';')
	name = strings.TrimSpace(item[:end])
	if len(name) < 2 || name[0] != '"' || name[len(name)-1] != '"' {
		name = ""
	}
	return name, item[end:]
}

// value returns the value of a parameter, or of a dictionary without its parameters. The last of several counts
// (RFC 9651, sections 4.2.2 and 4.2.3.2).
func value(pairs string, separator byte, key string) (value string) {
	for p := range split(pairs, separator) {
		if k, v, ok := strings.Cut(p, "="); ok && strings.TrimSpace(k) == key {
			value, _, _ = strings.Cut(v, ";")
		}
	}
	return value
}

// indexUnquoted returns the index of the first separator outside of strings, or len(s).
func indexUnquoted(s string, separator byte) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == separator && !quoted:
			return i
		}
	}
	return len(s)
}
