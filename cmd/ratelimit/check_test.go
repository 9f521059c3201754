package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// The mistakes are the server's own, also as JSON.
func TestCheck(t *testing.T) {
	const text = `policies:
  - {name: client, key: clint, limit: ten/minute}
  - {name: client, key: [user, client], cost: rows, plans: {free: 1/minute, gold: 5/minute}, rate: 5}
`
	name := file(t, text)

	client := func(*http.Request) (string, error) { return "", nil }
	funcs := policyfile.Funcs{
		Keys: map[string]func(*http.Request) (string, error){"client": client, "user": client},
		Plan: func(*http.Request) string { return "" },
	}
	_, err := policyfile.Load(name, funcs)
	if err == nil {
		t.Fatal("got no mistake")
	}

	args := []string{"check", name, "--keys", "client,user", "--costs", ""}
	if got := want(t, 1, args); got != err.Error()+"\n" {
		t.Errorf("got\n%swant\n%v", got, err)
	}

	var got checked
	if err := json.Unmarshal([]byte(want(t, 1, append(args, "--json"))), &got); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range got.Mistakes {
		lines = append(lines, fmt.Sprintf("%s:%d:%d: %s", got.File, m.Line, m.Column, m.Text))
	}
	if strings.Join(lines, "\n") != err.Error() {
		t.Errorf("got %q; want %v", lines, err)
	}
}

// Names that the command does not know count as right, unless flags list those that the
// program has.
func TestCheckNames(t *testing.T) {
	name := file(t, `policies:
  - {name: a, key: tenant, cost: rows, plans: {free: 1/minute, gold: 5/minute}}
  - {name: b, key: [user, client], limit: 1/minute}
`)
	want(t, 0, []string{"check", name}, name+" is right")
	want(t, 0, []string{"check", name, "--keys", "tenant,user,client", "--costs", "rows", "--plans", "free,gold"}, "is right")
	want(t, 1, []string{"check", name, "--keys", "user,client"}, name+`:2:20: key is "tenant"`)
	want(t, 1, []string{"check", name, "--costs", "row"}, name+`:2:34: cost is "rows"`)
	want(t, 1, []string{"check", name, "--plans", "free,pro"}, name+`:2:64: plan is "gold"; want free or pro`)

	quoted := file(t, `{"policies": [
  {"name": "a", "key": ["tenant"], "cost": "rows", "limit": "9/minute", "plans": {"free": "1/minute", "gold": "5/minute"}}
]}`)
	want(t, 0, []string{"check", quoted, "--keys", "tenant", "--costs", "rows", "--plans", "free,gold"}, "is right")
	want(t, 0, []string{"check", quoted}, "is right")
	want(t, 1, []string{"check", quoted, "--plans", "free,pro"}, `plan is "gold"; want free or pro`)
	want(t, 0, []string{"check", quoted, "--against", name}, "policy a: limit is new, 9/minute", "policy b is removed")

	two := file(t, "limiters:\n  api: [{name: a, key: tenant, limit: 9/minute}]\n  signin: [{name: c, key: tenant, limit: 5/minute}]\n")
	want(t, 0, []string{"check", two}, two+" is right\nlimiter api: a\nlimiter signin: c\n")
	want(t, 0, []string{"check", two, "--against", quoted}, "policy a: limiter was none and is api", "policy c is new")

	want(t, 1, []string{"check", "none.yaml"}, "none.yaml")
	want(t, 1, []string{"check", "/dev/zero"}, "the file has more than 524288 bytes")
	want(t, 1, []string{"check", file(t, "policies: {")}, ":1:11: ")
}

// What a new file changes, in words.
func TestCheckAgainst(t *testing.T) {
	old := file(t, `policies:
  - {name: client, key: client, limit: 100/minute}
  - {name: month, key: user, limit: 1000/calendar month}
  - {name: plan, key: user, plans: {free: 60/minute, pro: 600/minute}}
  - {name: gone, key: client, limit: 1/minute}
  - {name: same, key: client, limit: 1/minute}
`)
	name := file(t, `policies:
  - {name: client, key: [user, client], limit: 50/minute burst 10, shadow: true, overrides: [{limit: 10/minute, subjects: ["sub:alice", "ip:198.51.100.0/24"]}, {limit: none, subjects: ["sub:bob"]}]}
  - {name: month, key: user, limit: 1000/calendar month from 15}
  - {name: plan, key: user, plans: {free: 60/minute, team: 600/minute}, routes: ["POST /x"]}
  - {name: fresh, key: client, limit: 1/minute}
  - {name: same, key: client, limit: 1/minute}
`)

	got := strings.Split(strings.TrimSpace(want(t, 0, []string{"check", name, "--against", old})), "\n")
	all := []string{
		"policy client: key was client and is user, client: clients with another key than before start anew, with full buckets",
		"policy client: limit was 100/minute and is 50/minute burst 10; a bucket is full again when it would have been, or sooner",
		"policy client: override of ip:198.51.100.0/24 was missing and is 10/minute",
		"policy client: override of sub:alice was missing and is 10/minute",
		"policy client: override of sub:bob was missing and is none",
		"policy client: shadow was false and is true",
		"policy month: limit was 1000/calendar month and is 1000/calendar month from 15: all buckets start anew, as they count for another period",
		"policy plan: limit of plan pro is removed, it was 600/minute",
		"policy plan: limit of plan team is new, 600/minute",
		"policy plan: routes was [] and is [POST /x]",
		"policy fresh is new: its buckets are full",
		"policy gone is removed; if it was renamed, its buckets start anew",
		name + " is right",
	}

	if !slices.Equal(got, all) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(all, "\n"))
	}

	want(t, 0, []string{"check", old, "--against", old}, "nothing changes")
	want(t, 1, []string{"check", name, "--against", file(t, "policies: []")}, "policies is empty")
}
