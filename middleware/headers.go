package middleware

import (
	"math"
	"math/bits"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Headers chooses the fields that tell a client where it stands. Join them
// with |. No field is written for a request that no policy decided about, and
// shadow policies stay unseen.
//
// The RateLimit fields are not a standard yet, and their form has changed
// between drafts, so the draft's number is in the name.
type Headers uint8

const (
	// HeadersDraft6 is draft-ietf-httpapi-ratelimit-headers-06, the form that
	// most clients know:
	//
	//	RateLimit-Limit: 100          the most that Remaining can be
	//	RateLimit-Remaining: 42       units left
	//	RateLimit-Reset: 35           seconds until all are back; on a denial the same as Retry-After
	//	RateLimit-Policy: 100;w=60    100 in 60 seconds
	//
	// They describe the policy closest to its limit, or of those that denied
	// the one that asks for the longest wait. On a denial that no wait helps there
	// is no Retry-After, and of these fields only RateLimit-Policy: clients take
	// Reset for the time of a retry, and the draft allows no Limit without it. A policy whose period is not whole
	// seconds is described by the smallest multiple that is: 10 in 100 ms is
	// 100;w=1.
	HeadersDraft6 Headers = 1 << iota

	// HeadersDraft11 is draft-ietf-httpapi-ratelimit-headers-11, two lists of
	// all policies that applied:
	//
	//	RateLimit-Policy: "burst";q=10;w=1, "daily";q=10000;w=86400
	//	RateLimit: "burst";r=9;t=1, "daily";r=9999;t=9
	//
	// t is the seconds until there is more than r; it is left out when nothing
	// is missing or no wait helps, and on a denial for policies that did not deny,
	// those of limiters further out included, so that Retry-After never points to an
	// earlier moment. Together with HeadersDraft6, RateLimit-Policy takes this form.
	HeadersDraft11

	// HeadersXRateLimit is the custom before there was a draft: X-RateLimit-Limit,
	// X-RateLimit-Remaining and X-RateLimit-Reset, with the numbers of
	// HeadersDraft6. Reset is in seconds from now; elsewhere, GitHub for one, it
	// is a time of day.
	HeadersXRateLimit

	// HeadersNone writes none of them. Retry-After stays.
	HeadersNone

	headersKnown = HeadersDraft6 | HeadersDraft11 | HeadersXRateLimit | HeadersNone
)

// triples are the fields of HeadersDraft6 and HeadersXRateLimit, as net/http spells them
// so that Header.Get finds them.
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

// told is what limiters have told the client so far: the fields they set and
// the numbers of the triple, for a limiter further in to compare with.
type written struct {
	remaining int64
	reset     int32 // at most two years of seconds
	headers   Headers
}

// tell sets the fields that describe the decision. Where a limiter further out
// has set them already, the tighter of the two keeps the triple, and the lists
// grow; a denial keeps nothing that points to another moment than Retry-After.
func (v *requestState) writeHeaders(h http.Header, headers Headers) {
	closest, denied := v.closest()
	before := v.writtenByOuter()
	if !v.decision.Allowed && before.headers != 0 {
		v.removeOuter(h, before.headers)
		before = written{headers: before.headers & HeadersDraft11}
	}
	v.written = before
	if closest < 0 || headers == HeadersNone {
		return
	}
	c := &v.charges[closest]
	text := &v.policy(closest).text
	now := written{c.Result.Remaining, reset(&c.Result), before.headers | headers}
	tighter := denied || before.headers == 0 || now.remaining < before.remaining ||
		now.remaining == before.remaining && now.reset > before.reset
	if tighter {
		v.written = now
	} else {
		v.written.headers = now.headers
	}
	var f fields
	var room [128]byte
	b := room[:0] // all values that have to be written, one after the other
	for i := range triples {
		t := &triples[i]
		if headers&t.headers == 0 || !tighter && before.headers&t.headers != 0 || c.Result.Never && denied {
			continue
		}
		f.known(t.limit, text.quota(c.Limit))
		b = strconv.AppendInt(b, now.remaining, 10)
		f.end(t.remaining, b)
		b = strconv.AppendInt(b, int64(now.reset), 10)
		f.end(t.reset, b)
	}
	switch {
	case headers&HeadersDraft11 != 0:
		var policies, list string
		if before.headers&HeadersDraft11 != 0 {
			policies, list = h.Get(policyField), h.Get(listField)
		}
		b = v.appendPolicies(b, policies)
		f.end(policyField, b)
		b = v.appendList(b, list, denied)
		f.end(listField, b)
	case headers&HeadersDraft6 != 0 && before.headers&HeadersDraft11 == 0 && (tighter || before.headers&HeadersDraft6 == 0):
		f.known(policyField, text.window(c.Limit))
	}
	f.set(h, string(b), v.values[:])
}

// untell takes back what the limiters further out have said of when there is
// more: the triple, and t in the list.
func (v *requestState) removeOuter(h http.Header, headers Headers) {
	for i := range triples {
		if t := &triples[i]; headers&t.headers != 0 {
			delete(h, t.limit)
			delete(h, t.remaining)
			delete(h, t.reset)
		}
	}
	if headers&HeadersDraft11 != 0 {
		h[listField] = []string{string(v.appendOuter(nil))}
	} else {
		delete(h, policyField)
	}
}

// appendOuter writes the items of RateLimit of the limiters further out, outermost
// first, as on a denial.
func (v *requestState) appendOuter(b []byte) []byte {
	outer := settledIn(v.Context)
	if outer == nil {
		return b
	}
	b = outer.appendOuter(b)
	if outer.policies.limiter.headers&HeadersDraft11 != 0 {
		outer.mu.Lock() // a handler may be at a Refund
		defer outer.mu.Unlock()
		b = outer.appendItems(b, 0, true)
	}
	return b
}

// toldBefore is what the limiters further out have told.
func (v *requestState) writtenByOuter() written {
	if outer := settledIn(v.Context); outer != nil {
		return outer.written
	}
	return written{}
}

// closest is the index of the policy closest to its limit or, when some deny,
// of the one that asks for the longest wait; -1 when there is none to tell of.
func (v *requestState) closest() (closest int, denied bool) {
	closest = -1
	var best *gcra.Result
	for i := range v.charges {
		r := &v.charges[i].Result
		var closer bool
		switch {
		case v.entries[i].status == undecided || v.charges[i].Shadow:
		case !r.Allowed && !denied:
			closer, denied = true, true
		case !r.Allowed:
			closer = !best.Never && (r.Never || r.RetryAfter > best.RetryAfter)
		case !denied:
			closer = best == nil || r.Remaining < best.Remaining ||
				r.Remaining == best.Remaining && r.ResetAfter > best.ResetAfter
		}
		if closer {
			closest, best = i, r
		}
	}
	return closest, denied
}

// reset is RateLimit-Reset: until full, or until a retry passes.
func reset(r *gcra.Result) int32 {
	d := r.ResetAfter
	if r.RetryAfter > 0 {
		d = r.RetryAfter
	}
	return int32(min(seconds(d), math.MaxInt32))
}

// appendPolicies writes the items of RateLimit-Policy after those before.
func (v *requestState) appendPolicies(b []byte, before string) []byte {
	start := len(b)
	b = append(b, before...)
	for i := range v.charges {
		if v.entries[i].status != undecided && !v.charges[i].Shadow {
			b = appendComma(b, start)
			b = v.policy(i).text.appendPolicy(b, v.charges[i].Limit)
		}
	}
	return b
}

// appendList writes the items of RateLimit after those before.
func (v *requestState) appendList(b []byte, before string, denied bool) []byte {
	start := len(b)
	return v.appendItems(append(b, before...), start, denied)
}

// appendItems writes the items of RateLimit after those since start.
func (v *requestState) appendItems(b []byte, start int, denied bool) []byte {
	for i := range v.charges {
		c := &v.charges[i]
		if v.entries[i].status == undecided || c.Shadow {
			continue
		}
		b = appendComma(b, start)
		b = append(b, v.policy(i).text.name...)
		b = strconv.AppendInt(append(b, ";r="...), c.Result.Remaining, 10)
		helpless := denied && v.decision.RetryAfter == 0
		if t := more(c, denied); t > 0 && !helpless {
			b = strconv.AppendInt(append(b, ";t="...), t, 10)
		}
	}
	return b
}

// appendComma separates an item from those since start.
func appendComma(b []byte, start int) []byte {
	if len(b) > start {
		b = append(b, ", "...)
	}
	return b
}

// more is t of the RateLimit field: the seconds until the policy has more to
// give, or 0 to leave it out.
func more(c *gcra.Charge, denied bool) int64 {
	r := &c.Result
	if denied {
		return seconds(r.RetryAfter)
	}
	if r.ResetAfter == 0 {
		return 0
	}
	// The bucket is full after ResetAfter; the next unit comes as many intervals
	// earlier as there are units to follow it.
	missing := c.Limit.Capacity() - r.Remaining
	wait := r.ResetAfter - time.Duration(missing-1)*c.Limit.Interval()
	return seconds(min(max(wait, 1), r.ResetAfter))
}

// text is what the fields say of a policy with its usual limit.
type text struct {
	limit           gcra.Limit
	name            string // "burst", in quotes
	most            string // 100
	draft6, draft11 string // 100;w=60 and "burst";q=100;w=60
}

func newText(name string, l gcra.Limit) text {
	t := text{name: string(appendQuoted(nil, name))}
	if l != (gcra.Limit{}) {
		t.most, t.draft6, t.draft11 = t.quota(l), t.window(l), string(t.appendPolicy(nil, l))
		t.limit = l
	}
	return t
}

// quota is 100, the most that Remaining can be.
func (t *text) quota(l gcra.Limit) string {
	if l == t.limit {
		return t.most
	}
	return strconv.FormatInt(l.Capacity(), 10)
}

// window is 100;w=60.
func (t *text) window(l gcra.Limit) string {
	if l == t.limit {
		return t.draft6
	}
	q, w := window(l)
	b := strconv.AppendInt(make([]byte, 0, 40), q, 10)
	return string(strconv.AppendInt(append(b, ";w="...), w, 10))
}

// appendPolicy writes "burst";q=100;w=60.
func (t *text) appendPolicy(b []byte, l gcra.Limit) []byte {
	if l == t.limit {
		return append(b, t.draft11...)
	}
	q, w := window(l)
	b = strconv.AppendInt(append(append(b, t.name...), ";q="...), q, 10)
	return strconv.AppendInt(append(b, ";w="...), w, 10)
}

// maxInteger is the largest integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// window is the limit as q units in w whole seconds: the smallest multiple of
// it that has whole seconds or, should that be too large to write, the nearest
// from below.
func window(l gcra.Limit) (q, w int64) {
	common := gcd(int64(l.Per), int64(time.Second))
	w = int64(l.Per) / common
	if times := int64(time.Second) / common; l.Count <= maxInteger/times && w <= maxInteger {
		return l.Count * times, w
	}
	w = seconds(l.Per)
	hi, lo := bits.Mul64(uint64(l.Count), uint64(w)*uint64(time.Second))
	n, _ := bits.Div64(hi, lo, uint64(l.Per)) // fits: Count is at most one a microsecond
	return int64(min(n, maxInteger)), w
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// appendQuoted appends s, which is printable ASCII, as a string of RFC 9651 and
// of JSON, which are alike there.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

// fields are the fields to set. The values that have to be written stand in a
// buffer, one after the other, so that all of them become one string.
type fields struct {
	list [8]struct { // two triples and two lists
		key   string
		known string // the value or, if it is written,
		end   int    // where it ends
	}
	n int
}

// known sets a field to a value that is known.
func (f *fields) known(key, value string) {
	f.list[f.n].key, f.list[f.n].known = key, value
	f.n++
}

// end makes what was written since the last end the value of a field.
func (f *fields) end(key string, b []byte) {
	f.list[f.n].key, f.list[f.n].end = key, len(b)
	f.n++
}

// set sets the fields, with the values in room if they fit.
func (f *fields) set(h http.Header, written string, room []string) {
	if f.n > len(room) {
		room = make([]string, f.n)
	}
	start := 0
	for i := range f.list[:f.n] {
		field := &f.list[i]
		if room[i] = field.known; field.end > 0 {
			room[i] = written[start:field.end]
			start = field.end
		}
		h[field.key] = room[i : i+1 : i+1]
	}
}
