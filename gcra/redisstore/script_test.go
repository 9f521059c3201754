package redisstore_test

import (
	"bufio"
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
// panic nor a decision. FuzzReply of package rediskit has the types.
func TestOddReplies(t *testing.T) {
	for _, tt := range []struct{ reply, want string }{
		{"*2\r\n:0\r\n:0\r\n", ""}, // the right one
		{":0\r\n", "int64, 0 items; want a list of 2 integers"},
		{"#t\r\n", "bool, 0 items; want a list"},
		{"$-1\r\n", "nil"},
		{"_\r\n", "nil"},
		{"*1\r\n:0\r\n", "1 items; want a list of 2"},
		{"*2\r\n:0\r\n$1\r\n0\r\n", "2 items; want a list of 2 integers"},
		{"*2\r\n:0\r\n,0.5\r\n", "2 items; want a list of 2 integers"},
		{"-ERR boom\r\n", "ERR boom"},
		{"-NOSCRIPT again and again\r\n", "NOSCRIPT"},
		{"-BUSY script\r\n", "BUSY"},
		{"hello\r\n", "redisstore: "},
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
	for _, n := range []string{"9223372036854775807", "-9223372036854775808", "-1", "1", "9007199254740993", "-9007199254740993"} {
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
