package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// farAway returns the address of a proxy, in a process of its own, that is so far from a server.
func farAway(b *testing.B, server string, roundTrip time.Duration) (addr string) {
	return redistest.StartProcess(b, delayingVar, (roundTrip/2).String()+" "+server).Read()
}

func delayingProcess(arg string, in io.Reader, out io.Writer) error {
	each, server, _ := strings.Cut(arg, " ")
	delay, err := time.ParseDuration(each)
	if err != nil {
		return err
	}
	p, err := newDelaying(delay, server)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "127.0.0.1:%d\n", p.port)

	debug.SetGCPercent(-1) // the buffers are used again
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(0)
	}()
	return p.run()
}

// A delaying proxy forwards each piece of bytes when it has been here for the delay. One thread waits for what arrives and,
// by a timer, for what is due: an epoll_wait of its own would round to milliseconds.
//
// As all pieces wait alike, they are due in the order in which they came: one queue for all connections.
type delaying struct {
	delay  time.Duration
	server *unix.SockaddrInet4
	port   int

	epoll, listener, timer int
	ends                   map[int]*end // by descriptor
	due                    []piece
	free                   [][]byte
}

// An end is a connection to a client or to the server.
type end struct {
	fd     int
	other  *end
	closed bool
}

type piece struct {
	at    time.Duration // by the monotonic clock
	to    *end
	bytes []byte // none: close both ends
}

func newDelaying(delay time.Duration, server string) (p *delaying, err error) {
	p = &delaying{delay: delay, server: &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, ends: map[int]*end{}}
	if _, err := fmt.Sscanf(server, "127.0.0.1:%d", &p.server.Port); err != nil {
		return nil, err
	}

	if p.epoll, err = unix.EpollCreate1(0); err != nil {
		return nil, err
	}
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0); err != nil {
		return nil, err
	}
	if p.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
		return nil, err
	}
	if err := unix.Bind(p.listener, &unix.SockaddrInet4{Addr: p.server.Addr}); err != nil {
		return nil, err
	}
	if err := unix.Listen(p.listener, 1024); err != nil {
		return nil, err
	}

	name, err := unix.Getsockname(p.listener)
	if err != nil {
		return nil, err
	}
	p.port = name.(*unix.SockaddrInet4).Port
	return p, nil
}

func (p *delaying) run() error {
	p.watch(p.listener)
	p.watch(p.timer)
	events := make([]unix.EpollEvent, 128)
	for {
		n, err := unix.EpollWait(p.epoll, events, -1)
		if err != nil && err != unix.EINTR {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			switch fd := int(e.Fd); fd {
			case p.listener:
				if err := p.accept(); err != nil {
					return err
				}
			case p.timer:
				var ticks [8]byte
				_, _ = unix.Read(fd, ticks[:])
			default:
				if e, open := p.ends[fd]; open {
					p.receive(e)
				}
			}
		}
		p.forward()
	}
}

func (p *delaying) watch(fd int) {
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		panic(err)
	}
}

// accept takes a connection, and dials the server for it.
func (p *delaying) accept() error {
	client, _, err := unix.Accept(p.listener)
	if err != nil {
		return err
	}
	server, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(server, p.server); err != nil {
		return err
	}

	a, b := &end{fd: client}, &end{fd: server}
	a.other, b.other = b, a
	for fd, e := range map[int]*end{client: a, server: b} {
		p.ends[fd] = e
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return err
		}
		p.watch(fd)
	}
	return nil
}

// receive puts into the queue what has arrived at one end.
func (p *delaying) receive(from *end) {
	buf := make([]byte, 16<<10)
	if last := len(p.free) - 1; last >= 0 {
		buf, p.free = p.free[last], p.free[:last]
	}
	n, err := unix.Read(from.fd, buf[:cap(buf)])
	if err == unix.EINTR {
		return
	}
	if n <= 0 { // the end: nothing more is read, and the other end is told when it is due
		n = 0
		_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, from.fd, nil)
	}
	p.due = append(p.due, piece{now() + p.delay, from.other, buf[:n]})
}

// forward sends what is due, and sets the timer for the next piece.
func (p *delaying) forward() {
	n, at := 0, now()
	for ; n < len(p.due) && p.due[n].at <= at; n++ {
		p.send(p.due[n])
		p.free = append(p.free, p.due[n].bytes)
	}
	p.due = p.due[:copy(p.due, p.due[n:])]

	var next unix.ItimerSpec
	if len(p.due) > 0 {
		next.Value = unix.NsecToTimespec(int64(p.due[0].at))
	}
	_ = unix.TimerfdSettime(p.timer, unix.TFD_TIMER_ABSTIME, &next, nil)
}

func (p *delaying) send(c piece) {
	if c.to.closed {
		return
	}
	var err error
	for sent := 0; sent < len(c.bytes) && (err == nil || err == unix.EINTR); {
		var n int
		n, err = unix.Write(c.to.fd, c.bytes[sent:])
		sent += max(n, 0)
	}
	if len(c.bytes) > 0 && err == nil {
		return
	}

	for _, e := range []*end{c.to, c.to.other} {
		e.closed = true
		delete(p.ends, e.fd)
		_ = unix.Close(e.fd)
	}
}

// now is the time of the monotonic clock.
func now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano())
}
