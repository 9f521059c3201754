package pattern

import (
	"strings"
	"testing"
)

// A typo makes another pattern, which matches no request. The error says which one was meant.
func TestParseTypos(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                        `it is empty; want a pattern such as "POST /login", or no Routes for every request`,
		"* /login":                `leave the method out for all methods; want "/login"`,
		"ANY /login":              `leave the method out for all methods; want "/login"`,
		"/users/<id>":             `"<id>" matches only itself; want {name} for any segment`,
		"/users/[id]/posts":       `"[id]" matches only itself; want {name} for any segment`,
		"/users/(.*)":             `"(.*)" matches only itself; want {name} for any segment`,
		"/a b":                    `a blank in a path is written %20`,
		"login":                   `there is no "/"; want "/login"`,
		"POST login":              `there is no "/"; want "POST /login"`,
		"psot login":              `there is no "/"; want "POST /login"`,
		"POST":                    `there is no "/"; want "POST /"`,
		"example.com":             `there is no "/"; want "example.com/"`,
		"http://example.com/x":    `a pattern has no scheme; want "example.com/x"`,
		"GET https://h.io":        `a pattern has no scheme; want "GET h.io/"`,
		"login/":                  `"login" would be a host, which has a dot or a port; want "/login/"`,
		"POST login/a":            `"login" would be a host, which has a dot or a port; want "POST /login/a"`,
		"POST/login":              `"POST" would be a host, which has a dot or a port; want "POST /login"`,
		"POST:/login":             `"POST:" would be a host, which has a dot or a port; want "POST /login"`,
		"post/login":              `"post" would be a host, which has a dot or a port; want "POST /login"`,
		"psot/login":              `"psot" would be a host, which has a dot or a port; want "POST /login"`,
		"post /login":             `methods are in upper case; want "POST /login"`,
		"Psot /login":             `methods are in upper case; want "POST /login"`,
		"purge /a":                `methods are in upper case; want "PURGE /a"`,
		"PSOT /login":             `method "PSOT" is unknown (did you mean POST?)`,
		"GETT /":                  `method "GETT" is unknown (did you mean GET?)`,
		"GET,POST /a":             `"GET,POST" is not one method; want a pattern for each`,
		"GET|POST /a":             `"GET|POST" is not one method; want a pattern for each`,
		"/login*":                 `"*" matches nothing but a whole segment; want "/login", or "/login/" with all below it`,
		"GET /a/login*":           `want "GET /a/login", or "GET /a/login/" with all below it`,
		"/api/v*/users":           `"*" matches nothing but a whole segment; want {name} in place of "v*"`,
		"/*path/b":                `"*path" matches all that follows; want it at the end, or {name} for one segment`,
		"/*/b":                    `"*" matches all that follows; want it at the end, or {name} for one segment`,
		"/a/{id:[0-9]+}":          `a wildcard has no regular expression here; for chi's {id:[0-9]+} write {id}`,
		"/a/{id:[a-z/]{2,3}?*}/b": `for chi's {id:[a-z/]{2,3}?*} write {id}`,
		"/{x}/{y}/{z:.*}":         `for chi's {z:.*} write {z}`,

		"/login/*": "", "/login/**": "", "/login%2A": "", "/a*b": "", "/api": "", "/{x}/{y": "bad wildcard segment (must end with '}')",
		"localhost/": "", "LocalHost/": "", "example.com/": "", "login:80/": "",
	} {
		_, err := Parse(pattern)
		if want == "" && err != nil {
			t.Errorf("%q: got %v; want no error", pattern, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v; want %s", pattern, err, want)
		}
		// The proposed pattern is valid.
		if err == nil {
			continue
		}
		if _, proposed, ok := strings.Cut(err.Error(), `want "`); ok {
			proposed, _, _ = strings.Cut(proposed, `"`)
			if _, err := Parse(proposed); err != nil {
				t.Errorf("%q: %q is proposed, but Parse returns %v", pattern, proposed, err)
			}
		}
	}
}

// No method in use counts as a typo: those of the IANA registry, with QUERY of RFC 10008, and others
// of caches and devices.
func TestParseMethods(t *testing.T) {
	for method := range strings.FieldsSeq(`
		ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR
		MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH PUT QUERY REBIND REPORT
		SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL
		BAN LIST M-SEARCH NOTIFY POLL PURGE PUSH REFRESH SUBSCRIBE UNSUBSCRIBE VIEW`) {
		if _, err := Parse(method + " /a"); err != nil {
			t.Errorf("%s: got %v; want no error", method, err)
		}
	}
}
