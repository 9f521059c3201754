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

const (
	cachedTokens = 1 << 14 // verified tokens in the cache of one JWTSubject
	maxCachedKey = 1 << 10 // bytes of the longest key in the cache
)

// JWTSubject counts by the subject of a valid bearer token. The key is "sub:" with issuer and
// subject, since a subject may be unique only for its issuer (RFC 7519, section 4.1.2).
//
//	keyfunc.JWTSubject(keys, []string{"RS256"},
//		jwt.WithIssuer("https://login.example.com"), jwt.WithAudience("api"))
//
// keys returns the key that verifies a token, and methods are the algorithms that your issuer
// uses. Without an option for the audience, tokens for other services of the issuer count too.
//
// The token is in the first Authorization header: "Bearer" in any case, one character, and the
// token, or the token alone. Use [Subject] behind an authentication that reads tokens from other
// places or in other forms; docs/keys.md names some.
//
// A request with an invalid token is anonymous, also if it has no exp, no subject or critical
// extensions (crit), is above 16 KiB, or keys returns an error or an empty key: the client chooses
// what keys reads. JWTSubject does not authenticate, and does not bound the checks of invented
// tokens: put a limiter by address in front.
//
// Up to 16,384 valid tokens are cached by their hash; exp, nbf and, with jwt.WithIssuedAt, iat are
// checked again. A token of a withdrawn signing key may count until it expires.
//
// JWTSubject panics if there are no methods, or one is "none" or unknown to golang-jwt.
func JWTSubject(keys jwt.Keyfunc, methods []string, opts ...jwt.ParserOption) Func {
	mustMethods(keys, methods)
	v := newVerifier(keys, methods, opts...)
	return func(r *http.Request) (string, error) {
		token := bearer(r)
		if token == "" || len(token) > maxCredential {
			return "", nil
		}
		return v.subject(r.Context(), token), nil
	}
}

// A verifier returns the key of a token.
type verifier struct {
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

func newVerifier(keys jwt.Keyfunc, methods []string, opts ...jwt.ParserOption) *verifier {
	with := func(more ...jwt.ParserOption) []jwt.ParserOption { return slices.Concat(opts, more) }
	return &verifier{
		keys: keys,
		// The parser checks no claims; the validator claims does, independent of opts.
		parser: jwt.NewParser(with(jwt.WithValidMethods(slices.Clone(methods)), jwt.WithoutClaimsValidation())...),
		claims: jwt.NewValidator(with(jwt.WithExpirationRequired())...),
		times: jwt.NewValidator(with(jwt.WithExpirationRequired(),
			jwt.WithIssuer(""), jwt.WithSubject(""), jwt.WithAudience())...),
		verified: newCache(cachedTokens),
	}
}

// subject returns the key of the token's subject, "" if the token is invalid.
func (v *verifier) subject(ctx context.Context, token string) string {
	id := tokenID(sha256.Sum256([]byte(token)))
	if e, ok := v.verified.get(id); ok && v.times.Validate(e.times) == nil {
		return e.key
	}

	e, err := v.verify(ctx, token)
	if err != nil {
		if !v.works.Load() && !errors.Is(err, errReported) && v.failed.Add(1) >= manyTokens {
			notice.Report(ctx, diag.JWTNoneVerifies, fmt.Sprintf("keyfunc.JWTSubject: none of the first %d bearer tokens verified, so no user is counted; check the key, the methods, issuer and audience", manyTokens), "reason", reason(err))
		}
		return ""
	}

	v.works.Store(true)
	if len(e.key) <= maxCachedKey {
		v.verified.put(id, e)
	}
	return e.key
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
	if err := v.claims.Validate(claims); err != nil {
		if exp, none := claims.GetExpirationTime(); exp == nil && none == nil {
			notice.Report(ctx, diag.JWTWithoutExp, "keyfunc.JWTSubject: a token with a valid signature has no expiry (exp), so its subject is not counted; let the issuer set exp")
			return entry{}, errReported
		}
		return entry{}, err
	}

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
	return entry{
		key:   encode("sub:", issuer, subject),
		times: &jwt.RegisteredClaims{ExpiresAt: exp, NotBefore: nbf, IssuedAt: iat},
	}, nil
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
	for _, r := range []struct {
		err  error
		text string
	}{
		{errPanic, errPanic.Error()},
		{errNoSubject, errNoSubject.Error()},
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

		usable := slices.DeleteFunc(slices.Clone(set.Keys), isEmptyKey)
		if len(usable) < len(set.Keys) {
			notice.Report(ctx, diag.JWTEmptyKey, "keyfunc.JWTSubject: the jwt.Keyfunc returned an empty key, with which every client could sign, so it is not used; set the secret, and return an error for an unknown kid")
		}

		if len(usable) == 0 {
			return nil, errEmptyKey
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

// mustMethods panics on arguments with which no token, or every token, would be valid.
func mustMethods(keys jwt.Keyfunc, methods []string) {
	if keys == nil {
		panic("keyfunc.JWTSubject: nil jwt.Keyfunc; want one that returns the key that tokens are signed with")
	}
	if len(methods) == 0 {
		panic(`keyfunc.JWTSubject: no methods; name the algorithms that your issuer signs with, such as "RS256"`)
	}
	for _, method := range methods {
		switch {
		case method == jwt.SigningMethodNone.Alg():
			panic(`keyfunc.JWTSubject: method "none" lets every client write its own token; name the algorithms that your issuer signs with, such as "RS256"`)
		case jwt.GetSigningMethod(method) == nil:
			panic(fmt.Sprintf("keyfunc.JWTSubject: method %q is not known to golang-jwt; want one such as %q", method, "RS256"))
		}
	}
}
