package policyfile

import (
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// nodePosition returns where the node begins.
func nodePosition(n ast.Node) position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return nodePosition(m.Values[0].Key)
	}
	return tokenPosition(n.GetToken())
}

// literal returns the node. Anchors, aliases and tags are errors: limits are
// written where they apply, and no small file expands to a large one.
func (r *reader) literal(n ast.Node) (literal ast.Node, ok bool) {
	switch n := n.(type) {
	case nil:
		return nil, false
	case *ast.AnchorNode:
		r.errorf(n, "anchors (&) are not supported; want every value written out")
		return nil, false
	case *ast.AliasNode:
		r.errorf(n, "aliases (*) are not supported; want every value written out")
		return nil, false
	case *ast.TagNode:
		r.errorf(n, "tags (%s) are not supported; want the value alone", clip(n.Start.Value))
		return nil, false
	default:
		return n, true
	}
}

// stringValue returns the node's string. Numbers and booleans are not strings.
func stringValue(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// describe returns the node as messages show it.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.NullNode:
		if isEmpty(n) {
			return "empty"
		}
		return "null"
	default:
		if s, ok := stringValue(n); ok {
			return quoted(s)
		}
		return clip(n.GetToken().Value)
	}
}

func quoted(s string) string { return strconv.Quote(clip(s)) }

// eachField calls each for the fields of a mapping, and returns their positions. A
// repeated field is an error, and each gets only the first. The value is nil if its
// error is reported already.
func (r *reader) eachField(m *ast.MappingNode, each func(name string, key, value ast.Node)) (seen map[string]position) {
	seen = map[string]position{}
	for _, pair := range m.Values {
		at := nodePosition(pair.Key)
		name, ok := stringValue(pair.Key)
		if !ok {
			r.diagnostics.addf(at, "the name of a field is %s; want text", describe(pair.Key))
			continue
		}
		if before, twice := seen[name]; twice {
			r.diagnostics.addf(at, "%s is repeated, it is first in line %d; want it once", quoted(name), before.line)
			continue
		}
		seen[name] = at
		value, _ := r.literal(pair.Value)
		each(name, pair.Key, value)
	}
	return seen
}

// isEmpty reports whether the value is left out, as in "shadow:".
func isEmpty(n ast.Node) bool {
	t := n.GetToken()
	return n.Type() == ast.NullType && t != nil && t.Type == token.ImplicitNullType
}

// asMapping returns the node as a mapping. In the error what is its name.
func (r *reader) asMapping(n ast.Node, what, want string) (*ast.MappingNode, bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.errorf(n, "%s is %s; want %s", what, describe(n), want)
	}
	return m, ok
}
