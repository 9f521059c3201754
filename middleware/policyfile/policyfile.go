// Package policyfile reads the policies of a limiter from a file, so that
// limits change without a new build or a restart.
//
//	policies:
//	  - name: client            # as Policy.Name
//	    key: client             # a name that the program registers
//	    limit: 100/minute burst 20
//	  - name: login
//	    key: client
//	    routes: ["POST /login"]
//	    limit: 5/minute
//	    on_failure: closed          # local (default), open or closed
//	  - name: plan
//	    key: [user, client]     # the first that knows somebody
//	    plans: {free: 60/minute, pro: 600/minute}
//	    shadow: true
//
// The program registers who can be counted, and under which name:
//
//	words := policyfile.Funcs{
//		Keys: map[string]keyfunc.Func{"client": keyfunc.RemoteAddr, "user": subject},
//		Plan: planOf,
//	}
//	policies, err := policyfile.Load("policies.yaml", words)
//	limiter, err := middleware.New(cfg, policies...)
//	go policyfile.Watch(ctx, "policies.yaml", words, limiter)
//
// # The file
//
// It is YAML with one mapping, policies, which lists them in order. A policy
// has these fields, of which name, key and one of limit and plans are required;
// the rest means what it means in [middleware.Policy]:
//
//	name       text, unique in the file
//	key        a name in Funcs.Keys, or a list of them: the first that knows
//	           somebody counts, as in keyfunc.First
//	limit      100/minute, 25/5s, 100/minute burst 20; see gcra.ParseLimit
//	plans      a mapping of the plans' names to their limits
//	routes     a list of patterns such as "POST /login"; without it every request
//	cost       a whole number from 1, in decimal digits, or a name in
//	           Funcs.Costs; 1 without it
//	shadow     true or false
//	max_delay  a duration such as 500ms
//	on_failure local, open or closed
//
// A request whose plan is not listed has the policy's limit. Without one it has
// the slowest of the plans, so that a plan that was forgotten, or a request
// without one, is never without a limit.
//
// The file is read strictly: a field or a name that nobody knows, one that is
// there twice and a value that is missing are mistakes, and so is what
// [middleware.New] refuses. All of them are reported at once, each with its line and
// column (in characters, from 1), the value and what would be right. Anchors, aliases and tags are not read. A file
// has at most 64 KiB and 8000 tokens, as YAML calls each word, value, comment and
// mark (":", "-", "[", "," ...): room for 250 policies and more.
package policyfile

import (
	"net/http"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// Funcs is what the program lends to the file: functions under the names
// by which it may ask for them.
type Funcs struct {
	// Keys are the names for key. See package keyfunc for what they may answer.
	Keys map[string]func(*http.Request) (string, error)

	// Plan says by which of a policy's plans a request is limited; empty is none
	// in particular. It must be the same for all requests of a key, as
	// [middleware.Policy.LimitFor] asks. Nil where no file has plans.
	Plan func(*http.Request) string

	// Costs are the names for cost, next to whole numbers; nil where there are
	// none.
	Costs map[string]func(*http.Request) int
}

// Load reads the policies in the file at path, ready for [middleware.New] or
// [middleware.Limiter.Reload]. It follows symbolic links, and refuses what is no
// regular file, such as a named pipe, without waiting for it. Its error is that of [Parse], or says why the
// file could not be read.
func Load(path string, v Funcs) ([]middleware.Policy, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, v)
}

// Parse is Load for what has been read already; name stands for the file in
// errors. The error joins one for each mistake ([errors.Join]), in the order of
// their lines:
//
//	policies.yaml:7:10: key is "clint"; want client or user (did you mean client?)
func Parse(name string, data []byte, v Funcs) ([]middleware.Policy, error) {
	r := reader{funcs: v}
	policies := r.policies(data)
	if err := r.diagnostics.err(name, data); err != nil {
		return nil, err
	}
	return policies, nil
}
