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

const inspectorPath = "/debug/ratelimit"

// newInspector returns the page and a token that opens it. The token takes the
// place of the sign-in of administrators that a real server has: it comes once
// in the URL and then in a cookie, or from programs as a bearer token. With
// format=json the answer to the URL is JSON.
func newInspector(addr net.Addr, limiter *middleware.Limiter) (page http.Handler, token string, err error) {
	token = rand.Text()
	valid := func(got string) bool { return subtle.ConstantTimeCompare([]byte(got), []byte(token)) == 1 }

	// Browsers send a cookie to all ports of a host, so its name has the port.
	_, port, _ := net.SplitHostPort(addr.String())
	cookie := http.Cookie{Name: "inspector-" + port, Value: token, Path: inspectorPath, HttpOnly: true, SameSite: http.SameSiteStrictMode}

	inspector, err := inspect.New(inspect.Config{Authorize: func(r *http.Request) bool {
		if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
			return valid(bearer)
		}
		sent, err := r.Cookie(cookie.Name)
		return err == nil && valid(sent.Value)
	}}, limiter)
	if err != nil {
		return nil, "", err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if r.Method != http.MethodGet || !valid(query.Get("token")) {
			inspector.ServeHTTP(w, r)
			return
		}

		http.SetCookie(w, &cookie)
		if query.Get("format") == "json" { // for a program, which may not follow a redirect
			r.AddCookie(&cookie)
			inspector.ServeHTTP(w, r)
			return
		}

		// The redirect takes the token out of the address bar.
		query.Del("token")
		w.Header().Set("Cache-Control", "no-store")
		to := url.URL{Path: inspectorPath, RawQuery: query.Encode()}
		http.Redirect(w, r, to.String(), http.StatusSeeOther)
	}), token, nil
}
