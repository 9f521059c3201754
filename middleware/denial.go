package middleware

import (
	"cmp"
	"net/http"

	"github.com/seed-e377111c/ratelimit/internal/denial"
)

// writeDenial answers a request that may not go on.
func (l *Limiter) writeDenial(w http.ResponseWriter, r *http.Request, d *Decision) {
	denial.Begin(w, r)
	if l.cfg.Deny == nil {
		d.problem().Write(w, r)
		return
	}
	denial.Custom(w, d.Status(), func(w http.ResponseWriter) { l.cfg.Deny(w, r, d) })
}

// problems are denials in fixed words, but for the end of a ban. The types are those that
// draft-ietf-httpapi-ratelimit-headers-11 registers, with their titles.
var problems = map[int]denial.Problem{
	http.StatusTooManyRequests: {
		Type:   "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:  "Quota Exceeded",
		Detail: "The request was denied because a rate limit is used up.",
	},
	http.StatusForbidden: {
		Type:  "about:blank", // RFC 9457: the title is the status' own
		Title: "Forbidden",
	},
	http.StatusServiceUnavailable: denial.ReducedCapacity("The request was denied because the service cannot check its rate limits at the moment."),
}

// problem is the default for Config.Deny.
func (d *Decision) problem() denial.Problem {
	status := d.Status()
	p := problems[status]
	p.Status, p.Detail, p.Violated = status, cmp.Or(d.banned(), p.Detail), d.violated()
	if d.Delay > 0 {
		p.Detail = "The request was cancelled while a rate limit held it back."
	}
	return p
}
