package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// A pipeline over both servers has its replies in the order of its commands.
func TestServicePipeline(t *testing.T) {
	s := NewFirstKeyProxy(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaintNotificationsConfig: noMaintenance()})
	closeAtCleanup(t, c)
	pipe := c.Pipeline()
	for i := range 1000 {
		pipe.Eval(t.Context(), "return redis.call('SET', KEYS[1], ARGV[1], 'GET') or ARGV[1]", []string{string(rune('a' + i%26))}, i)
	}
	replies, err := pipe.Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, reply := range replies {
		if got, err := reply.(*redis.Cmd).Int(); err != nil || got != max(i-26, i%26) {
			t.Fatalf("command %d: got %d, %v; want %d", i, got, err, max(i-26, i%26))
		}
	}
	for _, server := range s.Servers {
		if n := server.Client().DBSize(t.Context()).Val(); n == 0 || n == 26 {
			t.Errorf("%s has %d of 26 keys; want a part of them", server.Addr, n)
		}
	}
}

// go-redis cannot connect to a proxy that closes on HELLO, and so not to twemproxy.
func TestServiceClosesOnHello(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *Service{"front": NewHelloCloser, "twemproxy": NewTwemproxy} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			if err := answersPing(s.Addr); err != nil {
				t.Errorf("PING: %v", err)
			}
			c := redis.NewClient(&redis.Options{Addr: s.Addr, MaintNotificationsConfig: noMaintenance()})
			closeAtCleanup(t, c)
			if err := c.Ping(context.Background()).Err(); !errors.Is(err, io.EOF) {
				t.Errorf("go-redis: got %v; want EOF", err)
			}
		})
	}
}

// The slots are those of a cluster.
func TestSlotOf(t *testing.T) {
	c := startNodeOfAllSlots(t).Client()
	for _, key := range []string{"", "123456789", "{user:1}:p", "a{}b", "{}{x}", "a{b", "rl:{ip:192.0.2.7}:login"} {
		if got, want := slotOf(hashTag(key)), int(c.ClusterKeySlot(t.Context(), key).Val()); got != want {
			t.Errorf("%q: got slot %d; want %d", key, got, want)
		}
	}
}
