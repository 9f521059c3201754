package signin_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/signin"
)

const (
	isJSON = "application/json"
	isForm = "application/x-www-form-urlencoded"
	isPart = "multipart/form-data; boundary=b"
)

// part is a field of a multipart form.
func part(name, value string) string {
	return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
}

// Whatever an attempt looks like, at most five passwords of one account are checked for an address.
// In each, @ is a name, and ~ a text without a width, which are new each time.
func TestDecodersAgree(t *testing.T) {
	const passwordJSON, passwordForm = `"password":"guess"`, "&password=guess"
	for _, attempt := range []struct {
		name   string
		method string // POST if empty
		query  string
		types  []string // JSON if empty
		body   string
		want   int // 400 if 0
	}{
		{"JSON", "", "", nil, `{"username":"victim",` + passwordJSON + `}`, 401},
		{"other members", "", "", nil, ` {"@":{"username":"@"},"a":[1e999,null],"username":"victim",` + passwordJSON + `}` + "\n", 401},
		{"upper case", "", "", nil, `{"username":"VICTIM",` + passwordJSON + `}`, 401},
		{"spaces, also of the Content-Type", "", "", []string{"application/json ; charset=utf-8"}, `{"username":"\u00a0 victim\t",` + passwordJSON + `}`, 401},
		{"escapes", "", "", nil, `{"\u0075sername":"\u0076ictim",` + passwordJSON + `}`, 401},
		{"without a width", "", "", nil, `{"username":"~ victim",` + passwordJSON + `}`, 401},
		{"another method", "PUT", "", nil, `{"username":"victim",` + passwordJSON + `}`, 401},
		{"GET with a body", "GET", "", nil, `{"username":"victim",` + passwordJSON + `}`, 401},
		{"a query without the account", "", "?next=%2F", nil, `{"username":"victim",` + passwordJSON + `}`, 401},
		{"a doubled address", "", "", nil, `{"username":"victim",` + passwordJSON + `}`, 401}, // see send
		{"the field twice", "", "", nil, `{"username":"@","username":"victim",` + passwordJSON + `}`, 0},
		{"the field first", "", "", nil, `{"username":"victim","username":"@",` + passwordJSON + `}`, 0},
		{"the field in two cases", "", "", nil, `{"username":"@","USERNAME":"victim",` + passwordJSON + `}`, 0},
		{"the field in another case", "", "", nil, `{"Username":"victim",` + passwordJSON + `}`, 0},
		{"the field with a long s", "", "", nil, `{"username":"@","u` + "\u017f" + `ername":"victim",` + passwordJSON + `}`, 0},
		{"the field escaped", "", "", nil, `{"username":"@","\u0075sername":"victim",` + passwordJSON + `}`, 0},
		{"no field", "", "", nil, `{` + passwordJSON + `}`, 0},
		{"no string", "", "", nil, `{"username":["victim"],` + passwordJSON + `}`, 0},
		{"two values", "", "", nil, `{"username":"victim",` + passwordJSON + `}{"username":"@"}`, 0},
		{"a byte order mark", "", "", nil, "\ufeff" + `{"username":"victim",` + passwordJSON + `}`, 0},
		{"half a character", "", "", nil, `{"username":"victim\ud800",` + passwordJSON + `}`, 0},
		{"a zero byte", "", "", nil, `{"username":"victim\u0000",` + passwordJSON + `}`, 0},
		{"not JSON", "", "", nil, `{"username":"victim",` + passwordJSON + `,}`, 0},
		{"too large", "", "", nil, `{"username":"victim",` + passwordJSON + strings.Repeat(" ", 64<<10) + `}`, 0},
		{"account in query and body", "", "?username=victim", nil, `{"username":"@",` + passwordJSON + `}`, 0},
		{"and the body has none", "GET", "?username=victim&password=guess", nil, `{"username":null}`, 0},
		{"in another case", "DELETE", "?USERNAME=victim&password=guess", nil, `{"username":"@"}`, 0},
		{"GET with a query", "GET", "?username=victim&password=guess", nil, ``, 0},
		{"a semicolon in the query", "", "?a;username=victim", nil, `{"username":"@",` + passwordJSON + `}`, 0},
		{"a form that is JSON", "", "", []string{isForm}, `{"username":"@","a":"&username=victim` + passwordForm + `&"}`, 401},
		{"parts that are JSON", "", "", []string{isPart}, `{"username":"@","a":"` + part("username", "victim") + `"}`, 0},
		{"text", "", "", []string{"text/plain"}, `{"username":"victim",` + passwordJSON + `}`, 0},
		{"a broken Content-Type", "", "", []string{isJSON + ", " + isForm}, `{"username":"victim",` + passwordJSON + `}`, 0},
		{"a doubled Content-Type", "", "", []string{isForm, isJSON}, `{"username":"@","a":"&username=victim` + passwordForm + `&"}`, 0},

		{"form", "", "", []string{isForm}, "username=victim" + passwordForm, 401},
		{"multipart", "", "", []string{isPart}, part("username", "victim") + part("password", "guess") + "--b--", 401},
		{"form, the field twice", "", "", []string{isForm}, "username=@&username=victim" + passwordForm, 0},
		{"form, the field in two cases", "", "", []string{isForm}, "username=@&USERNAME=victim" + passwordForm, 0},
		{"form, account in query and body", "", "?username=victim", []string{isForm}, "username=@" + passwordForm, 0},
		{"form, only in the query", "", "?username=victim", []string{isForm}, "password=guess", 0},
		{"form, in DELETE", "DELETE", "", []string{isForm}, "username=victim" + passwordForm, 0},
		{"form, broken", "", "", []string{isForm}, "username=victim" + passwordForm + "&%zz", 0},
		{"multipart, the field twice", "", "", []string{isPart}, part("username", "@") + part("username", "victim") + part("password", "guess") + "--b--", 0},
		{"multipart that is a form", "", "", []string{isPart}, "username=victim" + passwordForm, 0},
	} {
		for framework, build := range frameworks {
			for source, account := range map[string]keyfunc.Func{isJSON: signin.JSON("username"), isForm: signin.Form("username")} {
				s := newSite(t)
				h := build(newGuard(t, middleware.Config{Store: gcra.NewMemory(gcra.MemoryConfig{Now: s.now})}, account), func(ctx context.Context, account, _ string) (bool, error) {
					if strings.Trim(account, " \u200b\ufffd\x00") == "victim" {
						s.checked.Add(1)
					}
					return false, nil
				})

				types := attempt.types
				if types == nil {
					types = []string{isJSON}
				}
				want := cmp.Or(attempt.want, http.StatusBadRequest)
				if isJSON == source != strings.Contains(strings.ToLower(types[0]), "json") {
					want = http.StatusBadRequest
				}
				for i := range 8 {
					decoy := strings.NewReplacer("@", fmt.Sprint("d", i), "~", strings.Repeat("\u200b", i))
					r := httptest.NewRequest(cmp.Or(attempt.method, http.MethodPost), "/login"+attempt.query, strings.NewReader(decoy.Replace(attempt.body)))
					r.RemoteAddr, r.Header["Content-Type"] = "127.0.0.1:1", types
					r.Header["X-Forwarded-For"] = []string{fmt.Sprint("192.0.2.", i), "198.51.100.66"}
					w := httptest.NewRecorder()
					if h.ServeHTTP(w, r); i == 0 && w.Code != want && w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed {
						t.Errorf("%s, %s, account from %s: got %d; want %d", attempt.name, framework, source, w.Code, want)
					}
				}
				if got := s.checked.Load(); got > 5 {
					t.Errorf("%s, %s, account from %s: %d passwords were checked; want at most 5", attempt.name, framework, source, got)
				}
			}
		}
	}
}

// An account that JSON finds is the one that decoders find.
func FuzzJSON(f *testing.F) {
	for _, body := range []string{`{"username":"a"}`, `{"USERNAME":"b","username":"a"}`, `{"username":"a"} x`, `{"username":"a","a":{"username":"b"}}`, "{\"u\u017fername\":\"b\",\"username\":\"a\"}"} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(body))
		r.Header.Set("Content-Type", isJSON)
		account, err := signin.JSON("username")(r)
		if err != nil {
			return
		}
		var in credentials
		var all map[string]any
		if err := errors.Join(json.NewDecoder(strings.NewReader(body)).Decode(&all), json.Unmarshal([]byte(body), &all)); err != nil || all["username"] != account {
			t.Errorf("%q: got %q; a decoder of maps finds %q, %v", body, account, all["username"], err)
		}
		if err := json.Unmarshal([]byte(body), &in); in.Username != account && !errors.As(err, new(*json.UnmarshalTypeError)) {
			t.Errorf("%q: got %q; a decoder of structs finds %q, %v", body, account, in.Username, err)
		}
	})
}

// An account that Form finds is the one that decoders find.
func FuzzForm(f *testing.F) {
	f.Add("", isForm, "username=a")
	f.Add("username=b", isForm, "username=a")
	f.Add("a=b", isPart, part("username", "a")+"--b--")
	f.Fuzz(func(t *testing.T, query, contentType, body string) {
		request := func() *http.Request {
			return &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/login", RawQuery: query}, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(bytes.NewReader([]byte(body)))}
		}
		account, err := signin.Form("username")(request())
		if r := request(); err == nil && (r.FormValue("username") != account || r.PostFormValue("username") != account || len(r.Form["username"]) != 1) {
			t.Errorf("%q, %q, %q: got %q; decoders find %q", query, contentType, body, account, r.Form["username"])
		}
	})
}
