package kind

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
)

// The answers of a probe show a kind, or none. Two that agree settle it.
func TestVerdict(t *testing.T) {
	all := func(value string) (reads []*redis.Cmd) {
		for range probeKeys {
			reads = append(reads, answered(value))
		}
		return reads
	}

	failed := func(text string) *redis.Cmd {
		cmd := redis.NewCmd(context.Background())
		cmd.SetErr(serverError(text))
		return cmd
	}

	const alone, together, gone = valueAlone, valueTogether, ""

	for _, tt := range []struct {
		name               string
		together           *redis.Cmd // the script for all keys; the first key had no value
		first, same, other string
		want               redisstats.Kind
		sure               bool
	}{
		{"one server", answered(gone), together, together, together, redisstats.OneKeyspace, false},
		{"a proxy that respects hash tags", answered(gone), together, together, alone, redisstats.BySubject, false},
		{"CROSSSLOT", failed("CROSSSLOT Keys in request don't hash to the same slot"), gone, alone, alone, redisstats.BySubject, true},
		{"an error of a proxy's own", failed("ERR eval/evalsha command keys must be in same slot"), gone, alone, alone, redisstats.BySubject, false},
		{"a proxy that ignores hash tags", answered(gone), together, alone, alone, redisstats.Unusable, false},
		{"all keys are gone", answered(gone), gone, gone, gone, "", false},
		{"the first key is gone", answered(gone), gone, together, together, "", false},
		{"the keys of other tags are gone", answered(gone), together, together, gone, "", false},
		{"no memory", failed("OOM command not allowed when used memory > 'maxmemory'."), gone, gone, gone, "", false},
	} {
		p := &Probe{together: tt.together, first: answered(tt.first), same: all(tt.same), other: all(tt.other)}
		if got, sure := p.verdict(); got != tt.want || sure != tt.sure {
			t.Errorf("%s: got %q, sure %v; want %q, sure %v", tt.name, got, sure, tt.want, tt.sure)
		}
		var s State
		if once, twice := s.Learn(p, 0), s.Learn(p, 0); once != tt.sure || twice != (tt.want != "") {
			t.Errorf("%s: settled by one probe: %v, by two: %v; want %v, %v", tt.name, once, twice, tt.sure, tt.want != "")
		}
	}
}

// A verdict is confirmed at once if it is the first, and otherwise after a second.
func TestLearn(t *testing.T) {
	answers := map[string]string{"one": valueTogether, "apart": valueAlone}
	for name, tt := range map[string]struct {
		verdicts []string
		again    time.Duration
		want     redisstats.Kind
	}{
		"the first":           {[]string{"one"}, 0, ""},
		"two that agree":      {[]string{"one", "one"}, probeSettledAgain, redisstats.OneKeyspace},
		"two that alternate":  {[]string{"one", "apart"}, probeAgain, ""},
		"many that alternate": {[]string{"one", "apart", "one", "apart", "one"}, probeAgain, ""},
		"another kind":        {[]string{"one", "one", "apart"}, probeAgain, redisstats.OneKeyspace},
	} {
		var s State
		now := int64(1)
		for _, verdict := range tt.verdicts {
			now += tat.Ticks(time.Hour)
			if !s.Due(now) {
				t.Fatalf("%s: no probe is due after an hour", name)
			}
			p := &Probe{together: answered(""), first: answered(valueTogether)}
			for range probeKeys {
				p.same, p.other = append(p.same, answered(answers[verdict])), append(p.other, answered(answers[verdict]))
			}
			s.Learn(p, now)
		}
		if again := tat.Duration(s.due - now); again != tt.again || s.Kind() != tt.want {
			t.Errorf("%s: got %q, the next probe after %v; want %q, %v", name, s.Kind(), again, tt.want, tt.again)
		}
	}
}

// answered is a command with this answer, or none.
func answered(value string) *redis.Cmd {
	cmd := redis.NewCmd(context.Background())
	if value == "" {
		cmd.SetErr(redis.Nil)
	} else {
		cmd.SetVal(value)
	}
	return cmd
}

// A serverError is an error that a server has answered.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}
