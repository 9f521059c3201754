package keyfunc

import (
	"context"
	"net/http"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
)

// Subject counts an identity that authentication middleware has put in the
// request's context before. get returns it, or "" for a request without one,
// which is then anonymous.
//
//	keyfunc.Subject(func(ctx context.Context) string { return auth.User(ctx).ID })
//
// The identity is taken at its word, so it must be one that was verified. The
// limiter must run after that middleware, and logs it if none of a policy's first
// hundred requests has an identity. The keys, "sub:" and the identity,
// never equal a key of [JWTSubject], which also holds the issuer.
//
// Subject panics if get is nil.
func Subject(get func(context.Context) string) Func {
	if get == nil {
		panic("keyfunc.Subject: nil function; want one that returns the identity in the context")
	}
	return func(r *http.Request) (string, error) {
		identity := get(r.Context())
		if identity == "" {
			notice.Report(r.Context(), diag.KeyBeforeAuth, "")
			return "", nil
		}
		return encode("sub:", identity), nil
	}
}

// APIKey counts the owner of the API key in the given header. owner looks the
// key up where the application keeps them and reports whether it is known. All
// keys of one owner share a bucket, "key:" and the owner's name; the API key
// itself is in no key that is stored or logged.
//
// An unknown key is anonymous: if it bought a bucket of its own, a
// client could have as many as it can think of. So are a header that is missing
// or occurs twice, a key above 16 KiB, and an owner without a name. Put a limit
// by address in front against guessing.
//
// owner runs on every request, with the request's context: keep it fast, and
// compare secrets in constant time or by their hash. Where a look-up that fails
// is to follow the policy's OnFailure, write a [Func] that returns the error.
//
// APIKey panics if the header's name is invalid or owner is nil.
func APIKey(header string, owner func(ctx context.Context, apiKey string) (name string, ok bool)) Func {
	header = mustHeaderName("APIKey", header)
	if owner == nil {
		panic("keyfunc.APIKey: nil owner; want a function that looks up whose key it is")
	}
	return func(r *http.Request) (string, error) {
		apiKey := onlyValue(r, header)
		if apiKey == "" || len(apiKey) > maxCredential {
			return "", nil
		}
		name, ok := owner(r.Context(), apiKey)
		if !ok || name == "" {
			return "", nil
		}
		return "key:" + name, nil
	}
}
