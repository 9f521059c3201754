package httpclient

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
)

// ByHost counts each host that requests go to, "host:api.example.com". The port
// is part of it unless it is the scheme's own.
func ByHost(r *http.Request) (string, error) {
	return "host:" + hostOf(r), nil
}

// ByCredential counts each value of the Authorization header by a hash of it,
// so that the credential itself gets into no store, log or error. A hash hides
// no password that can be guessed: for such, write a Key that names the account.
// A token that is renewed is another credential; here too an account's name is
// the better key. Requests without the header share one bucket.
func ByCredential(r *http.Request) (string, error) {
	return credentialOf(r), nil
}

// ByHeader is ByCredential for an API key in a header of another name, such as
// X-Api-Key.
func ByHeader(name string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		return hashed("header:", r.Header.Get(name)), nil
	}
}

func hostOf(r *http.Request) string {
	host, port := strings.ToLower(r.URL.Hostname()), r.URL.Port()
	if port == "" || port == "443" && r.URL.Scheme == "https" || port == "80" && r.URL.Scheme == "http" {
		return host
	}
	return net.JoinHostPort(host, port)
}

func credentialOf(r *http.Request) string {
	return hashed("credential:", r.Header.Get("Authorization"))
}

// hashed is a key that does not tell its secret. Half a SHA-256 is enough to
// tell secrets apart.
func hashed(kind, secret string) string {
	if secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return kind + hex.EncodeToString(sum[:16])
}
