package main

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/inspect"
)

const inspectPath = "/debug/ratelimit"

// withInspector puts a page on the limiters in front of the server, where
// nothing limits it, and returns the URL that opens it. An application has
// administrators to ask for; here whoever has seen the URL is one.
func withInspector(next http.Handler, l limiters, addr net.Addr) (h http.Handler, opens string, err error) {
	_, port, _ := net.SplitHostPort(addr.String())
	// Browsers send cookies to all ports of a host: the port is in the name, so
	// that two quickstarts can be looked at.
	d := door{token: rand.Text(), cookie: "inspect-" + port}
	all := []*middleware.Limiter{l.address}
	if l.user != nil {
		all = append(all, l.user)
	}
	page, err := inspect.New(inspect.Config{Authorize: d.opens}, all...)
	if err != nil {
		return nil, "", err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != inspectPath:
			next.ServeHTTP(w, r)
		case r.URL.Query().Has("token"):
			d.enter(w, r)
		default:
			page.ServeHTTP(w, r)
		}
	}), baseURL(addr) + inspectPath + "?token=" + d.token, nil
}

// door opens to whoever has the token, in a cookie or, for programs, as a bearer
// token.
type door struct{ token, cookie string }

func (d door) opens(r *http.Request) bool {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return d.fits(token)
	}
	c, err := r.Cookie(d.cookie)
	return err == nil && d.fits(c.Value)
}

func (d door) fits(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(d.token)) == 1
}

// enter takes the token out of the address bar and puts it into a cookie that
// only this page gets, and no script. A form is not sent on: what a redirect
// turns into a look would seem to have been done.
func (d door) enter(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	query := r.URL.Query()
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		fail(w, http.StatusForbidden, "nothing was done: the token in the URL is for looking; send it as Authorization: Bearer")
		return
	case !d.fits(query.Get("token")):
		fail(w, http.StatusForbidden, "want the token that was printed at the start")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.token, Path: inspectPath, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	query.Del("token")
	to := url.URL{Path: inspectPath, RawQuery: query.Encode()}
	w.Header().Set("Location", to.String())
	w.WriteHeader(http.StatusSeeOther)
}
