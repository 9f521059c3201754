package pacer

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/retryafter"
)

// fields is what the header of a response says of the limit that is closest.
type fields struct {
	policy     string        // tells limits of one server apart
	left       float64       // units left; -1 when not told
	capacity   float64       // most units that can be left; 0 when not told
	rate       float64       // units a second; 0 when not told
	derived    bool          // rate is from what is left and the time until all is back
	retryAfter time.Duration // on 429 and 503; 0 when not told
}

// readFields reads the forms of package middleware, drafts 3 to 6, drafts 8 to
// 11, and X-RateLimit. What is malformed is not there.
func readFields(now time.Time, status int, h http.Header) fields {
	f := fields{left: -1}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		f.retryAfter, _ = retryafter.Parse(h, now)
	}
	if f.readLists(h) {
		return f
	}
	for _, prefix := range [...]string{"Ratelimit-", "X-Ratelimit-"} {
		if f.readTriple(now, status, h, prefix) {
			break
		}
	}
	return f
}

// readLists reads the lists of drafts 8 to 11: the item with least left, and
// its policy.
//
//	RateLimit-Policy: "burst";q=10;w=1, "daily";q=10000;w=86400
//	RateLimit: "burst";r=9;t=1, "daily";r=9999;t=9
func (f *fields) readLists(h http.Header) bool {
	for _, line := range h.Values("RateLimit") {
		for item := range items(line) {
			name, params := cutName(item)
			if left, ok := number(param(params, "r")); ok && name != "" && (f.left < 0 || left < f.left) {
				f.policy, f.left = name, left
			}
		}
	}
	if f.left < 0 {
		return false
	}
	for _, line := range h.Values("RateLimit-Policy") {
		for item := range items(line) {
			if name, params := cutName(item); name == f.policy {
				f.readWindow(param(params, "q"), param(params, "w"))
				f.capacity, _ = number(param(params, "q"))
			}
		}
	}
	return true
}

// readTriple reads the fields of drafts 3 to 6, or those of the custom before.
//
//	RateLimit-Limit: 100
//	RateLimit-Remaining: 42
//	RateLimit-Reset: 35
//	RateLimit-Policy: 100;w=60
func (f *fields) readTriple(now time.Time, status int, h http.Header, prefix string) bool {
	left, ok := number(h.Get(prefix + "Remaining"))
	if !ok {
		return false
	}
	f.left = left
	limit, _, _ := strings.Cut(h.Get(prefix+"Limit"), ",") // draft 3: 100, 100;w=60
	f.policy = limit
	f.capacity, _ = number(limit)
	if prefix == "Ratelimit-" {
		for item := range items(h.Get("RateLimit-Policy")) {
			quota, params, _ := strings.Cut(item, ";")
			f.readWindow(strings.TrimSpace(quota), param(params, "w"))
			if f.rate > 0 {
				f.policy = item
				return true // the first is the one that the triple is about
			}
		}
	}
	reset, ok := number(h.Get(prefix + "Reset"))
	if reset >= 1e9 { // a time of day, as GitHub has it
		reset -= float64(now.Unix())
	}
	// A bucket that has lost so much needs so long to be full; on a refusal,
	// Reset is about the next request.
	if ok && status != http.StatusTooManyRequests && reset > 0 && f.capacity > left {
		f.rate, f.derived = (f.capacity-left)/reset, true
	}
	return true
}

func (f *fields) readWindow(quota, window string) {
	q, ok := number(quota)
	w, ok2 := number(window)
	if ok && ok2 && q > 0 && w > 0 {
		f.rate = q / w
	}
}

// number reads a whole number that is not negative, of up to 15 digits as
// RFC 9651 has them.
func number(s string) (float64, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	if err != nil || n > 999_999_999_999_999 {
		return 0, false
	}
	return float64(n), true
}

// items walks through a list; a comma in a string does not end an item.
func items(line string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line != "" {
			end := outside(line, ',')
			if item := strings.TrimSpace(line[:end]); item != "" && !yield(item) {
				return
			}
			line = line[min(end+1, len(line)):]
		}
	}
}

// cutName splits "burst";q=10;w=1 behind the name, which keeps its quotes; ""
// when the item is not a string.
func cutName(item string) (name, params string) {
	end := outside(item, ';')
	name = strings.TrimSpace(item[:end])
	if len(name) < 2 || name[0] != '"' || name[len(name)-1] != '"' {
		return "", ""
	}
	return name, item[min(end+1, len(item)):]
}

// param is the value of a parameter; the last one counts, as in RFC 9651.
func param(params, key string) (value string) {
	for params != "" {
		end := outside(params, ';')
		if k, v, ok := strings.Cut(params[:end], "="); ok && strings.TrimSpace(k) == key {
			value = v
		}
		params = params[min(end+1, len(params)):]
	}
	return value
}

// outside is where the separator first stands outside of strings, or the end.
func outside(s string, separator byte) int {
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
