package keyfunc_test

import (
	"context"
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
