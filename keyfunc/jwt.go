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

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
)

const (
	rememberedTokens = 1 << 14 // verified tokens that one JWTSubject remembers
	rememberedKey    = 1 << 10 // longest key, in bytes, that is remembered
)

// JWTSubject counts the subject of the bearer token in the Authorization header
// (RFC 6750), if the token verifies. The key is "sub:" with the issuer and the
// subject, as a subject is unique only for its issuer (RFC 7519, section 4.1.2).
//
//	keyfunc.JWTSubject(keys, []string{"RS256"},
//		jwt.WithIssuer("https://login.example.com"), jwt.WithAudience("api"))
//
// keys returns the key that a token must be signed with, and methods are the
// algorithms that are accepted for it. Name those that your issuer uses, of one
// kind: a server that takes both RS256 and HS256 can be talked into checking an
// HMAC made with its public key. Issuer, audience, leeway and clock are given
// as options; a token without an expiry (exp) never verifies, and no option
// changes that. Without jwt.WithAudience tokens for other services of the issuer
// are counted too, which RFC 7519, section 4.1.3, forbids. If your issuer signs
// tokens for other uses (logout+jwt, ID tokens), let keys return an error unless
// t.Header["typ"] is the type you expect (RFC 8725, section 3.11).
//
// A token that does not verify is anonymous, never an error: forged,
// expired, of another issuer, without a subject or with one that is not a
// string, with critical extensions (crit; none is supported), above 16 KiB, in a
// header that occurs twice. That includes a token for which keys fails. Even if
// the cause is a key server that is away, it was the client that chose the key's
// name (kid), so it must not open a door.
//
// An empty []byte from keys verifies nothing: with an empty HMAC key every
// client could sign its own tokens. The usual causes are an environment variable
// that is not set and a map without the kid; the limiter logs it. An HMAC key
// should be as long as the hash or longer, 32 bytes for HS256 (RFC 7518,
// section 3.2); JWTSubject does not check that.
//
// Verified tokens are remembered, up to 16,384 of them and known by their hash,
// so that the signature is checked once and not on every request. exp, nbf and,
// with jwt.WithIssuedAt, iat are checked every time. A signing key that is
// withdrawn thus goes on counting for tokens that were seen before, until they
// expire. That is of no help to their bearers: JWTSubject says who is counted
// and not who may enter. Authenticate as if it was not there.
//
// Checking a signature costs more than refusing a request. Put a limit by
// address in front, so that made-up tokens cannot ask for many.
//
// JWTSubject panics if keys is nil, if there are no methods, if one is not
// known to golang-jwt, and if one is "none".
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

// A verifier turns tokens into keys.
type verifier struct {
	keys     jwt.Keyfunc
	parser   *jwt.Parser    // method and signature
	claims   *jwt.Validator // all claims
	times    *jwt.Validator // those of the claims that age
	verified *cache

	works  atomic.Bool // a token has verified
	failed atomic.Int64
}

// manyTokens is how many tokens in a row do not verify where the set-up is wrong.
const manyTokens = 100

func newVerifier(keys jwt.Keyfunc, methods []string, opts ...jwt.ParserOption) *verifier {
	with := func(more ...jwt.ParserOption) []jwt.ParserOption { return slices.Concat(opts, more) }
	return &verifier{
		keys: keys,
		// No check of claims here: claims does that, whatever opts says.
		parser: jwt.NewParser(with(jwt.WithValidMethods(slices.Clone(methods)), jwt.WithoutClaimsValidation())...),
		claims: jwt.NewValidator(with(jwt.WithExpirationRequired())...),
		times: jwt.NewValidator(with(jwt.WithExpirationRequired(),
			jwt.WithIssuer(""), jwt.WithSubject(""), jwt.WithAudience())...),
		verified: newCache(rememberedTokens),
	}
}

// subject is the key of the token's subject, "" if the token does not verify.
func (v *verifier) subject(ctx context.Context, token string) string {
	id := tokenID(sha256.Sum256([]byte(token)))
	if e, ok := v.verified.get(id); ok {
		if v.times.Validate(e.times) == nil {
			return e.key
		}
		v.verified.remove(id)
	}

	e, err := v.verify(ctx, token)
	if err != nil {
		if !v.works.Load() && !errors.Is(err, errReported) && v.failed.Add(1) >= manyTokens {
			notice.Report(ctx, diag.JWTNoneVerifies, fmt.Sprintf("keyfunc.JWTSubject: none of the first %d bearer tokens verified, so no user is counted; check the key, the methods, issuer and audience", manyTokens), "reason", reason(err))
		}
		return ""
	}
	if !v.works.Load() {
		v.works.Store(true)
	}
	if len(e.key) <= rememberedKey {
		v.verified.put(id, e)
	}
	return e.key
}

// verify checks the whole token. It reads the claims as a map since encoding/json
// fills the fields of a struct whatever the case of a name: a claim "SUB", which
// an issuer may let its users set, would stand for "sub".
//
// A client chooses the header that the application's Keyfunc reads, so a panic
// there is a token that does not verify, like an error.
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

	// The validator has read those it needs; one that it does not need may be ill-formed.
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

// reason says why a token did not verify, without what the client has sent.
func reason(err error) string {
	for _, r := range []struct {
		err  error
		text string
	}{
		{errPanic, "the jwt.Keyfunc panics"},
		{errNoSubject, "the token has no subject (sub)"},
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

// keyFor returns the application's keys without those that verify what anybody
// has signed. A token with a crit field asks for an extension that must be
// understood (RFC 7515, section 4.1.11), and golang-jwt does not look at it.
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
		switch {
		case len(usable) == 0:
			return nil, errEmptyKey
		case isSet:
			return jwt.VerificationKeySet{Keys: usable}, nil
		}
		return key, nil
	}
}

// isEmptyKey reports whether a key is an HMAC key without a byte, or one of zero
// bytes, which is the same: HMAC pads its key with them (RFC 2104).
func isEmptyKey(key jwt.VerificationKey) bool {
	secret, ok := key.([]byte)
	return ok && len(bytes.Trim(secret, "\x00")) == 0
}

// bearer is the token in the Authorization header, "" if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(onlyValue(r, "Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.Trim(token, " ")
}

// mustMethods panics on arguments of JWTSubject with which no token would
// verify, or any.
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
