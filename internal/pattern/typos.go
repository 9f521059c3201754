package pattern

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/spelling"
)

// methods are the nine of RFC 9110 and RFC 5789.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// typo returns an error for a typo that makes another valid pattern: a path without its slash is a
// host, and a misspelt method matches no request. A ServeMux accepts most of them.
func typo(s string) error {
	method, host, path := split(s)
	if s == "" {
		return errors.New(`it is empty; want a pattern such as "POST /login", or no Routes for every request`)
	}
	if strings.Contains(method, "/") {
		return errors.New("a blank in a path is written %20")
	}
	if path == "" {
		return fmt.Errorf(`there is no "/"; want %q`, withSlash(method, host))
	}
	if rest, ok := strings.CutPrefix(path, "//"); ok && strings.HasSuffix(host, ":") {
		if !strings.Contains(rest, "/") {
			rest += "/"
		}
		return fmt.Errorf("a pattern has no scheme; want %q", join(method, rest))
	}
	if method == "*" || strings.EqualFold(method, "ANY") || strings.EqualFold(method, "ALL") {
		return fmt.Errorf("leave the method out for all methods; want %q", host+path)
	}
	if strings.ContainsAny(method, ",|") {
		return fmt.Errorf("%q is not one method; want a pattern for each", method)
	}
	if upper := strings.ToUpper(method); upper != method {
		return fmt.Errorf("methods are in upper case; want %q", join(corrected(upper), host+path))
	}
	if name := corrected(method); name != method {
		return fmt.Errorf("method %q is unknown (did you mean %s?)", method, name)
	}
	if name := strings.TrimSuffix(host, ":"); name != "" && !strings.ContainsAny(name, ".:") && !strings.EqualFold(name, "localhost") {
		want := join(method, "/"+name+path)
		if upper := corrected(strings.ToUpper(name)); method == "" && slices.Contains(methods, upper) {
			want = join(upper, path)
		}
		return fmt.Errorf("%q would be a host, which has a dot or a port; want %q", host, want)
	}
	return misplacedStar(s, path)
}

// withSlash returns the pattern that one without a slash was meant to be.
func withSlash(method, rest string) string {
	upper := corrected(strings.ToUpper(rest))
	switch {
	case method != "":
		return join(corrected(strings.ToUpper(method)), "/"+rest)
	case slices.Contains(methods, upper):
		return join(upper, "/")
	case strings.ContainsAny(rest, ".:"):
		return rest + "/"
	}
	return "/" + rest
}

// misplacedStar returns an error for a "*" at the end of a word, which is no wildcard, and for one
// that is a wildcard but does not end the pattern.
func misplacedStar(s, path string) error {
	segments := strings.Split(path, "/")
	for i, seg := range segments {
		last := i == len(segments)-1
		_, multi, wild := parameter(seg)
		switch word := strings.TrimRight(seg, "*"); {
		case enclosed(seg):
			return fmt.Errorf("%q matches only itself; want {name} for any segment", seg)
		case multi && !last:
			return fmt.Errorf("%q matches all that follows; want it at the end, or {name} for one segment", seg)
		case wild || word == seg:
		case last:
			s = strings.TrimRight(s, "*")
			return fmt.Errorf(`"*" matches nothing but a whole segment; want %q, or %q with all below it`, s, s+"/")
		default:
			return fmt.Errorf(`"*" matches nothing but a whole segment; want {name} in place of %q`, seg)
		}
	}
	return nil
}

// enclosed reports whether a segment is a wildcard of other routers: <id>, [id], (.*).
func enclosed(seg string) bool {
	if len(seg) < 3 {
		return false
	}
	switch string([]byte{seg[0], seg[len(seg)-1]}) {
	case "<>", "[]", "()":
		return true
	}
	return false
}

// regexpWildcard returns an error for a wildcard with a regular expression, as in chi.
func regexpWildcard(s string) error {
	for {
		start := strings.IndexByte(s, '{')
		if start < 0 {
			return nil
		}
		s = s[start:]
		depth, end := 0, 0
		for i := range len(s) {
			if s[i] == '{' {
				depth++
			} else if s[i] == '}' {
				if depth--; depth == 0 {
					end = i + 1
					break
				}
			}
		}
		if end == 0 {
			return nil
		}
		wildcard := s[:end]
		if name, _, ok := strings.Cut(wildcard, ":"); ok {
			return fmt.Errorf("a wildcard has no regular expression here; for chi's %s write %s}", wildcard, name)
		}
		s = s[end:]
	}
}

func join(method, rest string) string {
	if method == "" {
		return rest
	}
	return method + " " + rest
}

// corrected returns the standard method that s, in upper case, was meant to be, or s. At most one
// letter in three may differ, or LIST would become POST; so QUERY, PROPFIND, PURGE and LINK stay.
func corrected(s string) string {
	name, ok := spelling.Closest(methods, s)
	if ok && 3*spelling.Distance(s, name) <= len(name) {
		return name
	}
	return s
}
