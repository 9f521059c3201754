package readme

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

var _ = fromFile

func fromFile(ctx context.Context, cfg middleware.Config, client, user keyfunc.Func) (*middleware.Limiter, error) {
	words := policyfile.Funcs{
		Keys: map[string]keyfunc.Func{"client": client, "user": user},
		Plan: planOf, // func(*http.Request) string
	}
	policies, err := policyfile.Load("policies.yaml", words)
	if err != nil {
		return nil, err // every mistake, each with line and column
	}
	limiter, err := middleware.New(cfg, policies...)
	if err != nil {
		return nil, err
	}
	go policyfile.Watch(ctx, "policies.yaml", words, limiter)

	return limiter, nil
}

// The file that the documents show has no mistakes, and one with those that they
// name has just these.
func TestPolicyFile(t *testing.T) {
	words := policyfile.Funcs{
		Keys: map[string]keyfunc.Func{"client": keyfunc.RemoteAddr, "user": keyfunc.RemoteAddr},
		Plan: func(*http.Request) string { return "" },
	}
	all := blocks(t, "docs/rollout.md")
	shown := slices.IndexFunc(all, func(b block) bool { return b.language == "yaml" && b.lines[0] == "policies:" })
	told := slices.IndexFunc(all, func(b block) bool { return strings.HasPrefix(b.lines[0], "policies.yaml:") })
	if shown < 0 || told < 0 {
		t.Fatal("docs/rollout.md shows no file of policies, or no mistake in one")
	}
	var text strings.Builder
	for i, line := range all[shown].lines { // without the indentation that blocks trims
		switch {
		case i == 0:
		case strings.HasPrefix(line, "- "):
			line = "  " + line
		default:
			line = "    " + line
		}
		text.WriteString(line + "\n")
	}
	if policies, err := policyfile.Parse("policies.yaml", []byte(text.String()), words); err != nil || len(policies) != 3 {
		t.Errorf("got %d policies, %v; want 3\n%s", len(policies), err, text.String())
	}
	broken := strings.NewReplacer("key: client", "key: clint", "shadow: true", "shadow:").Replace(text.String())
	_, err := policyfile.Parse("policies.yaml", []byte(broken), words)
	if err == nil {
		t.Fatal("got no mistakes")
	}
	for _, line := range all[told].lines {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("docs/rollout.md says %s; the mistakes are\n%v", line, err)
		}
	}
}
