package middleware

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// watchDeny returns a writer for Config.Deny, and a function that reports
// whether Deny has written a response.
func watchDeny(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, wrote func() bool) {
	if w, ok := w.(interface {
		Written() bool
		Status() int
	}); ok { // gin's and echo's: Deny may write to them by the framework's context
		before := w.Status() // gin sends the status at the end; where there is no route it is 404 already
		return w.(http.ResponseWriter), func() bool { return w.Written() || w.Status() != before }
	}
	if Framework(r.Context()) != nil {
		return w, func() bool { return true } // another writer, which may buffer: unknown
	}
	own := &denyWriter{ResponseWriter: w}
	return own, func() bool { return own.written }
}

// denyWriter is a ResponseWriter that records whether it was used.
type denyWriter struct {
	http.ResponseWriter
	written bool
}

func (w *denyWriter) WriteHeader(status int) {
	w.written = w.written || status >= 200 // others are informational
	w.ResponseWriter.WriteHeader(status)
}

func (w *denyWriter) Write(b []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(b)
}

// Flush is for a Deny that streams. It does nothing if the server cannot flush.
func (w *denyWriter) Flush() {
	w.written = true
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// The methods of [http.ResponseController] that write nothing.

func (w *denyWriter) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(t)
}

func (w *denyWriter) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(t)
}

func (w *denyWriter) EnableFullDuplex() error {
	return http.NewResponseController(w.ResponseWriter).EnableFullDuplex()
}

// Hijack returns the connection, for Deny to write to.
func (w *denyWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.written = w.written || err == nil
	return conn, rw, err
}

// Unwrap is for other methods of [http.ResponseController]. Uses of the writer
// inside are not seen, so it counts as a response.
func (w *denyWriter) Unwrap() http.ResponseWriter {
	w.written = true
	return w.ResponseWriter
}
