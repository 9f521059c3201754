package replay

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// guesser returns a log of many clients with few requests, and of some that never stop.
func guesser(seldom int, never ...string) string {
	var log strings.Builder
	for n := range 600 {
		at := time.Date(2026, 11, 20, 8, 0, n, 0, time.UTC).Format(commonTime)
		line := func(client string) { fmt.Fprintf(&log, "%s - - [%s] \"GET /x HTTP/1.1\" 200 1\n", client, at) }
		if n < seldom {
			line(fmt.Sprintf("192.0.2.%d", n))
		}
		for _, client := range never {
			line(client)
		}
	}
	return log.String()
}

// A quota has the busiest period of each subject, and the quota that denies none.
func TestReportOfAQuota(t *testing.T) {
	p := played(t, "policies: [{name: a, key: client, limit: 100/calendar day Europe/Berlin}]", guesser(20, "203.0.113.9"))
	got := printed(p, 0)
	for _, want := range []string{
		"100/calendar day Europe/Berlin: 21 subjects, 1 (4.76 %) denied at least once\n",
		"units in the busiest period", "600/calendar day Europe/Berlin denies none of them",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q", got, want)
		}
	}
	if strings.Contains(got, "burst") {
		t.Errorf("got\n%s\nwant no burst", got)
	}
}

// A limit that is too slow for the burst which subjects need has no suggestion.
func TestReportWithoutSuggestion(t *testing.T) {
	p := played(t, "policies: [{name: a, key: client, limit: 1/8784h}]", strings.Repeat(lineAt(1, "x"), 5))
	for _, atMost := range []float64{0, 1} {
		if got := printed(p, atMost); !strings.Contains(got, "no limit that is valid denies so few\n") || strings.Contains(got, "choose") {
			t.Errorf("--at-most %v: got\n%s\nwant no choice", atMost, got)
		}
	}
}

func printed(p *player, atMost float64) string {
	var out strings.Builder
	(&report{player: p, stats: logStats{zone: time.UTC, subSecond: true}, share: atMost / 100}).print(&out)
	return out.String()
}

// If the share is less than one subject, there are two choices: limits that deny none, and
// limits that deny only the most frequent subject.
func TestReportOfFewSubjects(t *testing.T) {
	const policies = "policies: [{name: a, key: client, limit: %s}]"
	p := played(t, fmt.Sprintf(policies, "5/minute"), guesser(20, "203.0.113.9"))
	got := printed(p, 1)
	if strings.Contains(got, "suggested") || !strings.Contains(got, "    1 % of 21 subjects is less than one; choose:\n") {
		t.Errorf("got\n%s\nwant a choice and nothing suggested", got)
	}

	for _, c := range []struct {
		section string
		denied  []string
	}{
		{"to deny none", nil},
		{"to deny only one", []string{"ip:203.0.113.9"}},
	} {
		limits := regexp.MustCompile(c.section + ` +(\S+(?: burst \d+)?).*\n +or +(\S+(?: burst \d+)?)`).FindStringSubmatch(got)
		if limits == nil || !strings.Contains(limits[0], strings.Join(c.denied, "")) {
			t.Errorf("got\n%s\nwant two limits %s %v", got, c.section, c.denied)
			continue
		}

		for _, limit := range limits[1:] {
			again := played(t, fmt.Sprintf(policies, limit), guesser(20, "203.0.113.9"))
			var denied []string
			for _, subject := range again.tallies[0].top.first(9) {
				denied = append(denied, subject.name)
			}
			if !slices.Equal(denied, c.denied) {
				t.Errorf("%s: %s denies %v; want %v", c.section, limit, denied, c.denied)
			}
		}
	}

	for _, c := range []struct {
		log    string
		atMost float64
		want   string
		not    string
	}{
		{guesser(20, "203.0.113.8", "203.0.113.9"), 1, "to deny none", "to deny only one"}, // the two are alike
		{guesser(1), 1, "1 % of 1 subject is less than one", "to deny only one"},
		{guesser(20, "203.0.113.9"), 0, "denies none of them\n", "choose"},
		{guesser(20, "203.0.113.9"), 5, "denies at most 1 (4.76 %) of them: ip:203.0.113.9\n", "choose"},
	} {
		got := printed(played(t, fmt.Sprintf(policies, "5/minute"), c.log), c.atMost)
		if !strings.Contains(got, c.want) || strings.Contains(got, c.not) {
			t.Errorf("--at-most %v: got\n%s\nwant %q and not %q", c.atMost, got, c.want, c.not)
		}
	}
}

// The report says which requests other policies denied, as they count as if allowed.
func TestReportDeniedByOthers(t *testing.T) {
	got := printed(played(t, `
policies:
  - {name: tight, key: client, limit: 1/minute burst 1}
  - {name: shadow, key: client, limit: 1/minute burst 1, shadow: true}
  - {name: wide, key: client, limit: 100/minute}
`, strings.Repeat(lineAt(1, "x"), 5)), 1)
	const others = "  by others     4 (80.00 %) denied; the table and the suggestions count them as if allowed\n"
	for name, want := range map[string]bool{"tight": false, "shadow": true, "wide": true} {
		_, section, _ := strings.Cut(got, "policy "+name)
		section, _, _ = strings.Cut(section, "policy ")
		if strings.Contains(section, others) != want {
			t.Errorf("policy %s: got %s; want denials by others: %t", name, section, want)
		}
	}
}
