package keyfunc_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// receiver records reports.
type receiver func(code diag.Code, text string, args ...any)

func (f receiver) Notice(code diag.Code, text string, args ...any) { f(code, text, args...) }

// reports returns the codes that a key function reports for a request.
func reports(t *testing.T, key keyfunc.Func, r *http.Request) (subject string, codes []diag.Code) {
	t.Helper()
	ctx := context.WithValue(r.Context(), notice.Key{}, receiver(func(code diag.Code, text string, _ ...any) {
		if text != "" && !strings.HasPrefix(text, "keyfunc.") {
			t.Errorf("%s: text %q does not name the function", code, text)
		}
		codes = append(codes, code)
	}))
	return keyOf(t, key, r.WithContext(ctx)), codes
}

// signWithHeader signs claims with fields added to the header of the token.
func signWithHeader(t *testing.T, key []byte, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, alice())
	for name, value := range header {
		token.Header[name] = value
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A token with critical extensions is invalid, and a report of a hundred says so.
func TestJWTSubjectCritical(t *testing.T) {
	for _, crit := range []any{[]string{"x"}, []string{"b64"}, []string{"exp"}, []string{}, nil, "x", 1} {
		key := keyfunc.JWTSubject(secretKey, []string{"HS256"}, at(noon))
		token := signWithHeader(t, secret, map[string]any{"crit": crit, "b64": false, "x": 1})
		var reason string
		r := bearing(token)
		r = r.WithContext(context.WithValue(r.Context(), notice.Key{}, receiver(func(_ diag.Code, _ string, args ...any) { reason = fmt.Sprint(args...) })))
		for range 100 {
			if got := keyOf(t, key, r); got != "" {
				t.Errorf("crit %v: got %q; want no subject", crit, got)
			}
		}
		if !strings.Contains(reason, "critical extensions are not supported") {
			t.Errorf("crit %v: got the reason %q; want the extensions", crit, reason)
		}
	}
	key := keyfunc.JWTSubject(secretKey, []string{"HS256"}, at(noon))
	if got := keyOf(t, key, bearing(signWithHeader(t, secret, map[string]any{"x": 1, "CRIT": []string{"x"}}))); got != aliceKey {
		t.Errorf("other unknown fields: got %q; want %q", got, aliceKey)
	}
}

// A token signed with an empty key is invalid, since every client could sign it. A hundred tokens get these
// reports.
func TestJWTSubjectEmptyKey(t *testing.T) {
	kids := map[string][]byte{"a": secret}
	for _, tt := range []struct {
		name   string
		keys   jwt.Keyfunc
		signed []byte // with which the token is signed
		want   string
		codes  []diag.Code
	}{
		{"empty", func(*jwt.Token) (any, error) { return []byte(""), nil }, []byte{}, "", []diag.Code{diag.JWTRejected}},
		{"nil", func(*jwt.Token) (any, error) { return []byte(nil), nil }, []byte{}, "", []diag.Code{diag.JWTRejected}},
		{"zero bytes", func(*jwt.Token) (any, error) { return make([]byte, 32), nil }, []byte{}, "", []diag.Code{diag.JWTRejected}},
		{"empty, signed with another", func(*jwt.Token) (any, error) { return []byte{}, nil }, secret, "", []diag.Code{diag.JWTRejected}},
		{"unknown kid", func(token *jwt.Token) (any, error) { return kids[token.Header["kid"].(string)], nil }, []byte{}, "", []diag.Code{diag.JWTRejected}},
		{"empty in a set", func(*jwt.Token) (any, error) {
			return jwt.VerificationKeySet{Keys: []jwt.VerificationKey{[]byte{}, secret}}, nil
		}, []byte{}, "", []diag.Code{diag.JWTRejected}},
		{"others of the set count", func(*jwt.Token) (any, error) {
			return jwt.VerificationKeySet{Keys: []jwt.VerificationKey{[]byte{}, secret}}, nil
		}, secret, aliceKey, []diag.Code{diag.JWTRejected}},
		{"set", func(*jwt.Token) (any, error) {
			return jwt.VerificationKeySet{Keys: []jwt.VerificationKey{[]byte("other"), secret}}, nil
		}, secret, aliceKey, nil},
		{"empty set", func(*jwt.Token) (any, error) { return jwt.VerificationKeySet{}, nil }, []byte{}, "", []diag.Code{diag.JWTRejected}},
		{"short", func(*jwt.Token) (any, error) { return []byte("x"), nil }, []byte("x"), aliceKey, nil},
		{"error with an empty key", func(*jwt.Token) (any, error) { return []byte{}, fmt.Errorf("no such kid") }, []byte{}, "", []diag.Code{diag.JWTRejected}},
	} {
		key := keyfunc.JWTSubject(tt.keys, []string{"HS256"}, at(noon))
		token := signWithHeader(t, tt.signed, map[string]any{"kid": "b"})
		var got string
		var all []diag.Code
		for range 100 {
			subject, codes := reports(t, key, bearing(token))
			got, all = subject, slices.Compact(append(all, codes...))
		}
		if got != tt.want || !slices.Equal(all, tt.codes) {
			t.Errorf("%s: got %q, reports %q; want %q, %q", tt.name, got, all, tt.want, tt.codes)
		}
	}
}

// Only tokens signed by the issuer are reported as having no expiry.
func TestJWTSubjectWithoutExp(t *testing.T) {
	without := []diag.Code{diag.JWTRejected}
	for _, tt := range []struct {
		name  string
		token string
		codes []diag.Code
	}{
		{"no exp", hs256(t, alice("exp", nil)), without},
		{"no exp, no sub", hs256(t, alice("exp", nil, "sub", nil)), without},
		{"valid", hs256(t, alice()), nil},
		{"expired", hs256(t, alice("exp", noon.Add(-time.Hour).Unix())), nil},
		{"exp not a number", hs256(t, alice("exp", "tomorrow")), nil},
		{"no subject", hs256(t, alice("sub", nil)), nil},
		{"another key", sign(t, jwt.SigningMethodHS256, []byte("other"), alice("exp", nil)), nil},
		{"unsigned", sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, alice("exp", nil)), nil},
		{"another algorithm", sign(t, jwt.SigningMethodHS512, secret, alice("exp", nil)), nil},
		{"garbage", "a.b.c", nil},
	} {
		key := keyfunc.JWTSubject(secretKey, []string{"HS256"}, at(noon))
		for look := range 2 { // the second may come from the cache
			if _, codes := reports(t, key, bearing(tt.token)); !slices.Equal(codes, tt.codes) {
				t.Errorf("%s, look %d: got reports %q; want %q", tt.name, look+1, codes, tt.codes)
			}
		}
	}
}
