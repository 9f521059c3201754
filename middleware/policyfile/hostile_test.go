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

// A file that is made to be hard to read is refused, at little cost: no depth
// to fall into, and nothing small that stands for something large.
func TestHostile(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [a, b, c, d, e, f, g, h, i, j]\n")
	for i := range 20 {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	const deep = ": lists and mappings are nested more than 16 deep; want a list of policies"
	for text, want := range map[string]string{
		fill("", "["):                      "1:17" + deep,
		fill("policies:\n  ", "["):         "2:19" + deep,
		fill("", "{a: "):                   "1:65" + deep,
		fill("", "- "):                     "1:33" + deep,
		fill("", "? "):                     "1:33" + deep,
		fill("", "- ? "):                   "1:33" + deep,
		fill("policies: ", "&a "):          "this is not YAML: ",
		fill("policies: ", "!a "):          "this is not YAML: ",
		fill("policies: ", "*a "):          "this is not YAML: ",
		fill("policies: [", ", "):          "this is not YAML: ",
		fill("policies: '", "x"):           "this is not YAML: ",
		fill("policies: [", "{}, ") + "]":  "has no key",
		fill("policies:\n", "- &a {}\n"):   "mistakes more",
		fill("policies:\n- key: ", "x"):    `x..."; want client or user`,
		fill("policies:\n- name: ", "é"):   "has 65518 characters; want at most 64",
		fill("", "---\n"):                  "the file is empty",
		fill("", "\n"):                     "the file is empty",
		fill("", "\r"):                     "the file is empty",
		fill("", " "):                      "the file is empty",
		fill("", "#\n"):                    "the file is empty",
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
