package realmw

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// cost returns 1 and the number of fields and fragments that a GraphQL request asks for,
// together at most 1,000. It does not validate the query: with thousands of fields that can
// take seconds.
func cost(r *http.Request) int64 {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	r.Body = struct { // all of it, for requests that pass all the same
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	var request struct{ Query string }
	// A Decoder, as in most servers: it ignores what follows the object.
	if err != nil || r.Method != http.MethodPost || json.NewDecoder(bytes.NewReader(body)).Decode(&request) != nil {
		return 1_000 // a form, a batch or a GET: the server may find a query where this does not
	}

	query, err := parser.ParseQuery(&ast.Source{Input: request.Query})
	if err != nil {
		return 1 // the server answers with the error
	}

	n := 1
	for _, op := range query.Operations {
		n += selections(query, op.SelectionSet, 1_000-n)
	}
	return int64(n)
}

// selections counts up to most: fragments in fragments could ask for any number, and
// a fragment in itself for no end.
func selections(query *ast.QueryDocument, set ast.SelectionSet, most int) (n int) {
	for _, selection := range set {
		if n >= most {
			break
		}
		n++

		switch s := selection.(type) {
		case *ast.Field:
			n += selections(query, s.SelectionSet, most-n)
		case *ast.InlineFragment:
			n += selections(query, s.SelectionSet, most-n)
		case *ast.FragmentSpread:
			if f := query.Fragments.ForName(s.Name); f != nil {
				n += selections(query, f.SelectionSet, most-n)
			}
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

	asJSON := func(query string) string {
		body, err := json.Marshal(map[string]string{"query": query})
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}

	for _, test := range []struct {
		body   string
		cost   int64
		status int
	}{
		{asJSON("{ user(id: 1) { name } }"), 3, 200},
		{asJSON("{ user(id: 1) { friends { name friends { name } } } }"), 6, 200},
		{asJSON("{ a: user(id: 1) { ...f } } fragment f on User { name n: name }"), 5, 200},
		{asJSON("no query"), 1, 200},
		{asJSON(nested), 0, 429},
		{asJSON("{ user(id: 1) { ...f } } fragment f on User { ...f }"), 0, 429},
		{asJSON("{ user(id: 1) { " + strings.Repeat("name ", 12_000) + "} }"), 0, 429},
		// A Decoder finds a query in the first, and a server with more transports in the others.
		{asJSON("{ user(id: 1) { name } }") + " x", 3, 200},
		{"[" + asJSON("{ user(id: 1) { name } }") + "]", 0, 429},
		{"query=" + url.QueryEscape("{ user(id: 1) { name } }"), 0, 429},
		{"", 0, 429},
	} {
		var charged int64
		limit := ratelimit.New(ratelimit.Config{
			Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) { charged = 100 - d.Results[0].Remaining },
		}, ratelimit.Policy{Name: "fields", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(100), Cost: cost})

		w := httptest.NewRecorder()
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got, err := io.ReadAll(r.Body); err != nil || string(got) != test.body {
				t.Errorf("%.60s: the handler reads %.60q, %v; want the whole body", test.body, got, err)
			}
		})).ServeHTTP(w, httptest.NewRequest("POST", "/graphql", strings.NewReader(test.body)))

		if w.Code != test.status || charged != test.cost {
			t.Errorf("%.60s: got status %d, %d units charged; want %d, %d", test.body, w.Code, charged, test.status, test.cost)
		}
	}

	// The count ends at 1,000.
	if got := cost(httptest.NewRequest("POST", "/graphql", strings.NewReader(asJSON(nested)))); got != 1_000 {
		t.Errorf("a query of any number of fields costs %d; want 1,000", got)
	}

	// A server reads the query of a GET from its URL.
	r := httptest.NewRequest("GET", "/graphql?query={a}", strings.NewReader(asJSON("{ a }")))
	if got := cost(r); got != 1_000 {
		t.Errorf("a GET with another query in its body costs %d; want 1,000", got)
	}

	// A shadow lets a body above 64 KiB pass, which the handler then reads whole.
	large := asJSON("{ a }" + strings.Repeat(" ", 1<<17))
	r = httptest.NewRequest("POST", "/graphql", strings.NewReader(large))
	if got := cost(r); got != 1_000 {
		t.Errorf("a large body costs %d; want 1,000", got)
	}
	if got, err := io.ReadAll(r.Body); err != nil || string(got) != large {
		t.Errorf("the handler reads %d bytes, %v; want %d", len(got), err, len(large))
	}
}
