package test

import (
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

var listensOn = regexp.MustCompile(`listens on (http://\S+)`)

// startQuickstart builds our quickstart, runs it until the test ends, and returns its URL.
func startQuickstart(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "quickstart")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./examples/quickstart")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	line := startProgram(t, exec.CommandContext(t.Context(), program, "-addr", "127.0.0.1:0", "-redis", ""))
	found := listensOn.FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("the quickstart prints %q; want where it listens", line)
	}
	return found[1]
}

// The quickstart allows each user 5 requests a second and as many at once, and 100 a day. Its denials have
// Retry-After and the fields of draft 6.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	tab := newTable(t, columns...)
	site := startQuickstart(t)

	var mu sync.Mutex
	tokens := map[string]string{} // by user, which is the test's name
	login := func(t *testing.T) string {
		mu.Lock()
		defer mu.Unlock()
		user := t.Name()
		if tokens[user] == "" {

			response, err := http.PostForm(site+"/login", url.Values{"user": {user}})
			if err != nil {
				t.Error(err)
				return ""
			}
			token, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("login: got %s, %v; want a token", response.Status, err)
			}
			tokens[user] = string(token)
		}
		return tokens[user]
	}

	w := workload{callers: 5, calls: callsEach(), request: func(t *testing.T, n int) *http.Request {
		r := get(site+"/me")(t, n)
		r.Header.Set("Authorization", "Bearer "+login(t))
		return r
	}}

	w.run(t, tab, "quickstart", func(t *testing.T, client string, x *exchanges) {
		most := 2 * w.callers * w.calls // after each second as many may be denied as are served
		if strings.Contains(client, "Adaptive") {
			most = w.callers*w.calls + w.callers // the first request of each caller
		}
		if len(x.log) > most {
			t.Errorf("sent %d requests; want at most %d", len(x.log), most)
		}
	})
}
