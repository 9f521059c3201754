package realmw

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

var schema = gqlparser.MustLoadSchema(&ast.Source{Input: `
	type Query { user(id: ID!): User }
	type User { name: String!  friends(first: Int): [User!]! }
`})

// cost returns the number of fields that a GraphQL request asks for.
func cost(r *http.Request) int {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	r.Body = io.NopCloser(bytes.NewReader(body))
	var request struct{ Query string }
	if err != nil || json.Unmarshal(body, &request) != nil {
		return 1 // the handler answers 400
	}
	query, errs := gqlparser.LoadQueryWithRules(schema, request.Query, nil)
	if errs != nil {
		return 1
	}
	n := 1
	for _, op := range query.Operations {
		n += fields(op.SelectionSet, 1_000-n)
	}
	return n
}

// fields counts up to about most fields: fragments in fragments could ask for any number.
func fields(set ast.SelectionSet, most int) (n int) {
	for _, selection := range set {
		if n > most {
			break
		}
		switch s := selection.(type) {
		case *ast.Field:
			n += 1 + fields(s.SelectionSet, most-n)
		case *ast.InlineFragment:
			n += fields(s.SelectionSet, most-n)
		case *ast.FragmentSpread:
			n += fields(s.Definition.SelectionSet, most-n)
		}
	}
	return n
}

// Recipe "GraphQL".
func TestGraphQLCost(t *testing.T) {
	// Fragments in fragments: 2 to the power of 30 fields.
	nested := "query { user(id: 1) { ...f0 } } "
	for i := range 30 {
		nested += fmt.Sprintf("fragment f%d on User { ...f%[2]d b: friends { ...f%[2]d } } ", i, i+1)
	}
	nested += "fragment f30 on User { name }"
	for query, want := range map[string]struct {
		cost   int64
		status int
	}{
		"{ user(id: 1) { name } }":                                        {3, 200},
		"{ user(id: 1) { friends { name friends { name } } } }":           {6, 200},
		"{ a: user(id: 1) { ...f } } fragment f on User { name n: name }": {4, 200},
		"no query": {1, 200},
		nested:     {0, 429},
	} {
		body, err := json.Marshal(map[string]string{"query": query})
		if err != nil {
			t.Fatal(err)
		}
		var charged int64
		limit := ratelimit.New(ratelimit.Config{
			Store: gcra.NewMemory(), Observe: func(_ *http.Request, d ratelimit.Decision) { charged = 100 - d.Results[0].Remaining },
		}, ratelimit.Policy{Name: "fields", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(100), Cost: cost})
		w := httptest.NewRecorder()
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%.60s: the handler reads %.60q, %v; want the whole body", query, got, err)
			}
		})).ServeHTTP(w, httptest.NewRequest("POST", "/graphql", strings.NewReader(string(body))))
		if w.Code != want.status || charged != want.cost {
			t.Errorf("%.60s: got status %d, %d units charged; want %d, %d", query, w.Code, charged, want.status, want.cost)
		}
	}
}
