package keyfunc_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

type userKey struct{}

func userIn(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

func requestOf(user string) *http.Request {
	return request(client).WithContext(context.WithValue(context.Background(), userKey{}, user))
}

func TestSubject(t *testing.T) {
	key := keyfunc.Subject(userIn)
	for user, want := range map[string]string{
		"alice":           "sub:alice",
		"192.0.2.7":       "sub:192.0.2.7",
		"https://a|alice": "sub:https://a%7Calice",
		"100%":            "sub:100%25",
		"\x00{}":          "sub:\x00{}",
		"":                "",
	} {
		if got := keyOf(t, key, requestOf(user)); got != want {
			t.Errorf("user %q: got %q; want %q", user, got, want)
		}
	}

	if got := keyOf(t, key, request(client)); got != "" {
		t.Errorf("no user: got %q; want none", got)
	}
	wantPanic(t, "keyfunc.Subject: nil function; want one that returns the identity in the context", func() { keyfunc.Subject(nil) })
}

// A key of Subject never equals a key of JWTSubject.
func TestSubjectIsNotJWTSubject(t *testing.T) {
	subject := keyfunc.Subject(userIn)
	token := keyfunc.JWTSubject(secretKey, []string{"HS256"}, at(noon))
	for _, issuer := range []string{"", "https://a.example"} {
		verified := keyOf(t, token, bearing(hs256(t, alice("iss", issuer))))
		for _, user := range []string{strings.TrimPrefix(verified, "sub:"), issuer + "|alice", issuer + "%7Calice", "alice"} {
			if got := keyOf(t, subject, requestOf(user)); got == verified {
				t.Errorf("user %q has the key %q of a verified token", user, got)
			}
		}
	}
}

func TestAPIKey(t *testing.T) {
	looked := 0
	key := keyfunc.APIKey("x-api-key", func(_ context.Context, apiKey string) (string, bool) {
		looked++
		name, ok := map[string]string{"s3cret": "acme", "s3cret2": "acme", "other": "umbrella", "nameless": ""}[apiKey]
		return name, ok
	})

	for _, tt := range []struct {
		lines  []string
		want   string
		looked int
	}{
		// Keys of one owner share a bucket.
		{[]string{"s3cret"}, "key:acme", 1},
		{[]string{"s3cret2"}, "key:acme", 1},
		{[]string{"other"}, "key:umbrella", 1},
		// All else is anonymous, most of it without a look-up.
		{[]string{"unknown"}, "", 1},
		{[]string{"S3CRET"}, "", 1},
		{[]string{"nameless"}, "", 1},
		{nil, "", 0},
		{[]string{""}, "", 0},
		{[]string{"", "s3cret"}, "", 0},
		// Of two lines, the first.
		{[]string{"s3cret", ""}, "key:acme", 1},
		{[]string{"s3cret", "other"}, "key:acme", 1},
		{[]string{"unknown", "s3cret"}, "", 1},
		{[]string{strings.Repeat("a", 1<<20)}, "", 0},
	} {
		r := request(client)
		r.Header["X-Api-Key"] = tt.lines
		looked = 0
		got := keyOf(t, key, r)
		if got != tt.want || looked != tt.looked {
			t.Errorf("X-API-Key %.40q: got %q after %d look-ups; want %q after %d", tt.lines, got, looked, tt.want, tt.looked)
		}
		for _, line := range tt.lines {
			if line != "" && strings.Contains(got, line) {
				t.Errorf("X-API-Key %.40q: the key %q contains it", tt.lines, got)
			}
		}
	}
}

// Guessed API keys get no buckets.
func TestAPIKeyGuesses(t *testing.T) {
	key := keyfunc.APIKey("X-API-Key", func(context.Context, string) (string, bool) { return "ignored", false })
	for i := range 10_000 {
		if got := keyOf(t, key, request(client, "X-API-Key", fmt.Sprint(i))); got != "" {
			t.Fatalf("guess %d: got %q; want none", i, got)
		}
	}
}

// The look-up gets the context of the request.
func TestAPIKeyContext(t *testing.T) {
	key := keyfunc.APIKey("X-API-Key", func(ctx context.Context, _ string) (string, bool) { return userIn(ctx), true })
	r := requestOf("tenant")
	r.Header.Set("X-API-Key", "x")
	if got := keyOf(t, key, r); got != "key:tenant" {
		t.Errorf("got %q; want key:tenant", got)
	}
}

func TestAPIKeyPanics(t *testing.T) {
	owner := func(context.Context, string) (string, bool) { return "", false }
	for _, name := range []string{"", "X API Key", "X-API-Key:"} {
		wantPanic(t, fmt.Sprintf(`keyfunc.APIKey: %q is not the name of a header; want letters, digits and hyphens`, name), func() {
			keyfunc.APIKey(name, owner)
		})
	}
	wantPanic(t, "keyfunc.APIKey: nil owner; want a function that looks up the owner of a key", func() { keyfunc.APIKey("X-API-Key", nil) })
}
