package test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

// exchange is a request that was sent and its response.
type exchange struct {
	sent   time.Time
	status int
	window string // the header Window of the response, with which some partners name their window
}

// exchanges is the http.RoundTripper below a client under test. It records what is sent.
type exchanges struct {
	base http.RoundTripper
	mu   sync.Mutex
	log  []exchange
}

func (x *exchanges) RoundTrip(r *http.Request) (*http.Response, error) {
	e := exchange{sent: time.Now()}
	response, err := x.base.RoundTrip(r)
	if err == nil {
		e.status, e.window = response.StatusCode, response.Header.Get("Window")
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.log = append(x.log, e)
	return response, err
}

// denials counts denied requests.
type denials struct {
	all, mostInWindow int
	windows           int // with at least one
}

func (x *exchanges) denials() (d denials) {
	x.mu.Lock()
	defer x.mu.Unlock()
	windows := map[string]int{}
	for _, e := range x.log {
		if e.status == http.StatusTooManyRequests || e.status == http.StatusForbidden {
			d.all++
			windows[e.window]++
			d.mostInWindow = max(d.mostInWindow, windows[e.window])
		}
	}
	d.windows = len(windows)
	return d
}

// windows returns how many windows of the partner had requests.
func (x *exchanges) windows() int {
	windows := map[string]bool{}
	for _, e := range x.log {
		windows[e.window] = true
	}
	return len(windows)
}

type clientUnderTest struct {
	name    string
	repeats bool // sends a denied request again
	build   func(cfg httpclient.Config) http.RoundTripper
}

// clients are the clients under test, with default settings.
var clients = []clientUnderTest{
	{"Transport", true, func(cfg httpclient.Config) http.RoundTripper {
		return httpclient.Must(httpclient.New(cfg))
	}},
	{"Transport on Adaptive", true, func(cfg httpclient.Config) http.RoundTripper {
		cfg.Base = &httpclient.Adaptive{Base: cfg.Base}
		return httpclient.Must(httpclient.New(cfg))
	}},
	{"Adaptive", false, func(cfg httpclient.Config) http.RoundTripper {
		return &httpclient.Adaptive{Base: cfg.Base}
	}},
}

// A workload is what a client does: callers that make their calls one after the other.
type workload struct {
	callers, calls int
	config         httpclient.Config                       // with the Base that reaches the partner
	request        func(t *testing.T, n int) *http.Request // the n-th
	virtual        bool                                    // in virtual time; the Base has no sockets
}

// callsEach is how many calls a caller makes of a server that allows some each second.
func callsEach() int {
	if long {
		return 8
	}
	return 4
}

// get returns requests for a URL. Their header Client is the test's name: each client has a limit of its own.
func get(url string) func(*testing.T, int) *http.Request {
	return func(t *testing.T, _ int) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Client", t.Name())
		return r
	}
}

// mostTries bounds how often a caller of an Adaptive alone makes the same call.
const mostTries = 20

// run does the workload with each client, at once, and passes what was sent to check. All calls must
// get a 200, from an Adaptive alone after asking again. The table's row begins with the names.
func (w workload) run(t *testing.T, tab *table, name string, check func(t *testing.T, client string, x *exchanges)) {
	for _, c := range clients {
		t.Run(fmt.Sprint(name, ", ", c.name), func(t *testing.T) {
			t.Parallel()
			if !w.virtual {
				w.runClient(t, tab, name, c, check)
				return
			}
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(rand.N(time.Second)) // the bubble begins at a whole one
				w.runClient(t, tab, name, c, check)
			})
		})
	}
}

func (w workload) runClient(t *testing.T, tab *table, name string, c clientUnderTest, check func(t *testing.T, client string, x *exchanges)) {
	cfg := w.config
	if cfg.Base == nil {
		base := &http.Transport{MaxIdleConnsPerHost: w.callers}
		t.Cleanup(base.CloseIdleConnections)
		cfg.Base = base
	}
	x := &exchanges{base: cfg.Base}
	cfg.Base = x
	client := &http.Client{Transport: c.build(cfg)}

	begin := time.Now()
	var wg sync.WaitGroup
	for caller := range w.callers {
		wg.Go(func() {
			for call := range w.calls {
				tries := 1
				if !c.repeats {
					tries = mostTries
				}
				if !w.call(t, client, caller*w.calls+call, tries) {
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)

	d := x.denials()
	tab.add(name, c.name, w.callers*w.calls, len(x.log), d.all, d.mostInWindow, x.windows(), took.Round(100*time.Millisecond))
	check(t, c.name, x)
}

// columns are those of the rows that run adds.
var columns = []string{"partner", "client", "calls", "sent", "denied", "most denied in a window", "windows", "took"}

// call makes the n-th call, up to so many times if it is denied. It reports whether it got a 200.
func (w workload) call(t *testing.T, client *http.Client, n, tries int) bool {
	status := 0
	for range tries {

		response, err := client.Do(w.request(t, n))

		if err != nil {
			t.Error(err)
			return false
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil {
			t.Error(err)
			return false
		}
		if status = response.StatusCode; status == http.StatusOK {
			return true
		}
	}
	t.Errorf("call %d got %d after %d tries; want 200", n, status, tries)
	return false
}

// startProgram starts a server until the test ends and returns the first line that it prints.
func startProgram(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("%v ended: %v\n%s", cmd.Args, err, errs.String())
	}
	go io.Copy(io.Discard, lines)        // until its end
	t.Cleanup(func() { _ = cmd.Wait() }) // the end of t.Context kills it
	return strings.TrimSpace(line)
}
