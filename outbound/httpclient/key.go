package httpclient

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
)

// maxHost, in bytes, is the length of the longest name in the DNS (RFC 1035, section 2.3.4).
const maxHost = 255

// ByHost counts requests by the host of their URL, as "host:api.example.com", with the port
// unless it is the default of the scheme, http or https.
func ByHost(r *http.Request) (string, error) {
	return "host:" + hostOf(r), nil
}

// ByCredential counts requests by a hash of the Authorization header. Requests without the header
// share one bucket.
//
// A hash does not hide a password that can be guessed, and a renewed token has another hash. In both
// cases write a Key that returns the account's name.
func ByCredential(r *http.Request) (string, error) {
	return credentialOf(r), nil
}

// ByHeader is [ByCredential] for an API key in the named header, such as X-Api-Key.
func ByHeader(name string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		return hashed("header:", r.Header.Get(name)), nil
	}
}

func hostOf(r *http.Request) string {
	host, port := strings.ToLower(r.URL.Hostname()), r.URL.Port()
	if len(host) > maxHost {
		host = hashed("", host)
	}
	if port == "" || port == "443" && r.URL.Scheme == "https" || port == "80" && r.URL.Scheme == "http" {
		return host
	}
	return net.JoinHostPort(host, port)
}

func credentialOf(r *http.Request) string {
	return hashed("credential:", r.Header.Get("Authorization"))
}

// hashed returns a key without its secret. Half of a SHA-256 is enough to distinguish secrets.
func hashed(kind, secret string) string {
	if secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return kind + hex.EncodeToString(sum[:16])
}
