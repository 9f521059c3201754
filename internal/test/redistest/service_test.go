package redistest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// write sets each of its keys to its own name.
const write = "for _, key in ipairs(KEYS) do redis.call('SET', key, key) end return #KEYS"

// Each service answers as its comment says.
func TestServices(t *testing.T) {
	for _, tt := range []struct {
		name string
		open func(testing.TB) *Service
		says []serviceAnswer
	}{
		{"hidden cluster", NewHiddenCluster, []serviceAnswer{
			{"2", eval(write, "{a}1", "{a}2")},
			{"CROSSSLOT", eval(write, "{a}1", "{b}1")},
			{"ERR This instance has cluster support disabled", do("cluster", "slots")},
		}},
		{"single-node cluster", NewSingleNodeCluster, []serviceAnswer{
			{"2", eval(write, "{a}1", "{a}2")},
			{"CROSSSLOT", eval(write, "{a}1", "{b}1")},
		}},
		{"Tair", NewTairProxy, []serviceAnswer{
			{"2", eval(write, "{a}1", "{a}2")},
			{"ERR eval/evalsha command keys must be in same slot", eval(write, "{a}1", "{b}1")},
			{"ERR for redis cluster, eval/evalsha number of keys", eval("return 1")},
		}},
		{"first key", NewFirstKeyProxy, []serviceAnswer{
			{"2", eval(write, "{a}1", "{a}2")},
			{"{a}2", do("get", "{a}2")},
			{"2", eval(write, "{a}1", "{d}1")}, // another server's
			{"redis: nil", do("get", "{d}1")},
		}},
		{"no tags", NewTaglessProxy, []serviceAnswer{
			{"2", eval(write, "{a}1", "{a}2")},
			{"{a}1", do("get", "{a}1")},
			{"redis: nil", do("get", "{a}2")},
		}},
		{"serverless", NewServerless, []serviceAnswer{
			{"1", eval("redis.call('TIME') return #KEYS", "a")},
			{"CROSSSLOT", eval(write, "{a}1", "{b}1")},
			{"ERR the script does not declare its keys", eval("return 1")},
			{"ERR too many arguments", slices.Repeat(do("mget"), 4001)},
		}},
		{"serverless without TIME", NewServerlessWithoutTime, []serviceAnswer{
			{"This Redis command is not allowed from script", eval("return redis.call('TIME')", "a")},
		}},
		{"without scripts", NewWithoutScripts, []serviceAnswer{
			{"ERR unknown command", eval("return 1", "a")},
			{"ERR unknown command", do("evalsha", "0", 0)},
		}},
		{"no flag", NewNodeWithoutCrossSlot, []serviceAnswer{
			{"1", eval(write, "a")},
			{"ERR Unexpected flag", eval("#!lua flags=allow-cross-slot-keys\nreturn 1")},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.open(t)
			c := redis.NewClient(&redis.Options{Addr: s.Addr, MaintNotificationsConfig: noMaintenance()})
			closeAtCleanup(t, c)

			for _, says := range tt.says {
				reply, err := c.Do(t.Context(), says.command...).Result()
				switch {
				case err != nil && !strings.Contains(err.Error(), says.want):
					t.Errorf("%.60v: got %v; want %q", says.command, err, says.want)
				case err == nil && fmt.Sprint(reply) != says.want:
					t.Errorf("%.60v: got %v; want %q", says.command, reply, says.want)
				}
			}
		})
	}
}

type serviceAnswer struct {
	want    string // the reply, or a part of the error
	command []any
}

func do(args ...any) []any { return args }

func eval(script string, keys ...string) []any {
	args := do("eval", script, len(keys))
	for _, key := range keys {
		args = append(args, key)
	}
	return args
}
