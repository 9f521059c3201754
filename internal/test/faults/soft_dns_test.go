package faults

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

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
		var m dnsmessage.Message
		if err := m.Unpack(buf[:size]); err != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m = dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(*n.addr.Load()).To4())},
			}}
		}
		packet, err := m.Pack()
		if err != nil {
			continue
		}
		time.AfterFunc(time.Duration(n.late.Load()), func() {
			_, _ = conn.WriteTo(packet, from) // the test may be over
		})
	}
}

// byName is a server behind a name, and the way to it.
func byName(t *testing.T, o *outcome) (*nameserver, *redistest.Server, *redistest.Proxy, *asker) {
	t.Helper()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	names := startNameserver(t, "127.0.0.1")
	_, port, _ := strings.Cut(proxy.Addr, ":")
	return names, server, proxy, openAsker(t, o, "redis://redis.example.:"+port+"/0")
}

func TestFault105NameserverIsLate(t *testing.T) {
	o := apart(t, "DNS takes 3 s, and connections are lost")
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
	o := apart(t, "DNS with another address")
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
