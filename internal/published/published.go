// Package published is how servers tell operators what their policies are. Each store in Redis keeps
// the policies of its limiters there, and the command ratelimit reads them.
//
// The value is text: a line with the version of the format, a line for each server, and one for each
// different description of a limiter.
//
//	1
//	server <id> <when it said so, in seconds> <hash>,<hash>
//	limiter <hash> <JSON of its policies>
package published

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

const (
	// Suffix is what follows the prefix of a store in the key. Keys of buckets escape the ~.
	Suffix = "{instances}~policies"

	// Lasts is how long a server's policies are kept after it has said them last: an hour after its last
	// request at least, as under traffic it says them again before they are older than Live.
	Lasts = time.Hour + Live

	// MostBytes bounds the value, and mostText the policies of one limiter.
	MostBytes = 16 << 10
	mostText  = 8 << 10

	// Live is how much earlier than the newest server another may have said its policies, to count as
	// one that is running.
	Live = time.Minute
)

// Policy is what a server says of a policy: no subjects, overrides or routes.
type Policy struct {
	Name     string                `json:"name"`
	Limit    gcra.Limit            `json:"limit,omitzero"`
	Plans    map[string]gcra.Limit `json:"plans,omitempty"`
	Function bool                  `json:"function,omitempty"` // a LimitFor without Plans decides
	Kinds    []string              `json:"kinds,omitempty"`    // of keys, as "ip"; none until there is traffic
	Shadow   bool                  `json:"shadow,omitempty"`
	Follows  bool                  `json:"follows,omitempty"` // there is a Config.Override
	MaxDebt  int64                 `json:"max_debt,omitempty"`
	MaxDelay time.Duration         `json:"max_delay,omitempty"`
	LeftOut  bool                  `json:"left_out,omitempty"` // but for the name, as there was no room
}

// Text is the line of a limiter's policies. Where they are too long, all but the names is left out, and
// then names.
func Text(policies []Policy) string {
	size := 0
	var all []json.RawMessage
	for _, p := range policies {
		for _, form := range []Policy{p, {Name: p.Name, LeftOut: true}} {
			text, err := json.Marshal(form) // fails for no valid limit
			if err == nil && size+len(text) < mostText {
				size += len(text) + 1
				all = append(all, text)
				break
			}
		}
	}
	text, _ := json.Marshal(all)
	return string(text)
}

// Server is what a server has said.
type Server struct {
	ID       string
	At       time.Time
	Limiters []string // hashes
}

// Read reads a value that anybody may have written, and whose length is bounded. What is not valid is
// left out, and the last of it is in the error.
func Read(value string, now time.Time) (servers []Server, limiters map[string][]Policy, err error) {
	version, rest, _ := strings.Cut(value, "\n")
	if value != "" && version != "1" {
		return nil, nil, fmt.Errorf("what servers say has the format %.20q; want 1, or a newer ratelimit", version)
	}

	limiters = map[string][]Policy{}
	for line := range strings.Lines(rest) {
		kind, line, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		name, line, _ := strings.Cut(line, " ")
		var policies []Policy
		at, hashes, _ := strings.Cut(line, " ")
		seconds, wrongTime := strconv.ParseInt(at, 10, 48)

		switch {
		case kind == "limiter" && json.Unmarshal([]byte(line), &policies) == nil && !slices.ContainsFunc(policies, Policy.wrong):
			limiters[name] = policies
		case kind == "server" && wrongTime == nil && time.Unix(seconds, 0).Sub(now).Abs() <= Lasts:
			servers = append(servers, Server{name, time.Unix(seconds, 0), strings.Split(hashes, ",")})
		default:
			err = fmt.Errorf("what servers say has a line that is not valid: %.60q", kind+" "+name)
		}
	}

	slices.SortFunc(servers, func(a, b Server) int { return b.At.Compare(a.At) })
	// By the newest server's time: without traffic all grow old together.
	for i, s := range servers {
		if servers[0].At.Sub(s.At) > Live {
			servers = servers[:i]
			break
		}
	}
	return servers, limiters, err
}

// wrong reports whether no limiter has such a policy.
func (p Policy) wrong() bool {
	texts := slices.AppendSeq([]string{p.Name}, maps.Keys(p.Plans))
	texts = append(texts, p.Kinds...)
	return p.Name == "" || p.MaxDebt < 0 || p.MaxDebt > 1e14 || p.MaxDelay < 0 || p.MaxDelay > gcra.MaxDelay ||
		slices.ContainsFunc(texts, func(text string) bool {
			return len(text) > 256 || strings.ContainsFunc(text, func(c rune) bool { return !strconv.IsPrint(c) })
		})
}
