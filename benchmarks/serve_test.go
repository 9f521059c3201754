package main

import (
	"fmt"
	"net/http"
)

// serveCaller makes callers of a handler, each with a request and a recorder
// that it uses again and again, so that what they cost is the same for all.
func serveCaller(h http.Handler) func() check {
	return func() check {
		r := newRequest()
		client := []string{""}
		r.Header[clientField] = client
		w := newRecorder()
		return func(subject string) (bool, error) {
			client[0] = subject
			w.reset()
			h.ServeHTTP(w, r)
			switch w.status {
			case http.StatusOK:
				return true, nil
			case http.StatusTooManyRequests:
				return false, nil
			}
			return false, fmt.Errorf("answered %d", w.status)
		}
	}
}

// newRequest is a request as a server gets it.
func newRequest() *http.Request {
	r, err := http.NewRequest(http.MethodGet, path, nil)
	if err != nil {
		panic(err) // the URL is a constant
	}
	r.Host, r.RemoteAddr, r.RequestURI = "localhost", "192.0.2.1:1234", path
	return r
}

// recorder is a ResponseWriter that keeps the headers and the status only.
type recorder struct {
	header http.Header
	status int
}

func newRecorder() *recorder { return &recorder{header: http.Header{}} }

func (w *recorder) reset() {
	clear(w.header)
	w.status = 0
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(b), nil
}
