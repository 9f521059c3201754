// Package denial writes responses to denied requests.
package denial

import (
	"bufio"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
)

// Begin reads what is left of the request's body, and sets the fields of the header that every denial has.
func Begin(w http.ResponseWriter, r *http.Request) {
	drain(w, r)
	h := w.Header()
	maps.DeleteFunc(h, letsStore)
	h["Cache-Control"] = []string{"no-store"} // RFC 6585: caches must not store a 429
}

// Custom has deny write the denial. If it writes nothing, the response has the status, and no more.
func Custom(w http.ResponseWriter, status int, deny func(http.ResponseWriter)) {
	own := &denyWriter{ResponseWriter: w}
	if deny(own); !own.written {
		w.WriteHeader(status)
	}
}

// Answered tells Custom that deny, which got w, has answered by a context of its framework.
func Answered(w http.ResponseWriter) {
	if own, ok := w.(*denyWriter); ok {
		own.written = true
	}
}

// denyWriter is the writer of a Config.Deny. It notes whether Deny writes: if not, an implied 200
// would mean that the request was served.
type denyWriter struct {
	http.ResponseWriter
	written bool
}

func (w *denyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack gives Deny the connection, whose answer is then its own.
func (w *denyWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.written = w.written || err == nil
	return conn, buffered, err
}

func (w *denyWriter) WriteHeader(status int) {
	w.written = w.written || status >= 200 // others are informational
	w.ResponseWriter.WriteHeader(status)
}

func (w *denyWriter) Write(b []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(b)
}

// letsStore reports whether a field could let a cache store a denial in spite of
// Cache-Control, or validate another response by the denial. Middleware in
// front may have set the field for the handler's response.
func letsStore(name string, _ []string) bool {
	name = strings.ToLower(name)
	return slices.Contains(cacheFields, name) || strings.HasSuffix(name, "-cache-control") // RFC 9213: CDN-Cache-Control and others
}

var cacheFields = []string{
	"etag", "last-modified", "expires", // RFC 9110 and RFC 9111
	"surrogate-control", // W3C's Edge Architecture: Fastly, Varnish
	"x-accel-expires",   // nginx
	"edge-control",      // Akamai
}

// Problem is a denial in fixed words (RFC 9457).
type Problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies,omitempty"`
}

// Write is the default for a Config.Deny: a problem+json that says nothing about causes.
//
// Content-Encoding stays. Middleware that set it compresses the denial; without
// the field the client would take the compressed bytes for JSON. http.Error once deleted it, and no longer does (golang.org/issue/66343).
func (p Problem) Write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	delete(h, "Content-Length") // set for another response
	h["Content-Type"] = []string{"application/problem+json"}
	w.WriteHeader(p.Status)
	if r.Method == http.MethodHead {
		return
	}

	body := json.NewEncoder(w)
	body.SetEscapeHTML(false)
	_ = body.Encode(p) // a client that has gone needs no answer
}

// ReducedCapacity is the problem of a 503, with its type and title of draft-ietf-httpapi-ratelimit-headers-11.
func ReducedCapacity(detail string) Problem {
	return Problem{
		Type:   "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
		Title:  "Temporary Reduced Capacity",
		Status: http.StatusServiceUnavailable,
		Detail: detail,
	}
}
