package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// answering runs a server that answers the commands with reply, and others with OK.
func answering(t *testing.T, reply string, commands ...string) (addr string) {
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
			go answer(conn, reply, commands)
		}
	}()

	return ln.Addr().String()
}

func answer(conn net.Conn, reply string, commands []string) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		command, err := readCommand(in)
		if err != nil {
			return
		}

		out := "+OK\r\n"
		switch name := strings.ToLower(command[0]); {
		case slices.Contains(commands, name):
			out = reply
		case name == "hello" && len(command) > 1 && command[1] == "3":
			out = "%1\r\n$5\r\nproto\r\n:3\r\n"
		case name == "hello":
			out = "-ERR unknown command\r\n"
		}

		if out == "" { // close, with no reset for the commands that are not read
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, in)
			return
		}

		if _, err := io.WriteString(conn, out); err != nil {
			return
		}
	}
}

// readCommand reads a command, an array of bulk strings.
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

// A reply of a wrong type or size is an error with the reply in it, and neither a
// panic nor a decision.
func TestOddReplies(t *testing.T) {
	for _, tt := range []struct{ reply, want string }{
		{"*2\r\n:0\r\n:0\r\n", ""}, // the right one
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
		{"", "EOF"}, // the server closes the connection
	} {
		for _, protocol := range []int{2, 3} {
			client := newClient(t, &redis.Options{Addr: answering(t, tt.reply, "eval", "evalsha"), Protocol: protocol})
			r := newStore(t, client, config{Logger: quiet})
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

// Numbers that take.lua never returns cause no panic and no error.
func TestExtremeReplies(t *testing.T) {
	for _, n := range []string{"9223372036854775807", "-9223372036854775808", "-1", "1", "9007199254740993", "-9007199254740992"} {
		client := newClient(t, &redis.Options{Addr: answering(t, fmt.Sprintf("*1\r\n:%s\r\n", n), "eval", "evalsha")})
		for _, ttl := range []time.Duration{-1, time.Second} {
			r := newStore(t, client, config{DenialTTL: ttl})
			for _, cost := range []int64{0, 1, 10, 11} {
				c := hourly("s", 10)
				c.Cost = cost
				gcratest.MustTake(t, r, c)
			}
		}
	}
}

// A script is not sent again when its reply is lost, although the client retries
// commands: Take returns an error, and the charge is made once.
func TestLostReplyChargesOnce(t *testing.T) {
	server := redistest.Start(t)
	direct := patientClient(t, server.Addr)
	proxy := redistest.NewProxy(t, server.Addr)
	client := newClient(t, &redis.Options{Addr: proxy.Addr}) // MaxRetries 3, go-redis's default
	r := newStore(t, client, config{})
	sees := newStore(t, direct, config{Prefix: r.Prefix()})
	gcratest.MustTake(t, r, hourly("s", 100))

	for i := range int64(3) {
		redistest.ResetStats(t, direct)
		proxy.DropReply(1)
		if _, err := gcra.Take(t.Context(), r, hourly("s", 100)); err == nil {
			t.Error("got no error for a lost reply")
		}
		if n := redistest.Calls(t, direct, "evalsha"); n != 1 {
			t.Errorf("got %d EVALSHA; want 1", n)
		}

		if got, want := spent(t, sees, "s", 100), 2+i; got != want {
			t.Errorf("got %d spent; want %d", got, want)
		}
		spent(t, r, "s", 100) // succeeds: three failures in a row would open the breaker
	}

	// The same for a refund.
	proxy.DropReply(1)
	if err := r.Refund(t.Context(), []gcra.Charge{hourly("s", 100)}); err == nil {
		t.Error("got no error for a refund whose reply was lost")
	}
	if got := spent(t, sees, "s", 100); got != 3 {
		t.Errorf("after a refund: got %d spent; want 3", got)
	}
}

// The same on a ring and on a cluster, where a batch is several scripts in a pipeline
// and the client sends a failed command to another node.
func TestLostReplyChargesOnceInAPipeline(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		open func(t *testing.T) (client, direct redis.UniversalClient, proxies map[string]*redistest.Proxy)
	}{
		{"ring", func(t *testing.T) (client, direct redis.UniversalClient, proxies map[string]*redistest.Proxy) {
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server.Addr)
			ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": proxy.Addr}})
			return ring, patientClient(t, server.Addr), map[string]*redistest.Proxy{"one": proxy}
		}},
		{"cluster", func(t *testing.T) (client, direct redis.UniversalClient, proxies map[string]*redistest.Proxy) {
			cluster := redistest.StartCluster(t)
			proxies = make(map[string]*redistest.Proxy)
			for _, addr := range cluster.Addrs() {
				proxies[addr] = redistest.NewProxy(t, addr)
			}
			o := cluster.Options()
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, proxies[addr].Addr)
			}
			return redis.NewClusterClient(o), cluster.Client(), proxies
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client, direct, proxies := tt.open(t)
			t.Cleanup(func() { client.Close() })
			cfg := config{Prefix: newPrefix()}
			r, sees := newStore(t, client, cfg), newStore(t, direct, cfg)
			var group []gcra.Charge
			for i := range 12 {
				group = append(group, hourly(fmt.Sprint("subject ", i), 100))
			}

			for range 5 {
				gcratest.MustTake(t, r, group...) // three failures in a row would open the breaker
				before := make([]int64, len(group))
				for i, c := range group {
					before[i] = spent(t, sees, c.Subject, 100)
				}
				for _, p := range proxies {
					p.DropReply(1)
				}
				if _, err := r.Take(t.Context(), group); err == nil {
					t.Error("got no error for a lost reply")
				}

				for _, p := range proxies {
					p.Pass()
				}
				for i, c := range group {
					if got := spent(t, sees, c.Subject, 100) - before[i]; got < 0 || got > 1 {
						t.Errorf("%s: got %d charges; want at most one", c.Subject, got)
					}
				}
			}
		})
	}
}
