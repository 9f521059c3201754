package policyfile

import (
	"net/http"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Outline is a policy, and what the file says where the policy has functions: for programs that
// show or compare files, such as the command ratelimit.
type Outline struct {
	Policy  middleware.Policy // its functions do nothing, except Override
	Limiter string            // its name, in a file with limiters

	Keys      []string                       // names
	Cost      string                         // a name or a number; "" if the file has none
	Limit     gcra.Limit                     // zero if the file has only plans
	Overrides map[string]middleware.Override // by subject
}

// Names are the names that a program registers. Nil means that every name is one.
type Names struct{ Keys, Costs, Plans []string }

// Describe is [Parse] without the program. It reports the mistakes that a server would, as far as the
// names are known, and plans that Plan never returns, which a server cannot know.
func Describe(name string, data []byte, known Names) ([]Outline, error) {
	funcs := Funcs{
		Keys:  map[string]func(*http.Request) (string, error){},
		Plan:  func(*http.Request) string { return "" },
		Costs: map[string]func(*http.Request) int64{},
		names: &known,
	}
	// Nothing calls them: only their names count.
	for _, key := range known.Keys {
		funcs.Keys[key] = noKey
	}
	for _, cost := range known.Costs {
		funcs.Costs[cost] = noCost
	}

	entries, err := readAll(name, data, funcs, nil)
	if err != nil {
		return nil, err
	}
	var all []Outline
	for _, e := range entries {
		all = append(all, e.Outline)
	}
	return all, nil
}

var noKey = keyfunc.Const("")

func noCost(*http.Request) int64 { return 1 }

// key returns the function of a name in the file.
func (f *Funcs) key(v value) (keyfunc.Func, bool) {
	if name, isText := stringValue(v.node); f.names != nil && f.names.Keys == nil && isText && name != "" {
		return noKey, true
	}
	return choose(v, f.Keys)
}

// cost returns the function of a name in the file, or false if it is none.
func (f *Funcs) cost(name string) (cost func(*http.Request) int64, ok bool) {
	if f.names != nil && f.names.Costs == nil && name != "" {
		return noCost, true
	}
	cost, ok = f.Costs[name]
	return cost, ok
}
