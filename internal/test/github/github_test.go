// Package github checks the files in .github.
package github

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/seed-e377111c/ratelimit/internal/test/race"
)

const (
	root       = "../../.."
	actionlint = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
)

// actionlint finds nothing in the workflows.
func TestWorkflows(t *testing.T) {
	race.Skip(t)

	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "install", actionlint)
	build.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("actionlint could not be installed, as without a network: %v\n%s", err, out)
	}

	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got workflows %q, %v; want some", files, err)
	}

	// The linters of other languages may be installed or not.
	args := append([]string{"-shellcheck=", "-pyflakes="}, files...)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "actionlint"), args...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Actions are pinned by commit, workflows may read only, and the oldest Go that is tested
// is the one that go.mod requires.
func TestPins(t *testing.T) {
	text := read(t, ".github/workflows/ci.yml")
	for line := range strings.Lines(text) {
		if strings.Contains(line, "uses:") && !regexp.MustCompile(`uses: [\w./-]+@[0-9a-f]{40} # v\d`).MatchString(line) {
			t.Errorf("got %q; want an action with a commit and its version", strings.TrimSpace(line))
		}
	}
	if !strings.Contains(text, "\npermissions:\n  contents: read\n") || strings.Contains(text, ": write") {
		t.Error("want the permission to read contents, and no other")
	}

	required := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(read(t, "go.mod"))
	if required == nil || !strings.Contains(text, "{go: "+required[1]+",") {
		t.Errorf("ci.yml does not test the Go of go.mod, %q", required)
	}
}

// Dependabot watches each module of go.work.
func TestDependabot(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directories []string
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/dependabot.yml")), &config); err != nil {
		t.Fatal(err)
	}

	var got, want []string
	for _, update := range config.Updates {
		if update.Ecosystem == "gomod" {
			got = append(got, update.Directories...)
		}
	}

	for _, m := range regexp.MustCompile(`(?m)^\t\.(/?\S*)$`).FindAllStringSubmatch(read(t, "go.work"), -1) {
		want = append(want, "/"+strings.TrimPrefix(m[1], "/"))
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("got modules %q; want %q", got, want)
	}
}

// The forms of issues are YAML that GitHub takes, and ask for what Ping and the log say.
func TestIssueForms(t *testing.T) {
	forms, err := filepath.Glob(filepath.Join(root, ".github/ISSUE_TEMPLATE/*.yml"))
	if err != nil || len(forms) == 0 {
		t.Fatalf("got forms %q, %v; want some", forms, err)
	}

	for _, path := range forms {
		if filepath.Base(path) == "config.yml" {
			continue
		}

		var form struct {
			Name, Description string
			Body              []struct {
				Type, ID   string
				Attributes struct{ Label, Description, Render string }
			}
		}

		text := read(t, ".github/ISSUE_TEMPLATE/"+filepath.Base(path))
		if err := yaml.Unmarshal([]byte(text), &form); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s: got %+v; want a name, a description and a body", path, form)
		}

		var ids []string
		for _, field := range form.Body {
			if field.Attributes.Label == "" || slices.Contains(ids, field.ID) || !slices.Contains([]string{"input", "textarea"}, field.Type) {
				t.Errorf("%s: got %+v; want a known type, an id of its own and a label", path, field)
			}
			ids = append(ids, field.ID)
		}

		if filepath.Base(path) == "bug.yml" && (!slices.Contains(ids, "ping") || !slices.Contains(ids, "code")) {
			t.Errorf("%s: got fields %q; want ping and code", path, ids)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
