package keyfunc

import (
	"context"
	"net/http"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
)

// Subject counts by the verified identity that authentication middleware, in front of the limiter,
// has stored in the request's context. get returns it, or "" for an anonymous request.
//
//	keyfunc.Subject(func(ctx context.Context) string { return auth.User(ctx).ID })
//
// The keys, "sub:" and the identity, never equal a key of [JWTSubject].
func Subject(get func(context.Context) string) Func {
	if get == nil {
		panic("keyfunc.Subject: nil function; want one that returns the identity in the context")
	}
	return func(r *http.Request) (string, error) {
		identity := get(r.Context())
		if identity == "" {
			notice.Report(r.Context(), diag.AnonymousOnly, "")
			return "", nil
		}
		return encode("sub:", identity), nil
	}
}

// APIKey counts by the owner of the API key in the given header. owner looks the key up and reports
// whether it is known. All API keys of one owner share a bucket, "key:" and the owner's name; the API
// key itself is neither stored nor logged.
//
// A request with an unknown API key, or one above 16 KiB, is anonymous. Put a limit by address before
// it, against guessing.
//
// The request waits for owner: keep it fast, and compare secrets in constant time or by their hash.
// If a failed look-up should follow the policy's OnFailure, write a [Func] that returns the error.
func APIKey(header string, owner func(ctx context.Context, apiKey string) (name string, ok bool)) Func {
	header = mustHeaderName("APIKey", header)
	if owner == nil {
		panic("keyfunc.APIKey: nil owner; want a function that looks up the owner of a key")
	}
	return func(r *http.Request) (string, error) {
		apiKey := r.Header.Get(header)
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
