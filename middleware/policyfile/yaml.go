package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxSize is the largest file in bytes.
const maxSize = 512 << 10

// maxDepth is more than a file needs, and harmless to a recursive parser.
const maxDepth = 16

// maxTokens is enough for 10,000 short subjects of overrides. The parser's time grows with the
// square of the fields of a mapping, to about a second.
const maxTokens = 24_000

// parse returns the root of the file's one document, or nil if there is none.
func (ms *mistakes) parse(data []byte) (root ast.Node) {
	if len(data) > maxSize {
		ms.addf(fileStart, "the file has more than %d bytes; want at most that many", maxSize)
		return nil
	}
	text := strings.ToValidUTF8(strings.TrimPrefix(string(data), "\ufeff"), "\x00")
	if before, _, bad := strings.Cut(text, "\x00"); bad {
		line := before[strings.LastIndexByte(before, '\n')+1:]
		at := position{strings.Count(before, "\n") + 1, utf8.RuneCountInString(line) + 1}
		ms.addf(at, "the file is not text; want UTF-8")
		return nil
	}

	defer func() {
		if v := recover(); v != nil { // a bug of the parser must not end the process
			ms.addf(fileStart, "the YAML parser failed (%.80s)", fmt.Sprint(v))
			root = nil
		}
	}()
	text = strings.ReplaceAll(text, "\r\n", "\n") // of which the lexer counts some as two lines
	tokens := lexer.Tokenize(text)
	if at, what := tooMuch(tokens); at != nil {
		ms.addf(tokenPosition(at), "the file has more than %s; want at most that many", what)
		return nil
	}

	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var at position
		var what string
		if e := yaml.Error(nil); errors.As(err, &e) {
			at, what = tokenPosition(e.GetToken()), e.GetMessage() // its Error prints the file
		} else {
			at, what = fileStart, err.Error()
		}
		ms.addf(at, "this is not YAML: %.80s", what)
		return nil
	}

	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case root == nil:
			root = doc.Body
		default:
			ms.addf(tokenPosition(cmp.Or(doc.Start, doc.Body.GetToken())), "a second document begins; want all policies in one")
		}
	}
	return root
}

// tooMuch returns the token that is beyond a bound, and the bound. Nesting counts by brackets
// and by the dashes and question marks in a line: nesting by indentation is bounded by the
// file's size.
func tooMuch(tokens token.Tokens) (at *token.Token, bound string) {
	brackets, marks, line := 0, 0, 0
	for i, t := range tokens {
		if t.Position.Line != line {
			marks, line = 0, t.Position.Line
		}

		// The parser calls itself for each of these, and a stack that overflows ends the process.
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			marks++
		}

		switch {
		case brackets > maxDepth, marks > maxDepth:
			return t, fmt.Sprintf("%d lists and mappings in each other", maxDepth)
		case i >= maxTokens:
			return t, fmt.Sprintf("%d YAML tokens (words, values, marks and comments)", maxTokens)
		}
	}
	return nil, ""
}

// tokenPosition returns where the token begins.
func tokenPosition(t *token.Token) position {
	if t == nil || t.Position == nil {
		return fileStart
	}
	return position{max(t.Position.Line, 1), max(t.Position.Column, 1)}
}
