package readme

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every Go block compiles and passes go vet, and so do both sides of a diff.
func TestGoBlocks(t *testing.T) {
	known := parsePrelude(t)
	var sources []string
	for _, page := range pages {
		for _, b := range slices.Concat(blocks(t, page, "go"), sides(blocks(t, page, "diff"))) {
			source, err := known.source(b)
			if err != nil {
				t.Errorf("%s: %v:\n%s", b, err, b.text)
				continue
			}
			sources = append(sources, source)
		}
	}

	if len(sources) < 30 {
		t.Errorf("got %d Go blocks; want at least 30", len(sources))
	}

	for _, problem := range vet(t, sources) {
		t.Error(problem)
	}
}

// sides returns what diffs remove and what they add, each with the lines that stay. An empty line
// takes the place of one that is not there.
func sides(diffs []block) (all []block) {
	for _, b := range diffs {
		for _, absent := range []string{"+", "-"} {
			side := b
			side.text = ""
			for line := range strings.Lines(b.text) {
				if strings.HasPrefix(line, absent) {
					line = " \n"
				}
				side.text += strings.TrimLeft(line[:1], "+- ") + line[1:]
			}
			all = append(all, side)
		}
	}
	return all
}

// vet runs go vet on the sources, each a package of its own, and returns its
// lines. The packages are in testdata, which ./... does not enter.
func vet(t *testing.T, sources []string) (problems []string) {
	t.Helper()
	dir, err := os.MkdirTemp("testdata", "blocks")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })

	args := []string{"vet"}
	for i, source := range sources {
		folder := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "block.go"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "./internal/test/readme/"+filepath.ToSlash(folder))
	}

	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}

	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if !strings.HasPrefix(line, "#") {
			problems = append(problems, strings.TrimPrefix(line, "vet: "))
		}
	}

	return append(problems, err.Error())
}

// prelude holds the types of the names of testdata/prelude.go, and the imports
// that blocks may leave out, by package name.
type prelude struct {
	types   map[string]string
	imports map[string]string
}

const module = "github.com/seed-e377111c/ratelimit/"

func parsePrelude(t *testing.T) prelude {
	t.Helper()
	const name = "testdata/prelude.go"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}

	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, 0)
	if err != nil {
		t.Fatal(err)
	}

	p := prelude{types: map[string]string{}, imports: map[string]string{
		"httpclient":    module + "outbound/httpclient",
		"inflight":      module + "inflight",
		"ratelimitotel": module + "adapters/otel",
		"redisstore":    module + "gcra/redisstore",
		"slidinglog":    module + "outbound/slidinglog",
		"turns":         module + "outbound/turns",
		"storetest":     module + "gcra/storetest",
		"policyfile":    module + "middleware/policyfile",
		"inspect":       module + "middleware/inspect",
		"signin":        module + "middleware/signin",
		"fleet":         module + "middleware/fleet",
		"jwt":           "github.com/golang-jwt/jwt/v5",
		"redis":         "github.com/redis/go-redis/v9",
		"slog":          "log/slog",
		"httptest":      "net/http/httptest",
		"json":          "encoding/json",
	}}

	for _, std := range []string{"bytes", "errors", "fmt", "io", "log", "math", "os", "strconv", "strings"} {
		p.imports[std] = std
	}
	for _, spec := range file.Imports {
		name, at := importOf(spec)
		p.imports[name] = at
	}

	for _, decl := range file.Decls {
		for _, spec := range decl.(*ast.GenDecl).Specs {
			if value, ok := spec.(*ast.ValueSpec); ok {
				offset := func(pos token.Pos) int { return fset.Position(pos).Offset }
				p.types[value.Names[0].Name] = string(text[offset(value.Type.Pos()):offset(value.Type.End())])
			}
		}
	}

	return p
}

// source returns a Go file for a block, which is a program, declarations,
// statements, or policies of a list. The last three may begin with imports.
func (p prelude) source(b block) (string, error) {
	directive := fmt.Sprintf("//line %s:%d\n", absolute(b.page), b.line)
	if strings.HasPrefix(b.text, "package ") {
		return directive + b.text, nil
	}

	// The block's own imports go first, and leave empty lines behind.
	var imports, code strings.Builder
	for _, line := range strings.SplitAfter(b.text, "\n") {
		if strings.HasPrefix(line, "import ") {
			imports.WriteString(line)
			line = "\n"
		}
		code.WriteString(line)
	}

	var first error
	for _, form := range []func(*ast.File) (opening, closing string){
		func(*ast.File) (string, string) { return "", "" },
		function,
		func(*ast.File) (string, string) { return "var _ = []ratelimit.Policy{", "}" },
	} {
		assemble := func(before, opening, closing string) string {
			return "package block\n" + imports.String() + before + opening + "\n" + directive + code.String() + "\n" + closing + "\n"
		}
		opening, closing := form(nil)
		file, err := parser.ParseFile(token.NewFileSet(), "", assemble("", opening, closing), 0)
		if err == nil && opening != "" && len(file.Decls) != len(file.Imports)+1 {
			err = errors.New("the brackets do not balance")
		}
		if err != nil {
			first = cmp.Or(first, err)
			continue
		}

		opening, closing = form(file)
		before, err := p.missing(file)
		return assemble(before, opening, closing), err
	}

	return "", fmt.Errorf("not a whole piece of Go: %w", first)
}

// function wraps statements. Its results are those that the block returns, and
// its end uses the names that the block defines.
func function(file *ast.File) (opening, closing string) {
	if file == nil {
		return "func _() {", "}"
	}

	results := 0
	var end strings.Builder
	list := file.Decls[len(file.Decls)-1].(*ast.FuncDecl).Body.List
	for _, statement := range list {
		if define, ok := statement.(*ast.AssignStmt); ok && define.Tok == token.DEFINE {
			for _, name := range define.Lhs {
				fmt.Fprintf(&end, "_ = %s\n", name.(*ast.Ident).Name)
			}
		}

		ast.Inspect(statement, func(n ast.Node) bool {
			if r, ok := n.(*ast.ReturnStmt); ok {
				results = max(results, len(r.Results))
			}
			_, literal := n.(*ast.FuncLit)
			return !literal
		})
	}

	opening = "func _() " + []string{"", "(_ error)", "(_ any, _ error)"}[results] + " {"
	if _, returns := list[len(list)-1].(*ast.ReturnStmt); returns {
		// Before the return there is no place for uses, and none is needed.
		return opening, "}"
	}

	return opening, strings.ReplaceAll(end.String(), "_ = _\n", "") + "return\n}"
}

// missing declares the names that a file uses and does not define: imports, and
// variables of the prelude.
func (p prelude) missing(file *ast.File) (string, error) {
	own := map[string]bool{}
	adapter := "nethttp" // unless the block shows a framework
	for _, spec := range file.Imports {
		name, at := importOf(spec)
		own[name] = true
		if base := path.Base(at); base == "chi" || base == "gin" || base == "echo" || base == "echov5" {
			adapter = base
		}
	}

	var names []string
	for _, unresolved := range file.Unresolved {
		names = append(names, unresolved.Name)
	}

	for _, framework := range []string{"gin", "echo"} {
		if slices.Contains(names, framework) {
			adapter = framework
		}
	}

	var imports, vars strings.Builder
	for i := 0; i < len(names); i++ {
		name := names[i]
		if own[name] {
			continue
		}

		own[name] = true
		kind, ok := p.types[name+"_"+adapter]
		if !ok {
			kind, ok = p.types[name]
		}

		switch {
		case ok:
			fmt.Fprintf(&vars, "var %s %s\n", name, kind)
			expr, err := parser.ParseExpr(kind)
			if err != nil {
				return "", err
			}

			ast.Inspect(expr, func(n ast.Node) bool {
				if selector, ok := n.(*ast.SelectorExpr); ok {
					names = append(names, selector.X.(*ast.Ident).Name)
				}
				return true
			})
		case name == "ratelimit":
			fmt.Fprintf(&imports, "import ratelimit %q\n", module+"adapters/"+adapter)
		case p.imports[name] != "":
			fmt.Fprintf(&imports, "import %s %q\n", name, p.imports[name])
		}
	}

	return imports.String() + vars.String(), nil
}

func importOf(spec *ast.ImportSpec) (name, at string) {
	at, _ = strconv.Unquote(spec.Path.Value)
	if spec.Name != nil {
		return spec.Name.Name, at
	}
	name = path.Base(at)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(at))
	}
	return name, at
}

func absolute(page string) string {
	at, err := filepath.Abs(filepath.Join(root, page))
	if err != nil {
		panic(err)
	}
	return at
}
