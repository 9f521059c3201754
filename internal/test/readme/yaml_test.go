package readme

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// A YAML block is a file of policies without mistakes. A text block below it that
// begins with the file's name lists the mistakes that two edits make.
func TestPolicyFiles(t *testing.T) {
	funcs := policyfile.Funcs{
		Keys: map[string]keyfunc.Func{"client": keyfunc.RemoteAddr, "user": keyfunc.RemoteAddr},
		Plan: func(*http.Request) string { return "" },
	}

	for _, page := range pages {
		shown := blocks(t, page, "yaml")
		for _, b := range shown {
			if _, err := policyfile.Parse("policies.yaml", []byte(b.text), funcs); err != nil {
				t.Errorf("%s: %v", b, err)
			}
		}

		for _, b := range blocks(t, page, "text") {
			if !strings.HasPrefix(b.text, "policies.yaml:") {
				continue
			}
			broken := strings.NewReplacer("key: client", "key: clint", "shadow: true", "shadow:").Replace(shown[0].text)
			_, err := policyfile.Parse("policies.yaml", []byte(broken), funcs)
			if err == nil {
				t.Fatalf("%s: got no mistakes", b)
			}

			for line := range strings.Lines(b.text) {
				if !strings.Contains(err.Error(), strings.TrimSpace(line)) {
					t.Errorf("%s: %s; the mistakes are\n%v", b, line, err)
				}
			}
		}
	}
}
