package faults

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// limitedURL makes this test binary a limited server of TestFault87: the URL of its Redis.
const limitedURL = "RATELIMIT_FAULTS_LIMITED"

// hourly is how many requests a limited server allows a client in an hour, and at once.
const hourly = 60

// limitedServer is a server with the default settings, under traffic. For each line
// that it reads, a client, it writes how many servers it counts, and how many of the
// client's requests it allows.
func limitedServer(url string, in io.Reader, out io.Writer) error {
	store, err := redisstore.Open(url, config{Logger: silence})
	if err != nil {
		return err
	}
	defer store.Close()
	limit := ratelimit.New(middleware.Config{Store: store, Logger: silence},
		middleware.Policy{Name: "all", Key: byClient, Limit: gcra.PerSecond(1000), Routes: []string{"/traffic"}},
		middleware.Policy{Name: "hourly", Key: byClient, Limit: gcra.PerHour(hourly), Routes: []string{"/hourly"}})
	server := httptest.NewServer(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()

	get := func(path, client string) (allowed bool) {
		r, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		if err != nil {
			panic(err)
		}

		r.Header.Set("X-Client", client)
		resp, err := server.Client().Do(r)
		if err != nil {
			panic(err)
		}
		if err := resp.Body.Close(); err != nil {
			panic(err)
		}
		return resp.StatusCode == http.StatusOK
	}
	defer during(func() { get("/traffic", "someone"); time.Sleep(20 * time.Millisecond) })()

	for lines := bufio.NewScanner(in); lines.Scan(); {
		n := 0
		for range hourly + 1 {
			if get("/hourly", lines.Text()) {
				n++
			}
		}
		fmt.Fprintln(out, store.Stats().Instances, n)
	}

	return nil
}

// ask returns the count of a limited server, and how many of the client's requests it allows.
func ask(t *testing.T, p *redistest.Process, client string) (instances, allowed int) {
	t.Helper()
	p.Write(client)
	if _, err := fmt.Sscan(p.Read(), &instances, &allowed); err != nil {
		t.Fatal(err)
	}
	return instances, allowed
}

// Without Instances each server grants its share of a limit while Redis is away, and the
// shares follow the number of servers: three, then five, then two. A server that has never
// reached Redis grants the whole limit.
func TestFault87SharesFollowTheNumberOfServers(t *testing.T) {
	o := apart(t, "servers start and stop, Redis goes away in between")
	redis := redistest.Start(t)

	proxy := redistest.NewProxy(t, redis.Addr)
	var servers []*redistest.Process
	start := func(n int) {
		for range n {
			servers = append(servers, redistest.StartProcess(t, limitedURL, "redis://"+proxy.Addr))
		}
	}

	asked := 0
	counted := func(n int) {
		t.Helper()
		began := time.Now()

		for _, p := range servers {
			redistest.Eventually(t, ample, fmt.Sprintf("a count of %d servers", n), func() bool {
				asked++
				got, _ := ask(t, p, fmt.Sprint("counting", asked))
				return got == n
			})
		}

		took := time.Since(began)
		o.recovery = max(o.recovery, took)
		t.Logf("all of %d servers count %[1]d after %v", n, took)
	}

	shares := func(client string, want int) {
		t.Helper()
		total := 0
		for i, p := range servers {
			n, allowed := ask(t, p, client)
			if total += allowed; n != len(servers) || allowed != want {
				t.Errorf("%s, server %d: counts %d and allows %d requests; want %d and %d", client, i, n, allowed, len(servers), want)
			}
		}

		o.requests.Add(int64(len(servers) * (hourly + 1)))
		o.over.Add(int64(max(total-hourly, 0)))
	}

	start(3)
	counted(3)
	redis.Kill()
	shares("client in the first outage", hourly/3)

	redis.Restart()
	start(2)
	counted(5)
	proxy.Blackhole()
	shares("client in the second outage", hourly/5)

	proxy.Pass()
	for _, p := range servers[2:] {
		p.Kill()
	}
	servers = servers[:2]
	counted(2)
	redis.Kill()
	shares("client in the third outage", hourly/2)

	start(1)
	if n, allowed := ask(t, servers[2], "client of a new server"); n != 0 || allowed != hourly {
		t.Errorf("a server that has never reached Redis counts %d and allows %d requests; want 0 and %d", n, allowed, hourly)
	}
}
