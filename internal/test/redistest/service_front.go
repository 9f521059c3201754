package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// front accepts connections and speaks RESP2. It sends each command to one of its servers, unless
// a rule answers it, and returns the replies in the order of the commands.
type front struct {
	servers []*Server
	route   func(key string) int          // the index of a key's server; nil means the first
	answer  func(command []string) string // a reply in place of the server's, hangUp, or "" for none
	edit    func(reply string) string     // changes a reply; may be nil

	wg       sync.WaitGroup
	mu       sync.Mutex
	closed   bool
	listener net.Listener
	conns    map[net.Conn]struct{} // of clients and to servers
}

// hangUp is an answer that closes the connection.
const hangUp = "\x00"

// newFront runs a front, which is closed at cleanup.
func newFront(t testing.TB, f *front) *Service {
	t.Helper()
	if f.listener == nil {
		f.listener = listenAnywhere(t)
	}
	f.conns = make(map[net.Conn]struct{})
	f.wg.Go(f.accept)
	t.Cleanup(f.close)
	return &Service{Addr: f.listener.Addr().String(), Servers: f.servers}
}

// listenAnywhere listens on a free port.
func listenAnywhere(t testing.TB) (listener net.Listener) {
	t.Helper()
	err := poll(patience, func() error {
		port, err := freePort(false)
		if err != nil {
			return err
		}
		listener, err = net.Listen("tcp", loopback(port))
		return err
	})
	if err != nil {
		t.Fatalf("starting a front: %v", err)
	}
	return listener
}

func (f *front) close() {
	f.mu.Lock()
	f.closed = true
	_ = f.listener.Close() // the only error is that it is closed
	for conn := range f.conns {
		_ = conn.Close()
	}
	f.mu.Unlock()
	f.wg.Wait()
}

func (f *front) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return // close closed it
		}
		if f.keep(conn) {
			f.wg.Go(func() { f.serve(conn) })
		}
	}
}

// keep notes a connection for close, or closes it and reports false if that has run.
func (f *front) keep(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = conn.Close()
		return false
	}
	f.conns[conn] = struct{}{}
	return true
}

func (f *front) drop(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
	_ = conn.Close()
}

// upstream is the connection of one client to one server.
type upstream struct {
	conn net.Conn
	in   *bufio.Reader
	out  *bufio.Writer
}

// due is a reply that the client waits for: a server's, or a text.
type due struct {
	from *upstream // nil for a text
	text string
}

// serve sends the commands of a client to the servers. Another goroutine returns the replies.
func (f *front) serve(client net.Conn) {
	ups := make([]*upstream, len(f.servers))
	replies := make(chan due, 10_000)
	defer func() {
		close(replies)
		for _, up := range ups {
			if up != nil {
				f.drop(up.conn)
			}
		}
	}()

	f.wg.Go(func() { f.deliver(client, replies) })

	in := bufio.NewReader(client)
	for {
		// Servers get the commands that have come together in one piece.
		if in.Buffered() == 0 {
			for _, up := range ups {
				if up != nil && up.out.Flush() != nil {
					return
				}
			}
		}

		command, err := readCommand(in)
		if err != nil {
			return
		}

		text := f.answer(command)
		if command[0] == "HELLO" && len(command) > 1 && command[1] != "2" && text == "" {
			text = "-NOPROTO unsupported protocol version\r\n"
		}
		if text != "" {
			replies <- due{text: text}
			continue
		}

		i := f.serverOf(command)
		if ups[i] == nil {
			if ups[i], err = f.dial(f.servers[i]); err != nil {
				return
			}
		}

		writeCommand(ups[i].out, command)
		replies <- due{from: ups[i]}
	}
}

func (f *front) dial(s *Server) (*upstream, error) {
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return nil, err
	}
	if !f.keep(conn) {
		return nil, net.ErrClosed
	}
	return &upstream{conn: conn, in: bufio.NewReader(conn), out: bufio.NewWriter(conn)}, nil
}

// deliver writes replies in order, and closes the client's connection after the last or an error.
func (f *front) deliver(client net.Conn, replies <-chan due) {
	defer func() {
		for range replies { // until serve has noticed
		}
	}()
	defer f.drop(client)

	out := bufio.NewWriter(client)
	for d := range replies {
		text := d.text
		if d.from != nil {
			var b strings.Builder
			if err := readReply(d.from.in, &b); err != nil {
				return
			}
			text = b.String()
			if f.edit != nil {
				text = f.edit(text)
			}
		}

		if text == hangUp {
			return
		}
		if _, err := out.WriteString(text); err != nil {
			return
		}
		if len(replies) == 0 && out.Flush() != nil {
			return
		}
	}
}

// serverOf is the index of the server of a command's first key.
func (f *front) serverOf(command []string) int {
	key := ""
	switch {
	case ownCommands[command[0]] || f.route == nil:
		return 0
	case isScript(command):
		if command[2] == "0" || len(command) < 4 {
			return 0
		}
		key = command[3]
	case len(command) > 1:
		key = command[1]
	}
	return f.route(key)
}

func isScript(command []string) bool {
	return (command[0] == "EVAL" || command[0] == "EVALSHA") && len(command) > 2
}

// readCommand reads a command as clients send it, and returns its name in capitals.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readCount(in, '*')
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, errors.New("a command is empty")
	}

	command := make([]string, n)
	for i := range command {
		size, err := readCount(in, '$')
		if err != nil {
			return nil, err
		}

		b := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		command[i] = string(b[:size])
	}

	command[0] = strings.ToUpper(command[0])
	return command, nil
}

// readCount reads a line of a kind and a number.
func readCount(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("a line is %q; want %c", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// writeCommand writes a command; an error shows in the next Flush.
func writeCommand(out *bufio.Writer, command []string) {
	fmt.Fprintf(out, "*%d\r\n", len(command))
	for _, arg := range command {
		fmt.Fprintf(out, "$%d\r\n%s\r\n", len(arg), arg)
	}
}

// readReply copies a reply of RESP2.
func readReply(in *bufio.Reader, to *strings.Builder) error {
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}

	to.WriteString(line)
	if line[0] != '$' && line[0] != '*' {
		return nil
	}

	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch {
	case err != nil || n < 0: // -1 is nil
		return err
	case line[0] == '$':
		_, err := io.CopyN(to, in, int64(n+len("\r\n")))
		return err
	}

	for range n {
		if err := readReply(in, to); err != nil {
			return err
		}
	}

	return nil
}

// hashTag is the part of a key that decides its slot: the text in the first braces, if there is
// any, or the key.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// slotOf is the slot of a hash tag, its CRC16 (XMODEM) modulo the number of slots.
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#appendix-a-crc16-reference-implementation-in-ansi-c
func slotOf(tag string) int {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % slots
}
