package middleware

import (
	"net/http"
	"strconv"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// refuse tells the client that the request does not go on.
func (l *Limiter) refuse(w http.ResponseWriter, r *http.Request, d *Decision) {
	h := w.Header()
	if d.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(seconds(d.RetryAfter), 10)}
	}
	h["Cache-Control"] = []string{"no-store"} // RFC 6585: a 429 must not be stored
	if l.deny == nil {
		deny(w, r, *d)
		return
	}
	writer, wrote := watch(w, r)
	l.deny(writer, r, *d)
	if !wrote() {
		l.log.Report(diag.DenyWroteNothing, "", "Config.Deny wrote nothing: the default denial is written in its place")
		deny(w, r, *d)
	}
}

// seconds rounds up, so that whoever waits as long as told has waited enough.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// problem is a refusal in fixed words (RFC 9457). The types are those that
// draft-ietf-httpapi-ratelimit-headers registers.
type problem struct{ kind, title, detail string }

var (
	quotaExceeded = problem{
		"https://iana.org/assignments/http-problem-types#quota-exceeded",
		"Too Many Requests",
		"The request was refused because a rate limit is used up.",
	}
	reducedCapacity = problem{
		"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
		"Service Unavailable",
		"The request was refused because the service cannot check its rate limits at the moment.",
	}
)

// deny is the default for Config.Deny: a problem+json with no word of what went
// on inside.
func deny(w http.ResponseWriter, r *http.Request, d Decision) {
	status, p := d.Status(), &quotaExceeded
	if status != http.StatusTooManyRequests {
		p = &reducedCapacity
	}
	h := w.Header()
	delete(h, "Content-Length") // of a response that somebody had in mind
	delete(h, "Content-Encoding")
	h["Content-Type"] = []string{"application/problem+json"}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(p.body(status, d.violated())) //nolint:gosec // names of the program's, quoted, as JSON; a client that has gone needs no answer
	}
}

func (p *problem) body(status int, violated []string) []byte {
	b := make([]byte, 0, 320)
	b = append(append(b, `{"type":"`...), p.kind...)
	b = append(append(b, `","title":"`...), p.title...)
	b = strconv.AppendInt(append(b, `","status":`...), int64(status), 10)
	b = append(append(b, `,"detail":"`...), p.detail...)
	b = append(b, `","violated-policies":[`...)
	for i, name := range violated {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(b, name)
	}
	return append(b, "]}\n"...)
}
