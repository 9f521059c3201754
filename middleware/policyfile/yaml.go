package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxDepth is more than a file needs, and nothing to a parser that recurses.
const maxDepth = 16

// maxTokens bounds what the parser does with the square of their number: a
// tenth of a second, and room for 250 policies of thirty tokens each.
const maxTokens = 8000

// parse reads the file's one document; nil after a mistake that leaves nothing
// to look at.
func (r *reader) parse(data []byte) (root ast.Node) {
	if len(data) > maxSize {
		r.diagnostics.addf(fileStart, "the file has more than %d bytes, which is the most that is read", maxSize)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if at, bad := firstInvalidByte(data); bad {
		r.diagnostics.addf(at, "the file is no text; want UTF-8")
		return nil
	}
	defer func() {
		if v := recover(); v != nil { // the parser's own mistake, and no reason to end the process
			r.diagnostics.addf(fileStart, "the file is YAML that cannot be read (%s)", clip(fmt.Sprint(v)))
			root = nil
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if t := tooDeep(tokens); t != nil {
		r.diagnostics.addf(tokenPosition(t), "lists and mappings are nested more than %d deep; want a list of policies", maxDepth)
		return nil
	}
	if len(tokens) > maxTokens {
		r.diagnostics.addf(tokenPosition(tokens[maxTokens]), "the file has more than %d words, values, marks and comments (YAML tokens), which is the most that is read", maxTokens)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, what := syntaxError(err)
		r.diagnostics.addf(at, "this is not YAML: %s", clip(what))
		return nil
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root == nil {
			root = doc.Body
			continue
		}
		at := nodePosition(doc.Body)
		if doc.Start != nil {
			at = tokenPosition(doc.Start)
		}
		r.diagnostics.addf(at, "another document begins; want all policies in one")
	}
	return root
}

var fileStart = position{1, 1}

// placeOf is where the token stands.
func tokenPosition(t *token.Token) position {
	if t == nil || t.Position == nil {
		return fileStart
	}
	return position{max(t.Position.Line, 1), max(t.Position.Column, 1)}
}

// syntaxError is what the parser did not understand, and where.
func syntaxError(err error) (at position, what string) {
	var e yaml.Error
	if errors.As(err, &e) {
		return tokenPosition(e.GetToken()), e.GetMessage()
	}
	return fileStart, err.Error()
}

// firstBadByte finds what is not UTF-8, or the byte 0, which no text has.
func firstInvalidByte(data []byte) (at position, bad bool) {
	at = fileStart
	for len(data) > 0 {
		c, size := utf8.DecodeRune(data)
		switch {
		case c == utf8.RuneError && size == 1, c == 0:
			return at, true
		case c == '\n':
			at = position{at.line + 1, 1}
		default:
			at.column++
		}
		data = data[size:]
	}
	return at, false
}

// tooDeep finds the first token that is nested deeper than anybody needs, by
// brackets or by the dashes and question marks in a line. What is nested by
// indentation needs no bound but that of the file's size.
func tooDeep(tokens token.Tokens) *token.Token {
	brackets, marks, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			marks, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			marks++
		}
		if brackets > maxDepth || marks > maxDepth {
			return t
		}
	}
	return nil
}
