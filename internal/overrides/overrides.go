// Package overrides is the form of the overrides that operators set for all servers, which
// the command writes and middleware/fleet reads. All are in one hash in Redis: a field for
// each entry, and one that changes with every write, so that servers read the others only
// when something has changed.
package overrides

// table.go says which entry holds, and when; read.go reads all in parts.

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
	"github.com/seed-e377111c/ratelimit/internal/subject"
)

const (
	// Version is the field that changes with every write. The fields of entries begin
	// with a brace.
	Version = "~version"

	// Most is the largest number of entries, and MostBytes their largest size with their
	// fields: each server reads all of them after a change.
	Most      = 10_000
	MostBytes = 4 << 20

	// Banned is the Limit of a ban, and Default of an entry that restores the limits that a
	// subject has without overrides, as in a network that is banned.
	Banned  = "banned"
	Default = "default"

	// Longest is the longest time from now until an entry ends, and Skew is by how much the
	// clocks of those that read it may differ.
	Longest = 366 * 24 * time.Hour
	Skew    = 24 * time.Hour

	longestText = 1000 // bytes of a subject, and of Why
)

// Key returns the key of the hash, for the prefix of a store. It does not begin with the
// prefix: users of Redis that may write buckets need not be able to write overrides.
func Key(prefix string) string { return "overrides:" + prefix }

// Entry is an override of one subject, which may be a network.
type Entry struct {
	Subject string    `json:"subject"`
	Policy  string    `json:"policy,omitempty"` // "" for all
	Limit   string    `json:"limit"`            // as gcra.ParseLimit reads it, or banned, or default
	Until   time.Time `json:"until"`
	Why     string    `json:"why,omitempty"`
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at"` // when it was set
}

// Field returns the field of the entry.
func (e *Entry) Field() string {
	return string(rediskit.AppendKey(nil, "", e.Subject, e.Policy))
}

// GCRA returns the limit of an entry that is right; Banned and Default have none.
func (e *Entry) GCRA() gcra.Limit {
	limit, _ := gcra.ParseLimit(e.Limit)
	return limit
}

// Wins reports whether e holds in a policy where o, another entry of its subject, applies too. A
// ban wins over a limit, and of two bans the one that ends last. Of two limits the one that is set
// for the policy wins.
func (e *Entry) Wins(o *Entry) bool {
	ban, other := e.Limit == Banned, o.Limit == Banned
	switch {
	case ban != other:
		return ban
	case ban:
		return e.Until.After(o.Until)
	default:
		return e.Policy != ""
	}
}

// Check returns nil for an entry that may be set now, otherwise an error that names the value and
// what would be right.
func (e *Entry) Check(now time.Time) error {
	if e.At.After(now.Add(Skew)) {
		return fmt.Errorf("at is %v, which lies ahead; want when it was set", e.At.Format(time.RFC3339))
	}
	return e.check(now.Add(Longest))
}

// check returns nil for an entry that servers can use, if it ends by a time.
func (e *Entry) check(latest time.Time) error {
	if err := CheckSubject(e.Subject); err != nil {
		return err
	}

	// Banned and Default are no limits, so its error is for the others.
	_, err := gcra.ParseLimit(e.Limit)
	switch {
	case len(e.Policy) > 64 || strings.ContainsFunc(e.Policy, func(c rune) bool { return c < ' ' || c > '~' }):
		return fmt.Errorf("policy is %.80q; want up to 64 printable ASCII characters", e.Policy)
	case e.Limit != Banned && e.Limit != Default && err != nil:
		return fmt.Errorf("limit is %.80q; want one such as 1000/minute, or none, default or banned", e.Limit)
	case e.Until.IsZero():
		return errors.New("until is missing; want the time when the override ends")
	case e.Until.After(latest):
		return fmt.Errorf("until is %v; want at most 366 days from now", e.Until.Format(time.RFC3339))
	case len(e.Why) > longestText || len(e.By) > longestText:
		return fmt.Errorf("why or by is longer than %d bytes; want fewer", longestText)
	}

	return nil
}

// hash is a long subject as Redis and "ratelimit top" have it.
var hash = regexp.MustCompile(`^%#[0-9a-f]{32}$`)

// CheckSubject returns an error for what is neither a network nor a key of this module: an
// address without its kind, an IPv6 address that is not a network, a hash.
func CheckSubject(s string) error {
	switch {
	case s == "" || len(s) > longestText:
		return fmt.Errorf("subject is %.80q; want the text of a key such as ip:192.0.2.7, of 1 to %d bytes", s, longestText)
	case s == "(anonymous)":
		return errors.New("subject is (anonymous), which stands for all requests with an empty key; want the text of a key")
	case hash.MatchString(s):
		return fmt.Errorf("subject is %s, the hash of a long subject, which cannot be turned back; want the text of its key, as the servers' inspector shows it", s)
	}

	key := s
	if _, ok := subject.ParseNetwork(s); ok { // without its kind
		key = subject.Kind + s
	}
	network, err := subject.Network(key)

	switch {
	case err != nil:
		return fmt.Errorf("subject is %.80q: %w", s, err)
	case network.IsValid() && s != subject.Key(network):
		return fmt.Errorf("subject is %q; want %q", s, subject.Key(network))
	}

	return nil
}

// Parse reads an entry, and checks it by the clock of the reader.
func Parse(field, value string, now time.Time) (e Entry, err error) {
	if err := json.Unmarshal([]byte(value), &e); err != nil {
		return e, fmt.Errorf("%.160q is no entry: %w", field, err)
	}
	if err := e.check(now.Add(Longest + Skew)); err != nil {
		return e, fmt.Errorf("%.160q: %w", field, err)
	}
	if e.Field() != field {
		return e, fmt.Errorf("%.160q is the entry of %q; want the field %q", field, e.Subject, e.Field())
	}
	return e, nil
}
