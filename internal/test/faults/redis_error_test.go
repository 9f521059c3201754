package faults

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// outage makes calls until the store logs an outage, and fails the test if the log
// does not give the reason, a regular expression.
func outage(t *testing.T, o *outcome, r *rig, reason string) {
	t.Helper()
	redistest.Eventually(t, ample, "the store to notice "+reason, func() bool {
		if _, err := o.take(r, plenty("somebody")); err == nil {
			return false
		}
		return len(r.log.Lines(isAway)) > 0
	})
	if log := strings.Join(r.log.Lines(""), "\n"); !regexp.MustCompile(reason).MatchString(log) {
		t.Errorf("the log does not say %q:\n%s", reason, log)
	}
}

func TestFault07RedisBusyWithAScript(t *testing.T) {
	o := apart(t, "a script that never ends: BUSY")
	server := redistest.Start(t, "--lua-time-limit", "50")
	r := rigAt(t, server.URL(), config{Timeout: time.Second})
	works(t, r)

	neighbour := server.Options()
	neighbour.MaxRetries, neighbour.ReadTimeout = -1, ample
	done := make(chan error)
	other := closing(t, redis.NewClient(neighbour))
	go func() {
		done <- other.Eval(context.Background(), "while true do end", nil).Err()
	}()

	outage(t, o, r, "BUSY")
	redistest.Eventually(t, ample, "the script to be killed", func() bool {
		return server.Client().ScriptKill(context.Background()).Err() == nil
	})
	if err := <-done; err == nil {
		t.Error("the other client's script ended by itself")
	}
	o.recovers(t, r, probing)
	o.inTime(t, r.Timeout)
}

// A server that loads its data answers each command with an error.
func TestFault28RedisLoading(t *testing.T) {
	o := apart(t, "restart with a large RDB")
	// It answers after every 2 MB that it has loaded, about every 100 ms.
	server := redistest.Start(t, "--rdbcompression", "no", "--key-load-delay", "500")
	r := rigAt(t, server.URL(), config{Timeout: time.Second}) // a new connection takes three answers
	works(t, r)
	do(t, server, "debug", "populate", amount(4000, 10_000), "filler", 10_000)
	mustTake(t, r, daily("kept", 10))
	do(t, server, "save")
	server.Kill()
	up := make(chan struct{})
	go func() {
		defer close(up)
		server.Restart()
	}()

	loading := 0
	redistest.Eventually(t, ample, "the server to have loaded", func() bool {
		_, err := o.take(r, plenty("somebody"))
		if err != nil && strings.Contains(err.Error(), "LOADING") {
			loading++
		}
		return err == nil
	})

	<-up
	if loading == 0 {
		t.Error("no call was made while the server was loading")
	}
	if n := spent(t, r.witness(t, server.Client()), daily("kept", 10)); n != 1 {
		t.Errorf("after the restart %d units are gone; want the 1 that was saved", n)
	}
	o.inTime(t, r.Timeout)
}

// A server that accepts no writes still denies requests correctly, because the
// script reads first and writes last. It fails requests that it would allow.
func refusesWrites(t *testing.T, o *outcome, server *redistest.Server, reason string, inject, heal func()) {
	t.Helper()
	r := rigAt(t, server.URL(), config{Timeout: time.Second, DenialTTL: -1})
	works(t, r)
	full := daily("used up", 3)
	for range 3 {
		mustTake(t, r, full)
	}
	w := r.witness(t, server.Client())
	inject()
	redistest.Eventually(t, ample, reason, func() bool {
		_, err := gcra.Take(t.Context(), w, plenty("somebody"))
		return err != nil && strings.Contains(err.Error(), reason)
	})

	for range 2 { // a third failure in a row opens the breaker
		if _, err := o.take(r, daily("fresh", 3)); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("a call that would be allowed: got %v; want %s", err, reason)
		}
		if res, err := o.take(r, full); err != nil || res.Allowed || res.RetryAfter <= 0 {
			t.Errorf("a call that is denied: got %+v, %v; want it denied, with RetryAfter", res, err)
		}
	}

	outage(t, o, r, reason)
	heal()
	o.recovers(t, r, probing)

	if n := spent(t, w, daily("fresh", 3)); n != 0 {
		t.Errorf("%d units were charged by calls that failed with %s; want none", n, reason)
	}
	if n := spent(t, w, full); n != 3 {
		t.Errorf("%d of 3 units are gone from a bucket that was used up", n)
	}
	o.inTime(t, r.Timeout)
}

func TestFault29RedisOutOfMemory(t *testing.T) {
	o := apart(t, "maxmemory reached, noeviction")
	server := redistest.Start(t)
	refusesWrites(t, o, server, "OOM",
		func() { do(t, server, "config", "set", "maxmemory", "1") },
		func() { do(t, server, "config", "set", "maxmemory", "0") })
}

// A key that Redis evicts is a fresh burst. The limiter cannot see evictions; Redis
// counts them.
func TestFault30EvictionCostsABurstAndIsCounted(t *testing.T) {
	o := apart(t, "maxmemory reached, allkeys-lru and volatile-ttl")
	for _, policy := range []string{"allkeys-lru", "volatile-ttl"} {
		server := redistest.Start(t, "--maxmemory-policy", policy)
		r := rigAt(t, server.URL(), config{Timeout: ample, DenialTTL: -1})
		works(t, r)

		const burst = 5
		var allowed, losses int64
		for range amount(3, 20) {
			for range burst + 2 {
				res, err := o.take(r, daily("victim", burst))
				if err != nil {
					t.Fatalf("%s: %v; want no error when keys are evicted", policy, err)
				}
				if res.Allowed {
					allowed++
				}
			}

			// Other keys fill the memory until this key is gone.
			if policy == "allkeys-lru" {
				do(t, server, "debug", "populate", 500, fmt.Sprint("filler", losses), 1000)
			}
			gone := false
			for i := 0; i < 500 && !gone; i++ {
				do(t, server, "config", "set", "maxmemory", 1)
				gone = server.Client().Exists(t.Context(), r.Prefix+"{victim}:p").Val() == 0
			}

			do(t, server, "config", "set", "maxmemory", 0)
			if !gone {
				t.Fatalf("%s: the key was not evicted", policy)
			}
			losses++
		}

		if evicted := redistest.Stat(t, server.Client(), "stats", "evicted_keys:"); int64(evicted) < losses {
			t.Errorf("%s: Redis has counted %d evictions; want at least %d", policy, evicted, losses)
		}
		o.atMost(t, allowed, burst*losses, fmt.Sprintf("%s, %d evictions", policy, losses))
		if allowed != burst*losses {
			t.Errorf("%s: %d allowed; want %d, a burst for each eviction", policy, allowed, burst*losses)
		}
	}
}

// Credentials that are changed while the store runs: requests follow OnFailure, a
// line in the log gives the reason, and the store recovers once they are right.
func TestFault33CredentialsRotated(t *testing.T) {
	o := apart(t, "ACL SETUSER: password, command, keys")
	server := redistest.Start(t)
	const grant = "+evalsha +eval +script|load +get +mget +set +time +hello +client +ping"
	setUser := func(rules string) {
		do(t, server, append([]any{"acl", "setuser", "limiter"}, fields(rules)...)...)
	}

	for _, tt := range []struct {
		name, reason string
		revoke       string
	}{
		{"password", "WRONGPASS", "resetpass >new"},
		{"user switched off", "WRONGPASS", "off"},
		{"the script", "NOPERM", "-evalsha"},
		{"keys", "NOPERM", "resetkeys ~other*"},
		{"a command within the script", "user executing the script|ACL failure in script", "-set"}, // before Redis 7.2|since, and Valkey
	} {
		setUser("reset on >secret ~* " + grant)
		r := rigAt(t, "redis://limiter:secret@"+server.Addr, config{Timeout: time.Second})
		works(t, r)
		setUser(tt.revoke)
		do(t, server, "client", "kill", "user", "limiter") // as a server that restarts does
		outage(t, o, r, tt.reason)
		setUser("reset on >secret ~* " + grant)
		o.recovers(t, r, probing)

		if strings.Contains(strings.Join(r.log.Lines(""), "\n"), "secret") {
			t.Errorf("%s: the log repeats the password", tt.name)
		}
		if n := len(r.log.Lines(isAway)); n != 1 {
			t.Errorf("%s: got %d log lines about the outage; want 1", tt.name, n)
		}
	}

	o.inTime(t, time.Second)
}

// A server without free connections gets few attempts to connect.
func TestFault34NoConnectionLeft(t *testing.T) {
	o := apart(t, "no connection left")
	server := redistest.Start(t)
	r := rigAt(t, server.URL(), config{})
	works(t, r)
	do(t, server, "config", "set", "maxclients", 5)
	do(t, server, "client", "kill", "type", "normal", "skipme", "yes")
	var others []net.Conn
	defer func() {
		for _, c := range others {
			_ = c.Close()
		}
	}()

	for len(others) < 8 { // some connect before the store's spare connections do
		c, err := net.Dial("tcp", server.Addr)
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, c)
	}

	outage(t, o, r, "") // the reason is often lost: Redis closes the connection before a command
	before := redistest.Stat(t, server.Client(), "stats", "rejected_connections:")

	d := phase(1500*time.Millisecond, 10*time.Second)
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := o.take(r, plenty("somebody")); err == nil {
			t.Fatal("a server without free connections has answered")
		}
	}

	if n, most := redistest.Stat(t, server.Client(), "stats", "rejected_connections:")-before, 10+10*int(d/(500*time.Millisecond)); n > most {
		t.Errorf("%d connections were rejected in %v; want at most %d", n, d, most)
	}
	do(t, server, "config", "set", "maxclients", 1000)
	o.recovers(t, r, probing)
	o.inTime(t, budget)
}

// A Redis that loses its data gives every key one more burst, and no more.
func TestFault35RedisForgetsEverything(t *testing.T) {
	o := apart(t, "FLUSHALL, restart without persistence")
	server := redistest.Start(t)
	r := rigAt(t, server.URL(), config{Timeout: ample, DenialTTL: -1})
	works(t, r)

	const burst, rounds = 10, 5
	var allowed int64
	for round := range rounds {
		for range 2 * burst {
			res, err := o.take(r, daily("hit", burst))
			if err != nil {
				t.Fatalf("round %d: %v; want no error", round, err)
			}
			if res.Allowed {
				allowed++
			}
		}

		if round%2 == 0 {
			do(t, server, "flushall")
		} else {
			server.Restart()
			redistest.Eventually(t, ample, "the store to find the restarted server", func() bool { return answers(r) })
		}
	}

	o.atMost(t, allowed, burst*rounds, "a burst for each loss of data")
	if allowed != burst*rounds {
		t.Errorf("%d allowed; want %d", allowed, burst*rounds)
	}
}
