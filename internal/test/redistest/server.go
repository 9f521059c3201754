package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is how long one server may take to come up or to react. It takes
// some 30 ms; the rest is for busy machines.
const patience = 20 * time.Second

// Server is one process of a redis-server or valkey-server. Its methods are safe
// for concurrent use; call those that can fail the test in its goroutine.
type Server struct {
	Addr string // "127.0.0.1:port", the same after a [Server.Restart]

	t        testing.TB
	program  program
	dir      string // its working directory, removed at cleanup
	args     []string
	password string
	certs    *Certificates // nil for a server without TLS

	clientOnce sync.Once
	client     *redis.Client

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended and been reaped
}

// Start runs a standalone server that persists nothing and allows DEBUG and
// every CONFIG SET to local clients. Args are configuration in redis-server's
// command line form, such as "--requirepass", "secret"; they come last and so
// win. Start chooses the port.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	Need(t)
	s, err := boot(t, options{args: args})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// options are what a kind of server needs.
type options struct {
	args     []string
	bus      bool                  // it needs the port of the cluster bus, too
	port     int                   // 0: any free one
	nodes    string                // the file that says what it knows of its cluster
	sentinel func(port int) string // the configuration file of a sentinel
	certs    *Certificates         // it speaks TLS only
}

// errPortTaken is a start that may succeed on another port.
var errPortTaken = errors.New("address already in use")

// boot starts a server on a free port and waits until it answers. Unlike the
// exported functions it may be called from any goroutine.
func boot(t testing.TB, o options) (*Server, error) {
	// Another process may take the port between the choice and redis-server's bind.
	for attempt := 1; ; attempt++ {
		s, err := tryBoot(t, o)
		if err == nil || !errors.Is(err, errPortTaken) || o.port != 0 || attempt == 10 {
			return s, err
		}
	}
}

func tryBoot(t testing.TB, o options) (*Server, error) {
	p, err := theProgram()
	if err != nil {
		return nil, err
	}

	port := o.port
	if port == 0 {
		if port, err = freePort(o.bus); err != nil {
			return nil, err
		}
	}

	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}

	s := &Server{Addr: loopback(port), t: t, program: p, dir: dir, certs: o.certs}
	t.Cleanup(s.cleanup)

	if o.sentinel != nil {
		conf := filepath.Join(dir, "sentinel.conf")
		if err := os.WriteFile(conf, []byte(o.sentinel(port)), 0o600); err != nil {
			return nil, err
		}
		s.args = []string{conf, "--sentinel"}
		return s, s.spawn()
	}

	s.args = []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no"}
	if o.certs != nil {
		s.args = append(s.args, "--port", "0", "--tls-port", strconv.Itoa(port))
		s.args = append(s.args, o.certs.args()...)
	}

	if p.since7() { // before, both were always allowed
		s.args = append(s.args, "--enable-debug-command", "local", "--enable-protected-configs", "local")
	}
	if o.nodes != "" {
		if err := os.WriteFile(filepath.Join(dir, "nodes.conf"), []byte(o.nodes), 0o600); err != nil {
			return nil, err
		}
	}

	s.args = append(s.args, o.args...)
	s.password = passwordIn(o.args)
	return s, s.spawn()
}

// passwordIn is what "--requirepass" sets in args, or "".
func passwordIn(args []string) string {
	if i := slices.Index(args, "--requirepass"); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// replicating are the args of servers with replicas.
func replicating(args []string) []string {
	// A master does not wait for more replicas before the first sync.
	common := []string{"--repl-diskless-sync-delay", "0"}
	if p := passwordIn(args); p != "" {
		common = append(common, "--masterauth", p)
	}
	return append(common, args...)
}

// bootAll boots several servers side by side.
func bootAll(t testing.TB, all ...options) ([]*Server, error) {
	servers, errs := make([]*Server, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, o := range all {
		wg.Go(func() { servers[i], errs[i] = boot(t, o) })
	}
	wg.Wait()
	return servers, errors.Join(errs...)
}

// spawn starts the process and waits until it answers.
func (s *Server) spawn() error {
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()

	cmd := exec.Command(s.program.path, s.args...)
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = log, log
	exited, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("starting %s: %w", s.program.path, err)
	}

	s.mu.Lock()
	s.cmd, s.exited = cmd, exited
	s.mu.Unlock()

	if err := s.awaitReady(cmd.Process.Pid, exited); err != nil {
		s.Kill()
		if strings.Contains(strings.ToLower(s.tail()), "address already in use") {
			err = fmt.Errorf("%w: %w", errPortTaken, err)
		}
		return s.explain(err)
	}

	return nil
}

// startProcess starts a process that dies with this one. exited is closed when it has ended and
// been reaped.
func startProcess(cmd *exec.Cmd) (exited chan struct{}, err error) {
	cmd.SysProcAttr = procAttr()

	// The death signal comes when the thread that started the process ends, and
	// the runtime ends a thread when a goroutine that had locked itself to it
	// returns. So this goroutine keeps a thread of its own while the process lives,
	// which it has to wait for anyway.
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log says how it ended
			close(exited)
		}
	}()

	return exited, <-started
}

// awaitReady waits until the process answers commands.
func (s *Server) awaitReady(pid int, exited <-chan struct{}) error {
	var fatal error
	err := poll(patience, func() error {
		select {
		case <-exited:
			fatal = errors.New("it exited")
			return nil
		default:
			return s.probe(pid)
		}
	})
	return errors.Join(fatal, err)
}

// probe compares the server's process ID: another process may own the port.
func (s *Server) probe(pid int) error {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	o := s.Options()
	o.MaxRetries = -1
	c := redis.NewClient(o)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()

	info, err := c.Info(ctx, "server").Result()
	var reply redis.Error
	switch {
	case errors.As(err, &reply) && !redis.IsLoadingError(err):
		return nil // it answers, even if only with an error of permissions
	case err != nil:
		return err
	case field(info, "process_id") != strconv.Itoa(pid):
		return fmt.Errorf("%s is process %q, not %d", s.Addr, field(info, "process_id"), pid)
	}

	return nil
}

// field is the value of a "name:value" line in the reply of an INFO command.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// explain adds the end of the log to an error.
func (s *Server) explain(err error) error {
	return fmt.Errorf("%s on %s: %w\n--- its log ends:\n%s", s.program.path, s.Addr, err, s.tail())
}

// tail is the last lines of the log.
func (s *Server) tail() string {
	lines := strings.SplitAfter(s.Log(), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "")
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "redis.log") }

// Log is the output of the server, before every [Server.Restart] too.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.logPath())
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	return string(bytes.ToValidUTF8(b, []byte("?")))
}

// Version is what runs, such as "Redis 7.0.15".
func (s *Server) Version() string { return s.program.name + " " + s.program.version }

// URL is the server's address in the form that redis.ParseURL reads, with the
// password if "--requirepass" set one.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr, Path: "/0"}
	if s.certs != nil {
		u.Scheme = "rediss"
	}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// Options returns the options of [Server.Client]: go-redis's defaults, with maintenance
// notifications off. Change them for a client of your own.
func (s *Server) Options() *redis.Options {
	o := &redis.Options{Addr: s.Addr, Password: s.password, MaintNotificationsConfig: noMaintenance()}
	if s.certs != nil {
		o.TLSConfig = s.certs.client()
		o.Protocol = 2 // under RESP3 go-redis may wait 50 ms before the first command on a connection
	}
	return o
}

// Client is a client of this server, always the same one, closed at cleanup.
func (s *Server) Client() *redis.Client {
	s.clientOnce.Do(func() {
		s.client = redis.NewClient(s.Options())
		closeAtCleanup(s.t, s.client)
	})
	return s.client
}

// process is the running process, or nil.
func (s *Server) process() *os.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	select {
	case <-s.exited:
		return nil
	default:
		return s.cmd.Process
	}
}

// PID is the process ID, or 0 if the server does not run.
func (s *Server) PID() int {
	if p := s.process(); p != nil {
		return p.Pid
	}
	return 0
}

// Kill ends the process as kill -9 does, paused or not, and returns when it has
// ended. It does nothing if the process does not run.
func (s *Server) Kill() {
	s.mu.Lock()
	cmd, exited := s.cmd, s.exited
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // fails only for a process that has ended
	<-exited
}

// Pause stops the process with SIGSTOP: its connections stay open, without answers.
// It returns when the process has stopped.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal("pause", stop)
}

// Resume continues a paused process.
func (s *Server) Resume() {
	s.t.Helper()
	s.signal("resume", cont)
}

func (s *Server) signal(verb string, send func(*os.Process) error) {
	s.t.Helper()
	p := s.process()
	if p == nil {
		s.t.Fatalf("cannot %s %s: it does not run", verb, s.Addr)
	}
	if err := send(p); err != nil {
		s.t.Fatalf("cannot %s %s: %v", verb, s.Addr, err)
	}
}

// Restart kills the process if it runs and starts it again on the same port
// with the same arguments, and waits until it answers. A standalone server comes
// back empty unless its arguments make it persist; a node of a cluster and
// a sentinel remember the other servers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.spawn(); err != nil {
		s.t.Fatal(err)
	}
}

// AwaitReplicas returns when n replicas have all earlier writes. (WAIT waits for the
// writes of its own connection only.)
func (s *Server) AwaitReplicas(n int) {
	s.t.Helper()
	replication := func() string { return s.Client().Info(context.Background(), "replication").Val() }
	written, err := strconv.Atoi(field(replication(), "master_repl_offset"))
	if err != nil {
		s.t.Fatalf("the replication offset of %s: %v", s.Addr, err)
	}

	Eventually(s.t, patience, fmt.Sprintf("%d replicas to be up to date", n), func() bool {
		upToDate, info := 0, replication()
		for i := range n {
			_, rest, _ := strings.Cut(field(info, fmt.Sprint("slave", i)), "offset=")
			digits, _, _ := strings.Cut(rest, ",")
			if offset, err := strconv.Atoi(digits); err == nil && offset >= written {
				upToDate++
			}
		}

		return upToDate == n
	})
}

func (s *Server) cleanup() {
	s.Kill()
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Errorf("removing the directory of %s: %v", s.Addr, err)
	}
}
