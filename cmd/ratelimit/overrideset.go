package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/seed-e377111c/ratelimit/internal/overrides"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
	"github.com/seed-e377111c/ratelimit/internal/subject"
)

// overrideSet is what Redis has.
type overrideSet struct {
	client  redis.UniversalClient
	key     string
	now     time.Time         // of Redis
	values  map[string]string // as they were read, by field
	entries overrides.Table   // without those that have ended
	ended   []string          // their fields
	broken  map[string]error  // by field
}

// onOverrides runs a command with what Redis has.
func (c *command) onOverrides(run func(*cobra.Command, *overrideSet, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		set, err := c.open(cmd.Context())
		if err != nil {
			return err
		}
		defer set.client.Close()
		return run(cmd, set, args)
	}
}

// open reads the overrides.
func (c *command) open(ctx context.Context) (*overrideSet, error) {
	client, err := c.connect()
	if err != nil {
		return nil, err
	}
	set := newOverrideSet(client, c.prefix)
	if err := set.read(ctx); err != nil {
		client.Close()
		return nil, failed(client, err)
	}
	return set, nil
}

func newOverrideSet(client redis.UniversalClient, prefix string) *overrideSet {
	return &overrideSet{client: client, key: overrides.Key(prefix), broken: map[string]error{}}
}

func (s *overrideSet) read(ctx context.Context) (err error) {
	if s.now, err = s.client.Time(ctx).Result(); err != nil {
		return err
	}
	call := func(ctx context.Context, f func(context.Context) error) error { return f(ctx) }
	if s.values, _, err = overrides.Read(ctx, s.client, s.key, "", math.MaxInt, call); err != nil {
		return err
	}

	for field, value := range s.values {
		e, err := overrides.Parse(field, value, s.now)
		switch {
		case err != nil:
			s.broken[field] = err
		case !s.now.Before(e.Until):
			s.ended = append(s.ended, field)
		default:
			s.entries.Add(e)
		}
	}
	return nil
}

//go:embed change.lua
var changeText string

var change = redis.NewScript(changeText)

// part is how many entries one step changes: while Redis does that, servers wait.
const part = 500

// write sets entries, and removes those that have ended. Each part is one step of Redis: all of it or
// nothing.
func (s *overrideSet) write(ctx context.Context, set []overrides.Entry) error {
	ended := s.ended
	for done := 0; done == 0 || done < len(set); done += part {
		some := ended[:min(len(ended), part)]
		ended = ended[len(some):]

		var args []any
		for _, e := range set[done:min(done+part, len(set))] {
			text, err := json.Marshal(e)
			if err != nil {
				return err
			}
			args = append(args, e.Field(), string(text))
		}

		after, err := s.change(ctx, some, args...)
		switch {
		case err != nil:
		case len(set) > 0 && after[0] > overrides.Most:
			err = fmt.Errorf("there would be %d overrides; want at most %d: put those that stay into the file of policies", after[0], overrides.Most)
		case len(set) > 0 && after[1] > overrides.MostBytes:
			err = fmt.Errorf("the overrides would take %d bytes; want at most %d: fewer of them, or shorter reasons", after[1], overrides.MostBytes)
		}
		if err != nil && done > 0 {
			err = fmt.Errorf("%w; the first %d of %d are set", err, done, len(set))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeBack removes entries, unless somebody has changed them since they were read.
func (s *overrideSet) takeBack(ctx context.Context, fields []string) error {
	after, err := s.change(ctx, fields)
	if err == nil && after[2] < int64(len(fields)) {
		err = fmt.Errorf("%d of %d overrides are taken back: meanwhile somebody has changed the others; run this again", after[2], len(fields))
	}
	return err
}

// change runs the script: it removes fields that have the values that were read, and sets fields to
// values. The version tells servers that something has changed.
func (s *overrideSet) change(ctx context.Context, remove []string, set ...any) ([]int64, error) {
	read := 0
	for field, value := range s.values {
		read += len(field) + len(value)
	}
	args := []any{overrides.Version, strconv.FormatUint(rand.Uint64(), 36), overrides.Most, overrides.MostBytes, read, len(remove)}
	for _, field := range remove {
		args = append(args, field, s.values[field])
	}
	after, err := change.Run(ctx, s.client, []string{s.key}, append(args, set...)...).Int64Slice()
	if err != nil {
		return nil, failed(s.client, err)
	}
	return after, nil
}

// find returns the override of a subject that servers use in a policy, or nil.
func (s *overrideSet) find(policy, subject string) *overrides.Found {
	return s.entries.Find(policy, subject, s.now)
}

// over returns the entries that win over e, for its subject or for a part of its network.
func (s *overrideSet) over(e *overrides.Entry) (over []overrides.Entry) {
	network, _ := subject.Network(e.Subject)
	for _, o := range s.sorted() {
		inside, _ := subject.Network(o.Subject)
		nearer := network.IsValid() && inside.Bits() > network.Bits() && network.Contains(inside.Addr())
		same := o.Subject == e.Subject && o.Field() != e.Field() && o.Wins(e)
		both := o.Policy == e.Policy || o.Policy == "" || e.Policy == ""
		if (nearer || same) && both && o.Limit != e.Limit {
			over = append(over, o)
		}
	}
	return over
}

// of returns some fields of a subject, with a line about each, also of those that are broken.
func (s *overrideSet) of(subject string, some func(policy, limit string) bool) (fields, lines []string) {
	for _, e := range s.sorted() {
		if e.Subject == subject && some(e.Policy, e.Limit) {
			fields, lines = append(fields, e.Field()), append(lines, describe(e))
		}
	}

	for field := range s.broken {
		_, policy, _, ok := rediskit.ParseKey("", field)
		e := overrides.Entry{Subject: subject, Policy: policy}
		if ok && e.Field() == field && some(policy, "") {
			fields, lines = append(fields, field), append(lines, plain(field)+", which was broken")
		}
	}
	return fields, lines
}

func (s *overrideSet) sorted() []overrides.Entry {
	all := []overrides.Entry{}
	for _, e := range s.entries.All {
		all = append(all, e.Entry)
	}
	slices.SortFunc(all, func(a, b overrides.Entry) int {
		return cmp.Or(strings.Compare(a.Subject, b.Subject), strings.Compare(a.Policy, b.Policy))
	})
	return all
}
