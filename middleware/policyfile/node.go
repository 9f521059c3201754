package policyfile

import (
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// positionOf is where the node begins.
func nodePosition(n ast.Node) position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return nodePosition(m.Values[0].Key)
	}
	return tokenPosition(n.GetToken())
}

// plain is the node, or false and a mistake if it is not written out. So a limit
// is found where it applies, and nothing small stands for something large.
func (r *reader) literal(n ast.Node) (plain ast.Node, ok bool) {
	switch n := n.(type) {
	case nil:
		return nil, false
	case *ast.AnchorNode:
		r.diagnostics.addf(nodePosition(n), "an anchor (&) is not read here; want every value written out")
		return nil, false
	case *ast.AliasNode:
		r.diagnostics.addf(nodePosition(n), "an alias (*) is not read here; want every value written out")
		return nil, false
	case *ast.TagNode:
		r.diagnostics.addf(nodePosition(n), "a tag (%s) is not read here; want the value alone", clip(n.Start.Value))
		return nil, false
	default:
		return n, true
	}
}

// text is the text that the node holds: not a number, nor true or false.
func stringValue(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// shown is the node as a message repeats it.
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

// pairs goes through the fields of a mapping and returns where they stand. What
// is there twice is a mistake, and each does not see it again. The value is nil
// if it has been reported already.
func (r *reader) eachField(m *ast.MappingNode, each func(name string, key, value ast.Node)) (seen map[string]position) {
	seen = map[string]position{}
	for _, pair := range m.Values {
		at := nodePosition(pair.Key)
		name, ok := stringValue(pair.Key)
		if !ok {
			r.diagnostics.addf(at, "%s stands for the name of a field; want text", describe(pair.Key))
			continue
		}
		if before, twice := seen[name]; twice {
			r.diagnostics.addf(at, "%s is there twice, first in line %d; want it once", quoted(name), before.line)
			continue
		}
		seen[name] = at
		value, _ := r.literal(pair.Value)
		each(name, pair.Key, value)
	}
	return seen
}

// isEmpty reports that nothing is written where the node stands ("shadow:").
func isEmpty(n ast.Node) bool {
	t := n.GetToken()
	return n.Type() == ast.NullType && t != nil && t.Type == token.ImplicitNullType
}

// mapping is the node as a mapping; what says what it is for.
func (r *reader) asMapping(n ast.Node, what, want string) (*ast.MappingNode, bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.diagnostics.addf(nodePosition(n), "%s is %s; want %s", what, describe(n), want)
	}
	return m, ok
}
