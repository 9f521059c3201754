package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// server is a redis-server of the benchmark's own, on loopback, that persists
// nothing.
type server struct {
	addr  string
	admin *redis.Client // for questions about the server, not for checks
	cmd   *exec.Cmd
	done  chan struct{}
	dir   string
}

var errNoRedis = errors.New("redis-server is not installed (Debian: apt-get install redis-server)")

func startRedis(ctx context.Context) (*server, error) {
	named := os.Getenv("RATELIMIT_TEST_SERVER")
	binary, err := exec.LookPath(cmp.Or(named, "redis-server"))
	if err != nil && named != "" {
		return nil, fmt.Errorf("RATELIMIT_TEST_SERVER is %q: %w; want the absolute path of a redis-server or valkey-server", named, err)
	}
	if err != nil {
		return nil, errNoRedis
	}
	// Somebody else may take the port before redis-server does.
	for attempt := 1; ; attempt++ {
		s, err := tryStart(ctx, binary)
		if err == nil || attempt == 5 {
			return s, err
		}
	}
}

func tryStart(ctx context.Context, binary string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ratelimit-benchmarks-")
	if err != nil {
		return nil, err
	}
	var log bytes.Buffer
	s := &server{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir, done: make(chan struct{})}
	s.cmd = exec.Command(binary, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--loglevel", "warning")
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		_ = s.cmd.Wait() // how it ended is in its log
		close(s.done)
	}()
	s.admin = redis.NewClient(s.options())
	for deadline := time.Now().Add(10 * time.Second); ; {
		info, err := s.admin.Info(ctx, "server").Result()
		if err == nil && field(info, "process_id") == strconv.Itoa(s.cmd.Process.Pid) {
			return s, nil
		}
		select {
		case <-s.done:
			s.stop()
			return nil, fmt.Errorf("redis-server did not start: %s", strings.TrimSpace(log.String()))
		case <-ctx.Done():
			s.stop()
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.stop()
			return nil, fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// stop ends the server and removes its directory.
func (s *server) stop() {
	_ = s.admin.Close()
	_ = s.cmd.Process.Kill() // fails only when it has ended
	<-s.done
	_ = os.RemoveAll(s.dir) // in the directory for temporary files
}

// poolSize is the number of connections of every client of go-redis: as many
// as there are callers at most, so that none waits for a connection.
const poolSize = 256

// options are the same for every contestant on go-redis. Each has a client of
// its own.
func (s *server) options() *redis.Options {
	return &redis.Options{
		Addr:                  s.addr,
		PoolSize:              poolSize,
		PoolTimeout:           time.Second,
		ContextTimeoutEnabled: true,
		ReadTimeout:           10 * time.Second,
		WriteTimeout:          10 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

func (s *server) client() *redis.Client { return redis.NewClient(s.options()) }

// info is a section of the server's INFO.
func (s *server) info(ctx context.Context, section string) (string, error) {
	text, err := s.admin.Info(ctx, section).Result()
	if err != nil {
		return "", fmt.Errorf("INFO %s: %w", section, err)
	}
	return text, nil
}

// cpu is the CPU time that the server has used.
func (s *server) cpu(ctx context.Context) (time.Duration, error) {
	text, err := s.info(ctx, "cpu")
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(field(text, name), 64)
		if err != nil {
			return 0, fmt.Errorf("INFO cpu: %s: %w", name, err)
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second)), nil
}

// memory is what the server uses, in bytes.
func (s *server) memory(ctx context.Context) (int64, error) {
	text, err := s.info(ctx, "memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(field(text, "used_memory"), 10, 64)
}

// commands counts the commands that the server has run, those that ask for
// statistics aside.
func (s *server) commands(ctx context.Context) (int64, error) {
	text, err := s.info(ctx, "commandstats")
	if err != nil {
		return 0, err
	}
	return countCommands(text)
}

func countCommands(commandstats string) (sum int64, err error) {
	for line := range strings.Lines(commandstats) {
		// cmdstat_get:calls=3,usec=7,...
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":calls=")
		if !ok || name == "cmdstat_info" {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("INFO commandstats: %q: %w", line, err)
		}
		sum += n
	}
	return sum, nil
}

// usage is the MEMORY USAGE of the one key that contains the subject.
func (s *server) usage(ctx context.Context, subject string) (int64, error) {
	keys, err := s.admin.Keys(ctx, "*"+subject+"*").Result()
	if err != nil {
		return 0, fmt.Errorf("KEYS: %w", err)
	}
	if len(keys) != 1 {
		return 0, fmt.Errorf("KEYS *%s*: %d keys; want 1", subject, len(keys))
	}
	n, err := s.admin.MemoryUsage(ctx, keys[0], 0).Result()
	if err != nil {
		return 0, fmt.Errorf("MEMORY USAGE %s: %w", keys[0], err)
	}
	return n, nil
}

// field is the value of a line "name:value" of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
