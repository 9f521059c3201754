package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

func top(t *testing.T, args ...string) map[string]list {
	t.Helper()
	var lists []list
	if err := json.Unmarshal([]byte(want(t, 0, append([]string{"top", "--json"}, args...))), &lists); err != nil {
		t.Fatal(err)
	}
	all := map[string]list{}
	for _, l := range lists {
		all[l.Policy+l.Calendar] = l
	}
	return all
}

// top lists the most used subjects of each policy, those in debt first, and how much they
// have used. Keys that are no buckets do not matter.
func TestTop(t *testing.T) {
	s := server(t)
	want(t, 0, []string{"top"}, "no bucket is in use")
	busy(t, s)
	for i := range 30 {
		charge(t, s, gcra.Charge{Subject: fmt.Sprint("ip:192.0.2.", 100+i), Policy: "client", Limit: gcra.PerHour(10), Cost: int64(1 + i/10)})
	}

	long := "sub:" + strings.Repeat("x", 100)
	charge(t, s, gcra.Charge{Subject: long, Policy: "rows", Limit: gcra.PerHour(60)})

	for key, value := range map[string]any{"rl:{x}:client": "text", "rl:{y}:client": "1", "other": "1", "rl:{z}:client~fortnight": "1"} {
		if err := s.Client().Set(t.Context(), key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Client().RPush(t.Context(), "rl:{list}:client", "1").Err(); err != nil {
		t.Fatal(err)
	}

	lists := top(t, "--policies", file(t, sample), "-n", "3")
	client := lists["client"]
	if client.InUse != 32 || len(client.Subjects) != 3 {
		t.Fatalf("got %+v; want 32 in use, 3 of them listed", client)
	}
	if u := client.Subjects[0]; u.Subject != "ip:192.0.2.7" || u.Used != 10 || u.Limit != "10/hour" || u.FullAfter < 3500 {
		t.Errorf("client: got %+v; want ip:192.0.2.7, which has used 10 of 10", u)
	}

	for _, u := range client.Subjects[1:] {
		if u.Used != 3 && (u.Subject != "ip:198.51.100.7" || u.Used != 5 || u.Limit != "20/hour") {
			t.Errorf("client: got %+v; want one that has used 3 of 10", u)
		}
	}

	if u := lists["monthmonth"].Subjects[0]; u.Used != 120 || u.PeriodEnds == nil {
		t.Errorf("month: got %+v; want 120 used", u)
	}
	if l := lists["rows"]; l.Subjects[0].Used != 80 || !strings.HasPrefix(l.Subjects[1].Subject, "%#") {
		t.Errorf("rows: got %+v; want 80 used, and a hash", l)
	}
	if u := lists["plan"].Subjects[0]; u.Used != 0 || u.FullAfter < 170 || u.Limit != "" {
		t.Errorf("plan: got %+v; want no units, as the plan is not known", u)
	}

	if u := top(t)["client"].Subjects[0]; u.Subject != "ip:192.0.2.7" || u.Used != 0 {
		t.Errorf("without policies: got %+v", u)
	}
	if lists := top(t, "--prefix", "api:"); len(lists) != 0 {
		t.Errorf("another prefix: got %+v", lists)
	}

	want(t, 0, []string{"top"}, "ip:192.0.2.7    -     -      in ", "No server says what its policies are: the limits, and the units used of rates, need --policies.")
	if got := want(t, 0, []string{"top", "--policies", file(t, sample)}); strings.Contains(got, "need --policies") {
		t.Errorf("with policies: got\n%s", got)
	}
	want(t, 0, []string{"top", "--policies", file(t, sample)}, "client, in use by 32\n", "  ip:192.0.2.7", "10/hour", "month (quota by month), in use by 1", "in 1h")
	want(t, 2, []string{"top", "-n", "0"}, "-n is 0; want 1 to 1000")
}

// A cluster is read on all its nodes.
func TestTopOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	url := "redis://" + strings.Join(cluster.Addrs(), ",")
	fill(t, cluster.Client(), 300)
	if got := top(t, "--redis", url)["client"].InUse; got != 300 {
		t.Errorf("got %d in use; want 300", got)
	}
}

// fill writes buckets, as a store does.
func fill(t testing.TB, client redis.UniversalClient, n int) {
	t.Helper()
	tat := time.Since(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)) / 100
	for from := 0; from < n; from += 10_000 {
		_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := from; i < min(n, from+10_000); i++ {
				ahead := time.Hour + time.Duration(i)*time.Millisecond
				p.Set(t.Context(), fmt.Sprintf("rl:{sub:%d}:client", i), int64(tat)+int64(ahead/100), 2*time.Hour)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The list of many keys is exact, and its memory is bounded.
func TestTopOfManyKeys(t *testing.T) {
	s := server(t)
	const n = 20_000
	fill(t, s.Client(), n)
	l := top(t, "-n", "5")["client"]
	if l.InUse != n || len(l.Subjects) != 5 {
		t.Fatalf("got %+v; want %d in use", l, n)
	}
	for i, u := range l.Subjects {
		if want := fmt.Sprint("sub:", n-1-i); u.Subject != want {
			t.Errorf("place %d: got %s; want %s", i+1, u.Subject, want)
		}
	}
}

// top counts by the limit of an override in Redis, but not by a ban, which leaves the bucket as it was.
func TestTopWithOverrides(t *testing.T) {
	s := server(t)
	name := file(t, sample)
	charge(t, s, gcra.Charge{Subject: "ip:192.0.2.7", Policy: "client", Limit: gcra.PerHour(60), Cost: 50})
	want(t, 0, []string{"override", "set", "ip:192.0.2.7", "60/hour", "--policy", "client", "--for", "1h", "--policies", name})
	charge(t, s, gcra.Charge{Subject: "ip:198.51.100.7", Policy: "client", Limit: gcra.PerHour(20), Cost: 5})
	want(t, 0, []string{"ban", "ip:198.51.100.7", "--for", "1h"})

	for _, u := range top(t, "--policies", name)["client"].Subjects {
		if u.Subject == "ip:192.0.2.7" && (u.Used != 50 || u.Limit != "60/hour") {
			t.Errorf("got %+v; want 50 used of 60/hour", u)
		}
		if u.Subject != "ip:192.0.2.7" && (u.Used != 5 || u.Limit != "20/hour") {
			t.Errorf("got %+v; want 5 used of 20/hour", u)
		}
	}
	want(t, 0, []string{"peek", "ip:198.51.100.7", "--policies", name}, "20/hour")
}

// A bucket of a period that has begun since the scan read the clock, or before the clock was
// set back, counts what was used in that period.
func TestTopAtTheEndOfAPeriod(t *testing.T) {
	s := server(t)
	calendar := gcra.Daily.In(location(t, "America/Argentina/Buenos_Aires"))
	_, end := calendar.Period(time.Now())
	_, end = calendar.Period(end)
	const epoch = 1735689600
	if err := s.Client().Set(t.Context(), "rl:{a}:day~day.America/Argentina/Buenos_Aires", (end.Unix()-epoch)*10_000_000+7, 0).Err(); err != nil {
		t.Fatal(err)
	}

	u := top(t)["dayday.America/Argentina/Buenos_Aires"].Subjects[0]
	if u.Used != 7 || u.PeriodEnds == nil || !u.PeriodEnds.Equal(end) {
		t.Errorf("got %+v; want 7 used until %v", u, end)
	}
}

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
