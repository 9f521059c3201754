package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
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

// get responds with the page or with JSON.
func (i *Inspector) get(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	asJSON, formatErr := wantsJSON(query, r.Header)
	switch {
	case err != nil:
		writeText(w, http.StatusBadRequest, "the query cannot be read: "+err.Error())
	case formatErr != nil:
		writeText(w, http.StatusBadRequest, formatErr.Error())
	case query.Has("subject"):
		i.writeSubject(w, r, http.StatusOK, asJSON, query, "")
	default:
		i.write(w, http.StatusOK, asJSON, i.view())
	}
}

// writeSubject responds with the state of a subject, and with an error if message is not
// empty.
func (i *Inspector) writeSubject(w http.ResponseWriter, r *http.Request, status int, asJSON bool, form url.Values, message string) {
	v := i.view()
	v.Subject = i.lookUp(r.Context(), form.Get("subject"))
	if v.Subject.Error != "" {
		status = http.StatusServiceUnavailable
	}
	if message != "" {
		v.Subject.Error = message
	} else {
		v.Subject.Reset = slices.DeleteFunc(form["reset"], func(name string) bool {
			return !slices.ContainsFunc(v.Policies, func(p policy) bool { return p.InForce && p.Name == name })
		})
	}

	i.write(w, status, asJSON, v)
}

func (i *Inspector) write(w http.ResponseWriter, status int, asJSON bool, v *view) {
	var body bytes.Buffer
	var err error
	if asJSON {
		w.Header().Set("Content-Type", "application/json")
		err = writeJSON(&body, v)
	} else {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		err = page.Execute(&body, v)
	}
	if err != nil {
		writeText(w, http.StatusInternalServerError, "the response cannot be written: "+err.Error())
		return
	}

	w.WriteHeader(status)
	_, _ = body.WriteTo(w) // fails only if the client is gone
}

// numbers matches an indented array of numbers. It has line breaks, which JSON strings
// do not have, so it never matches inside a subject.
var numbers = regexp.MustCompile(`\[\n[-0-9,\s]+\]`)

// writeJSON indents for reading in a terminal, with each series of the chart in one line.
func writeJSON(to *bytes.Buffer, v *view) error {
	text, err := json.MarshalIndent(v, "", "  ")
	to.Write(numbers.ReplaceAllFunc(text, func(row []byte) []byte {
		return bytes.Join(bytes.Fields(row), nil)
	}))
	to.WriteByte('\n')
	return err
}

const maxForm = 64 << 10 // bytes of a reset's body

// post resets buckets and redirects to the subject.
func (i *Inspector) post(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	asJSON, formatErr := wantsJSON(r.Form, r.Header)
	_, tooLong := errors.AsType[*http.MaxBytesError](err)

	status, mistake := http.StatusBadRequest, ""
	switch {
	case tooLong:
		status, mistake = http.StatusRequestEntityTooLarge, "the form cannot be read: "+err.Error()
	case err != nil:
		mistake = "the form cannot be read: " + err.Error()
	case formatErr != nil:
		mistake = formatErr.Error()
	case !r.Form.Has("subject"):
		mistake = "nothing was reset: the field subject is missing; want the subject to reset, such as ip:192.0.2.7"
	}
	if mistake != "" {
		writeText(w, status, mistake)
		return
	}

	subject, policies := r.Form.Get("subject"), r.Form["policy"]
	wasFull, err := i.resetBuckets(r.Context(), subject, policies)
	if err != nil {
		why := "Nothing was reset: " + err.Error()
		if _, ok := errors.AsType[requestError](err); !ok {
			status, why = http.StatusServiceUnavailable, "The store did not confirm the reset: "+err.Error()
		}
		if asJSON || wantsPage(r.Form, r.Header) {
			i.writeSubject(w, r, status, asJSON, r.Form, why)
		} else {
			writeText(w, status, why)
		}
		return
	}

	back := url.Values{"subject": {subject}, "reset": policies}
	if asJSON {
		back.Set("format", "json")
	}

	// Relative to the client's URL. r.URL may lack a prefix that a router removed.
	w.Header().Set("Location", "?"+back.Encode())
	writeText(w, http.StatusSeeOther, resetMessage(subject, policies, wasFull))
}

// resetMessage is the text for programs that do not follow the redirect.
func resetMessage(subject string, policies []string, wasFull bool) string {
	if subject == "" {
		subject = "anonymous requests"
	}
	s := "reset " + strings.Join(policies, ", ") + " for " + escape(subject)
	if wasFull {
		s += ", but its buckets were full already: is that the subject as the policy's key returns it, with its prefix, such as ip:192.0.2.7?"
	}
	return s
}

// wantsPage reports whether the client prefers a page to a line of text. Browsers do;
// programs that accept anything do not.
func wantsPage(query url.Values, h http.Header) bool {
	accept := strings.Join(h.Values("Accept"), ",")
	return query.Get("format") == "html" || quality(accept, "text/html") > quality(accept, "text/plain")
}

// wantsJSON reports whether the client prefers JSON to a page.
func wantsJSON(query url.Values, h http.Header) (bool, error) {
	switch format := query.Get("format"); format {
	case "":
		accept := strings.Join(h.Values("Accept"), ",")
		return quality(accept, "application/json") > quality(accept, "text/html"), nil
	case "json":
		return true, nil
	case "html":
		return false, nil
	default:
		return false, fmt.Errorf("format is %.40q; want json or html", format)
	}
}

// quality returns the weight of a media type in an Accept field (RFC 9110, section
// 12.5.1), from 0 to 1. The most specific range decides.
func quality(accept, media string) float64 {
	major, _, _ := strings.Cut(media, "/")
	best, q := 0, 0.0
	for one := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(one)
		if err != nil {
			continue
		}

		specificity := slices.Index([]string{"", "*/*", major + "/*", media}, name)
		if specificity <= best {
			continue
		}

		best, q = specificity, 1
		if weight, err := strconv.ParseFloat(params["q"], 64); err == nil {
			q = weight
		}
	}
	return q
}

// writeText responds with a line of text.
func writeText(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, line) //nolint:gosec // text/plain with nosniff
}
