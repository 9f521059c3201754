package inspect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// setSecurityHeaders sets the header fields of every response.
func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// Not no-referrer: browsers would send "Origin: null" with the form. Over plain
	// HTTP they send no Sec-Fetch-Site either, so the form would look cross-site.
	h.Set("Referrer-Policy", "same-origin")
}

// The formats of responses.
const (
	asJSON = "json"
	asPage = "html"
	asText = "" // a page to a GET, and a line to a POST
)

// formatOf returns the format that the client wants. Browsers accept HTML in so many words;
// programs that accept anything do not.
func formatOf(r *http.Request) (string, error) {
	accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	switch format := r.Form.Get("format"); {
	case format == asJSON, format == asPage:
		return format, nil
	case format != "":
		return "", fmt.Errorf("format is %.40q; want json or html", format)
	case strings.Contains(accept, "text/html"):
		return asPage, nil
	case strings.Contains(accept, "application/json"):
		return asJSON, nil
	}
	return asText, nil
}

// writeSubject responds with the state of a subject, and with an error if message is not
// empty.
func (i *Inspector) writeSubject(w http.ResponseWriter, r *http.Request, status int, format, message string) {
	v := i.view()
	v.Subject = i.lookUp(r.Context(), r.Form.Get("subject"))
	if v.Subject.Error != "" {
		status = http.StatusServiceUnavailable
	}
	if message != "" {
		v.Subject.Error = message
	} else {
		v.Subject.Reset = slices.DeleteFunc(r.Form["reset"], func(name string) bool {
			return !slices.ContainsFunc(v.Policies, func(p policy) bool { return p.InForce && p.Name == name })
		})
	}

	write(w, status, format, v)
}

// numbers matches an indented array of numbers. It has line breaks, which JSON strings
// do not have, so it never matches inside a subject.
var numbers = regexp.MustCompile(`\[\n[-0-9,\s]+\]`)

// write responds with the page or with JSON. It fails only if the client is gone.
func write(w http.ResponseWriter, status int, format string, v *view) {
	if format != asJSON {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_ = page.Execute(w, v)
		return
	}

	// Indented for reading in a terminal, with each series of the chart in one line.
	text, _ := json.MarshalIndent(v, "", "  ")
	text = numbers.ReplaceAllFunc(text, func(row []byte) []byte { return bytes.Join(bytes.Fields(row), nil) })
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

const maxForm = 64 << 10 // bytes of a reset's body

// post resets buckets and redirects to the subject.
func (i *Inspector) post(w http.ResponseWriter, r *http.Request, format string) {
	if !r.Form.Has("subject") {
		writeText(w, http.StatusBadRequest, "nothing was reset: the field subject is missing; want the subject to reset, such as ip:192.0.2.7")
		return
	}

	subject, policies := r.Form.Get("subject"), r.Form["policy"]
	if err := i.resetBuckets(r.Context(), subject, policies); err != nil {
		// After an error of the store nobody knows whether the bucket is full.
		status, why := http.StatusBadRequest, "Nothing was reset: "+err.Error()
		if _, ok := errors.AsType[requestError](err); !ok {
			status, why = http.StatusServiceUnavailable, "The store did not confirm the reset: "+err.Error()
		}
		if format == asText {
			writeText(w, status, why)
		} else {
			i.writeSubject(w, r, status, format, why)
		}
		return
	}

	back := url.Values{"subject": {subject}, "reset": policies}
	if format == asJSON {
		back.Set("format", asJSON)
	}

	// Relative to the client's URL. r.URL may lack a prefix that a router removed.
	w.Header().Set("Location", "?"+back.Encode())
	writeText(w, http.StatusSeeOther, "reset "+strings.Join(policies, ", ")+" for "+cmp.Or(escape(subject), "anonymous requests"))
}

// writeText responds with a line of text.
func writeText(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, line) // text/plain with nosniff
}
