package policyfile_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// funcs are the functions that the tests' files use.
var funcs = policyfile.Funcs{
	Keys: map[string]keyfunc.Func{
		"client": func(r *http.Request) (string, error) { return "client:" + r.RemoteAddr, nil },
		"user":   func(r *http.Request) (string, error) { return r.Header.Get("User"), nil },
	},
	Plan:  func(r *http.Request) string { return r.Header.Get("Plan") },
	Costs: map[string]func(*http.Request) int64{"size": func(r *http.Request) int64 { return r.ContentLength }},
}

const good = `policies:
  - name: client          # names as in Policy
    key: client
    limit: 100/minute burst 20
  - name: login
    key: client
    routes: ["POST /login", /users/:id]
    limit: 5/minute
    on_failure: closed
  - name: plan
    key: [user, client]
    plans: {free: 60/minute, pro: 600/minute}
    shadow: true
    max_delay: 500ms
    max_debt: 1000
    cost: 2
`

func parse(t *testing.T, text string) []middleware.Policy {
	t.Helper()
	policies, err := policyfile.Parse("p.yaml", []byte(text), funcs)
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return policies
}

func get(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

func TestParse(t *testing.T) {
	policies := parse(t, good)
	if len(policies) != 3 {
		t.Fatalf("got %d policies; want 3", len(policies))
	}

	client, login, plan := policies[0], policies[1], policies[2]
	if client.Name != "client" || client.Limit != gcra.PerMinute(100).WithBurst(20) || client.Routes != nil || client.Cost != nil || client.Shadow || client.OnFailure != middleware.FailLocal {
		t.Errorf("client: got %+v", client)
	}

	if login.Limit != gcra.PerMinute(5) || !slices.Equal(login.Routes, []string{"POST /login", "/users/:id"}) || login.OnFailure != middleware.FailClosed {
		t.Errorf("login: got %+v", login)
	}
	if !plan.Shadow || plan.MaxDelay != 500*time.Millisecond || plan.Cost(get()) != 2 {
		t.Errorf("plan: got %+v", plan)
	}

	for _, p := range policies {
		if got, err := p.Key(get("User", "u")); err != nil || got != map[bool]string{true: "u", false: "client:192.0.2.1:1234"}[p.Name == "plan"] {
			t.Errorf("%s: got key %q, %v", p.Name, got, err)
		}
	}

	if got, err := plan.Key(get()); err != nil || got != "client:192.0.2.1:1234" {
		t.Errorf("plan: got key %q, %v for a request without user; want the client", got, err)
	}
}

// Different YAML for the same policy.
func TestParseForms(t *testing.T) {
	for _, text := range []string{
		"policies:\n- {name: a, key: client, limit: 5/minute}\n",
		"policies: [{name: a, key: client, limit: 5/minute}]",
		`{"policies": [{"name": "a", "key": "client", "limit": "5/minute"}]}`,
		"# before\n\n---\n# after\npolicies:\n  - name: 'a'\n    # within\n    key: [client]\n    limit: >-\n      5/minute\n...\n",
		"\ufeffpolicies:\r\n- name: a\r\n  key: client\r\n  limit: 5/minute\r\n",
		"policies:\n-\n  limit: 5/minute\n  key:\n  - client\n  name: |-\n    a\n  shadow: false\n  on_failure: local\n  max_delay: 0s\n  cost: 1\n",
	} {
		policies := parse(t, text)
		if len(policies) != 1 || policies[0].Name != "a" || policies[0].Limit != gcra.PerMinute(5) || policies[0].Shadow {
			t.Errorf("%q: got %+v; want a, 5/minute", text, policies)
		}
		if key, err := policies[0].Key(get()); err != nil || !strings.HasPrefix(key, "client:") {
			t.Errorf("%q: got key %q, %v; want the client", text, key, err)
		}
	}
}

// A listed plan has its own limit. All others have the limit of the policy or, without
// one, the slowest plan: no request is unlimited.
func TestPlans(t *testing.T) {
	const plans = "policies:\n- {name: plan, key: user, plans: {free: 60/minute, slow: 600/hour burst 300, slowest: 600/hour, pro: 600/minute}"
	for _, tt := range []struct{ more, plan, want string }{
		{"}", "free", "60/minute"},
		{"}", "pro", "600/minute"},
		{"}", "", "600/hour burst 300"},
		{"}", "enterprise", "600/hour burst 300"},
		{", limit: 7/second}", "free", "60/minute"},
		{", limit: 7/second}", "", "7/second"},
		{", limit: 7/second}", "enterprise", "7/second"},
	} {
		policies := parse(t, plans+tt.more)
		l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()}, policies...))
		d := l.Decide(get("User", "u", "Plan", tt.plan))
		if len(d.Results) != 1 || d.Err != nil || d.Results[0].Limit.String() != tt.want {
			t.Errorf("plan %q of %s: got %+v; want %s", tt.plan, tt.more, d, tt.want)
		}
	}
}

// A request whose plan function panics is limited like one with an unlisted plan.
func TestPlanFails(t *testing.T) {
	v := funcs
	v.Plan = func(*http.Request) string { panic("no plans today") }
	policies, err := policyfile.Parse("p.yaml", []byte("policies: [{key: user, plans: {a: 1/minute, b: 5/minute}, name: a}]"), v)
	if err != nil {
		t.Fatal(err)
	}
	l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Logger: slog.New(slog.DiscardHandler)}, policies...))
	if first, second := l.Decide(get()), l.Decide(get()); !first.Allowed || second.Allowed || first.Err == nil {
		t.Errorf("got %+v, %+v; want one request to pass, with an error", first, second)
	}
}

func TestCost(t *testing.T) {
	policies := parse(t, "policies:\n- {name: a, key: user, limit: 5/minute, cost: 5}\n- {name: b, key: user, limit: 5/minute, cost: size}\n")
	r := get()
	r.ContentLength = 77
	if a, b := policies[0].Cost(r), policies[1].Cost(r); a != 5 || b != 77 {
		t.Errorf("got costs %d and %d; want 5 and 77", a, b)
	}
}

// one returns a policy with a field, which begins at 5:3.
func one(field string) string {
	return "policies:\n- name: a\n  key: client\n  limit: 5/minute\n  " + field + "\n"
}

// unnamed returns a policy with a field in place of its name, which begins at 4:3.
func unnamed(field string) string {
	return "policies:\n- key: client\n  limit: 5/minute\n  " + field + "\n"
}

// The ends of lines do not move positions.
func TestPositions(t *testing.T) {
	text := "policies: # all\n- name: a\n  # the client\n  key: 'user'\n\n  limit: none\n  shadow: 1\n  cost: 0\n"
	want := []string{"6:10", "7:11", "8:9"}
	for _, end := range []string{"\n", "\r\n"} {
		_, err := policyfile.Parse("p", []byte(strings.ReplaceAll(text, "\n", end)), funcs)
		var got []string
		for _, mistake := range joinedErrors(err) {
			at, _, _ := strings.Cut(strings.TrimPrefix(mistake, "p:"), ": ")
			got = append(got, at)
		}
		if !slices.Equal(got, want) {
			t.Errorf("lines that end in %q: got %v; want mistakes at %v", end, err, want)
		}
	}
}

// Each error has a position, the value found and the value wanted.
func TestMistakes(t *testing.T) {
	const (
		wantTop    = "policies: and a list of them"
		wantFields = "name, key, anonymous, limit, plans, overrides, routes, cost, shadow, max_delay, max_debt or on_failure"
		wantPolicy = "its fields, such as {name: client, key: client, limit: 100/minute}"
		wantPlans  = "plans and their limits, such as {free: 60/minute, pro: 600/minute}"
		wantRoutes = `a list of patterns such as ["POST /login"]`
		wantName   = "text, in quotes if it looks like something else"
		wantShadow = "true or false without quotes"
		wantCost   = "a whole number from 1 in decimal digits without quotes, or size"
		wantDebt   = "a whole number from 0 in decimal digits without quotes"
		wantOut    = ", or leave it out"
		anchor     = "an anchor (&), which is not supported; want "
		alias      = "an alias (*), which is not supported; want "
	)

	const noPolicies = "1:1: the file has no policies; want a list of policies"
	long := strings.Repeat("x", 100)
	for text, want := range map[string][]string{
		// The file.
		"":                      {"1:1: the file is empty; want " + wantTop},
		"\n# nothing\n":         {"1:1: the file is empty; want " + wantTop},
		"---\n...\n":            {"1:1: the file is empty; want " + wantTop},
		"null":                  {"1:1: the file is null; want " + wantTop},
		"7":                     {"1:1: the file is 7; want " + wantTop},
		"- name: a\n":           {"1:1: the file is a list; want " + wantTop},
		"{}":                    {"1:1: the file is empty; want " + wantTop},
		"policies:\n":           {"1:1: policies is empty; want a list of policies"},
		"policies: []\n":        {"1:11: policies is empty; want a list of policies"},
		"policies: none\n":      {`1:11: policies is "none"; want a list of policies`},
		"policies:\n  a: {}\n":  {"2:3: policies is a mapping; want a list of policies"},
		"Policies: []\n":        {`1:1: field "Policies" is unknown; want policies`, noPolicies},
		"7: []\n":               {"1:1: the name of a field is 7; want text", noPolicies},
		one("more: 1"):          {`5:3: field "more" is unknown; want ` + wantFields},
		one("") + "more: 1":     {`6:1: field "more" is unknown; want policies`},
		one("") + "policies: 1": {`6:1: "policies" is repeated, it is first in line 1; want it once`},
		one("") + "---\n":       nil,
		one("") + "---\na: 1\n": {"6:1: a second document begins; want all policies in one"},
		"policies: [\n":         {"1:11: this is not YAML: sequence end token ']' not found"},
		"policies:\n\t- a: b\n": {"2:1: this is not YAML: found character '\t' that cannot start any token"},
		"policies:\n- key: \"c": {"2:8: this is not YAML: could not find end character of double-quoted text"},
		"policies:\n  é\xff":    {"2:4: the file is not text; want UTF-8"},
		"policies:\x00":         {"1:10: the file is not text; want UTF-8"},

		// Anchors, aliases and tags.
		one("routes: &r [/a]"):         {"5:11: routes is " + anchor + wantRoutes},
		one("routes: [/a, &r 7]"):      {"5:16: route is " + anchor + wantRoutes},
		one("routes: *r"):              {"5:11: routes is " + alias + wantRoutes},
		one("routes: [*r]"):            {"5:12: route is " + alias + wantRoutes},
		one("shadow: !!bool true"):     {"5:11: shadow is a tag (!), which is not supported; want " + wantShadow},
		one("<<: {shadow: true}"):      {"5:3: the name of a field is <<; want text"},
		one("? shadow\n  : true"):      {"5:3: the name of a field is ?; want text"},
		"policies: &p\n- *p\n":         {"1:11: policies is " + anchor + "a list of policies"},
		"&f policies: []\n":            {"1:1: the name of a field is an anchor (&), which is not supported; want text", noPolicies},
		"policies: [&p {key: client}]": {"1:12: the policy is " + anchor + wantPolicy},
		"policies: [*p]":               {"1:12: the policy is " + alias + wantPolicy},

		// A policy.
		"policies: [7]":       {"1:12: the policy is 7; want " + wantPolicy},
		"policies:\n- a\n-\n": {`2:3: the policy is "a"; want ` + wantPolicy, "3:3: the policy is empty; want " + wantPolicy},
		"policies: [{}]":      {"1:12: the policy is empty; want " + wantPolicy},
		"policies:\n- name: a\n  limit: 1/minute\n": {"2:3: the policy has no key; want client or user"},
		"policies:\n- name: a\n  key: user\n":       {"2:3: the policy has no limit; want limit or plans"},
		one("key: user"):                            {`5:3: "key" is repeated, it is first in line 3; want it once`},
		one("Shadow: true"):                         {`5:3: field "Shadow" is unknown; want ` + wantFields},
		one("maxdelay: 1s"):                         {`5:3: field "maxdelay" is unknown; want ` + wantFields},
		one("burst: 10"):                            {`5:3: field "burst" is unknown; want ` + wantFields},
		one("debt: 5"):                              {`5:3: field "debt" is unknown; want ` + wantFields},
		one("delay: 1s"):                            {`5:3: field "delay" is unknown; want ` + wantFields},
		one("true: 1"):                              {"5:3: the name of a field is true; want text"},
		one(long + ": 1"):                           {`5:3: field "` + long[:80] + `" is unknown; want ` + wantFields},
		one("'a\\x\n\n b': 1"):                      {"5:3: this is not YAML: unexpected key name"},

		// Names.
		unnamed("name: 12"):      {"4:9: name is 12; want " + wantName},
		unnamed("name: true"):    {"4:9: name is true; want " + wantName},
		unnamed("name: ''"):      {`4:9: name is ""; want ` + wantName},
		unnamed("name:"):         {"4:3: name is empty; want " + wantName},
		unnamed("name: null"):    {"4:9: name is null; want " + wantName},
		unnamed("name: [a]"):     {"4:9: name is a list; want " + wantName},
		unnamed("name: é"):       {`4:9: name is "é"; want printable ASCII`},
		unnamed(`name: "a\nb"`):  {`4:9: name is "a\nb"; want printable ASCII`},
		unnamed("name: " + long): {"4:9: name has 100 characters; want at most 64"},
		one("") + "- key: user":  {"6:3: the policy has no name; want " + wantName, "6:3: the policy has no limit; want limit or plans"},
		"policies:\n- {name: a, key: user, limit: 1/minute}\n- {key: user, name: a, limit: 1/minute}\n": {`3:21: "a" is repeated, it is first in line 2; want it once`},

		"policies:\n- {name: 1, key: user, limit: 1/minute}\n- {name: 1, key: user, limit: 1/minute}\n": {"2:10: name is 1; want " + wantName, "3:10: name is 1; want " + wantName},

		// Keys.
		"policies: [{limit: 1/minute, key: , name: a}]":                    {"1:30: key is empty; want client or user"},
		"policies: [{limit: 1/minute, key: clint, name: a}]":               {`1:35: key is "clint"; want client or user`},
		"policies: [{limit: 1/minute, key: 7, name: a}]":                   {"1:35: key is 7; want client or user"},
		"policies: [{limit: 1/minute, key: {client: user}, name: a}]":      {"1:35: key is a mapping; want client or user"},
		"policies: [{limit: 1/minute, key: [], name: a}]":                  {"1:35: key is empty; want client or user"},
		"policies: [{limit: 1/minute, key: [users, [], client], name: a}]": {`1:36: key is "users"; want client or user`, "1:43: key is empty; want client or user"},
		"policies: [{limit: 1/minute, key: [user, user], name: a}]":        {`1:42: "user" is repeated, it is first in line 1; want it once`},

		// Limits and plans.
		"policies: [{key: user, limit: 100/minit, name: a}]":  {`1:31: limit is "100/minit": period is "minit"; want second, minute, hour, day or a duration such as 5s`},
		"policies: [{key: user, limit: 0/minute, name: a}]":   {`1:31: limit is "0/minute": count is 0; want at least 1`},
		"policies: [{key: user, limit: 100, name: a}]":        {"1:31: limit is 100; want a limit such as 100/minute"},
		"policies: [{key: user, limit: [5/minute], name: a}]": {"1:31: limit is a list; want a limit such as 100/minute"},
		"policies: [{key: user, limit: '', name: a}]":         {`1:31: limit is ""; want a limit such as 100/minute`},
		one("plans:"):        {"5:3: plans is empty; want " + wantPlans + wantOut},
		one("plans: {}"):     {"5:10: plans is empty; want " + wantPlans + wantOut},
		one("plans: [free]"): {"5:10: plans is a list; want " + wantPlans},
		one("plans: {free: 60, pro: 6/m, free: 7, x:}"): {"5:17: plan \"free\" is 60; want a limit such as 100/minute, or none", `5:26: plan "pro" is "6/m": period is "m"; want second, minute, hour, day or a duration such as 5s`, `5:31: "free" is repeated, it is first in line 5; want it once`, `5:40: plan "x" is empty; want a limit such as 100/minute, or none`},
		one("plans: {100%d: 60}"):                       {`5:18: plan "100%d" is 60; want a limit such as 100/minute, or none`},
		one("plans: {7: 5/minute}"):                     {"5:11: the name of a field is 7; want text"},
		one("plans: {pro: 60/minute, free: 1/hour}\n  max_debt: 10000"): {
			"5:33: max_debt is 10000, which makes 1/hour burst 10001 of 1/hour: a burst of 10001 at 1 per 1h0m0s takes longer than 366 days to refill"},

		// The rest.
		one("routes:"):                     {"5:3: routes is empty; want " + wantRoutes + wantOut},
		one("routes: []"):                  {"5:11: routes is empty; want " + wantRoutes + wantOut},
		one("routes: POST /login"):         {`5:11: routes is "POST /login"; want ` + wantRoutes},
		one("routes: [/a, 7, a]"):          {"5:16: route is 7; want " + wantRoutes, `5:19: route is "a": it has no "/"; want a pattern such as "POST /login"`},
		one("routes: [login/]"):            {`5:12: route is "login/": "login" would be a host, which has a dot or a port; want a pattern such as "POST /login"`},
		one("routes: [PSOT /login]"):       {`5:12: route is "PSOT /login": "PSOT" is not a method in upper case; want a pattern such as "POST /login"`},
		one("routes: [DELTEE /a, GETT /]"): {`5:12: route is "DELTEE /a": "DELTEE" is not a method in upper case; want a pattern such as "POST /login"`, `5:23: route is "GETT /": "GETT" is not a method in upper case; want a pattern such as "POST /login"`},
		one("routes: ['*/login']"):         {`5:12: route is "*/login": the text before the first slash is a host, which cannot contain "*"; want a pattern such as "POST /login"`},
		one("routes: ['POST /login ']"):    {`5:12: route is "POST /login ": " " at offset 11 is white space or cannot be printed; in a path write %20; want a pattern such as "POST /login"`},
		one("routes: [POST\u00a0/login]"):  {`5:12: route is "POST\u00a0/login": "\u00a0" at offset 4 is white space or cannot be printed; in a path write %C2%A0; want a pattern such as "POST /login"`},
		one("routes: [/a?b=c]"):            {`5:12: route is "/a?b=c": a path ends before "?"; in a path write %3F; want a pattern such as "POST /login"`},
		one("cost: 0"):                     {"5:9: cost is 0; want " + wantCost},
		one("cost: -1"):                    {"5:9: cost is -1; want " + wantCost},
		one("cost: 010"):                   {"5:9: cost is 010; want " + wantCost},
		one("cost: 0x5"):                   {"5:9: cost is 0x5; want " + wantCost},
		one("cost: 0o5"):                   {"5:9: cost is 0o5; want " + wantCost},
		one("cost: 0b10"):                  {"5:9: cost is 0b10; want " + wantCost},
		one("cost: 1_0"):                   {"5:9: cost is 1_0; want " + wantCost},
		one("cost: +5"):                    {"5:9: cost is +5; want " + wantCost},
		one("cost: 1.5"):                   {"5:9: cost is 1.5; want " + wantCost},
		one("cost: '1'"):                   {`5:9: cost is "1"; want ` + wantCost},
		one("cost: sise"):                  {`5:9: cost is "sise"; want ` + wantCost},
		one("cost: 6"):                     {"5:9: cost is 6 and the limit allows at most 5 at once; no request could ever pass"},
		one("cost: 18446744073709551616"):  {`5:9: cost is "18446744073709551616"; want ` + wantCost},
		one("cost: 18446744073709551615"):  {"5:9: cost is 18446744073709551615; want " + wantCost},
		one("shadow:"):                     {"5:3: shadow is empty; want " + wantShadow + wantOut},
		one("shadow: yes"):                 {`5:11: shadow is "yes"; want ` + wantShadow},
		one("shadow: 'true'"):              {`5:11: shadow is "true"; want ` + wantShadow},
		one("shadow: 1"):                   {"5:11: shadow is 1; want " + wantShadow},
		one("shadow: ~"):                   {"5:11: shadow is ~; want " + wantShadow},
		one("max_delay: 5"):                {"5:14: max_delay is 5; want a duration such as 500ms"},
		one("max_delay: 5 s"):              {`5:14: max_delay is "5 s"; want a duration such as 500ms`},
		one("max_delay: -5s"):              {"5:14: max_delay is -5s; want 0 (no delay) to 8784h0m0s"},
		one("max_debt: 5m"):                {`5:13: max_debt is "5m"; want ` + wantDebt},
		one("max_debt: 010"):               {"5:13: max_debt is 010; want " + wantDebt},
		one("max_debt: -1"):                {"5:13: max_debt is -1; want " + wantDebt},
		one("on_failure: close"):           {`5:15: on_failure is "close"; want closed, local or open`},
		one("on_failure: false"):           {"5:15: on_failure is false; want closed, local or open"},
	} {
		_, err := policyfile.Parse("p.yaml", []byte(text), funcs)
		for i := range want {
			want[i] = "p.yaml:" + want[i]
		}
		if got := joinedErrors(err); !slices.Equal(got, want) {
			t.Errorf("%q: got\n%s\nwant\n%s", text, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// Unusual routes that match requests.
func TestRoutes(t *testing.T) {
	want := []string{
		"LIST /a", "PURGE /a", "QUERY /a", "PROPFIND /a", "LOCK /a", "MOVE /a", "COPY /a", "SEARCH /a", "REPORT /a", "UPDATE /a",
		"ACL /a", "BIND /a", "LABEL /a", "LINK /a", "MERGE /a", "NOTIFY /a", "POLL /a", "PUSH /a",
		"localhost/", "LocalHost/", "example.com/", "GET login:80/", "[::1]/", "/:id", "/{id}/{$}", "/*path", "/é/%20",
	}
	policies := parse(t, one(`routes: ["`+strings.Join(want, `", "`)+`"]`))
	if got := policies[0].Routes; !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
}

// The error says if the program registers nothing.
func TestNoFuncs(t *testing.T) {
	_, err := policyfile.Parse("p.yaml", []byte("policies: [{key: user, plans: {a: 1/minute}, cost: size, name: a}]"), policyfile.Funcs{})
	want := []string{
		"p.yaml:1:18: key is \"user\"; want a registered name, and this program registers none",
		"p.yaml:1:31: this program registers no function for plans; want limit",
		"p.yaml:1:52: cost is \"size\"; want a whole number from 1 in decimal digits without quotes",
	}
	if got := joinedErrors(err); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A nil function is an error of the program, not of the file.
func TestNilFuncs(t *testing.T) {
	v := policyfile.Funcs{
		Keys:  map[string]keyfunc.Func{"client": nil, "user": funcs.Keys["user"]},
		Costs: map[string]func(*http.Request) int64{"size": nil},
	}
	_, err := policyfile.Parse("p.yaml", []byte("policies: [{limit: 1/minute, key: [user, client], cost: size, name: a}]"), v)
	want := []string{
		`p.yaml:1:42: key is "client", registered as nil by this program; want a function there`,
		`p.yaml:1:57: cost is "size", registered as nil by this program; want a function there`,
	}
	if got := joinedErrors(err); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The mistakes of all policies are reported at once, by line, at most 100 of them.
func TestAllMistakesAtOnce(t *testing.T) {
	const policy = "- name: a\n  key: x\n  limit: 5\n  shadow:\n  cost: 0\n  on_failure: x\n"
	_, err := policyfile.Parse("p.yaml", []byte("policies:\n"+strings.Repeat(policy, 2)), funcs)
	var lines []string
	for _, mistake := range joinedErrors(err) {
		lines = append(lines, strings.Split(mistake, ":")[1])
	}
	if got, want := strings.Join(lines, " "), "3 4 5 6 7 8 9 10 11 12 13"; got != want {
		t.Errorf("got mistakes in lines %s; want %s\n%v", got, want, err)
	}
	_, err = policyfile.Parse("p.yaml", []byte("policies:\n"+strings.Repeat(policy, 50)), funcs)
	if got := joinedErrors(err); len(got) != 101 || got[100] != "p.yaml: and 199 more mistakes" {
		t.Errorf("got %d, the last %q; want 100 and how many are left", len(got), got[len(got)-1])
	}
}

// joinedErrors returns the texts of the errors that are joined in err.
func joinedErrors(err error) (texts []string) {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			texts = append(texts, err.Error())
		}
		return texts
	}
	return []string{err.Error()}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	if _, err := policyfile.Load(path, funcs); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("no file: got %v; want ErrNotExist and the path", err)
	}
	for _, special := range []string{filepath.Dir(path), os.DevNull} {
		if _, err := policyfile.Load(special, funcs); err == nil || !strings.Contains(err.Error(), special+" is a directory, a named pipe or a device; want") {
			t.Errorf("%s: got %v; want that it is no regular file", special, err)
		}
	}

	write(t, path, good)
	if policies, err := policyfile.Load(path, funcs); err != nil || len(policies) != 3 {
		t.Errorf("got %d policies, %v; want 3", len(policies), err)
	}

	write(t, path, one("on_failure: shut"))
	if _, err := policyfile.Load(path, funcs); err == nil || err.Error() != path+`:5:15: on_failure is "shut"; want closed, local or open` {
		t.Errorf("got %v; want the path, line and column", err)
	}
	write(t, path, "#"+strings.Repeat(" ", 512<<10))
	if _, err := policyfile.Load(path, funcs); err == nil || err.Error() != path+":1:1: the file has more than 524288 bytes; want at most that many" {
		t.Errorf("a large file: got %v; want its bound", err)
	}
}

// A file for several limiters must have those that the program has, and no policy's name twice.
func TestLoadAll(t *testing.T) {
	const one = "[{name: a, key: client, limit: 5/minute}]"
	path := filepath.Join(t.TempDir(), "p.yaml")
	for text, want := range map[string][]string{
		"limiters: {api: " + one + ", signin: [{name: b, key: client, limit: 5/minute}]}":  nil,
		"limiters: {api: " + one + ", signin: " + one + "}":                                {`1:76: "a" is repeated, it is first in line 1; want it once`},
		"limiters: {api: " + one + ", signin: [{name: b, key: client, limit: 5/minut}]}":   {`1:99: limit is "5/minut": period is "minut"; want second, minute, hour, day or a duration such as 5s`},
		"limiters:\n  api: " + one + "\n  signin: {}\n":                                    {`3:11: limiter "signin" is empty; want a list of policies`},
		"limiters:\n  api: " + one + "\n  sing: [{name: b, key: client, limit: 5/minute}]": {"2:3: limiters has no signin; want its policies", `3:3: limiter is "sing"; want api or signin`},
		"limiters:\n":      {"1:1: limiters is empty"},
		"policies: " + one: {`1:1: field "policies" is unknown; want limiters`, "1:1: the file has no limiters; want limiters and their policies"},
	} {
		write(t, path, text)
		all, err := policyfile.LoadAll(path, funcs, "api", "signin")
		if want == nil && (err != nil || len(all) != 2 || all["api"][0].Name != "a" || all["signin"][0].Name != "b") {
			t.Errorf("%q: got %v, %v; want the policies of both", text, all, err)
		}
		for _, want := range want {
			if err == nil || !strings.Contains(err.Error(), path+":"+want) {
				t.Errorf("%q: got %v; want %q", text, err, want)
			}
		}
		if _, err := policyfile.LoadAll(path, funcs); (err == nil) != (want == nil || strings.Contains(text, "sing:") || text[0] == 'p') {
			t.Errorf("%q, any names: got %v", text, err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Limits may be quotas, alone and in plans; the slowest plan is for other requests.
func TestQuotas(t *testing.T) {
	policies := parse(t, `policies:
  - {name: monthly, key: client, limit: 10000/calendar month from 15 Europe/Berlin}
  - {name: plan, key: client, plans: {free: 1000/calendar month, pro: 60/minute, day: 1000/calendar day}}
`)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if want := gcra.Quota(10_000, gcra.Monthly.From(15).In(berlin)); policies[0].Limit != want {
		t.Errorf("got %v; want %v", policies[0].Limit, want)
	}
	if want := gcra.Quota(1000, gcra.Monthly); policies[1].Limit != want || policies[1].LimitFor(get("Plan", "other")) != want {
		t.Errorf("got %v; want %v, the slowest", policies[1].Limit, want)
	}
}
