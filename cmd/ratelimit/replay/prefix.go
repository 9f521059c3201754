package replay

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
)

// prefixes are those that programs which carry logs add to a line.
var prefixes = []struct {
	form      *regexp.Regexp
	from, cut string // the program, and a command that removes the prefix
}{
	{regexp.MustCompile(`^\S+ +\| `), "docker compose", `docker compose logs --no-log-prefix, or sed 's/^[^|]*| //'`},
	{regexp.MustCompile(`^\[pod/\S+ `), "kubectl logs --prefix", `kubectl logs without --prefix, or sed 's/^[^ ]* //'`},
	{regexp.MustCompile(`^` + isoTime + ` (?:stdout|stderr) [FP] `), "the container runtime (CRI)", `cut -d' ' -f4-`},
	{regexp.MustCompile(`^(?:<\d+>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:\S+ )?\S+: `), "syslog", `sed 's/^[^:]*:[^:]*:[^:]*: //'`},
	{regexp.MustCompile(`^<\d+>1 ` + isoTime + ` (?:\S+ ){5}`), "syslog (RFC 5424)", `cut -d' ' -f8-`},
	{regexp.MustCompile(`^` + isoTime + ` \S+ \S+: `), "rsyslog", `sed 's/^[^ ]* [^ ]* [^ ]*: //'`},
	{regexp.MustCompile(`^` + isoTime + ` `), "docker logs -t or kubectl logs --timestamps", `cut -d' ' -f2-`},
}

const isoTime = `\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)`

// prefixOf returns an error for a line with a known prefix, and the rest of the line.
func prefixOf(line []byte) (rest []byte, err error) {
	for _, p := range prefixes {
		if at := p.form.FindIndex(line); at != nil {
			return line[at[1]:], fmt.Errorf("the line has a prefix of %s; remove it: %s", p.from, p.cut)
		}
	}
	return line, nil
}

// checkPrefix returns an error for a line in Common log format with a prefix, which would be
// read as the client. The fields are the first two of the line and the user.
//
// Clients choose the user, which may look like such a line. But then the line begins with
// an address and "-".
func checkPrefix(line, first, ident, user []byte) error {
	if len(ident) > 0 && bytes.IndexByte(user, ' ') < 0 || string(ident) == "-" && isClient(first) {
		return nil // almost every line
	}

	if !isClient(first) {
		if _, err := prefixOf(line); err != nil {
			return err
		}
	}

	words := bytes.Fields(user)
	for i := range len(words) - 2 {
		if isClient(words[i]) {
			return errPrefix
		}
	}

	if !isClient(first) && string(ident) != "-" && len(words) > 1 && string(words[len(words)-2]) == "-" {
		return errPrefix
	}
	return nil
}

var errPrefix = errors.New("the line has a prefix before the client; remove it, for example with " +
	`sed -E 's/^.*[^,] (([^ ]+, )*[^ ]+ [^ ]+ [^ ]+ \[[0-9]{2}\/[A-Z])/\1/'`)

// isClient reports whether the word is a client's address as servers log it.
func isClient(word []byte) bool {
	if isAddr(word) || string(word) == unixClient {
		return true
	}
	_, err := netip.ParseAddrPort(string(word))
	return err == nil
}

// unixClient is nginx's client of a Unix socket.
const unixClient = "unix:"

// isHost reports whether the word may be a virtual host, with or without a port. A time and
// [pod/name] are not.
func isHost(word []byte) bool {
	if i := bytes.IndexByte(word, ']'); len(word) > 0 && word[0] == '[' {
		return i > 0 && isAddr(word[1:i])
	}
	return bytes.Count(word, []byte(":")) <= 1
}

var (
	haproxyTime = regexp.MustCompile(` \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d\.\d{3}\] `)
	chiLine     = regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d .*from \S+ - `)
)

// unsupportedFormat returns the error for a line that is neither in Common log format nor
// JSON.
func unsupportedFormat(line []byte) error {
	switch {
	case bytes.HasPrefix(line, []byte("[GIN]")):
		return errors.New("gin's default format, whose times have no zone; -h shows a format of gin that is supported")
	case chiLine.Match(line):
		return errors.New("the format of chi's Logger, whose times have no zone; -h shows a format for chi that is supported")
	case haproxyTime.Match(line):
		return errors.New("HAProxy's option httplog, whose times have no zone; want option httplog clf")
	}
	if rest, err := prefixOf(line); err != nil && bytes.HasPrefix(rest, []byte("{")) {
		return err
	}
	return errors.New("no [20/Nov/2026:13:55:36 +0000] where it should be; want Common or Combined log format, or a JSON object; see -h")
}

// dockerJSONFile returns the error for a line of docker's json-file driver, or nil.
func dockerJSONFile(line []byte) error {
	if bytes.HasPrefix(line, []byte(`{"log":"`)) && bytes.Contains(line, []byte(`"stream":"std`)) {
		return errors.New("a file of docker's json-file driver, which has the log's line in the field log; want docker logs, or jq -j .log")
	}
	return nil
}
