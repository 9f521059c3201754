package inspect_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// The page works wherever it is mounted: a client that follows its references reaches
// everything.
func TestMounted(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	mux := func(pattern string, h http.Handler) http.Handler {
		m := http.NewServeMux()
		m.Handle(pattern, h)
		return m
	}

	for _, mount := range []struct {
		name, path string
		handler    func(page http.Handler) http.Handler
	}{
		{"ServeMux, exact", "/debug/ratelimit", func(page http.Handler) http.Handler { return mux("/debug/ratelimit", page) }},
		{"ServeMux, subtree", "/debug/ratelimit/", func(page http.Handler) http.Handler { return mux("/debug/ratelimit/", page) }},
		{"StripPrefix", "/debug/ratelimit/", func(page http.Handler) http.Handler {
			return mux("/debug/ratelimit/", http.StripPrefix("/debug/ratelimit", page))
		}},
		{"gin, wildcard", "/admin/ratelimit/", func(page http.Handler) http.Handler {
			g := gin.New()
			g.Any("/admin/ratelimit/*any", gin.WrapH(page))
			return g
		}},
		{"echo v4", "/admin/ratelimit", func(page http.Handler) http.Handler {
			e := echov4.New()
			e.Group("/admin").Any("/ratelimit", echov4.WrapHandler(page))
			return e
		}},
		{"echo v5, wildcard", "/admin/ratelimit/", func(page http.Handler) http.Handler {
			e := echo.New()
			e.Any("/admin/ratelimit/*", echo.WrapHandler(page))
			return e
		}},
	} {
		t.Run(mount.name, func(t *testing.T) {
			s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five})
			s.ask(7, "ip:192.0.2.7", "/")
			server := httptest.NewServer(mount.handler(s.page))
			defer server.Close()
			c := &visitor{t: t, at: server.URL + mount.path}

			if page := c.follow(mount.path); !strings.Contains(page, "ip:192.0.2.7") {
				t.Fatalf("got %.400s; want the page", page)
			}
			if page := c.follow("?subject=ip%3a192.0.2.7"); !strings.Contains(page, "0 of 5") {
				t.Fatalf("got %.400s; want the subject", page)
			}
			if page := c.submit("?subject=ip%3a192.0.2.7", url.Values{"policy": {"a"}}); !strings.Contains(page, "Reset: <b>a</b>") || !strings.Contains(page, "5 of 5") {
				t.Errorf("got %.400s; want the subject, reset", page)
			}

			if page := c.follow("?format=json"); !strings.HasPrefix(page, "{\"window_seconds\":900,") {
				t.Errorf("got %.400s; want JSON", page)
			}
		})
	}
}

// visitor follows references from page to page, as a browser does.
type visitor struct {
	t  *testing.T
	at string // the URL of the page that it is on
}

func (v *visitor) follow(reference string) string { return v.visit("GET", reference, nil) }

func (v *visitor) submit(reference string, form url.Values) string {
	return v.visit("POST", reference, form)
}

func (v *visitor) visit(method, reference string, form url.Values) string {
	v.t.Helper()
	base, err := url.Parse(v.at)
	if err != nil {
		v.t.Fatal(err)
	}
	to, err := base.Parse(reference)
	if err != nil {
		v.t.Fatal(err)
	}

	r, err := http.NewRequestWithContext(v.t.Context(), method, to.String(), strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", base.Scheme+"://"+base.Host)
	}

	response, err := http.DefaultClient.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		v.t.Fatalf("%s %s: got %d, %v, %.400s; want 200", method, to, response.StatusCode, err, body)
	}

	v.at = response.Request.URL.String()
	return string(body)
}
