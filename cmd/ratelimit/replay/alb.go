package replay

import (
	"bytes"
	"errors"
	"slices"
)

// albTypes are the first words of the lines of an Application Load Balancer.
var albTypes = []string{"http", "https", "h2", "grpcs", "ws", "wss"}

// isALB reports whether a line is of an Application Load Balancer of AWS: its type, and a time.
func isALB(line []byte) bool {
	kind, rest, _ := bytes.Cut(line, []byte(" "))
	return slices.Contains(albTypes, string(kind)) && len(rest) > 4 && rest[4] == '-'
}

// alb parses a line of an Application Load Balancer:
//
//	https 2026-11-20T13:55:36.186641Z app/lb/50dc 192.0.2.7:2817 10.0.0.1:80 0.0 0.1 0.0 200 200 0 57 "GET https://api.example:443/hello HTTP/1.1" ...
func (p *parser) alb(line []byte) (e entry, err error) {
	words := bytes.SplitN(line, []byte(" "), 5)
	_, request, quotes := bytes.Cut(line, []byte(` "`))
	if len(words) < 5 || !quotes {
		return e, errors.New(`the line ends too early; want type, time, balancer, client, ..., "request"`)
	}

	if e.at, err = p.clock.read(words[1]); err != nil {
		return e, err
	}

	text, ok := quoted(request)
	if !ok {
		return e, errors.New("no quote after the request")
	}

	client := words[3]
	if i := bytes.LastIndexByte(client, ':'); i >= 0 { // a port always follows, also an IPv6 address without brackets
		client = bytes.Trim(client[:i], "[]")
	}
	e.client = string(client)
	return e, e.setRequest(text)
}
