package keyfunc

import (
	"fmt"
	"net/http"
	"strings"
)

// maxCredential is the largest size of a token or API key in bytes; longer ones are
// ignored. It is far above real ones (proxies reject header lines above 8 KiB) and
// bounds the work for one request.
const maxCredential = 16 << 10

// mustHeaderName returns the name in canonical form. It panics with the constructor's
// name if the header's is not a token (RFC 9110, section 5.6.2).
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
