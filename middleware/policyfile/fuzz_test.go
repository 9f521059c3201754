package policyfile_test

import (
	"bytes"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

var placed = regexp.MustCompile(`^p\.yaml:(\d+):(\d+): \S`)

// For any bytes Parse returns policies that a limiter takes, as many as a YAML decoder
// finds, or errors with positions in the file.
func FuzzParse(f *testing.F) {
	if example, err := os.ReadFile("../../examples/policies/policies.yaml"); err == nil {
		f.Add(example)
	}

	for _, seed := range []string{
		good, "", "policies: []", "\ufeffpolicies:\r\n- {name: a, key: client, limit: 1/second}\r\n",
		"policies: &a [*a]", "a: &a [x]\nb: [*a, *a]", "policies:\n- !!map {key: client}", "<<: {policies: 1}", "? policies\n: 1",
		overriding(`"ip:10.0.0.0/8", "sub:a"`), one("overrides:\n  - limit: none\n    subjects: [client:192.0.2.1]"),
		"policies:\n- name: a\n  key: client\n  limit: |\n    1/second\n", "policies:\n- {name: a, key: client, limit: 'a\n\n b'}", "---\n...\n---\n", "%YAML 1.2\n---\npolicies:",
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		policies, err := policyfile.Parse("p.yaml", data, funcs)
		if err != nil {
			if policies != nil {
				t.Errorf("got %d policies with an error; want none", len(policies))
			}

			lines := strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n")
			for _, mistake := range joinedErrors(err) {
				found := placed.FindStringSubmatch(mistake)
				if found == nil {
					if !strings.Contains(mistake, "more mistakes") {
						t.Errorf("got %q; want a line and a column", mistake)
					}
					continue
				}

				line, _ := strconv.Atoi(found[1])
				column, _ := strconv.Atoi(found[2])
				if line < 1 || line > len(lines)+1 || column < 1 || column > len(data)+3 { // a missing value is one or two columns further
					t.Errorf("got %q; want a place in %q", mistake, data)
				}
				if strings.ContainsAny(mistake, "\x00\r\n") {
					t.Errorf("got %q; want a line", mistake)
				}
			}
			return
		}

		l, err := middleware.New(middleware.Config{Store: gcra.NewMemory()}, policies...)
		if err != nil {
			t.Fatalf("the limiter rejects the policies: %v", err)
		}
		if d := l.Decide(httptest.NewRequest("POST", "/login", nil)); d.Err != nil {
			t.Errorf("a decision: got %v", d.Err)
		}

		var decoded struct{ Policies []map[string]any }
		if err := yaml.UnmarshalWithOptions(bytes.TrimPrefix(data, []byte("\ufeff")), &decoded, yaml.Strict()); err != nil {
			t.Fatalf("a decoder says %v", err)
		}
		if len(decoded.Policies) != len(policies) {
			t.Fatalf("got %d policies; want %d", len(policies), len(decoded.Policies))
		}

		for i, p := range policies {
			if name, _ := decoded.Policies[i]["name"].(string); name != p.Name {
				t.Errorf("policy %d: got name %q; want %q", i, p.Name, name)
			}
		}
	})
}
