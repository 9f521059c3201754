package policyfile

import (
	"github.com/seed-e377111c/ratelimit/internal/subject"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// overrides are what is different for single keys and networks.
type overrides struct {
	subject.Table[middleware.Override]
	all map[string]middleware.Override
}

// find is [middleware.Policy.Override]. The name is the subject of the file that the key
// matches.
func (o *overrides) find(key string) (middleware.Override, bool) {
	for found := range o.Find(key) {
		return *found, true
	}
	return middleware.Override{}, false
}

// readOverrides reads lists of subjects, each with its limit.
func (e *entry) readOverrides(v value) {
	o := overrides{all: map[string]middleware.Override{}}
	seen := map[string]position{}
	for _, v := range v.list("the override", `its fields, such as {limit: 1000/minute, subjects: ["sub:alice"]}`) {
		var found middleware.Override
		var subjects []value
		v.fields(map[string]value{},
			field{"limit", "a limit such as 1000/minute, or none, or banned", true, func(v value) {
				if text, _ := stringValue(v.node); text == "banned" {
					found.Banned = true
				} else {
					found.Limit = e.parseLimit(v)
				}
			}},
			field{"subjects", `a list of keys and networks such as ["sub:alice", "ip:198.51.100.0/24"]`, true, func(v value) {
				subjects = v.list("subject", `a key in quotes such as "sub:alice"`)
			}},
		)

		for _, v := range subjects {
			o.add(v, found, seen)
		}
	}
	e.Policy.Override, e.Overrides = o.find, o.all
}

// add reads a subject. Those in seen are repeated.
func (o *overrides) add(v value, found middleware.Override, seen map[string]position) {
	key, ok := v.text()
	if !ok {
		return
	}
	network, err := subject.Network(key)
	if err != nil {
		v.errorf("is %s: %v", quoted(key), err)
		return
	}

	// The same network or address in other words is the same subject.
	if network.IsValid() {
		key = subject.Key(network)
	}
	if v.once(seen, key, v.at) {
		found.Name = key
		*o.At(key), o.all[key] = found, found
	}
}
