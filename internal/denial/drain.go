package denial

import (
	"io"
	"net/http"
	"time"
)

// The bounds of what is read of a denied request's body.
const (
	maxDrain     = 64 << 20        // bytes: a proxy on the same network sends as many in about a second
	maxDrainTime = 5 * time.Second // or half of the server's WriteTimeout, so that the answer can still be written
	maxDrains    = 256             // at once, in the process
)

// drains has a place for each body that is being read.
var drains = make(chan struct{}, maxDrains)

// readStopper is a ResponseWriter of HTTP/1 whose server can end a read of the body. If its
// SetReadDeadline returns an error, the time of the read has no bound.
type readStopper interface{ SetReadDeadline(time.Time) error }

// drain reads what is left of the request's body, up to the bounds. A server that answers and closes
// the connection with data unread resets it. A proxy that was still sending then takes the server for
// broken: its client gets 502 in place of the denial, and so do all other clients for some seconds.
//
// It is not for HTTP/2 and later, where a stream ends by itself, nor for a client that waits for
// 100 Continue: to read would ask it for the body.
func drain(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > maxDrain || r.ProtoMajor != 1 || r.Header["Expect"] != nil {
		return
	}
	conn := stopper(w)
	if conn == nil {
		return // the time would have no bound
	}

	// Slow uploads hold goroutines: beyond maxDrains the answer comes at once, and the connection may close.
	select {
	case drains <- struct{}{}:
		defer func() { <-drains }()
	default:
		return
	}

	// A deadline that is set stays as it is, unless the time is over: then the connection closes.
	limit := maxDrainTime
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout > 0 {
		limit = min(limit, s.WriteTimeout/2)
	}
	stopped := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		defer close(stopped)
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !timer.Stop() {
			<-stopped // or it would end a read of the next request
		}
	}()

	_, _ = io.CopyN(io.Discard, r.Body, maxDrain) // the denial is written, whatever comes of the body
}

// stopper finds the readStopper in w as an http.ResponseController does, or returns nil.
func stopper(w http.ResponseWriter) readStopper {
	for {
		switch t := w.(type) {
		case readStopper:
			return t
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return nil
		}
	}
}
