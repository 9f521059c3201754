package send

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// The answers of the test show a kind, or none.
func TestVerdict(t *testing.T) {
	answer := func(value string) *redis.Cmd {
		cmd := redis.NewCmd(context.Background())
		if value == "" {
			cmd.SetErr(redis.Nil)
		} else {
			cmd.SetVal(value)
		}
		return cmd
	}

	all := func(value string) (reads []*redis.Cmd) {
		for range testKeys {
			reads = append(reads, answer(value))
		}
		return reads
	}

	failed := func(text string) *redis.Cmd {
		cmd := redis.NewCmd(context.Background())
		cmd.SetErr(serverError(text))
		return cmd
	}

	const alone, together, gone = testAlone, testTogether, ""

	for _, tt := range []struct {
		name               string
		together           *redis.Cmd // the script for all keys; the first key had no value
		first, same, other string
		want               gcra.ServerKind
	}{
		{"one server", answer(gone), together, together, together, gcra.OneKeyspace},
		{"a proxy that respects hash tags", answer(gone), together, together, alone, gcra.BySubject},
		{"CROSSSLOT", failed("CROSSSLOT Keys in request don't hash to the same slot"), gone, alone, alone, gcra.BySubject},
		{"an error of a proxy's own", failed("ERR eval/evalsha command keys must be in same slot"), gone, alone, alone, gcra.BySubject},
		{"a proxy that ignores hash tags", answer(gone), together, alone, alone, gcra.KeysApart},
		{"all keys are gone", answer(gone), gone, gone, gone, ""},
		{"the first key is gone", answer(gone), gone, together, together, ""},
		{"the keys of other tags are gone", answer(gone), together, together, gone, ""},
		{"no memory", failed("OOM command not allowed when used memory > 'maxmemory'."), gone, gone, gone, ""},
	} {
		test := &keyTest{together: tt.together, first: answer(tt.first), same: all(tt.same), other: all(tt.other)}
		if got := test.verdict(); got != tt.want {
			t.Errorf("%s: got %q; want %q", tt.name, got, tt.want)
		}
	}
}

// A serverError is an error that a server has answered.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}
