package words

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/race"
)

// longest is the most lines of a function in a row without a blank one.
const longest = 25

// Functions are written in paragraphs, also in the kits of tests and in programs.
func TestParagraphs(t *testing.T) {
	race.Skip(t)

	for _, name := range tracked(t, "*.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}

		found, err := walls(name, string(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, wall := range found {
			t.Error(wall)
		}
	}
}

// walls describes where functions of a file have more than longest lines in a row without a blank one. Of a
// composite literal, a text and a list of cases only the first line counts. A function in a literal is one by itself.
func walls(name, text string) (found []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	line := func(p token.Pos) int { return files.Position(p).Line }
	lines := strings.Split(text, "\n")

	check := func(body *ast.BlockStmt) {
		aside := map[int]bool{}
		ast.Inspect(body, func(n ast.Node) bool {
			if isList(n, line) {
				for i := line(n.Pos()) + 1; i <= line(n.End()); i++ {
					aside[i] = true
				}
			}
			return true
		})

		run, begin := 0, 0
		for i := line(body.Lbrace) + 1; i <= line(body.Rbrace); i++ {
			switch {
			case strings.TrimSpace(lines[i-1]) == "" || i == line(body.Rbrace):
				if run > longest {
					found = append(found, fmt.Sprintf("%s:%d: %d lines without a blank one; want at most %d: one step a paragraph", name, begin, run, longest))
				}
				run = 0
			case !aside[i]:
				if run++; run == 1 {
					begin = i
				}
			}
		}
	}

	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				check(n.Body)
			}
		case *ast.CompositeLit:
			for _, e := range n.Elts {
				if pair, ok := e.(*ast.KeyValueExpr); ok {
					e = pair.Value
				}
				if f, ok := e.(*ast.FuncLit); ok {
					check(f.Body)
				}
			}
		}
		return true
	})
	return found, nil
}

// isList reports whether the lines of a node are a list: a composite literal, a text, or cases of one short
// statement each.
func isList(n ast.Node, line func(token.Pos) int) bool {
	var cases *ast.BlockStmt
	switch n := n.(type) {
	case *ast.CompositeLit:
		return true
	case *ast.BasicLit:
		return n.Kind == token.STRING
	case *ast.SwitchStmt:
		cases = n.Body
	case *ast.TypeSwitchStmt:
		cases = n.Body
	default:
		return false
	}

	for _, c := range cases.List {
		body := c.(*ast.CaseClause).Body
		if len(body) > 1 || len(body) == 1 && line(body[0].End()) > line(body[0].Pos())+1 {
			return false
		}
	}
	return true
}
