package middleware

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// writeDenial answers a request that may not go on.
func (l *Limiter) writeDenial(w http.ResponseWriter, r *http.Request, d *Decision) {
	drain(w, r)
	h := w.Header()
	maps.DeleteFunc(h, letsStore)
	h["Cache-Control"] = []string{"no-store"} // RFC 6585: caches must not store a 429
	if l.cfg.Deny == nil {
		writeProblem(w, r, d)
		return
	}

	switch own := w.(type) {
	case interface {
		Written() bool
		Status() int
	}: // gin's and echo's: Deny may write to them by the framework's context
		before := own.Status() // gin sends the status at the end; where there is no route it is 404 already
		l.cfg.Deny(w, r, d)
		if !own.Written() && own.Status() == before {
			w.WriteHeader(d.Status())
		}
	default:
		writer := &denyWriter{ResponseWriter: w}
		l.cfg.Deny(writer, r, d)
		if !writer.written {
			w.WriteHeader(d.Status())
		}
	}
}

// denyWriter is the writer of Config.Deny. It notes whether Deny writes: if not, an implied 200
// would mean that the request was served.
type denyWriter struct {
	http.ResponseWriter
	written bool
}

func (w *denyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *denyWriter) WriteHeader(status int) {
	w.written = w.written || status >= 200 // others are informational
	w.ResponseWriter.WriteHeader(status)
}

func (w *denyWriter) Write(b []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(b)
}

// letsStore reports whether a field could let a cache store a denial in spite of
// Cache-Control, or validate another response by the denial. Middleware further out
// may have set the field for the handler's response.
func letsStore(name string, _ []string) bool {
	const targeted = "-Cache-Control" // RFC 9213: CDN-Cache-Control, and Cloudflare-, Netlify-, Vercel-CDN-Cache-Control
	if i := len(name) - len(targeted); i > 0 && strings.EqualFold(name[i:], targeted) {
		return true
	}
	return slices.ContainsFunc(cacheFields, func(field string) bool { return strings.EqualFold(name, field) })
}

var cacheFields = []string{
	"ETag", "Last-Modified", "Expires", // RFC 9110 and RFC 9111
	"Surrogate-Control", // W3C's Edge Architecture: Fastly, Varnish
	"X-Accel-Expires",   // nginx
	"Edge-Control",      // Akamai
}

// problem is a denial in fixed words, but for the end of a ban (RFC 9457). The types are those that
// draft-ietf-httpapi-ratelimit-headers-11 registers, with their titles.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies,omitempty"`
}

var problems = map[int]problem{
	http.StatusTooManyRequests: {
		Type:   "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:  "Quota Exceeded",
		Detail: "The request was denied because a rate limit is used up.",
	},
	http.StatusForbidden: {
		Type:  "about:blank", // RFC 9457: the title is that of the status
		Title: "Forbidden",
	},
	http.StatusServiceUnavailable: {
		Type:   "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
		Title:  "Temporary Reduced Capacity",
		Detail: "The request was denied because the service cannot check its rate limits at the moment.",
	},
}

// writeProblem is the default for Config.Deny: a problem+json that says nothing
// about causes.
//
// Content-Encoding stays. Middleware that set it compresses what is written from
// here on; without the field the client would take the compressed bytes for
// JSON. http.Error once deleted it, and no longer does (golang.org/issue/66343).
func writeProblem(w http.ResponseWriter, r *http.Request, d *Decision) {
	h := w.Header()
	delete(h, "Content-Length") // set for another response
	h["Content-Type"] = []string{"application/problem+json"}
	status := d.Status()
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}

	p := problems[status]
	p.Status, p.Detail, p.Violated = status, cmp.Or(d.banned(), p.Detail), d.violated()
	if d.Delay > 0 {
		p.Detail = "The request was cancelled while a rate limit held it back."
	}
	body := json.NewEncoder(w)
	body.SetEscapeHTML(false)
	_ = body.Encode(p) // a client that has gone needs no answer
}
