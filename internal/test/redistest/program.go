package redistest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

const (
	envVar     = "RATELIMIT_TEST_REDIS"
	programVar = "RATELIMIT_TEST_SERVER"
)

// program is the server that all tests start.
type program struct {
	path    string
	name    string // "Redis", "Valkey"
	version string // "7.0.15"
	major   int
}

var programs struct {
	sync.Mutex
	known map[string]program // by path; each is named once on standard error
}

// theProgram is the server that RATELIMIT_TEST_SERVER names, or the redis-server
// on the PATH.
func theProgram() (program, error) {
	set := os.Getenv(programVar)
	fail := func(format string, args ...any) (program, error) {
		what := fmt.Sprintf(format, args...)
		if set == "" {
			return program{}, fmt.Errorf("redis-server: %s", what)
		}
		return program{}, fmt.Errorf("%s is %q: %s; want the absolute path of a redis-server or valkey-server", programVar, set, what)
	}

	path, err := exec.LookPath(cmp.Or(set, "redis-server"))
	if err != nil {
		return fail("%v", err)
	}
	if !filepath.IsAbs(path) {
		return fail("each package is tested in its own directory")
	}
	programs.Lock()
	defer programs.Unlock()
	if p, ok := programs.known[path]; ok {
		return p, nil
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return fail("--version: %v", err)
	}

	p, ok := parseVersion(string(out))
	if !ok {
		return fail("--version says %q", strings.TrimSpace(string(out)))
	}

	p.path = path
	if programs.known == nil {
		programs.known = make(map[string]program)
	}
	programs.known[path] = p
	fmt.Fprintf(os.Stderr, "redistest: the tests use %s %s, %s\n", p.name, p.version, p.path)
	return p, nil
}

var versionForm = regexp.MustCompile(`^(\S+) server v=((\d+)\.\d+\.\d+)`)

// parseVersion reads the output of --version.
func parseVersion(line string) (p program, ok bool) {
	m := versionForm.FindStringSubmatch(line)
	if m == nil {
		return p, false
	}
	major, err := strconv.Atoi(m[3])
	return program{name: m[1], version: m[2], major: major}, err == nil
}

// since7 reports whether the server has the features of Redis 7.0. Valkey, which
// starts at 7.2, has them in every version.
func (p program) since7() bool { return p.major >= 7 }
