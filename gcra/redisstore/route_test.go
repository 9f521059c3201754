package redisstore_test

import (
	"bufio"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// routing runs a proxy in front of several servers, and returns its URL. For each command it asks route for the server;
// a negative one is an error. Like other proxies it does not know HELLO and CLIENT.
func routing(t testing.TB, route func(command []string) int, servers ...*redistest.Server) (url string) {
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
			go forward(conn, route, servers)
		}
	}()

	return "redis://" + ln.Addr().String()
}

func forward(conn net.Conn, route func(command []string) int, servers []*redistest.Server) {
	defer conn.Close()

	var backends []net.Conn
	var replies []*bufio.Reader
	for _, s := range servers {
		backend, err := net.Dial("tcp", s.Addr)
		if err != nil {
			return
		}
		defer backend.Close()
		backends, replies = append(backends, backend), append(replies, bufio.NewReader(backend))
	}

	in, out := bufio.NewReader(conn), bufio.NewWriter(conn)
	for {
		command, err := readCommand(in)
		if err != nil {
			return
		}
		switch strings.ToLower(command[0]) {
		case "hello", "client":
			_, err = out.WriteString("-ERR unknown command\r\n")
		default:
			i := route(command)
			if i < 0 {
				_, err = out.WriteString("-ERR 'EVAL' command keys must in same slot\r\n")
			} else if _, err = io.WriteString(backends[i], resp(command)); err == nil {
				err = copyReply(out, replies[i])
			}
		}

		if err == nil && in.Buffered() == 0 {
			err = out.Flush()
		}
		if err != nil {
			return
		}
	}
}

func resp(command []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(command))
	for _, arg := range command {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// copyReply copies a reply of RESP2.
func copyReply(out io.Writer, in *bufio.Reader) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, line); err != nil {
		return err
	}

	n, _ := strconv.Atoi(strings.TrimSpace(line[1:])) // of an array or a bulk string
	switch {
	case line[0] == '$' && n >= 0:
		_, err = io.CopyN(out, in, int64(n)+2)
	case line[0] == '*':
		for range max(n, 0) {
			if err = copyReply(out, in); err != nil {
				break
			}
		}
	}

	return err
}

// firstKey is the first key of a command.
func firstKey(command []string) string {
	switch strings.ToLower(command[0]) {
	case "eval", "evalsha":
		if command[2] != "0" {
			return command[3]
		}
	case "get", "mget", "set":
		return command[1]
	}
	return ""
}

// byTag and byKey choose one of two servers by the first key's hash tag, or by the whole key.
func byTag(command []string) int {
	key := firstKey(command)
	if _, after, ok := strings.Cut(key, "{"); ok {
		key, _, _ = strings.Cut(after, "}")
	}
	return hash(key)
}

func byKey(command []string) int { return hash(firstKey(command)) }

func hash(s string) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, s)
	return int(h.Sum32()>>8) % 2
}
