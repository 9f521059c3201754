package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/nginxtest"
)

// startExpress installs express-rate-limit in a temporary folder, runs testdata/express/server.js there
// until the test ends, and returns its URL.
func startExpress(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"npm", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			nginxtest.Missing(t, program)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "express"))); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--prefer-offline")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		nginxtest.Missing(t, "express-rate-limit: npm ci: "+err.Error()+"\n"+string(out))
	}
	server := exec.CommandContext(t.Context(), "node", "server.js")
	server.Dir = dir
	return startProgram(t, server)
}

// express-rate-limit allows 10 requests in a fixed window of 4 seconds. Five callers with 8 calls each
// need four windows. A Transport learns of a denial that a window is full, and an Adaptive from the fields
// before that.
func TestExpressRateLimit(t *testing.T) {
	t.Parallel()
	tab := newTable(t, columns...)
	url := startExpress(t)
	for _, form := range []string{"draft-6", "draft-7", "draft-8", "legacy"} {
		w := workload{callers: 5, calls: 8, request: get(url + "/" + form)}
		w.run(t, tab, "express-rate-limit, "+form, func(t *testing.T, client string, x *exchanges) {
			d := x.denials()
			if d.mostInWindow > w.callers || x.windows() > 10 {
				t.Errorf("%d requests denied in one of %d windows; want at most %d in 10", d.mostInWindow, x.windows(), w.callers)
			}
			if strings.Contains(client, "Adaptive") && (d.all > 2 || d.windows > 1) {
				t.Errorf("%d requests denied in %d windows; want at most 2 in the first, as nothing remaining holds until the reset", d.all, d.windows)
			}
		})
	}
}
