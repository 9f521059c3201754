package inflight

import (
	"net/http"

	"github.com/seed-e377111c/ratelimit/internal/denial"
)

// deny answers a request that is denied. Its slot is free within seconds or minutes: nobody knows.
func (g *Gate) deny(w http.ResponseWriter, r *http.Request, d *Decision) {
	denial.Begin(w, r)
	w.Header()["Retry-After"] = []string{"1"}
	if deny := g.limiter.cfg.Deny; deny != nil {
		denial.Custom(w, d.Status(), func(w http.ResponseWriter) { deny(w, r, d) })
		return
	}
	d.problem().Write(w, r)
}

func (d *Decision) problem() denial.Problem {
	p := denial.ReducedCapacity("The request was denied because the service cannot count its running requests at the moment.")
	if d.Full {
		p.Detail = "The request was denied because too many requests are running."
	}
	if d.Status() == http.StatusTooManyRequests {
		p.Type, p.Title, p.Status = "about:blank", "Too Many Requests", http.StatusTooManyRequests // RFC 9457: the title is the status' own
	}
	return p
}
