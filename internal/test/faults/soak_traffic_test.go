package faults

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/window"
)

const (
	soakRate = 300 // requests a second, on all servers together

	// late is how long a decision may take: the Timeout, and what a busy machine adds.
	// Those that take longer are counted. One in twenty may, for a machine that does other
	// things too, and none by more than slack and the time that the machine stood still.
	late = 50*time.Millisecond + 50*time.Millisecond
)

// bucketID is a bucket of the servers.
type bucketID struct{ store, policy, subject string }

// bucket is what was allowed of a key.
type bucket struct {
	limit   gcra.Limit
	policy  *soakPolicy
	calls   []window.Call
	checked int // of calls, in earlier episodes
}

// alone is what the servers may grant of a key in an outage, in units.
func (b *bucket) alone() int64 { return max(burstOf(b.limit), soakServers*b.policy.maxCost) }

func burstOf(l gcra.Limit) int64 { return cmp.Or(l.Burst, l.Count) }

// tally counts the answers of an episode.
type tally struct {
	requests, denied, degraded, late, wrong int
	took                                    []time.Duration
}

// client sends requests and keeps what was allowed.
type client struct {
	t         testing.TB
	transport *http.Transport
	servers   []string // their addresses
	start     time.Time
	policies  map[string]*soakPolicy

	mu      sync.Mutex
	buckets map[bucketID]*bucket
	tally   tally
	news    int // subjects that have come once
}

func newClient(t testing.TB, servers []string) *client {
	c := &client{t: t, servers: servers, start: time.Now(), buckets: make(map[bucketID]*bucket), policies: make(map[string]*soakPolicy),
		transport: &http.Transport{MaxIdleConnsPerHost: 64, ResponseHeaderTimeout: 3 * ample}}
	list := soakPolicies()
	for i := range list {
		c.policies[list[i].Name] = &list[i]
	}
	return c
}

// soakRequest is a request and what it is charged to.
type soakRequest struct {
	store, method, path, subject string
	policies                     []string
	cost                         int64  // of the policy work
	after                        string // what the handler does
	settle                       int64
}

// pick makes up a request: most go to the single Redis, and some subjects are hot, some
// come again, some come once.
func (c *client) pick() (q soakRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()

	q.store = soakStoreNames[[]int{0, 0, 0, 1, 2}[rand.IntN(5)]]
	switch n := rand.IntN(10); {
	case n < 4:
		q.subject = fmt.Sprint("hot", rand.IntN(3))
	case n < 8:
		q.subject = fmt.Sprint("user", rand.IntN(200))
	default:
		c.news++
		q.subject = fmt.Sprint("new", c.news)
	}

	q.method, q.cost = "GET", 1
	switch n := rand.IntN(10); {
	case n < 3:
		q.path, q.policies = "/hello", []string{"client"}
		if rand.IntN(4) == 0 {
			q.after = "refund"
		}
	case n < 5:
		q.path, q.policies = "/plan", []string{"client", "plan"}

	case n < 8:
		q.method, q.path, q.policies = "POST", "/work", []string{"client", "work"}
		q.cost = 1 + rand.Int64N(8)
		switch rand.IntN(4) {
		case 0:
			q.after = "refund"
		case 1:
			q.settle = rand.Int64N(9)
			q.after = fmt.Sprint("settle ", q.settle)
		}
	case n < 9:
		q.path, q.policies = "/queue", []string{"client", "queue"}
	default:
		// Used up again and again, by few subjects: a store remembers them until midnight.
		q.path, q.policies = "/quota", []string{"client", "quota"}
		q.subject = fmt.Sprintf("quota%d-%.0f", rand.IntN(20), time.Since(c.start).Minutes())
	}

	return q
}

// send sends a request to one of the servers, and returns its answer.
func (c *client) send(q soakRequest, server string) (*http.Response, error) {
	r, err := http.NewRequest(q.method, "http://"+server+"/"+q.store+q.path, nil)
	if err != nil {
		return nil, err
	}

	r.Header.Set("X-Client", q.subject)
	r.Header.Set("X-Cost", strconv.FormatInt(q.cost, 10))
	if q.after != "" {
		r.Header.Set("X-After", q.after)
	}
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}

	body, err := io.ReadAll(resp.Body)
	if err := cmp.Or(err, resp.Body.Close()); err != nil {
		return nil, err
	}

	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp, nil
}

// traffic sends requests at soakRate until stop is closed, and waits for their answers.
func (c *client) traffic(stop <-chan struct{}) {
	var wg sync.WaitGroup
	defer wg.Wait()

	room := make(chan struct{}, 300) // requests under way
	for next := time.Now(); ; next = next.Add(time.Second / soakRate) {
		if behind := time.Since(next); behind > time.Second/10 {
			next = next.Add(behind) // a machine that was busy elsewhere is not flooded
		}

		select {
		case <-stop:
			return
		case <-time.After(time.Until(next)):
		}

		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			q := c.pick()
			begin := time.Since(c.start)
			resp, err := c.send(q, c.servers[rand.IntN(len(c.servers))])
			end := time.Since(c.start)
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.complain("%s %s: %v", q.method, q.path, err)
				return
			}

			c.count(q, resp, begin, end)
		})
	}
}

// count records an answer; the caller holds c.mu.
func (c *client) count(q soakRequest, resp *http.Response, begin, end time.Duration) {
	n := &c.tally
	n.requests++
	took, err := strconv.ParseInt(resp.Header.Get("X-Took"), 10, 64)
	if err != nil {
		c.complain("X-Took: %v", err)
	}

	n.took = append(n.took, time.Duration(took))
	if time.Duration(took) > late {
		n.late++
	}
	if resp.Header.Get("X-Degraded") != "" {
		n.degraded++
	}
	if err := c.rightHeader(q, resp); err != nil {
		c.complain("%s %s of %s: %v\n%v", q.method, q.path, q.subject, err, resp.Header)
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		n.denied++
		return
	}

	for _, name := range q.policies {
		b := c.bucket(bucketID{q.store, name, q.subject})
		cost := int64(1)
		if name == "work" {
			cost = q.cost
		}

		b.calls = append(b.calls, window.Call{Begin: begin, End: end, Units: cost})
		switch {
		case q.after == "refund":
			b.calls = append(b.calls, window.Call{Begin: begin, End: end, Units: -cost}) // of one that failed it is not known
		case q.after != "" && name == "work":
			rest := q.settle - cost
			if rest < 0 || rest > 0 && resp.Header.Get("X-After") == "" {
				b.calls = append(b.calls, window.Call{Begin: begin, End: end, Units: rest})
			}
		}
	}
}

// bucket returns the bucket of a key; the caller holds c.mu.
func (c *client) bucket(id bucketID) *bucket {
	b := c.buckets[id]
	if b == nil {
		p := c.policies[id.policy]
		b = &bucket{limit: p.limitOf(id.subject), policy: p}
		c.buckets[id] = b
	}
	return b
}

// complain fails the test, with few words however often it happens; the caller holds
// c.mu.
func (c *client) complain(format string, args ...any) {
	if c.tally.wrong++; c.tally.wrong <= 3 {
		c.t.Errorf(format, args...)
	}
}

// rightHeader checks that an answer tells the client what docs/responses.md promises.
func (c *client) rightHeader(q soakRequest, resp *http.Response) error {
	h := resp.Header
	var limit, remaining, reset int64
	for name, to := range map[string]*int64{"Ratelimit-Limit": &limit, "Ratelimit-Remaining": &remaining, "Ratelimit-Reset": &reset} {
		n, err := strconv.ParseInt(h.Get(name), 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*to = n
	}

	largest := int64(0)
	for _, name := range q.policies {
		largest = max(largest, burstOf(c.policies[name].limitOf(q.subject)))
	}

	switch {
	case limit < 1 || limit > largest || remaining < 0 || reset < 0 || h.Get("Ratelimit-Policy") == "":
		return fmt.Errorf("limit, remaining and reset are %d, %d and %d; want at most %d, and none negative, with a Ratelimit-Policy", limit, remaining, reset, largest)
	case resp.StatusCode == http.StatusOK:
		if h.Get("Retry-After") != "" {
			return fmt.Errorf("Retry-After with %s", resp.Status)
		}
		return nil
	case resp.StatusCode != http.StatusTooManyRequests:
		return fmt.Errorf("got %s; want 200 or 429", resp.Status)
	}

	retry, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || retry < 1 || h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != "application/problem+json" {
		return fmt.Errorf("a denial without its Retry-After, Cache-Control or Content-Type")
	}

	var problem struct {
		Violated []string `json:"violated-policies"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil {
		return err
	}
	if len(problem.Violated) == 0 || slices.ContainsFunc(problem.Violated, func(s string) bool { return !slices.Contains(q.policies, s) }) {
		return fmt.Errorf("violated-policies are %q; want some of %q", problem.Violated, q.policies)
	}
	return nil
}
