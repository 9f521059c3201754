// Pictures draws what README.md shows, into docs/img: an outage of Redis and the inspector from
// real runs of the quickstart, and the speed from benchmarks/results.txt.
//
//	go run ./examples/internal/pictures [-traffic 15m] [outage] [speed] [inspector]
//
// It needs redis-server and chromium. outage.go runs the outage, and terminal.go draws it.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const folder = "docs/img"

type picture struct {
	name string
	draw func(*stage) error
}

var pictures = []picture{
	{"outage", drawOutage},
	{"speed", drawSpeed},
	{"inspector", drawInspector},
}

func main() {
	traffic := flag.Duration("traffic", 15*time.Minute, "the time of the requests that the inspector shows")
	flag.Parse()
	if err := run(*traffic, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(traffic time.Duration, names []string) error {
	if _, err := os.Stat(folder); err != nil {
		return fmt.Errorf("%w; run it in the root of the repository", err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(pictures, func(p picture) bool { return p.name == name }) {
			return fmt.Errorf("there is no picture %q; want outage, speed or inspector", name)
		}
	}
	temporary, err := os.MkdirTemp("", "pictures")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)

	for _, p := range pictures {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*traffic+time.Minute)
		s := &stage{ctx: ctx, dir: temporary, traffic: traffic}
		err := p.draw(s)
		cancel() // ends its processes
		s.wait()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// stage is where the programs of a picture run.
type stage struct {
	ctx     context.Context
	dir     string // of their files
	traffic time.Duration
	running []*exec.Cmd
}

func (s *stage) wait() {
	for _, c := range s.running {
		_ = c.Wait() // it was killed
	}
}

// start starts a program, which is killed at the end of the picture. Its lines are read from the
// channel.
func (s *stage) start(name string, args ...string) (*exec.Cmd, <-chan string, error) {
	c := exec.CommandContext(s.ctx, name, args...)
	c.Dir = s.dir
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	c.Stdout, c.Stderr = writer, writer
	if err := errors.Join(c.Start(), writer.Close()); err != nil {
		return nil, nil, err
	}
	s.running = append(s.running, c)

	lines := make(chan string, 1000)
	go func() {
		defer reader.Close()
		defer close(lines)
		for all := bufio.NewScanner(reader); all.Scan(); {
			lines <- all.Text()
		}
	}()
	return c, lines, nil
}

// quickstart starts the quickstart on a free port, and returns its address and its log.
func (s *stage) quickstart(args ...string) (addr string, log <-chan string, err error) {
	program := filepath.Join(s.dir, "quickstart")
	build := exec.CommandContext(s.ctx, "go", "build", "-o", program, "./examples/quickstart")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", nil, fmt.Errorf("go build: %w", err)
	}
	_, log, err = s.start(program, append(args, "-addr", "127.0.0.1:0")...)
	if err != nil {
		return "", nil, err
	}
	line, err := s.line(log, "listens on http://")
	_, addr, _ = strings.Cut(line, "http://")
	return addr, log, err
}

// line is the next line of a program that contains a text.
func (s *stage) line(lines <-chan string, text string) (string, error) {
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return "", fmt.Errorf("ended without a line with %q: %w", text, io.ErrUnexpectedEOF)
			}
			if strings.Contains(line, text) {
				return line, nil
			}
		case <-s.ctx.Done():
			return "", fmt.Errorf("no line with %q: %w", text, s.ctx.Err())
		}
	}
}

// freePort is a port of this machine that nobody uses.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
