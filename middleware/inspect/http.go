package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
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

// wantsJSON reports whether the client wants JSON in place of the page. Browsers accept HTML in so
// many words.
func wantsJSON(r *http.Request) bool {
	if r.Form.Has("format") {
		return strings.EqualFold(r.Form.Get("format"), "json")
	}
	accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

// write responds with the page or with JSON. It fails only if the client is gone.
func write(w http.ResponseWriter, r *http.Request, status int, v *view) {
	if wantsJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = page.Execute(w, v)
}

const maxForm = 64 << 10 // bytes of a reset's body

// post resets buckets and redirects to the subject, or says in a line why not.
func (i *Inspector) post(w http.ResponseWriter, r *http.Request) {
	_, owners := i.current()
	known := strings.Join(slices.Sorted(maps.Keys(owners)), ", ")
	subject, policies := r.Form.Get("subject"), slices.Compact(slices.Sorted(slices.Values(r.Form["policy"])))
	wrong := slices.IndexFunc(policies, func(name string) bool { return owners[name] == nil })
	mistake := ""
	switch {
	case !r.Form.Has("subject"):
		mistake = "the field subject is missing; want the subject to reset, such as ip:192.0.2.7"
	case len(policies) == 0:
		mistake = "the field policy is missing; want one or more of " + known
	case wrong >= 0:
		mistake = fmt.Sprintf("policy is %.80q; want one or more of %s", policies[wrong], known)
	}
	if mistake != "" {
		writeText(w, http.StatusBadRequest, "nothing was reset: "+mistake)
		return
	}

	for _, name := range policies {
		if err := owners[name].Reset(r.Context(), subject, name); err != nil {
			writeText(w, http.StatusServiceUnavailable, "not all was reset: "+err.Error())
			return
		}
	}

	back := url.Values{"subject": {subject}, "reset": policies}
	if wantsJSON(r) {
		back.Set("format", "json")
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
