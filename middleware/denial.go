package middleware

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// deny tells the client that the request does not go on.
func (l *Limiter) writeDenial(w http.ResponseWriter, r *http.Request, d *Decision) {
	h := w.Header()
	if d.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(seconds(d.RetryAfter), 10)}
	}
	for name := range h {
		if letsStore(name) {
			delete(h, name)
		}
	}
	h["Cache-Control"] = []string{"no-store"} // RFC 6585: a 429 must not be stored
	if l.deny == nil {
		deny(w, r, *d)
		return
	}
	writer, wrote := watchDeny(w, r)
	l.deny(writer, r, *d)
	if !wrote() {
		l.log.Report(diag.DenyWroteNothing, "", "Config.Deny wrote nothing: the default denial is written in its place")
		deny(w, r, *d)
	}
}

// letsStore reports that a field, which middleware further out may have set for
// the response that it expected, could let a cache store a denial whatever its
// Cache-Control, or revalidate another response by it.
func letsStore(name string) bool {
	const targeted = "-Cache-Control" // RFC 9213: CDN-Cache-Control, and Cloudflare-, Netlify-, Vercel-CDN-Cache-Control
	if i := len(name) - len(targeted); i > 0 && strings.EqualFold(name[i:], targeted) {
		return true
	}
	for _, field := range [...]string{
		"ETag", "Last-Modified", "Expires", // RFC 9110 and RFC 9111
		"Surrogate-Control", // W3C's Edge Architecture: Fastly, Varnish
		"X-Accel-Expires",   // nginx
		"Edge-Control",      // Akamai
	} {
		if strings.EqualFold(name, field) {
			return true
		}
	}
	return false
}

// seconds rounds up, so that whoever waits as long as told has waited enough.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// problem is a denial in fixed words (RFC 9457). The types are those that
// draft-ietf-httpapi-ratelimit-headers-11 registers, with their titles.
type problem struct{ kind, title, detail string }

var (
	quotaExceeded = problem{
		"https://iana.org/assignments/http-problem-types#quota-exceeded",
		"Quota Exceeded",
		"The request was denied because a rate limit is used up.",
	}
	reducedCapacity = problem{
		"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
		"Temporary Reduced Capacity",
		"The request was denied because the service cannot check its rate limits at the moment.",
	}
)

// deny is the default for Config.Deny: a problem+json with no word of what went
// on inside.
//
// Content-Encoding stays. Middleware that has set it compresses what is written
// from here on; without the field the client would get that for JSON. http.Error
// once deleted it, and took that back (golang.org/issue/66343).
func deny(w http.ResponseWriter, r *http.Request, d Decision) {
	status, p := d.Status(), &quotaExceeded
	if status != http.StatusTooManyRequests {
		p = &reducedCapacity
	}
	h := w.Header()
	delete(h, "Content-Length") // of a response that somebody had in mind
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
	b = append(b, '"')
	for i, name := range violated {
		if i == 0 {
			b = append(b, `,"violated-policies":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendQuoted(b, name)
	}
	if len(violated) > 0 {
		b = append(b, ']')
	}
	return append(b, "}\n"...)
}
