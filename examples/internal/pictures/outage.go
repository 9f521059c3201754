package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// outage is two servers that share a Redis, and what a terminal shows of them.
type outage struct {
	*stage
	port    string // of Redis
	servers [2]string
	logs    [2]<-chan string
	shown   terminal

	requests, allowed int
}

// drawOutage draws an outage of Redis as it happens.
func drawOutage(s *stage) error {
	o := &outage{stage: s}
	if err := o.run(); err != nil {
		return err
	}
	if o.allowed != 10 {
		return fmt.Errorf("%d of %d requests were allowed; want 10, the limit", o.allowed, o.requests)
	}
	return os.WriteFile(filepath.Join(folder, "outage.svg"), o.shown.svg("Redis is killed, and requests over the limit still get 429"), 0o644)
}

func (o *outage) run() error {
	var err error
	if o.port, err = freePort(); err != nil {
		return err
	}
	redis, err := o.redis()
	if err != nil {
		return err
	}
	for i := range o.servers {
		if o.servers[i], o.logs[i], err = o.quickstart("-redis", "redis://127.0.0.1:"+o.port); err != nil {
			return err
		}
	}

	if err := o.untilCounted(); err != nil {
		return err
	}

	o.shown.begin()
	o.say(comment, "# Two servers share a limit of 10 requests an hour, in one Redis.")
	if err := o.ask(3); err != nil {
		return err
	}

	o.say(command, "kill -9 $(pidof redis-server)")
	if err := redis.Process.Kill(); err != nil {
		return err
	}
	_ = redis.Wait()
	o.say(comment, "# Without Redis, each server grants its half of the limit:")
	if err := o.ask(4); err != nil {
		return err
	}

	o.say(command, "redis-server --appendonly yes &")
	if _, err := o.redis(); err != nil {
		return err
	}
	o.say(comment, "# Redis is back, and each server charges there what it granted:")
	if err := o.ask(3); err != nil {
		return err
	}
	o.shown.add(comment, fmt.Sprintf("# %d of %d requests were allowed.", o.allowed, o.requests))
	return nil
}

// untilCounted sends requests until each server knows of the other.
func (o *outage) untilCounted() error {
	for least := int64(0); least < 2; time.Sleep(time.Second / 4) {
		least = 2
		for _, addr := range o.servers {
			w, err := http.PostForm("http://"+addr+"/login", nil)
			if err != nil {
				return err
			}
			w.Body.Close()
			if w, err = http.Get("http://" + addr + "/debug/ratelimit?format=json"); err != nil {
				return err
			}

			var page struct{ Store struct{ Instances int64 } }
			err = json.NewDecoder(w.Body).Decode(&page)
			w.Body.Close()
			if err := cmp.Or(err, o.ctx.Err()); err != nil {
				return err
			}
			least = min(least, page.Store.Instances)
		}
	}
	return nil
}

// redis starts Redis on its port, with the data that it had.
func (o *outage) redis() (*exec.Cmd, error) {
	redis, lines, err := o.start("redis-server", "--port", o.port, "--bind", "127.0.0.1",
		"--appendonly", "yes", "--appendfsync", "always", "--save", "")
	if err != nil {
		return nil, err
	}
	_, err = o.line(lines, "eady to accept connections")
	return redis, err
}

// say shows a line, for long enough to read it.
func (o *outage) say(class, text string) {
	o.shown.add(class, text)
	time.Sleep(time.Second)
}

// ask sends requests to both servers, and shows what they answer and log.
func (o *outage) ask(rounds int) error {
	for range rounds {
		var answers []span
		for i, addr := range o.servers {
			answer, err := o.hello(i, addr)
			if err != nil {
				return err
			}
			answers = append(answers, answer...)
		}
		o.shown.addSpans(answers)
		time.Sleep(time.Second / 2)
		o.showLogs()
	}
	return nil
}

// hello sends a request to a server.
func (o *outage) hello(i int, addr string) ([]span, error) {
	w, err := http.Get("http://" + addr + "/hello")
	if err != nil {
		return nil, err
	}
	w.Body.Close()

	o.requests++
	name := "AB"[i : i+1]
	class, field := bad, "Retry-After"
	switch w.StatusCode {
	case http.StatusOK:
		o.allowed++
		class, field = good, "RateLimit-Remaining"
	case http.StatusTooManyRequests:
	default:
		return nil, fmt.Errorf("server %s: got %s; want 200 or 429", name, w.Status)
	}
	return []span{
		{plain, "  " + name + "  "}, {class, strconv.Itoa(w.StatusCode)},
		{plain, fmt.Sprintf("  %-24s", field+": "+w.Header.Get(field))},
	}, nil
}

// showLogs shows what the servers have logged since, without what is after the code.
func (o *outage) showLogs() {
	for i, log := range o.logs {
		for len(log) > 0 {
			if _, line, ok := strings.Cut(<-log, "ratelimit: "); ok {
				line, _, _ = strings.Cut(line, " server=")
				o.shown.add(warning, "  "+"AB"[i:i+1]+"  log: "+line)
			}
		}
	}
}
