package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/access.log anew")

// The log that docs/rollout.md replays is made up, and here is how.
func TestSample(t *testing.T) {
	const name = "testdata/access.log"
	want := sampleLog()
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what sampleLog makes (%v); want it so, see -update", name, err)
	}
}

// What docs/rollout.md shows of the report is in it.
func TestRollout(t *testing.T) {
	page, err := os.ReadFile("../../docs/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile("testdata/report.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, excerpt, found := bytes.Cut(page, []byte("```text\npolicy "))
	excerpt, _, closed := bytes.Cut(excerpt, []byte("```"))
	if !found || !closed || !bytes.Contains(report, excerpt) {
		t.Errorf("got\n%s\nwant it in\n%s", excerpt, report)
	}
}

// sampleLog is a morning of an API server: visitors who come and go, an office
// behind one address, somebody who fetches reports all the time, somebody who
// guesses passwords from many addresses of one network, and lines as servers
// write them of what is no request.
func sampleLog() []byte {
	chance := rand.New(rand.NewPCG(1, 2))
	start := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	type visit struct {
		at   time.Duration
		line string
	}
	var visits []visit
	request := func(at time.Duration, client, user, request string, status int) {
		visits = append(visits, visit{at, fmt.Sprintf(`%s - %s [%s] "%s HTTP/1.1" %d %d "-" "app/2.1"`,
			client, user, start.Add(at).Format("02/Jan/2006:15:04:05 -0700"), request, status, 20+chance.IntN(400))})
	}
	upTo := func(d time.Duration) time.Duration { return time.Duration(chance.Int64N(int64(d))) }
	// A session is a login, and then pages that need several requests each.
	session := func(at time.Duration, client, user string, pages int) {
		request(at, client, "-", "POST /login", 200)
		for range pages {
			at += 5*time.Second + upTo(40*time.Second)
			request(at, client, user, "GET /me", 200)
			for range 1 + chance.IntN(5) {
				request(at+upTo(2*time.Second), client, user, "GET /hello", 200)
			}
			if chance.IntN(4) == 0 {
				request(at+upTo(3*time.Second), client, user, "GET /report?day=2026-11-19", 200)
			}
		}
	}
	names := []string{"alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"}

	const morning = 4 * time.Hour
	for n := range 120 {
		client := fmt.Sprintf("192.0.2.%d", 10+n)
		if n%4 == 0 {
			client = fmt.Sprintf("2001:db8:%x::%x", 0x100+n, 1+chance.IntN(1000))
		}
		session(upTo(morning-5*time.Minute), client, fmt.Sprintf("user%d", n), 1+chance.IntN(5))
	}
	for at := 30 * time.Minute; at < morning-15*time.Minute; at += upTo(6 * time.Minute) {
		session(at, "192.0.2.200", names[chance.IntN(len(names))], 1+chance.IntN(6))
	}
	for at := 75 * time.Minute; at < 79*time.Minute; at += 600*time.Millisecond + upTo(time.Second) {
		request(at, "192.0.2.66", "mallory", fmt.Sprintf("GET /report?day=2026-%02d-%02d", 1+chance.IntN(10), 1+chance.IntN(28)), 200)
	}
	for at := 150 * time.Minute; at < 162*time.Minute; at += time.Second + upTo(5*time.Second) {
		request(at, fmt.Sprintf("2001:db8:bad:1:%x::%x", chance.IntN(1<<16), chance.IntN(1<<16)), "-", "POST /login", 401)
	}
	for at := time.Duration(0); at < morning; at += 2 * time.Minute {
		request(at, "192.0.2.5", "-", "GET /healthz", 200)
	}
	for _, at := range []time.Duration{41 * time.Minute, 97 * time.Minute, 198 * time.Minute} {
		when := start.Add(at).Format("02/Jan/2006:15:04:05 -0700")
		visits = append(visits,
			visit{at, fmt.Sprintf(`192.0.2.250 - - [%s] "\x16\x03\x01\x02\x00\x01\x00" 400 157 "-" "-"`, when)},
			visit{at + 20*time.Second, fmt.Sprintf(`192.0.2.250 - - [%s] "-" 408 0 "-" "-"`, when)})
	}
	slices.SortStableFunc(visits, func(a, b visit) int { return cmp.Compare(a.at, b.at) })
	var log bytes.Buffer
	for _, v := range visits {
		fmt.Fprintln(&log, v.line)
	}
	return log.Bytes()
}
