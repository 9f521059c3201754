package replay

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"unicode"

	"golang.org/x/net/http/httpguts"
)

// entry is a request of a log.
type entry struct {
	at     int64  // microseconds since 1970
	client string // address, with or without a port
	user   string // "" for none
	plan   string // "" for none
	method string
	host   string
	url    *url.URL
}

// parser parses lines. It caches the last time, as the next line's is mostly the same.
type parser struct {
	fields *fields
	json   jsonLine
	clock  timestamps
}

// parse parses a line in Common or Combined log format or a JSON object. The entry does not
// refer to the line, which may be overwritten.
func (p *parser) parse(line []byte) (entry, error) {
	if line[0] == '{' {
		return p.object(line)
	}
	if isALB(line) {
		return p.alb(line)
	}
	return p.common(line)
}

// common parses a line in Common log format, or one that continues after it, as Combined
// does:
//
//	192.0.2.7 - alice [20/Nov/2026:13:55:36 +0000] "GET /hello HTTP/1.1" 200 18
//
// The virtual host may be in front, as in Apache's vhost_combined.
func (p *parser) common(line []byte) (e entry, err error) {
	client, rest := cutList(line)
	ident, rest := cutList(rest) // of identd, always "-"

	// Some servers write their own host in front of the client.
	if isList(ident) && !isList(client) || (isAddr(ident) || string(ident) == unixClient) && !isAddr(client) && !isList(client) {
		if !isHost(client) {
			if _, err := prefixOf(line); err != nil {
				return e, err
			}
			return e, errPrefix
		}
		e.host, client = string(client), ident
		ident, rest = cutList(rest)
	}

	user, when, rest := cutTime(rest)
	if when == nil {
		return e, unsupportedFormat(line)
	}

	if client, err = p.fields.hop(client); err != nil {
		return e, err
	}
	if err := checkPrefix(line, client, ident, user); err != nil {
		return e, err
	}
	if e.at, err = p.clock.read(when); err != nil {
		return e, err
	}

	request, ok := quoted(rest)
	if !ok {
		return e, errors.New("no quote after the request")
	}
	if err := e.setRequest(request); err != nil {
		return e, err
	}

	e.client = string(client)
	if string(user) != "-" && string(user) != `""` {
		e.user = string(user)
	}
	return e, nil
}

// cutList returns the first word of a line, with the words behind it while it ends in a comma:
// X-Forwarded-For is a list of addresses.
func cutList(line []byte) (list, rest []byte) {
	for end := 0; ; end++ {
		i := bytes.IndexByte(line[end:], ' ')
		if i < 0 {
			return line, nil
		}
		if end += i; end == 0 || line[end-1] != ',' {
			return line[:end], line[end+1:]
		}
	}
}

func isList(client []byte) bool { return bytes.IndexByte(client, ',') >= 0 }

// hop returns the client, of a list the entry that --hops says. Clients write what they like to the
// left of it, and to the right of it are proxies.
func (f *fields) hop(client []byte) ([]byte, error) {
	if !isList(client) {
		return client, nil
	}
	switch list := bytes.Split(client, []byte(",")); {
	case f.hops == 0:
		return nil, errors.New("the client is a list of addresses, as of X-Forwarded-For; want --hops n, as keyfunc.TrustedHops: " +
			"the nth from the right, if n proxies append to the list")
	case f.hops > len(list):
		return nil, fmt.Errorf("the client is a list of %d addresses; want at least as many as --hops, which is %d", len(list), f.hops)
	default:
		return bytes.TrimSpace(list[len(list)-f.hops]), nil
	}
}

// isAddr reports whether the word is an address without a port.
func isAddr(word []byte) bool {
	if len(word) < len("::") || len(word) > len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255") {
		return false // most are "-"
	}
	_, err := netip.ParseAddr(string(word))
	return err == nil
}

// cutTime splits a line around the brackets with the time and the quote that opens the
// request. The user before may contain anything, also spaces and brackets.
func cutTime(s []byte) (before, when, behind []byte) {
	for from := 0; ; {
		i := bytes.Index(s[from:], []byte(" ["))
		if i < 0 {
			return nil, nil, nil
		}
		start := from + i + len(" [")
		end := start + len(commonTime)
		if end < len(s) && bytes.HasPrefix(s[end:], []byte(`] "`)) {
			return s[:from+i], s[start:end], s[end+len(`] "`):]
		}
		from = start
	}
}

// quoted returns the text before the closing quote, without the escapes of Apache and
// nginx: \" \\ \xhh, and such as \n.
func quoted(s []byte) (text []byte, ok bool) {
	escaped := false
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			if escaped {
				return unescape(s[:i]), true
			}
			return s[:i], true
		}
	}
	return nil, false
}

func unescape(s []byte) []byte {
	text := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' && i+1 < len(s) {
			i++
			c = s[i]
			switch c {
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case 'x':
				if i+2 < len(s) {
					high, low := hex(s[i+1]), hex(s[i+2])
					if high >= 0 && low >= 0 {
						c = byte(high<<4 | low)
						i += 2
					}
				}
			}
		}

		text = append(text, c)
	}
	return text
}

func hex(c byte) int { return strings.IndexByte("0123456789abcdef", c|0x20) }

// setRequest parses a request line, "GET /hello?x=1 HTTP/1.1". The protocol may be missing.
func (e *entry) setRequest(line []byte) error {
	method, target, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return fmt.Errorf(`the request is %q; want one such as "GET /hello HTTP/1.1"`, clip(line))
	}
	if i := bytes.LastIndex(target, []byte(" HTTP/")); i >= 0 {
		target = target[:i]
	}
	return e.setTarget(method, string(target))
}

// setTarget parses method and target as net/http's server does.
func (e *entry) setTarget(method []byte, target string) (err error) {
	if e.method = methodName(method); e.method == "" {
		return fmt.Errorf("the method is %q; want one such as GET", clip(method))
	}

	// CONNECT has an authority alone.
	authority := e.method == http.MethodConnect && !strings.HasPrefix(target, "/")
	if authority {
		target = "http://" + target
	}
	if e.url, err = url.ParseRequestURI(target); err != nil {
		return fmt.Errorf("the path is %q; want one such as /hello?x=1", clip(target))
	}

	if e.url.Host != "" {
		e.host = e.url.Host
	}
	if authority {
		e.url.Scheme = ""
	}
	return nil
}

// methodName returns the method, without an allocation for the usual ones, or "" if it is
// not valid.
func methodName(method []byte) string {
	switch string(method) {
	case http.MethodGet:
		return http.MethodGet
	case http.MethodHead:
		return http.MethodHead
	case http.MethodPost:
		return http.MethodPost
	case http.MethodPut:
		return http.MethodPut
	case http.MethodPatch:
		return http.MethodPatch
	case http.MethodDelete:
		return http.MethodDelete
	case http.MethodOptions:
		return http.MethodOptions
	}

	if name := string(method); httpguts.ValidHeaderFieldName(name) { // the same grammar
		return name
	}
	return ""
}

// clip bounds the input that a message repeats.
func clip[S ~string | ~[]byte](s S) string {
	const most = 80
	if len(s) > most {
		return string(s[:most]) + "..."
	}
	return string(s)
}

// plain returns s without characters that control a terminal.
func plain(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, s)
}
