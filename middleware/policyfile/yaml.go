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

// maxDepth is more than a file needs, and harmless to a recursive parser.
const maxDepth = 16

// maxTokens allows 10,000 subjects of overrides, of two tokens each, and maxFields 250
// policies of 15 fields each. The parser's time grows with the square of the fields:
// these take a tenth of a second.
const (
	maxTokens = 24_000
	maxFields = 4000
)

// parse returns the root of the file's one document, or nil if there is none.
func (r *reader) parse(data []byte) (root ast.Node) {
	if len(data) > maxSize {
		r.diagnostics.addf(fileStart, "the file has more than %d bytes; want at most that many", maxSize)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if at, bad := firstInvalidByte(data); bad {
		r.diagnostics.addf(at, "the file is not text; want UTF-8")
		return nil
	}
	defer func() {
		if v := recover(); v != nil { // a bug of the parser must not end the process
			r.diagnostics.addf(fileStart, "the YAML parser failed (%s)", clip(fmt.Sprint(v)))
			root = nil
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if t := tooDeep(tokens); t != nil {
		r.diagnostics.addf(tokenPosition(t), "lists and mappings are nested more than %d deep; want a list of policies", maxDepth)
		return nil
	}
	if len(tokens) > maxTokens {
		r.diagnostics.addf(tokenPosition(tokens[maxTokens]), "the file has more than %d YAML tokens (words, values, marks and comments); want at most that many", maxTokens)
		return nil
	}
	fields := 0
	for _, t := range tokens {
		if t.Type != token.MappingValueType && t.Type != token.MappingKeyType {
			continue
		}
		if fields++; fields > maxFields {
			r.diagnostics.addf(tokenPosition(t), "the file has more than %d fields; want at most that many", maxFields)
			return nil
		}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, what := fileStart, err.Error()
		if e := yaml.Error(nil); errors.As(err, &e) {
			at, what = tokenPosition(e.GetToken()), e.GetMessage()
		}
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
		r.diagnostics.addf(at, "a second document begins; want all policies in one")
	}
	return root
}

var fileStart = position{1, 1}

// tokenPosition returns where the token begins.
func tokenPosition(t *token.Token) position {
	if t == nil || t.Position == nil {
		return fileStart
	}
	return position{max(t.Position.Line, 1), max(t.Position.Column, 1)}
}

// firstInvalidByte finds a byte that is 0 or not UTF-8.
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

// tooDeep returns the first token nested deeper than maxDepth, by brackets or by
// the dashes and question marks in a line. Nesting by indentation is bounded by
// the file's size.
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
