package pacer

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/retryafter"
)

// fields is what the header of a response says about one limit: the one with the least remaining.
type fields struct {
	policy     string        // distinguishes the limits of one server
	remaining  float64       // units; -1 if absent
	capacity   float64       // the largest possible remaining; 0 if absent
	rate       float64       // units a second; 0 if absent
	derived    bool          // rate is computed from remaining and Reset
	retryAfter time.Duration // on 429 and 503; 0 if absent
}

// readFields reads the forms that package middleware sends: drafts 3 to 6 and 8 to 11 of
// draft-ietf-httpapi-ratelimit-headers, and X-RateLimit. A malformed field counts as absent.
func readFields(now time.Time, status int, h http.Header) fields {
	f := fields{remaining: -1}
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

// readLists reads the lists of drafts 8 to 11: the item with the least remaining, and its policy.
// It reports whether there is one.
//
//	RateLimit-Policy: "burst";q=10;w=1, "daily";q=10000;w=86400
//	RateLimit: "burst";r=9;t=1, "daily";r=9999;t=9
func (f *fields) readLists(h http.Header) bool {
	for _, line := range h.Values("RateLimit") {
		for item := range items(line) {
			name, params := cutName(item)
			if remaining, ok := number(param(params, "r")); ok && name != "" && (f.remaining < 0 || remaining < f.remaining) {
				f.policy, f.remaining = name, remaining
			}
		}
	}
	if f.remaining < 0 {
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

// readTriple reads the fields of drafts 3 to 6, or the X-RateLimit fields. It reports whether
// Remaining is there.
//
//	RateLimit-Limit: 100
//	RateLimit-Remaining: 42
//	RateLimit-Reset: 35
//	RateLimit-Policy: 100;w=60
func (f *fields) readTriple(now time.Time, status int, h http.Header, prefix string) bool {
	remaining, ok := number(h.Get(prefix + "Remaining"))
	if !ok {
		return false
	}
	f.remaining = remaining
	limit, _, _ := strings.Cut(h.Get(prefix+"Limit"), ",") // draft 3: 100, 100;w=60
	f.policy = limit
	f.capacity, _ = number(limit)
	if prefix == "Ratelimit-" {
		for item := range items(h.Get("RateLimit-Policy")) {
			quota, params, _ := strings.Cut(item, ";")
			f.readWindow(strings.TrimSpace(quota), param(params, "w"))
			if f.rate > 0 {
				f.policy = item
				return true // the triple describes the first policy
			}
		}
	}
	reset, ok := number(h.Get(prefix + "Reset"))
	if reset >= 1e9 { // a Unix time, as from GitHub
		reset -= float64(now.Unix())
	}
	// Reset is the time until the bucket is full, except in a denial: there it is the time until
	// the next request passes.
	if ok && status != http.StatusTooManyRequests && reset > 0 && f.capacity > remaining {
		f.rate, f.derived = (f.capacity-remaining)/reset, true
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

// number reads a non-negative integer of at most 15 digits (RFC 9651, section 3.3.1).
func number(s string) (float64, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	if err != nil || n > 999_999_999_999_999 {
		return 0, false
	}
	return float64(n), true
}

// items iterates over a list. A comma inside a string does not end an item.
func items(line string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line != "" {
			end := indexUnquoted(line, ',')
			if item := strings.TrimSpace(line[:end]); item != "" && !yield(item) {
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
		return "", ""
	}
	return name, item[min(end+1, len(item)):]
}

// param returns the value of a parameter. The last of several counts (RFC 9651, section 4.2.3.2).
func param(params, key string) (value string) {
	for params != "" {
		end := indexUnquoted(params, ';')
		if k, v, ok := strings.Cut(params[:end], "="); ok && strings.TrimSpace(k) == key {
			value = v
		}
		params = params[min(end+1, len(params)):]
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
