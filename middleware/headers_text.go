package middleware

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// policyText is the text of a policy in the fields, made once for its usual
// limit. A limit of LimitFor is written for each request, and so is the window of a
// quota, whose periods differ.
type policyText struct {
	limit   gcra.Limit
	name    string // "burst", with the quotes
	most    string // 100
	draft6  string // 100;w=60; empty for a quota
	draft11 string // "burst";q=100;w=60; empty for a quota
}

func newPolicyText(name string, l gcra.Limit) policyText {
	t := policyText{name: string(appendQuoted(nil, name))}
	if l != (gcra.Limit{}) {
		t.most = t.capacity(&l)
		if c := (&gcra.Charge{Limit: l}); !l.IsQuota() {
			t.draft6, t.draft11 = t.window(c), string(t.appendPolicy(nil, c))
		}
		t.limit = l
	}
	return t
}

// capacity is the highest possible Remaining: 100.
func (t *policyText) capacity(l *gcra.Limit) string {
	if *l == t.limit {
		return t.most
	}
	return strconv.FormatInt(l.Capacity(), 10)
}

// window is the limit in the form of draft 6: 100;w=60.
func (t *policyText) window(c *gcra.Charge) string {
	if t.draft6 != "" && c.Limit == t.limit {
		return t.draft6
	}
	q, w := window(c)
	b := strconv.AppendInt(make([]byte, 0, 40), q, 10)
	return string(strconv.AppendInt(append(b, ";w="...), w, 10))
}

// appendPolicy appends the limit in the form of draft 11: "burst";q=100;w=60.
func (t *policyText) appendPolicy(b []byte, c *gcra.Charge) []byte {
	if t.draft11 != "" && c.Limit == t.limit {
		return append(b, t.draft11...)
	}
	q, w := window(c)
	b = strconv.AppendInt(append(append(b, t.name...), ";q="...), q, 10)
	return strconv.AppendInt(append(b, ";w="...), w, 10)
}

// maxInteger is the largest integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// window returns the limit as q units in w whole seconds: its smallest multiple
// that has whole seconds or, if that is too large to write, the nearest limit
// below. For a quota w is the length of the period that was charged: a month has 28 to
// 31 days.
func window(c *gcra.Charge) (q, w int64) {
	l := &c.Limit
	if l.IsQuota() {
		at := c.Period.Add(-1)
		if c.Period.IsZero() { // of a ban, for which no store was asked
			at = time.Now()
		}
		begin, end := l.Calendar().Period(at)
		return l.Count, int64(end.Sub(begin) / time.Second)
	}

	// w is in whole seconds: of a shorter or odd period the smallest multiple that is one.
	common := gcd(int64(l.Per), int64(time.Second))
	w = int64(l.Per) / common
	if times := int64(time.Second) / common; l.Count <= maxInteger/times && w <= maxInteger {
		return l.Count * times, w
	}

	// No exact pair fits into a structured field (RFC 9651): the nearest below, in one period rounded up to seconds.
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

// appendQuoted appends s, printable ASCII, as a string of RFC 9651.
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

// appendComma separates an item from those before it in the list that begins at
// start.
func appendComma(b []byte, start int) []byte {
	if len(b) > start {
		b = append(b, ", "...)
	}
	return b
}
