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
	limit  gcra.Limit
	name   string // "burst", with the quotes
	most   string // 100
	window string // 100;w=60; empty for a quota
}

func newPolicyText(name string, l gcra.Limit) policyText {
	// Names are printable ASCII, of which a string of RFC 9651 escapes what one of Go does.
	t := policyText{name: strconv.Quote(name)}
	if l == (gcra.Limit{}) {
		return t
	}

	t.most = strconv.FormatInt(l.Capacity(), 10)
	if c := (&gcra.Charge{Limit: l}); !l.IsQuota() {
		t.window = string(t.appendWindow(nil, c))
	}
	t.limit = l
	return t
}

// capacity is the highest possible Remaining: 100.
func (t *policyText) capacity(l *gcra.Limit) string {
	if *l == t.limit {
		return t.most
	}
	return strconv.FormatInt(l.Capacity(), 10)
}

// windowOf is the limit in the form of draft 6: 100;w=60.
func (t *policyText) windowOf(c *gcra.Charge) string {
	if t.window != "" && c.Limit == t.limit {
		return t.window
	}
	return string(t.appendWindow(make([]byte, 0, 40), c))
}

// appendWindow appends the limit in the form of draft 6.
func (t *policyText) appendWindow(b []byte, c *gcra.Charge) []byte {
	if t.window != "" && c.Limit == t.limit {
		return append(b, t.window...)
	}
	q, w := window(c)
	return strconv.AppendInt(append(strconv.AppendInt(b, q, 10), ";w="...), w, 10)
}

// maxInteger is the largest integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// window returns the limit as q units in w whole seconds: a rate's period rounded up, and what
// refills in it rounded down. For a quota w is the length of the period that was charged: a month
// has 28 to 31 days.
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

	w = seconds(l.Per)
	hi, lo := bits.Mul64(uint64(l.Count), uint64(w)*uint64(time.Second))
	n, _ := bits.Div64(hi, lo, uint64(l.Per)) // fits: Count is at most one a microsecond
	return int64(min(n, maxInteger)), w
}
