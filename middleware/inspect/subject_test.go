package inspect_test

import (
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// A quota that is not used is full, whatever is left of its period.
func TestLookUpOfAQuota(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: gcra.Quota(5, gcra.Daily)})
	if b := s.json("?subject=ip:192.0.2.7").Subject.Buckets[0]; b.Limit != "5/calendar day" || b.Left != 5 || b.FullAfter != 0 || b.PeriodEnds != "2026-01-02T00:00:00Z" {
		t.Errorf("got %+v; want 5 of 5 left", b)
	}
	s.ask(3, "ip:192.0.2.7", "/")
	if b := s.json("?subject=ip:192.0.2.7").Subject.Buckets[0]; b.Left != 2 || b.FullAfter <= 0 || b.FullAfter > 86400 {
		t.Errorf("got %+v; want 2 left, full when the day ends", b)
	}
	if page := s.html("?subject=ip:192.0.2.7"); !strings.Contains(page, "2 Jan 2026 00:00 UTC") {
		t.Error("the page does not say when the day ends")
	}
}

// A subject with an override is shown with that limit, and is reset by it.
func TestLookUpOfAnOverride(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five, Override: func(subject string) (middleware.Override, bool) {
		switch subject {
		case "sub:big":
			return middleware.Override{Limit: gcra.PerMinute(60).WithBurst(20)}, true
		case "sub:month":
			return middleware.Override{Limit: gcra.Quota(9, gcra.Monthly), Name: "ip:198.51.100.0/24"}, true
		case "sub:free":
			return middleware.Override{Limit: gcra.Unlimited()}, true
		case "sub:spam":
			return middleware.Override{Banned: true}, true
		case "sub:wrong":
			return middleware.Override{Limit: gcra.Limit{Count: -3}}, true
		case "sub:panic":
			panic("no list today")
		}

		return middleware.Override{}, false
	}})

	for subject, want := range map[string]struct {
		override, name, left, page string
	}{
		"sub:big":   {"60/minute burst 20", "", "a 17/20", "60/minute burst 20; override<"},
		"sub:month": {"9/calendar month", "ip:198.51.100.0/24", "a 6/9", "9/calendar month; override, reason: ip:198.51.100.0/24<"},
		"sub:free":  {"none", "", "a 0/0", "Not limited by this policy (override)."},
		"sub:spam":  {"banned", "", "a 0/0", "Banned by this policy (override)."},
		"sub:wrong": {"-3/0s", "", "a 0/0", "Not known, with the limit -3/0s (override): gcra: charge on policy &#34;a&#34;: count is -3; want at least 1<"},
		"sub:panic": {"", "", "a 5/5", "5/minute"},
		"sub:other": {"", "", "a 2/5", "5/minute"},
	} {
		if subject != "sub:panic" {
			s.ask(3, subject, "/")
		}
		if b := s.json("?subject=" + subject).Subject.Buckets; len(b) != 1 || b[0].Override != want.override || b[0].OverrideName != want.name || s.left(subject) != want.left {
			t.Errorf("%s: got %+v; want %+v", subject, b, want)
		}
		page := s.html("?subject=" + subject)
		if !strings.Contains(page, want.page) || strings.Contains(page, "override, reason") != (want.name != "") {
			t.Errorf("%s: the page does not say %q", subject, want.page)
		}

		if !strings.Contains(page, "other limits for some keys") {
			t.Error("the page does not say that the policy has overrides")
		}
	}

	if w := s.send(post("subject=sub:month&policy=a")); w.Code != 303 || s.left("sub:month") != "a 9/9" {
		t.Errorf("reset: got %d %s, %s; want all of the quota", w.Code, w.Body, s.left("sub:month"))
	}
	if w := s.send(post("subject=sub:wrong&policy=a")); w.Code != 503 || !strings.Contains(w.Body.String(), "not all was reset: ratelimit: reset: gcra: charge on policy \"a\": count is -3") {
		t.Errorf("reset of sub:wrong: got %d %s; want 503 and why", w.Code, w.Body)
	}
}

// A shadow policy bans nobody.
func TestLookUpOfABanInShadow(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five, Shadow: true, Override: func(string) (middleware.Override, bool) {
		return middleware.Override{Banned: true}, true
	}})
	if page := s.html("?subject=x"); !strings.Contains(page, "Would be banned by this policy (override).") {
		t.Error("the page does not say that the policy would ban")
	}
}

func TestLookUp(t *testing.T) {
	s := newScene(t,
		middleware.Policy{Name: "a", Key: who, Limit: five},
		middleware.Policy{Name: "b", Key: who, Limit: gcra.PerHour(1000).WithBurst(10)})
	s.ask(3, "ip:192.0.2.7", "/")

	for range 3 { // looking takes nothing
		got := s.json("?subject=ip:192.0.2.7").Subject
		if got == nil || got.Subject != "ip:192.0.2.7" || len(got.Buckets) != 2 {
			t.Fatalf("got %+v; want two buckets", got)
		}
		if b := got.Buckets[0]; b.Policy != "a" || b.Limit != "5/minute" || b.Left != 2 || b.Burst != 5 || b.FullAfter != 36 {
			t.Errorf("got %+v; want 2 of 5 left, full in 36 s", b)
		}
		if b := got.Buckets[1]; b.Left != 7 || b.Burst != 10 || b.FullAfter != 10.8 {
			t.Errorf("got %+v; want 7 of 10 left, full in 10.8 s", b)
		}
	}

	page := s.html("?subject=ip:192.0.2.7")
	for _, want := range []string{"2 of 5", "in 36 s", "7 of 10", "in 10.8 s", `value="a" checked`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}

	if got := s.left("ip:192.0.2.8"); got != "a 5/5, b 10/10" {
		t.Errorf("another subject: got %q; want all", got)
	}

	// Anonymous requests have a bucket too.
	s.ask(1, "", "/")
	if got := s.left(""); got != "a 4/5, b 9/10" {
		t.Errorf("anonymous: got %q; want a 4/5, b 9/10", got)
	}
	if page := s.html("?subject="); !strings.Contains(page, "Anonymous requests") {
		t.Error("the page does not say that it is about anonymous requests")
	}
}

// LimitFor has the limits in Plans and Limit. A reset fills the buckets of all their calendars.
func TestLookUpWithLimitFor(t *testing.T) {
	plans := map[string]gcra.Limit{"free": five, "paid": gcra.PerMinute(50), "daily": gcra.Quota(9, gcra.Daily), "none": gcra.Unlimited()}
	plan := func(r *http.Request) gcra.Limit { return plans[r.Header.Get("Who")] }
	s := newScene(t,
		middleware.Policy{Name: "plan", Key: who, LimitFor: plan, Plans: plans, Limit: five},
		middleware.Policy{Name: "dark", Key: who, LimitFor: plan})

	s.ask(3, "paid", "/")
	s.ask(3, "daily", "/")
	got := s.json("?subject=paid").Subject.Buckets
	if len(got) != 4 || !got[1].IfLimit || got[1].Limit != "5/minute" || !got[2].IfLimit || got[2].Limit != "50/minute" || got[2].Left != 47 {
		t.Errorf("got %+v; want a bucket for each limit, with 47 of 50", got)
	}
	page := s.html("?subject=paid")
	if !strings.Contains(page, "if the limit is 5/minute") || strings.Count(page, `name="policy" value="plan"`) != 1 {
		t.Error("the page does not offer one policy with three limits")
	}
	if b := got[3]; b.Limit != "" || b.Policy != "dark" || !strings.Contains(page, "Unknown: the limit depends") {
		t.Errorf("without Limit and Plans: got %+v; want no limit", b)
	}

	for _, subject := range []string{"paid", "daily"} {
		if w := s.send(post("subject=" + subject + "&policy=plan")); w.Code != http.StatusSeeOther {
			t.Errorf("reset of %s: got %d %s; want 303", subject, w.Code, w.Body)
		}
		if got := s.left(subject); got != "plan 9/9, plan 5/5, plan 50/50, dark 0/0" {
			t.Errorf("%s after a reset: got %q; want full buckets", subject, got)
		}
	}
	w := s.send(post("subject=paid&policy=dark"))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "policy dark has LimitFor, and neither Limit nor Plans") {
		t.Errorf("reset without a limit: got %d %s; want 503 and why", w.Code, w.Body)
	}
}

// JSON leaves out unknown fields: a bucket of 0 units would look empty.
func TestUnknownJSON(t *testing.T) {
	store := doubles.NewStore()
	s := newSceneOn(t, &store.Clock, store,
		middleware.Policy{Name: "plan", Key: who, LimitFor: func(*http.Request) gcra.Limit { return five }}, middleware.Policy{Name: "a", Key: who, Limit: five})

	subject := func() string {
		w := s.send(httptest.NewRequest("GET", "/?format=json&subject=x", nil))
		var v struct{ Subject json.RawMessage }
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		return string(v.Subject)
	}

	const unknown = `{"policy":"plan","known":false}`
	if got, want := subject(), `{"subject":"x","buckets":[`+unknown+`,{"policy":"a","known":true,"limit":"5/minute","if_limit":false,"left":5,"burst":5,"full_after_seconds":0}]}`; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	store.Err = errors.New("down")
	if got, want := subject(), `{"subject":"x","buckets":[`+unknown+`,{"policy":"a","known":false,"error":"down"}]}`; got != want {
		t.Errorf("without the store: got %s; want %s", got, want)
	}
}

func TestReset(t *testing.T) {
	policies := []middleware.Policy{
		{Name: "a", Key: who, Limit: five},
		{Name: "b & c", Key: who, Limit: five},
		{Name: "slow", Key: who, Limit: five, MaxDelay: time.Minute},
	}

	s := newScene(t, policies...)
	s.ask(5, "x", "/")
	s.ask(5, "y", "/")

	w := s.send(post("subject=x&policy=a&policy=b+%26+c"))
	if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != "?reset=a&reset=b+%26+c&subject=x" {
		t.Errorf("got %d to %q; want 303 back to the subject", w.Code, got)
	}
	if got := s.left("x"); got != "a 5/5, b & c 5/5, slow 0/5" {
		t.Errorf("got %q; want a and b & c full", got)
	}
	if got := s.left("y"); got != "a 0/5, b & c 0/5, slow 0/5" {
		t.Errorf("another subject: got %q; want nothing changed", got)
	}

	page := s.html(w.Header().Get("Location"))
	if !strings.Contains(page, "Reset: <b>a</b>, <b>b &amp; c</b>.") {
		t.Error("the page does not say what was reset")
	}
	if page := s.html("?subject=x&reset=<b>nothing"); strings.Contains(page, "role=\"status\"") || strings.Contains(page, "nothing") {
		t.Error("the page repeats what was not reset")
	}
}

// A subject in debt is full when its debt is paid and the bucket has refilled.
func TestSubjectInDebt(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "p", Key: who, Limit: gcra.PerMinute(5), MaxDebt: 100})
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Who", "k")
	d := s.limiter.Decide(r)
	if err := d.Settle(t.Context(), 65, "p"); err != nil {
		t.Fatal(err)
	}
	if b := s.json("?subject=k").Subject.Buckets[0]; b.Left != 0 || b.FullAfter != 13*60 {
		t.Errorf("got %d left, full after %v s; want 0 and 13 minutes, 65 units at 5 a minute", b.Left, b.FullAfter)
	}
}

func TestResetJSON(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five})
	s.ask(5, "x", "/")
	r := post("subject=x&policy=a")
	r.Header.Set("Accept", "application/json")
	w := s.send(r)
	back := w.Header().Get("Location")
	if w.Code != http.StatusSeeOther || !strings.Contains(back, "format=json") {
		t.Fatalf("got %d to %q; want 303 to JSON", w.Code, back)
	}
	got := reportIn(t, s.send(httptest.NewRequest("GET", "/"+back, nil))).Subject
	if got.Subject != "x" || !slices.Equal(got.Reset, []string{"a"}) || got.Buckets[0].Left != 5 {
		t.Errorf("got %+v; want a reset and full", got)
	}
}

// A program that does not follow the redirect reads the result in a line.
func TestResetText(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five}, middleware.Policy{Name: "b", Key: who, Limit: five})
	for _, user := range []string{"ip:192.0.2.7", "sub:\x1b[31m", ""} {
		s.ask(5, user, "/")
	}
	for _, test := range []struct{ form, want string }{
		{"subject=ip:192.0.2.7&policy=a&policy=b", "reset a, b for ip:192.0.2.7\n"},
		{"subject=ip:192.0.2.7&policy=a", "reset a for ip:192.0.2.7\n"},
		{"subject=sub:%1b[31m&policy=a", "reset a for sub:\\x1b[31m\n"},
		{"subject=&policy=b", "reset b for anonymous requests\n"},
	} {
		w := s.send(post(test.form))
		if got := w.Body.String(); w.Code != http.StatusSeeOther || got != test.want {
			t.Errorf("%s: got %d %q; want 303 %q", test.form, w.Code, got, test.want)
		}
	}
}

// A mistake is a line, which browsers and programs show.
func TestResetMistakes(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five}, middleware.Policy{Name: "b", Key: who, Limit: five})
	s.ask(5, "x", "/")
	for _, mistake := range []struct {
		form, want string
	}{
		{"policy=a", "the field subject is missing"},
		{"subject=x", "the field policy is missing; want one or more of a, b"},
		{"subject=x&policy=A", "policy is \"A\"; want one or more of a, b"},
		{"subject=x&policy=a&policy=c", "policy is \"c\"; want one or more of a, b"},
		{"subject=x&policy=%zz", "the form cannot be read"},
		{"subject=x&policy=a&padding=" + strings.Repeat("x", 64<<10), "the form cannot be read"},
	} {
		w := s.send(post(mistake.form))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), mistake.want) || strings.Count(w.Body.String(), "\n") != 1 {
			t.Errorf("%.80s: got %d %s; want 400 and a line with %q", mistake.form, w.Code, w.Body, mistake.want)
		}
		if got := s.left("x"); got != "a 0/5, b 0/5" {
			t.Errorf("%.80s: got %q; want nothing reset", mistake.form, got)
		}
	}

	if w := s.send(httptest.NewRequest("GET", "/?a=%zz", nil)); w.Code != http.StatusBadRequest {
		t.Errorf("a query that cannot be read: got %d; want 400", w.Code)
	}
}

// A form has room for thousands of names, and each would ask the store twice.
func TestResetOfARepeatedName(t *testing.T) {
	store := doubles.NewStore()
	s := newSceneOn(t, &store.Clock, store, middleware.Policy{Name: "a", Key: who, Limit: five}, middleware.Policy{Name: "b", Key: who, Limit: five})
	s.ask(5, "x", "/")

	w := s.send(post("subject=x&policy=b" + strings.Repeat("&policy=a", 1000)))
	if w.Code != http.StatusSeeOther || store.Refunds != 2 {
		t.Errorf("got %d and %d resets; want 303 and 2", w.Code, store.Refunds)
	}
	if got := s.left("x"); got != "a 5/5, b 5/5" {
		t.Errorf("got %q; want both full", got)
	}
}

// Another site's page cannot make an administrator's browser reset a subject.
func TestCrossSite(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five})
	for _, from := range []struct {
		name   string
		header []string // of a browser whose page the form is on
		status int
	}{
		{"another site", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, 403},
		{"another site with our name as its origin", []string{"Sec-Fetch-Site", "cross-site", "Origin", "http://example.com"}, 403},
		{"a neighbour on this site", []string{"Sec-Fetch-Site", "same-site", "Origin", "http://www.example.com"}, 403},
		{"another site, an old browser", []string{"Origin", "https://evil.example"}, 403},
		{"nowhere", []string{"Origin", "null"}, 403},
		{"this page", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://example.com"}, 303},
		{"this page, over plain HTTP", []string{"Origin", "http://example.com"}, 303},
		{"a program", nil, 303},
	} {
		s.ask(5, "x", "/")
		r := post("subject=x&policy=a") // to example.com
		for i := 0; i < len(from.header); i += 2 {
			r.Header.Set(from.header[i], from.header[i+1])
		}
		want := "a 0/5"
		if from.status == http.StatusSeeOther {
			want = "a 5/5"
		}

		if w := s.send(r); w.Code != from.status {
			t.Errorf("from %s: got %d; want %d", from.name, w.Code, from.status)
		}
		if got := s.left("x"); got != want {
			t.Errorf("from %s: got %q; want %q", from.name, got, want)
		}
	}
}

// The page is served while the store fails, and shows the error.
func TestStoreFails(t *testing.T) {
	store := doubles.NewStore()
	s := newSceneOn(t, &store.Clock, store, middleware.Policy{Name: "a", Key: who, Limit: five})
	store.Err = errors.New("dial tcp: <no route>")
	w := s.send(httptest.NewRequest("GET", "/?subject=x", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "Not known: dial tcp: &lt;no route&gt;") {
		t.Errorf("look: got %d; want 503 and the cause on the page", w.Code)
	}
	if w = s.send(post("subject=x&policy=a")); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "not all was reset: ratelimit: reset: dial tcp") {
		t.Errorf("reset: got %d; want 503 and the cause on the page", w.Code)
	}
	if w = s.send(httptest.NewRequest("GET", "/", nil)); w.Code != http.StatusOK {
		t.Errorf("the page: got %d; want 200", w.Code)
	}
}

// Any subject is shown as text, and links lead to it byte for byte.
func TestHostileSubjects(t *testing.T) {
	for _, subject := range []string{
		hostile, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, "</style><script>", "javascript:alert(1)", "{{.}}",
		"&amp;", "a b+c%20d#e?f&g=h", "\x00\r\n\t\x1b[31m", "\xff\xfe not UTF-8", "\u202etxt.exe", "ünïcode 名前", "https://evil.example/",
	} {
		s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five})
		s.ask(7, subject, "/")
		link := references(s.html(""), subject)
		if len(link) != 1 {
			t.Fatalf("%q: got links %q; want one", subject, link)
		}
		form := references(s.html(link[0]), subject)
		if len(form) != 2 {
			t.Fatalf("%q: got references %q; want a link and a form", subject, form)
		}

		for _, page := range []string{s.html(""), s.html(link[0])} {
			for _, bad := range []string{"<script", "<img", "onerror=alert(1)>", "onmouseover='", "\x00", "\x1b", "\xff", "\u202e"} {
				if strings.Contains(page, bad) {
					t.Errorf("%q: the page has %q", subject, bad)
				}
			}
		}

		if page := s.html(link[0]); !strings.Contains(page, "0 of 5") {
			t.Errorf("%q: its link does not show its bucket", subject)
		}

		// A browser sends the subject in the URL and the rest in the body.
		r := post("policy=a")
		r.URL.RawQuery = form[0][1:]
		back := s.send(r).Header().Get("Location")
		if page := s.html(back); !strings.Contains(page, "5 of 5") {
			t.Errorf("%q: was not reset", subject)
		}
	}
}

// references returns the links and forms of a page about a subject, in order.
func references(page, subject string) (all []string) {
	for _, f := range reference.FindAllStringSubmatch(page, -1) {
		query, err := url.ParseQuery(strings.TrimPrefix(html.UnescapeString(f[1]), "?"))
		if err == nil && query.Has("subject") && query.Get("subject") == subject {
			all = append(all, html.UnescapeString(f[1]))
		}
	}
	return all
}

// Long subjects are cut in memory, and can be looked up in full.
func TestLongSubjects(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five})
	long, longer := "sub:"+strings.Repeat("long", 100)+"!", "sub:"+strings.Repeat("longer", 1000)+"!"
	s.ask(6, long, "/")
	s.ask(7, longer, "/")
	page := s.html("")
	if len(references(page, long)) != 1 || len(references(page, longer[:512])) != 0 {
		t.Error("want a link to the one that is kept whole, and none to the other")
	}
	most := s.json("").Policies[0].MostDenied
	if len(most) != 2 || most[0].Subject != longer[:512] || most[1].Subject != long {
		t.Errorf("got %d subjects; want both, the longer one cut to 512 bytes", len(most))
	}
	if got := s.left(longer); got != "a 0/5" {
		t.Errorf("got %q; want a 0/5", got)
	}
}
