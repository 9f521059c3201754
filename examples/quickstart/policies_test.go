package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// copied is policies.yaml in a place where it can be changed.
func copied(t *testing.T) (path, text string) {
	t.Helper()
	b, err := os.ReadFile("policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "policies.yaml")
	write(t, path, string(b))
	return path, string(b)
}

// write replaces the file, as editors do.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

// says waits for the process to write the text so many times.
func (p *process) says(text string, times int) {
	p.t.Helper()
	redistest.Eventually(p.t, patience, "it to say "+text, func() bool { return strings.Count(p.out.String(), text) == times })
}

var refill = regexp.MustCompile(`;t=\d+`)

// left is what an answer in the form of draft 11 says of each limit, but for the
// time, which goes on.
func left(answer string) string { return refill.ReplaceAllString(header(answer, "RateLimit"), "") }

// The limits are those of the file, with every framework, and a change holds
// for what has been used up before.
func TestPolicies(t *testing.T) {
	t.Parallel()
	path, text := copied(t)
	all := start3(t, "-policies", path)
	hello := request("GET", "/hello", "")
	for _, p := range all {
		p.says("Policies of "+path+": hello 10/minute, login 5/minute, burst 5/second, report 5/second, daily 100/day or by plan, everybody 300/minute burst 50 (shadow)\n", 1)
	}
	for n, want := range []string{"9", "8", "7", "6"} {
		if answer := same(t, all, hello); status(answer) != http.StatusOK || header(answer, "RateLimit-Remaining") != want {
			t.Errorf("hello %d: got %q; want 200 and %s remaining", n+1, answer, want)
		}
	}

	var done atomic.Bool
	var load sync.WaitGroup
	for i, p := range all {
		load.Go(func() {
			for !done.Load() {
				if answer := p.get("/healthz"); status(answer) != http.StatusOK {
					t.Errorf("%s: a request during the change: got %q; want 200", frameworkNames[i], answer)
					return
				}
			}
		})
	}
	write(t, path, strings.Replace(text, "10/minute", "10/minute burst 5", 1))
	for _, p := range all {
		p.says(": hello 10/minute burst 5,", 1)
	}
	done.Store(true)
	load.Wait()
	if answer := same(t, all, hello); status(answer) != http.StatusOK || header(answer, "RateLimit-Remaining") != "0" {
		t.Errorf("hello 5 of 5: got %q; want 200 and 0 remaining", answer)
	}
	if answer := same(t, all, hello); status(answer) != http.StatusTooManyRequests {
		t.Errorf("hello 6 of 5: got %q; want 429", answer)
	}
}

// What a policy takes and who is counted is the same with every framework.
func TestPoliciesNames(t *testing.T) {
	t.Parallel()
	path, _ := copied(t)
	all := start3(t, "-policies", path, "-headers", "draft11")
	for _, step := range []struct {
		name, request string
		status        int
		limits        string
	}{
		{"a report costs three", request("GET", "/report", "", as(t, "alice")), 200, `"report";r=2, "daily";r=99`},
		{"another user", request("GET", "/me", "", as(t, "bob")), 200, `"burst";r=4, "daily";r=99`},
		{"a user of plan pro", request("GET", "/me", "", as(t, "pro-carol")), 200, `"burst";r=4, "daily";r=499`},
		{"nobody, by address and by the slowest plan", request("GET", "/me", ""), 401, `"burst";r=4, "daily";r=99`},
		{"a wrong token, by address, too", request("GET", "/report", "", "Authorization: Bearer x"), 401, `"report";r=2, "daily";r=98`},
		{"no limit", request("GET", "/healthz", ""), 200, ""},
	} {
		for i, p := range all {
			answer := p.send(step.request)
			if got := left(answer); status(answer) != step.status || got != step.limits {
				t.Errorf("%s: %s: got %d and RateLimit %s; want %d and %s", step.name, frameworkNames[i], status(answer), got, step.status, step.limits)
			}
		}
	}
}

// A broken file changes nothing and says why, with line and column; mended it
// holds. SIGHUP reads it at once, changed or not.
func TestPoliciesBroken(t *testing.T) {
	t.Parallel()
	path, text := copied(t)
	p := start(t, nil, "-policies", path)
	p.says("Policies of ", 1)

	write(t, path, strings.NewReplacer("10/minute", "10/minit", "on_failure: closed", "on_failure: shut").Replace(text))
	p.says("Policies stay as they were:\n"+
		path+`:13:12: limit is "10/minit": period is "minit"; want second, minute, hour, day or a duration such as 5s`+"\n"+
		path+`:19:17: on_failure is "shut"; want local, open or closed`+"\n", 1)
	if answer := p.get("/hello"); header(answer, "RateLimit-Limit") != "10" {
		t.Errorf("hello: got %q; want the limit before", answer)
	}

	write(t, path, strings.Replace(text, "10/minute", "7/minute", 1))
	p.says(": hello 7/minute,", 1)
	p.signal(syscall.SIGHUP)
	p.says(": hello 7/minute,", 2)
	if answer := p.get("/hello"); header(answer, "RateLimit-Limit") != "7" {
		t.Errorf("hello: got %q; want the new limit", answer)
	}
}

// closing is a terminal that is closed once the program has said hello.
type closing struct {
	output
	closed chan struct{}
	once   sync.Once
}

func (c *closing) Write(b []byte) (int, error) {
	if strings.Contains(c.String(), "Ctrl-C") {
		c.once.Do(func() { close(c.closed) })
		return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EIO}
	}
	return c.output.Write(b)
}

// With a file SIGHUP does not end the server, so a terminal that is gone does.
func TestTerminalGone(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	t.Setenv("JWT_SECRET", "")
	out := &closing{closed: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- run([]string{"-addr", "127.0.0.1:0", "-policies", "policies.yaml"}, out) }()
	select {
	case err := <-ended:
		select {
		case <-out.closed:
		default:
			t.Fatalf("it ends with %v before its terminal does", err)
		}
		if err != nil {
			t.Errorf("got %v; want no error", err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on without its terminal")
	}
	if want := "kill -HUP " + strconv.Itoa(os.Getpid()); !strings.Contains(out.String(), want) {
		t.Errorf("it says %q; want %q in it", out.String(), want)
	}
}

// Every mistake is a line, and the server does not start.
func TestPoliciesMistakes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	code, _, errs := ended(t, nil, "-policies", path)
	if code != 1 || !strings.HasPrefix(errs, "quickstart: ") || !strings.Contains(errs, path) {
		t.Errorf("no file: got exit %d and %q; want exit 1 and its name", code, errs)
	}
	write(t, path, "policies:\n  - key: clients\n    limit: 10\n    name: a\n")
	code, out, errs := ended(t, nil, "-policies", path)
	want := "quickstart: " + path + ":2:10: key is \"clients\"; want client, route or user (did you mean client?)\n" +
		"quickstart: " + path + ":3:12: limit is 10; want a limit such as 100/minute\n"
	if code != 1 || out != "" || errs != want {
		t.Errorf("got exit %d, %q and\n%s; want exit 1, nothing and\n%s", code, out, errs, want)
	}
}

// What the program registers beside keys by client and user is there with every
// framework, too.
func TestPoliciesFuncs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, path, "policies:\n"+
		"- {name: route, key: route, limit: 10/day}\n"+
		"- {name: units, key: user, limit: 10/day, cost: work}\n")
	all := start3(t, "-policies", path, "-headers", "draft11")
	for _, step := range []struct{ name, request, left string }{
		{"a report costs three", request("GET", "/report", "", as(t, "alice")), `"route";r=9, "units";r=7`},
		{"the same route of another user", request("GET", "/report", "", as(t, "bob")), `"route";r=8, "units";r=7`},
		{"another route", request("GET", "/me", "", as(t, "alice")), `"route";r=9, "units";r=6`},
	} {
		for i, p := range all {
			if got := left(p.send(step.request)); got != step.left {
				t.Errorf("%s: %s: got RateLimit %s; want %s", step.name, frameworkNames[i], got, step.left)
			}
		}
	}
}
