package policyfile_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/race"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// fill repeats a text up to the size limit of a file.
func fill(begin, text string) string {
	const maxSize = 512 << 10
	return begin + strings.Repeat(text, (maxSize-len(begin))/len(text))
}

// below repeats a text, for fewer tokens than the limit and one field more than its.
func below(begin, text string) string { return begin + strings.Repeat(text, 4001) }

// A hostile file is rejected at little cost: deep nesting, many tokens and expanding
// aliases are bounded.
func TestParseBounds(t *testing.T) {
	race.Skip(t)

	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [a, b, c, d, e, f, g, h, i, j]\n")
	for i := range 20 {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}

	const deep = ": the file has more than 16 lists and mappings in each other; want at most that many"
	const much = ": the file has more than 24000 YAML tokens (words, values, marks and comments); want at most that many"
	for text, want := range map[string]string{
		fill("", "a:\n"):                             "12001:1" + much,
		fill("", "- a\n"):                            "12001:1" + much,
		fill("", "? a\n"):                            "12001:1" + much,
		fill("", "#\n"):                              "24001:1" + much,
		fill("", "["):                                "1:17" + deep,
		fill("policies:\n  ", "["):                   "2:19" + deep,
		fill("", "{a: "):                             "1:65" + deep,
		fill("", "- "):                               "1:33" + deep,
		fill("", "? "):                               "1:33" + deep,
		fill("", "- ? "):                             "1:33" + deep,
		below("policies: ", "&a "):                   "this is not YAML: ",
		below("policies: ", "!a "):                   "this is not YAML: ",
		below("policies: ", "*a "):                   "this is not YAML: ",
		"policies: " + strings.Repeat("&a ", 11_000): "this is not YAML: ",
		below("policies: [", ", "):                   "this is not YAML: ",
		fill("policies: '", "x"):                     "this is not YAML: ",
		below("policies: [", "{}, ") + "]":           "the policy is empty",
		below("policies:\n", "- &a {}\n"):            "more mistakes",
		fill("policies:\n- key: ", "x"):              `x"; want client or user`,
		fill("policies:\n- name: ", "é"):             "has 524270 characters; want at most 64",
		below("", "---\n"):                           "the file is empty",
		fill("", "\n"):                               "the file is empty",
		fill("", "\r"):                               "the file is empty",
		fill("", " "):                                "the file is empty",
		below("", "#\n"):                             "the file is empty",
		bomb.String() + "policies: *a20\n":           "policies is an alias (*), which is not supported",
		bomb.String() + good:                         `field "a0" is unknown`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := policyfile.Parse("p.yaml", []byte(text), funcs)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 150<<20 {
			t.Errorf("%.50q: allocated %d MB; want 150 at most", text, n>>20)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50q: got %.300v; want %s", text, err, want)
		} else if len(err.Error()) > 64<<10 {
			t.Errorf("%.50q: got an error of %d bytes; want less than the file has", text, len(err.Error()))
		}
	}
}

// 250 policies are within the bounds.
func TestManyPolicies(t *testing.T) {
	var text strings.Builder
	text.WriteString("policies:\n")
	for i := range 250 {
		fmt.Fprintf(&text, "  # Policy %d.\n  - name: p%d\n    key: [user, client]\n    routes: [POST /login, \"GET /a\"]\n    plans: {free: 5/second, pro: 9/second}\n", i, i)
	}
	if got := parse(t, text.String()); len(got) != 250 {
		t.Errorf("got %d policies; want 250", len(got))
	}
}
