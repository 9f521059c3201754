package faults

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// nameserver answers for every name, until the test ends, where this process resolves
// names.
type nameserver struct {
	addr    atomic.Pointer[string]
	late    atomic.Int64 // how long an answer takes, in nanoseconds
	queries atomic.Int64
}

func startNameserver(t *testing.T, addr string) *nameserver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	n := new(nameserver)
	n.addr.Store(&addr)
	served := make(chan struct{})
	go func() {
		defer close(served)
		n.serve(conn)
	}()

	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = conn.Close()
		<-served
	})

	return n
}

func (n *nameserver) serve(conn net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		size, from, err := conn.ReadFrom(buf)
		if err != nil {
			return // closed
		}
		n.queries.Add(1)
		answer := n.answer(buf[:size])
		if answer == nil {
			continue
		}
		time.AfterFunc(time.Duration(n.late.Load()), func() {
			_, _ = conn.WriteTo(answer, from) // the test may be over
		})
	}
}

// answer returns the response to a query, whose one question is repeated (RFC 1035, section 4), or
// nil if it is none. For other records than A it has no answer.
func (n *nameserver) answer(query []byte) []byte {
	const header, name, rest = 12, 1, 4 // the root, at least; type and class
	if len(query) < header+name+rest {
		return nil
	}

	end := header + bytes.IndexByte(query[header:], 0) + name + rest
	if end > len(query) {
		return nil
	}

	m := slices.Clone(query[:end])
	m[2], m[3] = 0x80, 0x80               // a response, recursion available
	copy(m[6:], []byte{0, 0, 0, 0, 0, 0}) // no answers, authorities, additions

	if a := net.ParseIP(*n.addr.Load()).To4(); m[end-rest+1] == 1 { // A
		m[7] = 1
		m = append(m, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4) // the name of the question, A, IN, for 1 s
		m = append(m, a...)
	}

	return m
}

// byName is a server behind a name, and the way to it.
func byName(t *testing.T, o *outcome) (*nameserver, *redistest.Server, *redistest.Proxy, *asker) {
	t.Helper()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	names := startNameserver(t, "127.0.0.1")
	_, port, _ := strings.Cut(proxy.Addr, ":")
	return names, server, proxy, openAsker(t, o, "redis://redis.example.:"+port+"/0", 0, softLimit())
}

func TestFault105NameserverIsLate(t *testing.T) {
	o := fault(t, "DNS takes 3 s, and connections are lost")
	names, _, proxy, a := byName(t, o)
	a.under(t, func() {
		names.late.Store(int64(3 * time.Second))
		proxy.Reset()
	}, func() { names.late.Store(0) })
	if names.queries.Load() == 0 {
		t.Error("the nameserver was not asked")
	}
	if len(a.log.Lines("redis-unreachable")) == 0 {
		t.Errorf("got log lines %q; want one that says redis-unreachable", a.log.Lines(isAway))
	}
}

// The old address is gone, and the name has another one: the store follows by itself.
func TestFault109NameMovesToAnotherAddress(t *testing.T) {
	o := fault(t, "DNS with another address")
	names, server, proxy, a := byName(t, o)
	host, port, _ := strings.Cut(proxy.Addr, ":")
	moved := strings.TrimSuffix(host, "1") + "2:" + port
	ln, err := net.Listen("tcp", moved)
	if err != nil {
		t.Skipf("this machine has no second loopback address: %v", err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}

	a.under(t, proxy.Refuse, func() {
		redistest.NewProxyOn(t, moved, server.Addr)
		address, _, _ := strings.Cut(moved, ":")
		names.addr.Store(&address)
	})
}
