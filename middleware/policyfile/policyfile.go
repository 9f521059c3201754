// Package policyfile reads the policies of a limiter from a file, so that limits change without a
// new build or a restart. A file with a mistake changes nothing, and the mistake is reported.
//
//	policies:
//	  - name: client
//	    key: [user, client]     # the program registers functions under these names
//	    limit: 100/minute burst 20
//	    overrides:              # limits of single keys and networks
//	      - limit: 1000/minute burst 200
//	        subjects: ["sub:https://login.example.com|alice", "ip:198.51.100.0/24"]
//	  - {name: login, key: client, routes: ["POST /login"], limit: 5/minute, on_failure: closed}
//
// docs/rollout.md has the program to it, and says what wins over what.
//
// The file is YAML without anchors, aliases and tags, of at most 512 KiB and 24,000 YAML
// tokens: a mapping with one field, policies, an ordered list, or limiters, a mapping of names to such
// lists; see [LoadAll]. A policy has these fields, of which name, key, and limit or plans are required;
// see also [middleware.Policy]. Unknown fields and functions and repeated names are errors.
//
//	name       text, unique in the file
//	key        a name in Funcs.Keys, or a list of them: the first key that is
//	           not empty counts, as in keyfunc.First
//	anonymous  share or skip, as in SkipAnonymous; default: share
//	limit      100/minute, 25/5s, 100/minute burst 20, 10000/calendar month;
//	           see gcra.ParseLimit
//	plans      a mapping of plan names to limits, which may be none; any other
//	           plan gets limit or, without it, the slowest plan
//	overrides  a list of mappings of limit, which may be none or banned, and
//	           subjects, a list of whole keys, in quotes, and networks
//	routes     a list of patterns such as "POST /login"; default: every request
//	cost       a whole number from 1, in decimal digits, or a name in
//	           Funcs.Costs; default: 1
//	shadow     true or false
//	max_delay  a duration such as 500ms
//	max_debt   a whole number from 0, in decimal digits
//	on_failure local, open or closed; default: local
package policyfile

import (
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// Where to change what: policy.go reads the fields of a policy, overrides.go its overrides; outline.go
// describes them without functions; yaml.go bounds and parses the YAML, value.go reads its values,
// mistakes.go formats errors; watch.go reloads.

// Funcs are the functions that a file may use, by name.
type Funcs struct {
	// Keys are the functions for the field key; see package keyfunc. Required.
	Keys map[string]func(*http.Request) (string, error)

	// Plan returns the plan of a request, or "" for none. All requests with the same key must have
	// the same plan. If Plan is nil, a file with plans is an error.
	Plan func(*http.Request) string

	// Costs are the functions for the field cost.
	Costs map[string]func(*http.Request) int64

	names *Names // of Describe
}

// Load reads the policies in the file at path, for [middleware.New] or
// [middleware.Limiter.Reload]. It follows symbolic links, and rejects files that are not regular,
// such as named pipes.
func Load(path string, funcs Funcs) ([]middleware.Policy, error) {
	all, err := LoadAll(path, funcs, "")
	return all[""], err
}

// LoadAll is Load for a file with the policies of several limiters: it returns them by the
// limiter's name. The file must have the limiters that are named here, and no other.
//
//	limiters:
//	  api:
//	    - {name: client, key: client, limit: 100/minute}
//	  signin:
//	    - {name: guesses, key: client, limit: 5/minute}
//
// Each policy's name is unique in the file. Without names LoadAll takes any file; one with the field
// policies has the limiter "".
func LoadAll(path string, funcs Funcs, limiters ...string) (map[string][]middleware.Policy, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return parseAll(path, data, funcs, limiters)
}

// Parse is Load for data that has been read already; name is the file's name in
// errors. The error is an [errors.Join] of the mistakes, in the order of the lines:
//
//	policies.yaml:7:10: key is "clint"; want client or user
func Parse(name string, data []byte, funcs Funcs) ([]middleware.Policy, error) {
	all, err := parseAll(name, data, funcs, []string{""})
	return all[""], err
}

func parseAll(name string, data []byte, funcs Funcs, limiters []string) (map[string][]middleware.Policy, error) {
	entries, err := readAll(name, data, funcs, limiters)
	if err != nil {
		return nil, err
	}
	all := map[string][]middleware.Policy{}
	for _, e := range entries {
		all[e.Limiter] = append(all[e.Limiter], e.Policy)
	}
	return all, nil
}

// readFile rejects what could wait for ever, and reads no more than parse needs to reject the rest.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("policyfile: %s is a directory, a named pipe or a device; want a regular file or a link to one", path)
	}

	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read

	// A file may grow meanwhile, so its size bounds nothing.
	data, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	return data, nil
}

// readAll reads the policies of a file with these limiters, or with any if there are none.
func readAll(name string, data []byte, funcs Funcs, limiters []string) (entries []*entry, err error) {
	var ms mistakes
	file := value{mistakes: &ms, at: fileStart, name: "the file", want: "policies: and a list of them"}
	if file.node = ms.parse(data); file.node != nil {
		file.at = nodePosition(file.node)
		entries = readLimiters(file, funcs, limiters)
	} else if len(ms) == 0 {
		file.errorf("is empty; want %s", file.want)
	}
	return entries, ms.err(name)
}
