package faults

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// impostor listens, and answers each piece that it reads with a text. With "" it closes
// each connection at once.
func impostor(t *testing.T, text string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // closed
			}

			running.Go(func() {
				defer conn.Close()
				buf := make([]byte, 32<<10)
				for text != "" {
					if _, err := conn.Read(buf); err != nil {
						return
					}
					if _, err := io.WriteString(conn, text); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); running.Wait() }) // the proxy has closed its connections before
	return ln.Addr().String()
}

// A proxy in between answers for a server that is dead. The log says what came.
func TestFault108ProxyAnswersForADeadServer(t *testing.T) {
	beside(t)
	for name, answer := range map[string]struct{ text, code string }{
		"502":      {"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "redis-protocol"},
		"upstream": {"-ERR upstream connection failure\r\n", "redis-refuses"},
		"close":    {"", "redis-unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			o := apart(t, "a proxy that answers: "+name)
			server, other := redistest.Start(t), impostor(t, answer.text)
			proxy := redistest.NewProxy(t, server.Addr)

			a := openAsker(t, o, "redis://"+proxy.Addr+"/0", 0, softLimit())
			said := func() bool { return len(a.log.Lines(answer.code)) > 0 }
			a.under(t, func() { proxy.Move(other) }, func() {
				redistest.Eventually(t, ample, "a log line that says "+answer.code, said)
				proxy.Move(server.Addr)
			})
		})
	}
}
