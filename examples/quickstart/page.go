package main

import (
	"embed"
	"html/template"
	"net/http"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

//go:embed page
var files embed.FS

var (
	pageFiles    = http.FileServerFS(files)
	pageTemplate = template.Must(template.ParseFS(files, "page/page.html"))
)

// page is the page at /. Its button sends requests to GET /hello.
type page struct {
	Kept  string // where the limits are kept
	Steps []step // to try in a terminal
}

func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	subject, _ := keyfunc.RemoteAddr(r)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; img-src data:; script-src 'self'; style-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")

	_ = pageTemplate.Execute(w, struct { // fails only if the client is gone
		page
		Inspector, Subject string
	}{p, inspectorPath, subject})
}
