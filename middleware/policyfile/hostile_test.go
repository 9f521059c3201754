package policyfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// fill repeats a text up to the size that a file may have.
func fill(begin, text string) string {
	const maxSize = 64 << 10
	return begin + strings.Repeat(text, (maxSize-len(begin))/len(text))
}

// below repeats a text for less than as many tokens as are read.
func below(begin, text string) string { return begin + strings.Repeat(text, 1500) }

// A file that is made to be hard to read is refused, at little cost: no depth
// to fall into, and nothing small that stands for something large.
func TestHostile(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [a, b, c, d, e, f, g, h, i, j]\n")
	for i := range 20 {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	const deep = ": lists and mappings are nested more than 16 deep; want a list of policies"
	const much = ": the file has more than 8000 words, values, marks and comments (YAML tokens), which is the most that is read"
	for text, want := range map[string]string{
		fill("", "a:\n"):                   "4001:1" + much,
		fill("", "? a\n"):                  "4001:1" + much,
		fill("", "#\n"):                    "8001:1" + much,
		fill("", "["):                      "1:17" + deep,
		fill("policies:\n  ", "["):         "2:19" + deep,
		fill("", "{a: "):                   "1:65" + deep,
		fill("", "- "):                     "1:33" + deep,
		fill("", "? "):                     "1:33" + deep,
		fill("", "- ? "):                   "1:33" + deep,
		below("policies: ", "&a "):         "this is not YAML: ",
		below("policies: ", "!a "):         "this is not YAML: ",
		below("policies: ", "*a "):         "this is not YAML: ",
		below("policies: [", ", "):         "this is not YAML: ",
		fill("policies: '", "x"):           "this is not YAML: ",
		below("policies: [", "{}, ") + "]": "has no key",
		below("policies:\n", "- &a {}\n"):  "mistakes more",
		fill("policies:\n- key: ", "x"):    `x..."; want client or user`,
		fill("policies:\n- name: ", "é"):   "has 65518 characters; want at most 64",
		below("", "---\n"):                 "the file is empty",
		fill("", "\n"):                     "the file is empty",
		fill("", "\r"):                     "the file is empty",
		fill("", " "):                      "the file is empty",
		below("", "#\n"):                   "the file is empty",
		bomb.String() + "policies: *a20\n": "an alias (*) is not read here",
		bomb.String() + good:               `field "a0" is unknown`,
	} {
		_, err := policyfile.Parse("p.yaml", []byte(text), words)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50q: got %.300v; want %s", text, err, want)
		} else if len(err.Error()) > 64<<10 {
			t.Errorf("%.50q: got an error of %d bytes; want less than the file has", text, len(err.Error()))
		}
	}
}

// What a file with many policies needs is read.
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
