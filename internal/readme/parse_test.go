package readme

import (
	"errors"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// parse checks the syntax of a Go block, which is a file, declarations,
// statements, or elements of a list. Imports may stand before all of them. The
// error is that of a block of statements.
func parse(lines []string) error {
	var imports, rest []string
	for _, line := range lines {
		if strings.HasPrefix(line, "import ") && !strings.HasSuffix(line, "(") {
			imports = append(imports, line)
		} else {
			rest = append(rest, line)
		}
	}
	before, code := strings.Join(imports, "\n"), strings.Join(rest, "\n")
	err := parseIn(before, "func _() {\n", code, "\n}")
	if err == nil ||
		parseIn(before, "var _ = []T{\n", code, "\n}") == nil ||
		parseFile("package p\n"+strings.Join(lines, "\n")) == nil ||
		parseFile(strings.Join(lines, "\n")) == nil {
		return nil
	}
	return err
}

// parseIn checks code that stands between opening and closing, which must not
// close in between.
func parseIn(imports, opening, code, closing string) error {
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+imports+"\n"+opening+code+closing, 0)
	if err == nil && len(file.Decls) != len(file.Imports)+1 {
		err = errors.New("the brackets do not balance")
	}
	return err
}

func parseFile(text string) error {
	_, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	return err
}

// Every Go block is whole: it can be copied as it is.
func TestBlocksParse(t *testing.T) {
	for _, document := range documents {
		for _, b := range blocks(t, document) {
			if b.language != "go" {
				continue
			}
			if err := parse(b.lines); err != nil {
				t.Errorf("%s: the block is no whole piece of Go: %v; show it to its end:\n%s", b.where, err, strings.Join(b.lines, "\n"))
			}
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		code string
		ok   bool
	}{
		{"package main\n\nfunc main() {}", true},
		{"import \"fmt\"\n\nfmt.Println()", true},
		{"import (\n\"fmt\"\n)\n\nfunc f() {}", true},
		{"func TestX(t *testing.T) {\n}", true},
		{"x := f()\n\nreturn x", true},
		{"{Name: \"a\", Routes: []string{\"/\"}},\n{Name: \"b\"},", true},
		{"x := f(T{\nA: []B{\n{C: 1},\n},", false},
		{"if err != nil {\nreturn err", false},
		{"}", false},
		{"}\n\nfunc g() {", false},
		{"f(a, b", false},
		{"{Name: \"a\"", false},
		{"f())", false},
	} {
		if err := parse(strings.Split(c.code, "\n")); (err == nil) != c.ok {
			t.Errorf("%q: got %v; want it to parse: %v", c.code, err, c.ok)
		}
	}
}
