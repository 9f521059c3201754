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

// protect sets the fields of every answer.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// Not no-referrer: with it browsers send "Origin: null" with the form of a
	// reset, and where there is no Sec-Fetch-Site either, over plain HTTP, that
	// cannot be told from another site.
	h.Set("Referrer-Policy", "same-origin")
}

// show answers with the page, or with JSON.
func (i *Inspector) show(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		tell(w, http.StatusBadRequest, "the query cannot be read: "+err.Error())
		return
	}
	asJSON, err := wantsJSON(query, r.Header)
	if err != nil {
		tell(w, http.StatusBadRequest, err.Error())
		return
	}
	if !query.Has("subject") {
		i.write(w, http.StatusOK, asJSON, i.see())
		return
	}
	i.writeSubject(w, r, http.StatusOK, asJSON, query, "")
}

// writeSubject answers with a subject's standing, and with what went wrong.
func (i *Inspector) writeSubject(w http.ResponseWriter, r *http.Request, status int, asJSON bool, form url.Values, wrong string) {
	v := i.see()
	v.Subject = i.look(r.Context(), form.Get("subject"))
	if v.Subject.Error != "" {
		status = http.StatusServiceUnavailable
	}
	if wrong != "" {
		v.Subject.Error = wrong
	} else {
		v.Subject.Reset = v.among(form["reset"])
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
		tell(w, http.StatusInternalServerError, "this cannot be written: "+err.Error())
		return
	}
	w.WriteHeader(status)
	_, _ = body.WriteTo(w) // fails only when the client has gone
}

// numbers is an array of them that is indented. A line does not break within a
// string of JSON, so it is nothing that a subject can look like.
var numbers = regexp.MustCompile(`\[\n[-0-9,\s]+\]`)

// writeJSON indents, for whoever looks at it in a terminal, but keeps a row of
// the chart in a line.
func writeJSON(to *bytes.Buffer, v *view) error {
	text, err := json.MarshalIndent(v, "", "  ")
	to.Write(numbers.ReplaceAllFunc(text, func(row []byte) []byte {
		return bytes.Join(bytes.Fields(row), nil)
	}))
	to.WriteByte('\n')
	return err
}

// among returns those of the names that are policies in force.
func (v *view) among(names []string) (known []string) {
	for i := range v.Policies {
		if p := &v.Policies[i]; p.InForce && slices.Contains(names, p.Name) {
			known = append(known, p.Name)
		}
	}
	return known
}

const maxForm = 64 << 10 // bytes of a reset's body

// reset fills buckets and sends the client back to the subject.
func (i *Inspector) reset(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		status := http.StatusBadRequest
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			status = http.StatusRequestEntityTooLarge
		}
		tell(w, status, "the form cannot be read: "+err.Error())
		return
	}
	asJSON, err := wantsJSON(r.Form, r.Header)
	if err != nil {
		tell(w, http.StatusBadRequest, err.Error())
		return
	}
	if !r.Form.Has("subject") {
		tell(w, http.StatusBadRequest, "nothing was reset: the field subject is missing; want who is to be reset, such as ip:192.0.2.7")
		return
	}
	subject, policies := r.Form.Get("subject"), r.Form["policy"]
	wasFull, err := i.refill(r.Context(), subject, policies)
	if err != nil {
		status, why := http.StatusServiceUnavailable, "The store did not confirm the reset: "+err.Error()
		if wrong := mistake(""); errors.As(err, &wrong) {
			status, why = http.StatusBadRequest, "Nothing was reset: "+wrong.Error()
		}
		if !asJSON && !wantsPage(r.Form, r.Header) {
			tell(w, status, why)
			return
		}
		i.writeSubject(w, r, status, asJSON, r.Form, why)
		return
	}
	back := url.Values{"subject": {subject}, "reset": policies}
	if asJSON {
		back.Set("format", "json")
	}
	// Relative to the URL that was asked for, which r.URL need not be: a router
	// may have stripped a prefix.
	w.Header().Set("Location", "?"+back.Encode())
	tell(w, http.StatusSeeOther, done(subject, policies, wasFull))
}

// done says what a reset did, to programs that do not follow it to the page.
func done(subject string, policies []string, wasFull bool) string {
	if subject == "" {
		subject = "anonymous requests"
	}
	s := "reset " + strings.Join(policies, ", ") + " for " + plain(subject)
	if wasFull {
		s += ", which had nothing to fill: is that who the policy's key says, with its prefix, such as ip:192.0.2.7?"
	}
	return s
}

// wantsPage reports whether a page is asked for rather than a line of text:
// browsers ask so, and programs that take anything do not.
func wantsPage(query url.Values, h http.Header) bool {
	accept := strings.Join(h.Values("Accept"), ",")
	return query.Get("format") == "html" || quality(accept, "text/html") > quality(accept, "text/plain")
}

// wantsJSON reports whether JSON is asked for rather than a page.
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

// quality is how much an Accept field wants a media type (RFC 9110, section
// 12.5.1): 0 to 1, by the range that fits most closely.
func quality(accept, media string) float64 {
	major, _, _ := strings.Cut(media, "/")
	best, q := 0, 0.0
	for one := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(one)
		if err != nil {
			continue
		}
		closeness := slices.Index([]string{"", "*/*", major + "/*", media}, name)
		if closeness <= best {
			continue
		}
		best, q = closeness, 1
		if weight, err := strconv.ParseFloat(params["q"], 64); err == nil {
			q = weight
		}
	}
	return q
}

// tell answers with a line of text.
func tell(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, line) //nolint:gosec // it is text, and no browser is to guess otherwise
}
