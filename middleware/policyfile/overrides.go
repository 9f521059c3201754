package policyfile

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/subject"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// overrides are the limits of single keys and networks. Files have few lengths of networks:
// 14 take 0.4 µs and 45 a microsecond, where a sorted list of networks took 0.1 and 0.4 µs.
type overrides struct {
	keys     map[string]gcra.Limit
	networks map[netip.Prefix]gcra.Limit
	lengths  []int // of the networks in bits, each once, the longest first
}

// find is [middleware.Policy.Override]. The name is the subject of the file that the key
// matches.
func (o *overrides) find(key string) (middleware.Override, bool) {
	if limit, ok := o.keys[key]; ok {
		return middleware.Override{Limit: limit, Name: key}, true
	}
	text, isAddr := strings.CutPrefix(key, subject.Kind)
	if !isAddr || len(o.lengths) == 0 {
		return middleware.Override{}, false
	}

	client, _ := subject.ParseNetwork(text) // of -1 bits if it is none
	for _, bits := range o.lengths {
		if bits > client.Bits() {
			continue
		}
		network, _ := client.Addr().Prefix(bits)
		if limit, ok := o.networks[network]; ok {
			return middleware.Override{Limit: limit, Name: subject.Kind + network.String()}, true
		}
	}
	return middleware.Override{}, false
}

// readOverrides reads lists of subjects, each with its limit.
func (e *entry) readOverrides(v value) {
	o := overrides{keys: map[string]gcra.Limit{}, networks: map[netip.Prefix]gcra.Limit{}}
	seen := map[string]position{}
	for _, v := range v.list("the override", `its fields, such as {limit: 1000/minute, subjects: ["sub:alice"]}`) {
		var limit gcra.Limit
		var subjects []value
		v.fields(map[string]value{},
			field{"limit", "a limit such as 1000/minute, or none", true, func(v value) { limit = e.parseLimit(v) }},
			field{"subjects", `a list of keys and networks such as ["sub:alice", "ip:198.51.100.0/24"]`, true, func(v value) {
				subjects = v.list("subject", `a key in quotes such as "sub:alice"`)
			}},
		)

		for _, v := range subjects {
			o.add(v, limit, seen)
		}
	}

	slices.SortFunc(o.lengths, func(a, b int) int { return b - a })
	e.Override, e.outline.Overrides = o.find, o.all()
}

// add reads a subject. Those in seen are repeated.
func (o *overrides) add(v value, limit gcra.Limit, seen map[string]position) {
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
	if !v.once(seen, key, v.at) {
		return
	}

	if !network.IsValid() || network.IsSingleIP() {
		o.keys[key] = limit
		return
	}
	o.networks[network] = limit
	if !slices.Contains(o.lengths, network.Bits()) {
		o.lengths = append(o.lengths, network.Bits())
	}
}
