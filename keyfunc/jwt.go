package keyfunc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
)

// JWTSubject counts by the subject of a valid bearer token: the key is "sub:" with issuer and subject.
//
//	keyfunc.JWTSubject(keys, []string{"RS256"},
//		jwt.WithIssuer("https://login.example.com"), jwt.WithAudience("api"))
//
// keys returns the key that verifies a token, and methods are the algorithms of your issuer.
// Without jwt.WithAudience, tokens for other services of the issuer count too.
//
// The token is in the first Authorization header, after "Bearer" or alone. Use [Subject] behind an
// authentication that reads tokens elsewhere; docs/keys.md names some.
//
// A request with an invalid token is anonymous, also if the token has no exp or no subject, has
// critical extensions or is above 16 KiB, or if keys returns an error or an empty key. Put a limiter
// by address in front: JWTSubject does not bound the checks of invented tokens.
//
// Valid tokens are cached by their hash, in up to 16 MiB. A token whose signing key is withdrawn may
// count until it expires.
func JWTSubject(keys jwt.Keyfunc, methods []string, opts ...jwt.ParserOption) Func {
	return newVerifier("JWTSubject", keys, methods, opts...).key
}

// JWTClaims is [JWTSubject] with a second function, which returns the claims of the token that the
// first one counts, or nil. So a plan in a claim needs no second check of the token:
//
//	user, claims := keyfunc.JWTClaims(keys, []string{"RS256"})
//	planOf := func(r *http.Request) string { plan, _ := claims(r)["plan"].(string); return plan }
func JWTClaims(keys jwt.Keyfunc, methods []string, opts ...jwt.ParserOption) (subject Func, claims func(*http.Request) jwt.MapClaims) {
	v := newVerifier("JWTClaims", keys, methods, opts...)
	return v.key, v.claimsOf
}

// A verifier returns the key and the claims of the token of a request.
type verifier struct {
	name     string // of the constructor, for reports
	keys     jwt.Keyfunc
	parser   *jwt.Parser    // checks method and signature
	claims   *jwt.Validator // checks all claims
	times    *jwt.Validator // checks exp, nbf and iat of a cached token
	verified *cache

	works  atomic.Bool // a token was valid
	failed atomic.Int64
}

// manyTokens is the number of invalid tokens, with no valid one, after which the
// configuration is reported.
const manyTokens = 100

func newVerifier(constructor string, keys jwt.Keyfunc, methods []string, opts ...jwt.ParserOption) *verifier {
	mustMethods(constructor, keys, methods)
	with := func(more ...jwt.ParserOption) []jwt.ParserOption { return slices.Concat(opts, more) }
	return &verifier{
		name: "keyfunc." + constructor,
		keys: keys,
		// The parser checks no claims; the validator claims does, independent of opts.
		parser: jwt.NewParser(with(jwt.WithValidMethods(slices.Clone(methods)), jwt.WithoutClaimsValidation())...),
		claims: jwt.NewValidator(with(jwt.WithExpirationRequired())...),
		times: jwt.NewValidator(with(jwt.WithExpirationRequired(),
			jwt.WithIssuer(""), jwt.WithSubject(""), jwt.WithAudience())...),
		verified: newCache(cacheBytes),
	}
}

func (v *verifier) key(r *http.Request) (string, error) { return v.keyOf(r.Context(), bearer(r)), nil }

func (v *verifier) claimsOf(r *http.Request) jwt.MapClaims {
	token := bearer(r)
	if v.keyOf(r.Context(), token) == "" {
		return nil
	}

	// The cache has no claims. These are of the same text as the verified ones, read by the same parser.
	claims := jwt.MapClaims{}
	if _, _, err := v.parser.ParseUnverified(token, claims); err != nil {
		return nil
	}
	return claims
}

// keyOf returns the key of a token, "" if it is not valid.
func (v *verifier) keyOf(ctx context.Context, token string) string {
	if token == "" || len(token) > maxCredential {
		return ""
	}

	// A hash: the cache has no token that could be stolen, and each takes the same room.
	id := tokenID(sha256.Sum256([]byte(token)))
	if e, ok := v.verified.get(id); ok && v.times.Validate(e.times) == nil {
		return e.key
	}

	e, err := v.verify(ctx, token)
	if err != nil {
		// Clients send invalid tokens too: the set-up is in doubt only while none has been valid.
		if !v.works.Load() && !errors.Is(err, errReported) && v.failed.Add(1) >= manyTokens {
			v.report(ctx, diag.JWTRejected, fmt.Sprintf("none of the first %d bearer tokens verified, so no user is counted; "+
				"check the key, the methods, issuer and audience", manyTokens), "reason", reason(err))
		}
		return ""
	}

	v.works.Store(true)
	v.verified.put(id, e)
	return e.key
}

func (v *verifier) report(ctx context.Context, code diag.Code, text string, args ...any) {
	notice.Report(ctx, code, v.name+": "+text, args...)
}

// verify checks the whole token. It reads the claims into a map, since encoding/json
// ignores case for the fields of a struct: a claim "SUB", which an issuer may let its
// users set, would replace "sub".
//
// A client chooses the header that the application's Keyfunc reads, so the token is
// invalid if that panics, as if it returns an error.
func (v *verifier) verify(ctx context.Context, token string) (e entry, err error) {
	defer func() {
		if recover() != nil {
			e, err = entry{}, errPanic
		}
	}()

	claims := jwt.MapClaims{}
	if _, err := v.parser.ParseWithClaims(token, claims, v.keyFor(ctx)); err != nil {
		return entry{}, err
	}
	// After the signature, or anyone could cause the report about exp.
	if err := v.claims.Validate(claims); err != nil {
		if exp, none := claims.GetExpirationTime(); exp == nil && none == nil {
			v.report(ctx, diag.JWTRejected, "a token with a valid signature has no expiry (exp), so its subject is not counted; "+
				"let the issuer set exp")
			return entry{}, errReported
		}
		return entry{}, err
	}

	// A subject is unique to its issuer (RFC 7519), so the key has both.
	issuer, err := claims.GetIssuer()
	if err != nil {
		return entry{}, err
	}
	subject, err := claims.GetSubject()
	if err != nil || subject == "" {
		return entry{}, errNoSubject
	}

	// The validator has checked those that it needs; others may be malformed.
	exp, _ := claims.GetExpirationTime()
	nbf, _ := claims.GetNotBefore()
	iat, _ := claims.GetIssuedAt()
	times := &jwt.RegisteredClaims{ExpiresAt: exp, NotBefore: nbf, IssuedAt: iat}
	return entry{encode("sub:", issuer, subject), times}, nil
}

var (
	errCritical = errors.New("critical extensions are not supported")
	errEmptyKey = fmt.Errorf("the key is empty: %w", errReported)

	errReported  = errors.New("reported already")
	errPanic     = errors.New("the jwt.Keyfunc panics")
	errNoSubject = errors.New("the token has no subject (sub)")
)

// reason returns why a token is invalid, without text of the client.
func reason(err error) string {
	// golang-jwt joins errors. The first of these that it has says most.
	for _, r := range []struct {
		err  error
		text string
	}{
		{errPanic, errPanic.Error()},
		{errNoSubject, errNoSubject.Error()},
		{errCritical, errCritical.Error()},
		{jwt.ErrTokenMalformed, "the token is malformed"},
		{jwt.ErrTokenUnverifiable, "the jwt.Keyfunc returns an error"},
		{jwt.ErrTokenSignatureInvalid, "the signature is invalid, or its method is not listed"},
		{jwt.ErrTokenExpired, "the token has expired"},
		{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
		{jwt.ErrTokenInvalidIssuer, "the issuer is another"},
		{jwt.ErrTokenInvalidAudience, "the audience is another"},
	} {
		if errors.Is(err, r.err) {
			return r.text
		}
	}
	return "the claims are invalid"
}

// keyFor returns the application's Keyfunc without empty keys. It also rejects a token
// with a crit field, which names extensions that the recipient must understand (RFC 7515,
// section 4.1.11): golang-jwt does not check it.
func (v *verifier) keyFor(ctx context.Context) jwt.Keyfunc {
	return func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errCritical
		}
		key, err := v.keys(t)
		if err != nil {
			return nil, err
		}

		set, isSet := key.(jwt.VerificationKeySet)
		if !isSet {
			set.Keys = []jwt.VerificationKey{key}
		}

		// The other keys of a set stay in use: only tokens signed with an empty one must fail.
		usable := slices.DeleteFunc(slices.Clone(set.Keys), isEmptyKey)
		if len(usable) < len(set.Keys) {
			v.report(ctx, diag.JWTRejected, "the jwt.Keyfunc returned an empty key, with which every client could sign, so it is not used; "+
				"set the secret, and return an error for an unknown kid")
			if len(usable) == 0 {
				return nil, errEmptyKey
			}
		}

		return jwt.VerificationKeySet{Keys: usable}, nil
	}
}

// isEmptyKey reports whether a key is an HMAC key that is empty or all zeros, which is the
// same: HMAC pads its key with zeros (RFC 2104).
func isEmptyKey(key jwt.VerificationKey) bool {
	secret, ok := key.([]byte)
	return ok && len(bytes.Trim(secret, "\x00")) == 0
}

// bearer returns the token in the first Authorization header, "" if there is none. It accepts what
// any of Go's authentications does, so that a client cannot be nobody here and somebody there: all
// skip one character after the scheme, or spaces, and golang-jwt's also takes a token alone.
func bearer(r *http.Request) string {
	const scheme = "Bearer"
	token := strings.TrimSpace(r.Header.Get("Authorization"))
	alone := len(token) < len(scheme) || !strings.EqualFold(token[:len(scheme)], scheme)
	if !alone {
		token = token[len(scheme):]
		_, separator := utf8.DecodeRuneInString(token)
		token = strings.TrimSpace(token[separator:])
	}

	if end := strings.IndexFunc(token, unicode.IsSpace); end >= 0 {
		token = token[:end]
	}
	if alone && strings.Count(token, ".") != 2 { // another scheme, such as Basic
		return ""
	}
	return token
}

// mustMethods panics, with the constructor's name, on arguments with which no token, or every token, would be valid.
func mustMethods(constructor string, keys jwt.Keyfunc, methods []string) {
	if keys == nil {
		panic("keyfunc." + constructor + ": nil jwt.Keyfunc; want one that returns the key that tokens are signed with")
	}
	if len(methods) == 0 {
		panic("keyfunc." + constructor + `: no methods; name the algorithms that your issuer signs with, such as "RS256"`)
	}
	for _, method := range methods {
		switch {
		case method == jwt.SigningMethodNone.Alg():
			panic("keyfunc." + constructor + `: method "none" lets every client write its own token; ` +
				`name the algorithms that your issuer signs with, such as "RS256"`)
		case jwt.GetSigningMethod(method) == nil:
			panic(fmt.Sprintf("keyfunc.%s: method %q is not known to golang-jwt; want one such as %q", constructor, method, "RS256"))
		}
	}
}
