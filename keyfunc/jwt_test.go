package keyfunc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

var (
	secret = []byte("0123456789abcdef0123456789abcdef")
	noon   = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
)

// secretKey is a jwt.Keyfunc for tokens signed with secret.
func secretKey(*jwt.Token) (any, error) { return secret, nil }

// at returns a clock that is stopped.
func at(t time.Time) jwt.ParserOption { return jwt.WithTimeFunc(func() time.Time { return t }) }

// alice returns claims that are valid at noon, with changes by name and value; nil deletes a claim.
func alice(changes ...any) jwt.MapClaims {
	claims := jwt.MapClaims{"iss": "https://a.example", "sub": "alice", "aud": "api", "exp": noon.Add(time.Hour).Unix()}
	for i := 0; i < len(changes); i += 2 {
		name := changes[i].(string)
		if claims[name] = changes[i+1]; changes[i+1] == nil {
			delete(claims, name)
		}
	}
	return claims
}

func sign(t testing.TB, method jwt.SigningMethod, key any, claims jwt.Claims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func hs256(t testing.TB, claims jwt.Claims) string {
	t.Helper()
	return sign(t, jwt.SigningMethodHS256, secret, claims)
}

func bearing(token string) *http.Request { return request(client, "Authorization", "Bearer "+token) }

const aliceKey = "sub:https://a.example|alice"

func TestJWTSubject(t *testing.T) {
	// Given these options, a token ...
	opts := []jwt.ParserOption{at(noon), jwt.WithIssuer("https://a.example"), jwt.WithAudience("api")}
	for _, tt := range []struct {
		name   string
		claims jwt.MapClaims
		want   string
	}{
		// ... that verifies is counted by issuer and subject,
		{"valid", alice(), aliceKey},
		{"other subject", alice("sub", "bob"), "sub:https://a.example|bob"},
		{"subject with separators", alice("sub", "a|b%7C"), "sub:https://a.example|a%7Cb%257C"},
		{"several audiences", alice("aud", []string{"web", "api"}), aliceKey},
		{"long subject", alice("sub", strings.Repeat("a", 5000)), "sub:https://a.example|" + strings.Repeat("a", 5000)},

		// A claim that differs from "sub" in case does not replace it, sorted before it or after it.
		{"another subject in upper case", alice("SUB", "victim"), aliceKey},
		{"another subject with a letter that folds", alice("ſub", "victim"), aliceKey},

		// An invalid token is anonymous.
		{"expired", alice("exp", noon.Unix()), ""},
		{"no expiry", alice("exp", nil), ""},
		{"expiry not a number", alice("exp", "tomorrow"), ""},
		{"not yet valid", alice("nbf", noon.Add(time.Second).Unix()), ""},
		{"wrong issuer", alice("iss", "https://b.example"), ""},
		{"no issuer", alice("iss", nil), ""},
		{"issuer not a string", alice("iss", 1), ""},
		{"wrong audience", alice("aud", "web"), ""},
		{"no audience", alice("aud", nil), ""},
		{"no subject", alice("sub", nil), ""},
		{"empty subject", alice("sub", ""), ""},
		{"subject a number", alice("sub", 7), ""},
		{"subject a list", alice("sub", []string{"alice"}), ""},
		{"subject an object", alice("sub", map[string]string{"a": "b"}), ""},
		{"subject in upper case", alice("sub", nil, "SUB", "alice"), ""},
		{"no claims", jwt.MapClaims{}, ""},
		{"nil claims", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key := keyfunc.JWTSubject(secretKey, []string{"HS256"}, opts...)
			for _, look := range []string{"first", "second"} { // the second may come from the cache
				if got := keyOf(t, key, bearing(hs256(t, tt.claims))); got != tt.want {
					t.Errorf("%s look: got %q; want %q", look, got, tt.want)
				}
			}
		})
	}
}

// A request with a forged token is anonymous, and not counted for the subject in the token.
func TestJWTSubjectForged(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}

	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	raw := func(header, payload, signature string) string {
		b64 := base64.RawURLEncoding.EncodeToString
		return b64([]byte(header)) + "." + b64([]byte(payload)) + "." + signature
	}
	valid := sign(t, jwt.SigningMethodRS256, rsaKey, alice())
	parts := strings.Split(valid, ".")
	payload := `{"iss":"https://a.example","sub":"victim","exp":4102444800}`

	for name, token := range map[string]string{
		"alg none":                sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, alice()),
		"alg none, hand-made":     raw(`{"alg":"none"}`, payload, ""),
		"alg None":                raw(`{"alg":"None"}`, payload, ""),
		"alg NONE with signature": raw(`{"alg":"NONE"}`, payload, parts[2]),
		"alg missing":             raw(`{}`, payload, parts[2]),
		"alg not a string":        raw(`{"alg":["RS256"]}`, payload, parts[2]),
		"alg unknown":             raw(`{"alg":"RS257"}`, payload, parts[2]),
		"HMAC of public PEM":      sign(t, jwt.SigningMethodHS256, public, alice()),
		"HMAC of public DER":      sign(t, jwt.SigningMethodHS256, der, alice()),
		"right key, other method": sign(t, jwt.SigningMethodRS512, rsaKey, alice()),
		"PSS for PKCS1":           sign(t, jwt.SigningMethodPS256, rsaKey, alice()),
		"ECDSA for RSA":           sign(t, jwt.SigningMethodES256, curve, alice()),
		"wrong key":               sign(t, jwt.SigningMethodRS256, other, alice()),
		"payload exchanged":       parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + "." + parts[2],
		"signature cut":           valid[:len(valid)-4],
		"signature removed":       parts[0] + "." + parts[1] + ".",
		"two parts":               parts[0] + "." + parts[1],
		"four parts":              valid + ".e30",
		"header null":             raw("null", payload, parts[2]),
		"payload null":            raw(`{"alg":"RS256"}`, "null", parts[2]),
		"empty":                   "",
		"dots":                    "..",
		"garbage":                 "\x00\xff",
		"1 MB":                    strings.Repeat("e30.", 1<<18),
	} {
		// Neither do options that would weaken golang-jwt weaken the key.
		for _, opts := range [][]jwt.ParserOption{
			{at(noon)},
			{at(noon), jwt.WithoutClaimsValidation(), jwt.WithValidMethods([]string{"none", "HS256", "RS256"})},
		} {
			key := keyfunc.JWTSubject(func(token *jwt.Token) (any, error) {
				if _, hmac := token.Method.(*jwt.SigningMethodHMAC); hmac {
					return public, nil // without a check of the method
				}
				return &rsaKey.PublicKey, nil
			}, []string{"RS256"}, opts...)

			if got := keyOf(t, key, bearing(valid)); got != aliceKey {
				t.Fatalf("valid token: got %q; want %q", got, aliceKey)
			}
			if got := keyOf(t, key, bearing(token)); got != "" {
				t.Errorf("%s: got %q; want none", name, got)
			}
		}
	}
}

func TestJWTSubjectHeader(t *testing.T) {
	token := hs256(t, alice())
	key := keyfunc.JWTSubject(secretKey, []string{"HS256"}, at(noon))
	for _, tt := range []struct {
		lines []string
		want  string
	}{
		{[]string{"Bearer " + token}, aliceKey},
		{[]string{"bearer " + token}, aliceKey},
		{[]string{"BEARER   " + token + " "}, aliceKey},
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"Bearer"}, ""},
		{[]string{"Bearer "}, ""},
		{[]string{"Bearer" + token}, ""},
		{[]string{"Basic " + token}, ""},
		{[]string{"Bearer " + token + ", Bearer " + token}, ""},

		// What any of Go's authentications accepts.
		{[]string{token}, aliceKey},
		{[]string{"bEaReR_" + token}, aliceKey},
		{[]string{"Bearer\t" + token}, aliceKey},
		{[]string{"Bearer\xff" + token}, aliceKey},
		{[]string{"\u00a0Bearer\u00a0 \t" + token + "\t"}, aliceKey},
		{[]string{"Bearer" + strings.Repeat(" ", 20<<10) + token + " x"}, aliceKey},

		// Of two lines, the first.
		{[]string{"Bearer " + token, ""}, aliceKey},
		{[]string{"Bearer " + token, "Bearer x"}, aliceKey},
		{[]string{"", "Bearer " + token}, ""},
		{[]string{"Bearer x", "Bearer " + token}, ""},
	} {
		r := request(client)
		r.Header["Authorization"] = tt.lines
		if got := keyOf(t, key, r); got != tt.want {
			t.Errorf("Authorization %.40q: got %q; want %q", tt.lines, got, tt.want)
		}
	}
}

// The Keyfunc is called once for a valid token, each time for an invalid one, and never for one that is too
// long.
func TestJWTSubjectCallsKeyfunc(t *testing.T) {
	asked := 0
	key := keyfunc.JWTSubject(func(*jwt.Token) (any, error) { asked++; return secret, nil }, []string{"HS256"}, at(noon))
	for _, tt := range []struct {
		name, token string
		want        string
		asked       int
	}{
		{"valid", hs256(t, alice()), aliceKey, 1},
		{"expired", hs256(t, alice("exp", noon.Unix())), "", 3},
		{"wrong key", sign(t, jwt.SigningMethodHS256, []byte("other"), alice()), "", 3},
		{"wrong method", sign(t, jwt.SigningMethodHS384, secret, alice()), "", 0},
		{"16 KiB", hs256(t, alice("pad", strings.Repeat("a", 12<<10-200))), aliceKey, 1},
		{"more", hs256(t, alice("pad", strings.Repeat("a", 12<<10))), "", 0},
		{"1 MB", hs256(t, alice("pad", strings.Repeat("a", 1<<20))), "", 0},
		{"long subject", hs256(t, alice("sub", strings.Repeat("a", 2000))), "sub:https://a.example|" + strings.Repeat("a", 2000), 1},
	} {
		asked = 0
		for range 3 {
			if got := keyOf(t, key, bearing(tt.token)); got != tt.want {
				t.Errorf("%s: got %.60q; want %.60q", tt.name, got, tt.want)
			}
		}

		if asked != tt.asked {
			t.Errorf("%s, 3 requests: Keyfunc was called %d times; want %d", tt.name, asked, tt.asked)
		}
	}
}

// The claims are those that golang-jwt reads, of the token that is counted. A caller may change them.
func TestJWTClaims(t *testing.T) {
	asked := 0
	user, claims := keyfunc.JWTClaims(func(*jwt.Token) (any, error) { asked++; return secret, nil }, []string{"HS256"}, at(noon))
	list := make([]any, 2000)
	for _, tt := range []struct {
		name, token string
		asked       int // in two rounds of both functions
	}{
		{"small", hs256(t, alice("plan", "pro", "realm", map[string]any{"roles": []any{"a", 1.5, nil, true}})), 1},
		{"large", hs256(t, alice("list", list)), 1},
		{"expired", hs256(t, alice("exp", noon.Unix())), 4},
		{"forged", sign(t, jwt.SigningMethodHS256, []byte("other"), alice()), 4},
		{"without a subject", hs256(t, alice("sub", nil)), 4},
		{"none", "", 0},
	} {
		asked = 0
		for range 2 {
			var want jwt.MapClaims
			key := keyOf(t, user, bearing(tt.token))
			if key != "" {
				want = jwt.MapClaims{}
				if _, _, err := jwt.NewParser().ParseUnverified(tt.token, want); err != nil {
					t.Fatal(err)
				}
			}

			got := claims(bearing(tt.token))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, counted as %q: got claims %v; want %v", tt.name, key, got, want)
			}
			if realm, ok := got["realm"].(map[string]any); ok {
				realm["roles"].([]any)[0] = "changed"
				got["sub"] = "changed"
			}
		}
		if asked != tt.asked {
			t.Errorf("%s: the Keyfunc was called %d times; want %d", tt.name, asked, tt.asked)
		}
	}
}

// An error or a panic of the Keyfunc is not one of JWTSubject: the client chooses the header that it reads.
func TestJWTSubjectKeysFail(t *testing.T) {
	for name, keys := range map[string]jwt.Keyfunc{
		"error": func(*jwt.Token) (any, error) { return nil, errors.New("fetch keys: connection refused") },
		"panic": func(token *jwt.Token) (any, error) { return token.Header["kid"].(string), nil },
	} {
		failing := true
		key := keyfunc.JWTSubject(func(token *jwt.Token) (any, error) {
			if failing {
				return keys(token)
			}
			return secret, nil
		}, []string{"HS256"}, at(noon))
		if got := keyOf(t, key, bearing(hs256(t, alice()))); got != "" {
			t.Errorf("with an %s: got %q; want none", name, got)
		}
		failing = false
		if got := keyOf(t, key, bearing(hs256(t, alice()))); got != aliceKey {
			t.Errorf("without the %s: got %q; want %q", name, got, aliceKey)
		}
	}
}

// An issuer that is not a string is no issuer, even if any would do.
func TestJWTSubjectIssuerIsText(t *testing.T) {
	key := keyfunc.JWTSubject(secretKey, []string{"HS256"}, at(noon))
	for issuer, want := range map[any]string{"": "sub:|alice", "a|b": "sub:a%7Cb|alice", 1: ""} {
		if got := keyOf(t, key, bearing(hs256(t, alice("iss", issuer)))); got != want {
			t.Errorf("issuer %v: got %q; want %q", issuer, got, want)
		}
	}
}

// A cached token is invalid when it expires, to the second and with the leeway.
func TestJWTSubjectCachedExpires(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []jwt.ParserOption
		exp  time.Time
	}{
		{"no leeway", nil, noon.Add(time.Hour)},
		{"leeway", []jwt.ParserOption{jwt.WithLeeway(time.Minute)}, noon.Add(time.Hour + time.Minute)},
		{"options about the claims", []jwt.ParserOption{
			jwt.WithIssuer("https://a.example"), jwt.WithSubject("alice"), jwt.WithAllAudiences("api"), jwt.WithIssuedAt(), jwt.WithNotBeforeRequired(),
		}, noon.Add(time.Hour)},
		{"without claims validation", []jwt.ParserOption{jwt.WithoutClaimsValidation()}, noon.Add(time.Hour)},
		{"JSON numbers", []jwt.ParserOption{jwt.WithJSONNumber()}, noon.Add(time.Hour)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now, asked := noon, 0
			keys := func(*jwt.Token) (any, error) { asked++; return secret, nil }
			key := keyfunc.JWTSubject(keys, []string{"HS256"}, append(tt.opts, jwt.WithTimeFunc(func() time.Time { return now }))...)
			r := bearing(hs256(t, alice("iat", noon.Unix(), "nbf", noon.Unix())))

			for _, step := range []struct {
				now  time.Time
				want string
			}{
				{noon, aliceKey},
				{noon.Add(30 * time.Minute), aliceKey},
				{tt.exp.Add(-time.Nanosecond), aliceKey},
				{tt.exp, ""},
				{tt.exp.Add(time.Hour), ""},
			} {
				now = step.now
				if got := keyOf(t, key, r); got != step.want {
					t.Errorf("at %v: got %q; want %q", step.now, got, step.want)
				}
			}

			if asked != 3 { // first, and after it has expired
				t.Errorf("Keyfunc was called %d times; want 3", asked)
			}
		})
	}
}

// A cached token is invalid when the clock goes back before nbf or iat.
func TestJWTSubjectCachedNotBefore(t *testing.T) {
	now := noon
	clock := jwt.WithTimeFunc(func() time.Time { return now })
	for claim, key := range map[string]keyfunc.Func{
		"nbf": keyfunc.JWTSubject(secretKey, []string{"HS256"}, clock),
		"iat": keyfunc.JWTSubject(secretKey, []string{"HS256"}, clock, jwt.WithIssuedAt()),
	} {
		r := bearing(hs256(t, alice(claim, noon.Unix())))
		for _, step := range []struct {
			now  time.Time
			want string
		}{{noon, aliceKey}, {noon.Add(-time.Second), ""}, {noon, aliceKey}} {
			now = step.now
			if got := keyOf(t, key, r); got != step.want {
				t.Errorf("%s, at %v: got %q; want %q", claim, step.now, got, step.want)
			}
		}
	}
}
