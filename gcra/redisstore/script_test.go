package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// answering runs a server that answers every script with reply and everything
// else with OK.
func answering(t *testing.T, reply string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go answer(conn, reply)
		}
	}()
	return ln.Addr().String()
}

func answer(conn net.Conn, reply string) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		out := "+OK\r\n"
		switch strings.ToLower(command[0]) {
		case "hello":
			out = "-ERR unknown command\r\n"
			if len(command) > 1 && command[1] == "3" {
				out = "%1\r\n$5\r\nproto\r\n:3\r\n"
			}
		case "eval", "evalsha":
			out = reply
		}
		if _, err := io.WriteString(conn, out); err != nil || out == "" {
			return
		}
	}
}

// readCommand reads a command as clients send it: an array of bulk strings.
func readCommand(in *bufio.Reader) ([]string, error) {
	number := func(kind string) (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, kind)))
	}
	n, err := number("*")
	if err != nil {
		return nil, err
	}
	command := make([]string, n)
	for i := range command {
		size, err := number("$")
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		command[i] = string(b[:size])
	}
	return command, nil
}

// Whatever a server that is almost Redis answers to the script is an error that
// says what it was, and never a panic or a decision.
func TestOddReplies(t *testing.T) {
	for _, tt := range []struct{ reply, want string }{
		{"*2\r\n:0\r\n:0\r\n", ""}, // what it should be
		{":0\r\n", "int64; want a list"},
		{"$1\r\n0\r\n", "string; want a list"},
		{"+OK\r\n", "string; want a list"},
		{",1.5\r\n", "float64; want a list"},
		{"#t\r\n", "bool; want a list"},
		{"(12345678901234567890\r\n", "big.Int; want a list"},
		{"%1\r\n+a\r\n:1\r\n", "map[interface {}]interface {}; want a list"},
		{"$-1\r\n", "nil"},
		{"*-1\r\n", "nil"},
		{"_\r\n", "nil"},
		{"*0\r\n", "0 items; want 2"},
		{"*1\r\n:0\r\n", "1 items; want 2"},
		{"*3\r\n:0\r\n:0\r\n:0\r\n", "3 items; want 2"},
		{"*2\r\n:0\r\n$1\r\n0\r\n", "item 1 is string"},
		{"*2\r\n$-1\r\n:0\r\n", "item 0 is <nil>"},
		{"*2\r\n*1\r\n:0\r\n:0\r\n", "item 0 is []interface {}"},
		{"*2\r\n:0\r\n,0.5\r\n", "item 1 is float64"},
		{"-ERR boom\r\n", "ERR boom"},
		{"-NOSCRIPT again and again\r\n", "NOSCRIPT"},
		{"-WRONGTYPE no\r\n", "WRONGTYPE"},
		{"-BUSY script\r\n", "BUSY"},
		{"hello\r\n", "redisstore: "},
		{"*-5\r\n", "redisstore: "},
		{"*99999999999999999999\r\n", "redisstore: "},
		{"", "EOF"}, // it hangs up
	} {
		for _, protocol := range []int{2, 3} {
			client := newClient(t, &redis.Options{Addr: answering(t, tt.reply), Protocol: protocol})
			r := newStore(client)
			r.Logger = slog.New(slog.DiscardHandler)
			charges := []gcra.Charge{hourly("s", 10), hourly("s", 10)}
			_, err := r.Take(t.Context(), charges)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("RESP%d, %q: got %v; want no error", protocol, tt.reply, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), "redisstore: ") || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("RESP%d, %q: got %v; want an error of redisstore with %q", protocol, tt.reply, err, tt.want)
			}
		}
	}
}

// Numbers that no script of ours answers make no sense of, but do no harm.
func TestExtremeReplies(t *testing.T) {
	for _, n := range []string{"9223372036854775807", "-9223372036854775808", "-1", "1", "9007199254740993"} {
		client := newClient(t, &redis.Options{Addr: answering(t, fmt.Sprintf("*1\r\n:%s\r\n", n))})
		for _, without := range []bool{true, false} {
			r := newStore(client)
			r.NoDenialCache = without
			for _, cost := range []int64{0, 1, 10, 11} {
				c := hourly("s", 10)
				c.Cost = cost
				gcratest.MustTake(t, r, c)
			}
		}
	}
}

// After SCRIPT FLUSH, as after a restart, a call costs one more trip, and
// charges once.
func TestScriptFlush(t *testing.T) {
	client := unhurried(t, redistest.Start(t).Addr)
	r := newStore(client)
	gcratest.MustTake(t, r, hourly("s", 100))
	redistest.ResetStats(t, client)
	for i := range int64(10) {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if got, want := gcratest.MustTake(t, r, hourly("s", 100))[0].Result.Remaining, 98-i; got != want {
			t.Fatalf("call %d after SCRIPT FLUSH: got %d remaining; want %d", i, got, want)
		}
		gcratest.MustTake(t, r, hourly("other", 100))
	}
	if evalsha, eval, load := redistest.Calls(t, client, "evalsha"), redistest.Calls(t, client, "eval"), redistest.Calls(t, client, "script|load"); evalsha+eval+load != 30 || eval+load != 10 {
		t.Errorf("20 calls and 10 flushes: got %d EVALSHA, %d EVAL, %d SCRIPT LOAD; want 30 in all, of which 10 no EVALSHA", evalsha, eval, load)
	}
}

// A script is not sent again when its reply is lost, although the client
// retries commands: the charge is made once, and the error says that it is not
// known.
func TestLostReplyChargesOnce(t *testing.T) {
	server := redistest.Start(t)
	direct := unhurried(t, server.Addr)
	proxy := redistest.NewProxy(t, server.Addr)
	client := newClient(t, &redis.Options{Addr: proxy.Addr}) // MaxRetries 3, go-redis's default
	r := newStore(client)
	sees := newStore(direct)
	sees.Prefix = r.Prefix
	gcratest.MustTake(t, r, hourly("s", 100))
	for i := range int64(3) {
		redistest.ResetStats(t, direct)
		proxy.DropReply(1)
		if _, err := gcra.Take(t.Context(), r, hourly("s", 100)); err == nil {
			t.Error("got no error for a reply that was lost")
		}
		if n := redistest.Calls(t, direct, "evalsha"); n != 1 {
			t.Errorf("got %d EVALSHA; want 1", n)
		}
		if got, want := spentOf(t, sees, "s", 100), 2+i; got != want {
			t.Errorf("got %d spent; want %d", got, want)
		}
		spentOf(t, r, "s", 100) // a call that succeeds: three failures in a row would be an outage
	}
	// A refund neither gives back twice.
	proxy.DropReply(1)
	if err := r.Refund(t.Context(), []gcra.Charge{hourly("s", 100)}); err == nil {
		t.Error("got no error for a refund whose reply was lost")
	}
	if got := spentOf(t, sees, "s", 100); got != 3 {
		t.Errorf("after a refund: got %d spent; want 3", got)
	}
}

// The same where scripts for several subjects travel together.
func TestLostReplyChargesOnceOnARing(t *testing.T) {
	server := redistest.Start(t)
	direct := unhurried(t, server.Addr)
	proxy := redistest.NewProxy(t, server.Addr)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": proxy.Addr}})
	t.Cleanup(func() { ring.Close() })
	r := newStore(ring)
	sees := newStore(direct)
	sees.Prefix = r.Prefix
	subjects := []string{"a", "b", "c", "d"}
	var group []gcra.Charge
	for _, s := range subjects {
		group = append(group, hourly(s, 100))
	}
	gcratest.MustTake(t, r, group...)
	for range 5 {
		before := make(map[string]int64)
		for _, s := range subjects {
			before[s] = spentOf(t, sees, s, 100)
		}
		redistest.ResetStats(t, direct)
		proxy.DropReply(1)
		if _, err := r.Take(t.Context(), group); err == nil {
			t.Fatal("got no error for a reply that was lost")
		}
		proxy.Pass()
		spentOf(t, r, "a", 100) // a call that succeeds: three failures in a row would be an outage
		for _, s := range subjects {
			if got := spentOf(t, sees, s, 100) - before[s]; got > 1 || got < 0 {
				t.Errorf("subject %s: got %d charges; want at most one", s, got)
			}
		}
	}
}

// And on a cluster, whose client sends a command that failed to another node.
func TestLostReplyChargesOnceOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	proxies := make(map[string]*redistest.Proxy)
	for _, addr := range cluster.Addrs() {
		proxies[addr] = redistest.NewProxy(t, addr)
	}
	o := cluster.Options()
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, proxies[addr].Addr)
	}
	through := redis.NewClusterClient(o)
	t.Cleanup(func() { through.Close() })
	r := newStore(through)
	sees := newStore(cluster.Client())
	sees.Prefix = r.Prefix
	var group []gcra.Charge
	for i := range 12 {
		group = append(group, hourly(fmt.Sprint("subject ", i), 100))
	}
	gcratest.MustTake(t, r, group...)
	before := make([]int64, len(group))
	for i, c := range group {
		before[i] = spentOf(t, sees, c.Subject, 100)
	}
	for _, p := range proxies {
		p.DropReply(1)
	}
	if _, err := r.Take(t.Context(), group); err == nil {
		t.Error("got no error for replies that were lost")
	}
	for i, c := range group {
		if got := spentOf(t, sees, c.Subject, 100) - before[i]; got < 0 || got > 1 {
			t.Errorf("%s: got %d charges; want at most one", c.Subject, got)
		}
	}
}
