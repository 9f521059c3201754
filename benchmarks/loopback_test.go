package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// loopbackCaller makes callers of a handler behind a server on loopback. Each keeps
// one connection, and writes requests and reads answers itself: a full client would cost
// more than what is measured.
func loopbackCaller(b *testing.B, h http.Handler) func() check {
	server := httptest.NewServer(h)
	b.Cleanup(server.Close)
	return func() check { return (&keepAlive{addr: server.Listener.Addr().String()}).get }
}

// keepAlive is a client with one connection.
type keepAlive struct {
	addr string
	conn net.Conn
	r    *bufio.Reader
	buf  []byte
}

func (k *keepAlive) get(subject string) (bool, error) {
	if k.conn == nil {
		conn, err := net.Dial("tcp", k.addr)
		if err != nil {
			return false, err
		}
		k.conn, k.r = conn, bufio.NewReader(conn)
	}

	k.buf = append(k.buf[:0], "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n"+clientField+": "...)
	k.buf = append(append(k.buf, subject...), "\r\n\r\n"...)
	if _, err := k.conn.Write(k.buf); err != nil {
		return false, err
	}
	res, err := http.ReadResponse(k.r, nil)
	if err != nil {
		return false, err
	}

	_, err = io.Copy(io.Discard, res.Body)
	err = errors.Join(err, res.Body.Close())
	switch {
	case err != nil:
		return false, err
	case res.StatusCode == http.StatusOK:
		return true, nil
	case res.StatusCode == http.StatusTooManyRequests:
		return false, nil
	}
	return false, fmt.Errorf("answered %d", res.StatusCode)
}
