package keyfunc

import (
	"fmt"
	"net/http"
	"strings"
)

// maxCredential is the longest token or API key that is looked at, in bytes. It
// is far above what issuers make (proxies refuse header lines beyond 8 KiB) and
// keeps the work that one request can ask for small.
const maxCredential = 16 << 10

// onlyValue is the value of a header that occurs exactly once, "" otherwise:
// with two there is no telling which one others on the way have believed.
// The name is in canonical form.
func onlyValue(r *http.Request, name string) string {
	if values := r.Header[name]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// mustHeaderName returns the name in canonical form and panics, in the name of
// the constructor, if it is not a token (RFC 9110, section 5.6.2).
func mustHeaderName(constructor, name string) string {
	if !isToken(name) {
		panic(fmt.Sprintf("keyfunc.%s: %q is not the name of a header; want letters, digits and hyphens", constructor, name))
	}
	return http.CanonicalHeaderKey(name)
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return !isTokenChar(c) })
}

func isTokenChar(c rune) bool {
	return c > ' ' && c < 0x7f && !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
}
