package middleware

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Headers chooses the RateLimit fields of responses. Join the values with |. The
// zero value means HeadersDraft6. Shadow policies are not shown.
type Headers uint8

const (
	// HeadersDraft6 writes the fields of draft-ietf-httpapi-ratelimit-headers-06:
	//
	//	RateLimit-Limit: 100          the burst, or Count of a quota
	//	RateLimit-Remaining: 42       units left
	//	RateLimit-Reset: 35           seconds until the bucket is full; with a 429 or 403 the same as Retry-After
	//	RateLimit-Policy: 100;w=60    100 in 60 seconds
	//
	// For a quota w is the length of the current period, and Reset the time until it ends.
	// The fields describe the policy with the fewest units left or, if policies deny, the one
	// with the longest wait. A denial that no wait helps has no Retry-After, and of these
	// fields at most RateLimit-Policy. w is in whole seconds: 10 in 100 ms is 100;w=1, and 3 in 1.5 s is 4;w=2.
	// Reset is at most 2147483, 24.8 days, as are Retry-After and draft 11's t.
	HeadersDraft6 Headers = 1 << iota

	// HeadersDraft11 writes the fields of
	// draft-ietf-httpapi-ratelimit-headers-11, two lists of the policies that
	// were decided:
	//
	//	RateLimit-Policy: "burst";q=10;w=1, "daily";q=10000;w=86400
	//	RateLimit: "burst";r=9;t=1, "daily";r=9999;t=9
	//
	// r is the units left, 0 of a ban, and t the seconds after which there are more, an estimate
	// with the stores of slidinglog and while a policy fails local. There is no t if the bucket
	// is full or no wait helps. If policies deny, t of each of these is its own wait, and others
	// have none. Together with HeadersDraft6, RateLimit-Policy has this form.
	HeadersDraft11

	// HeadersXRateLimit writes the fields in use before the drafts,
	// X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, with the
	// values of HeadersDraft6. Reset is in seconds from now; some APIs send a Unix time.
	HeadersXRateLimit

	// HeadersNone, alone, writes none of these fields. Retry-After stays.
	HeadersNone

	headersKnown = HeadersDraft6 | HeadersDraft11 | HeadersXRateLimit | HeadersNone
)

// String returns the names of the forms, such as "draft6|draft11"; "draft6" for the zero
// value.
func (h Headers) String() string {
	var names []string
	h = cmp.Or(h, HeadersDraft6)
	for i, name := range [...]string{"draft6", "draft11", "x-ratelimit", "none"} {
		if h&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if h&^headersKnown != 0 {
		return fmt.Sprintf("Headers(%#b)", uint8(h))
	}
	return strings.Join(names, "|")
}

// triples are the fields of HeadersDraft6 and HeadersXRateLimit, spelled as
// Header.Get finds them.
var triples = [...]struct {
	headers                 Headers
	limit, remaining, reset string
}{
	{HeadersDraft6, "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"},
	{HeadersXRateLimit, "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
}

const (
	policyField = "Ratelimit-Policy"
	listField   = "Ratelimit"
)

// writeHeaders sets the fields that describe the decision. Where an outer
// limiter has set them, the triple describes the tighter of the two, and the lists get
// longer. A denial replaces all that outer limiters have set: no field names another time
// than Retry-After.
func writeHeaders(a *admission, h http.Header, headers Headers) {
	switch {
	case a.outer == nil:
	case a.allowed():
		a.described = a.outer.described
	default: // this limiter's alone: what others have left does not help the client
		remove(h)
	}

	index := closest(a)
	if index < 0 || headers == HeadersNone {
		return
	}

	c, text := &a.charges[index], &a.policy(index).text
	denied, wait := !c.Result.Allowed, c.Result.ResetAfter
	if denied {
		wait = a.retryAfter() // which a ban that is not shown may set
	}
	// An outer limiter may have written its own: the client sees the one that stops it first.
	tighter := a.described == nil || closer(&c.Result, a.described)

	fields := fields{h, make([]string, 0, 4)}
	for i := range triples {
		if t := &triples[i]; headers&t.headers != 0 && tighter && !(denied && wait == 0) {
			a.described = &c.Result
			fields.set(t.limit, text.capacity(&c.Limit))
			fields.set(t.remaining, strconv.FormatInt(c.Result.Remaining, 10))
			fields.set(t.reset, strconv.FormatInt(told(wait), 10))
		}
	}
	switch lists := len(h[listField]) > 0; {
	case headers&HeadersDraft11 != 0:
		writeLists(a, &fields, lists, denied)
	case headers&HeadersDraft6 != 0 && tighter && !lists:
		fields.set(policyField, text.windowOf(c))
	}
}

// fields are the fields of one response. It owns their values, which share an array: a proxy in
// the same process may edit them in place.
type fields struct {
	h      http.Header
	values []string
}

func (f *fields) set(name, value string) {
	f.values = append(f.values, value)
	n := len(f.values)
	f.h[name] = f.values[n-1 : n : n]
}

// writeLists sets the fields of HeadersDraft11. If longer, it appends to the lists of the
// outer limiters.
func writeLists(a *admission, f *fields, longer, denied bool) {
	// Both lists are parts of one string, which is one allocation.
	var room [128]byte
	b, split := room[:0], 0
	add := func(item string) { // to the list that begins at split
		if len(b) > split {
			b = append(b, ", "...)
		}
		b = append(b, item...)
	}

	if longer {
		b = append(b, f.h.Get(policyField)...)
	}
	for i := range a.charges {
		if text := &a.policy(i).text; a.shown(i) {
			add(text.name)
			b = text.appendWindow(append(b, ";q="...), &a.charges[i])
		}
	}

	split = len(b)
	if longer {
		b = append(b, f.h.Get(listField)...)
	}
	// If one policy never lets the request pass, the waits of others mislead.
	never := denied && a.retryAfter() == 0
	for i := range a.charges {
		if c := &a.charges[i]; a.shown(i) {
			add(a.policy(i).text.name)
			b = strconv.AppendInt(append(b, ";r="...), c.Result.Remaining, 10)
			if t := untilMore(c, denied, a.entries[i].source); t > 0 && !never {
				b = strconv.AppendInt(append(b, ";t="...), t, 10)
			}
		}
	}

	text := string(b)
	f.set(policyField, text[:split])
	f.set(listField, text[split:])
}

// closest returns the index of the policy closest to its limit, or -1 if there is none to show.
func closest(a *admission) int {
	index := -1
	for i := range a.charges {
		if a.shown(i) && (index < 0 || closer(&a.charges[i].Result, &a.charges[index].Result)) {
			index = i
		}
	}
	return index
}

// closer reports whether r stops a client before other does. One that denies beats all that allow, and
// one that no wait helps beats every wait.
func closer(r, other *gcra.Result) bool {
	switch {
	case r.Allowed != other.Allowed:
		return other.Allowed
	case r.Never || other.Never:
		return !other.Never
	case !r.Allowed:
		return r.RetryAfter > other.RetryAfter
	case r.Remaining != other.Remaining:
		return r.Remaining < other.Remaining
	}
	return r.ResetAfter > other.ResetAfter
}

// shown reports whether clients see the charge at index i. A ban may have no limit.
func (a *admission) shown(i int) bool {
	return a.entries[i].status != undecided && !a.charges[i].Shadow && a.charges[i].Limit.Capacity() > 0
}

// remove removes the fields of all forms.
func remove(h http.Header) {
	for i := range triples {
		t := &triples[i]
		delete(h, t.limit)
		delete(h, t.remaining)
		delete(h, t.reset)
	}
	delete(h, policyField)
	delete(h, listField)
}

// untilMore is t of the RateLimit field: the seconds until there are more units,
// or 0 to leave it out.
func untilMore(c *gcra.Charge, denied bool, from source) int64 {
	r := &c.Result
	switch {
	case denied:
		return told(r.RetryAfter)
	case r.Remaining == c.Limit.Capacity():
		return 0
	case from == sourceLocal:
		return told(r.ResetAfter) // the interval of its share is not known here
	}

	// The bucket is full after ResetAfter. The next unit comes one interval
	// earlier for each unit that follows it. The units of a quota come together: its
	// interval is 0.
	missing := c.Limit.Capacity() - r.Remaining
	wait := r.ResetAfter - time.Duration(missing-1)*c.Limit.Interval()
	return told(min(max(wait, 1), r.ResetAfter))
}

// told is a wait as clients get it, in seconds: at most 24.8 days. Timers of 32 bits, such as
// setTimeout, take more milliseconds for none, so a client would ask again at once, and again.
func told(d time.Duration) int64 { return min(seconds(d), math.MaxInt32/1000) }

// seconds rounds up, so that a client that waits so long waits long enough.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second) // d may be the longest Duration, of a ban
	if d%time.Second > 0 {
		s++
	}
	return s
}
