package replay

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

func newParser() *parser {
	f := newFields()
	f.prepare()
	return &parser{fields: f}
}

const at = "[20/Nov/2026:13:55:36 +0000]"

func TestParse(t *testing.T) {
	when := time.Date(2026, 11, 20, 13, 55, 36, 0, time.UTC)
	for _, c := range []struct{ line, want string }{
		// Common and Combined log format
		{`192.0.2.7 - alice ` + at + ` "GET /hello HTTP/1.1" 200 18`, "192.0.2.7 alice GET /hello"},
		{`192.0.2.7 - - ` + at + ` "GET /hello?x=1 HTTP/1.1" 200 18 "https://example.com/" "curl/8.5.0"`, "192.0.2.7 - GET /hello?x=1"},
		{`192.0.2.7 - "" ` + at + ` "GET / HTTP/1.1" 200 18`, "192.0.2.7 - GET /"},
		{`2001:db8::1 ident bob ` + at + ` "POST /login HTTP/2.0" 401 0`, "2001:db8::1 bob POST /login"},
		{`192.0.2.7 - - [20/Nov/2026:14:55:36 +0100] "GET / HTTP/1.1" 200 18`, "192.0.2.7 - GET /"},
		{`192.0.2.7 - - ` + at + ` "GET /"`, "192.0.2.7 - GET /"},
		{`192.0.2.7 - - ` + at + ` "GET http://api.example.com/x HTTP/1.1" 200 18`, "192.0.2.7 - GET api.example.com http://api.example.com/x"},
		{`192.0.2.7 - - ` + at + ` "OPTIONS * HTTP/1.1" 200 18`, "192.0.2.7 - OPTIONS *"},
		{`192.0.2.7 - - ` + at + ` "CONNECT example.com:443 HTTP/1.1" 405 0`, "192.0.2.7 - CONNECT example.com:443 //example.com:443"},
		{`192.0.2.7 - - ` + at + ` "PROPFIND /a%2Fb HTTP/1.1" 200 18`, "192.0.2.7 - PROPFIND /a%2Fb"},
		{`api.example:443 192.0.2.7 - - ` + at + ` "GET /hello HTTP/1.1" 200 18`, "192.0.2.7 - GET api.example:443 /hello"},
		{`203.0.113.1:443 2001:db8::1 - alice ` + at + ` "GET /hello HTTP/1.1" 200 18`, "2001:db8::1 alice GET 203.0.113.1:443 /hello"},
		{`_ 192.0.2.7 - - ` + at + ` "GET http://api.example.com/x HTTP/1.1" 200 18`, "192.0.2.7 - GET api.example.com http://api.example.com/x"},
		{`192.0.2.7 192.0.2.8 bob ` + at + ` "GET / HTTP/1.1" 200 18`, "192.0.2.7 bob GET /"},
		{`host.example - - ` + at + ` "GET / HTTP/1.1" 200 18`, "host.example - GET /"},

		// What clients can put into a log
		{`192.0.2.7 - a b [c] ` + at + ` "GET / HTTP/1.1" 200 18`, "192.0.2.7 a b [c] GET /"},
		{`192.0.2.7 - x [99/Nov/2026:13:55:36 +0000 ` + at + ` "GET / HTTP/1.1" 200 18`, "192.0.2.7 x [99/Nov/2026:13:55:36 +0000 GET /"},
		{`192.0.2.7 - - ` + at + ` "GET /a\"b\\c\x7e HTTP/1.1" 200 18`, `192.0.2.7 - GET /a%22b%5Cc~`},
		{`192.0.2.7 - - ` + at + ` "GET /a b HTTP/1.1" 200 18`, "192.0.2.7 - GET /a%20b"},

		// JSON
		{`{"time":"2026-11-20T13:55:36Z","client":"192.0.2.7","user":"alice","method":"GET","path":"/hello"}`, "192.0.2.7 alice GET /hello"},
		{`{"path":"/a\u002fb","method":"GET","ts":1795182936,"remote_addr":"192.0.2.7:4711"}`, "192.0.2.7:4711 - GET /a/b"},
		{`{"time_local":"20/Nov/2026:13:55:36 +0000","remote_addr":"192.0.2.7","remote_user":"-","request":"GET /hello HTTP/1.1","status":"200"}`, "192.0.2.7 - GET /hello"},
		{`{"ts":1795182936.0,"request":{"remote_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"h.example","uri":"/x?y","headers":{"A":["b"]}},"user_id":"","status":200}`, "192.0.2.7 - GET h.example /x?y"},
		{`{"time":"2026-11-20T13:55:36Z","ts":5,"client":"192.0.2.7","plan":"pro","method":"GET","path":"/"}`, "192.0.2.7 - GET / pro"},
		{`{"ts":5,"time":"2026-11-20T13:55:36Z","client":"192.0.2.7","user":7,"plan":null,"method":"GET","path":"/"}`, "192.0.2.7 7 GET /"},
		{`{"time":"2026-11-20T13:55:36Z","client":{"ip":"x"},"client_ip":"192.0.2.7","user":"\ud83d\ude00","method":"GET","path":"/"}`, "192.0.2.7 😀 GET /"},
		{"{\"time\":\"2026-11-20T13:55:36Z\",\"client\":\"192.0.2.7\",\"user\":\"a\xffb\",\"method\":\"GET\",\"path\":\"/\"}", "192.0.2.7 a\ufffdb GET /"},
	} {
		e, err := newParser().parse([]byte(c.line))
		if err != nil {
			t.Errorf("%s: got %v; want an entry", c.line, err)
			continue
		}

		if got := described(&e); got != c.want {
			t.Errorf("%s: got %q; want %q", c.line, got, c.want)
		}
		if e.at != when.UnixMicro() {
			t.Errorf("%s: got %v; want %v", c.line, time.UnixMicro(e.at).UTC(), when)
		}
	}
}

// In a list of addresses the client is the one that --hops says, and without that an error: the last
// may be a proxy, in which all clients would be one.
func TestListOfAddresses(t *testing.T) {
	const request = ` [20/Nov/2026:13:55:36 +0000] "GET /hello HTTP/1.1" 200 18`
	for line, want := range map[string][3]string{ // clients by --hops; "" for an error
		"203.0.113.9, 10.0.0.1 - alice" + request:                                             {"", "10.0.0.1", "203.0.113.9"},
		"2001:db8::9,10.0.0.1 - -" + request:                                                  {"", "10.0.0.1", "2001:db8::9"},
		"junk, , 203.0.113.9, 10.0.0.1 - a, b" + request:                                      {"", "10.0.0.1", "203.0.113.9"},
		"api.example:443 203.0.113.9, 10.0.0.1 - -" + request:                                 {"", "10.0.0.1", "203.0.113.9"},
		"203.0.113.9 - a, b" + request:                                                        {"203.0.113.9", "203.0.113.9", "203.0.113.9"},
		"x y, 203.0.113.9, 10.0.0.1, 10.0.0.2 z" + request:                                    {},
		`{"time":1795182936,"remote_addr":"203.0.113.9, 10.0.0.1","method":"GET","path":"/"}`: {"", "10.0.0.1", "203.0.113.9"},
	} {
		for hops, want := range want {
			p := newParser()
			p.fields.hops = hops
			e, err := p.parse([]byte(line))
			if e.client != want && err == nil || (err != nil) != (want == "") {
				t.Errorf("%s, --hops %d: got %q, %v; want %q", line, hops, e.client, err, want)
			}
			if err != nil && hops == 0 && strings.HasPrefix(line, "203") && !strings.Contains(err.Error(), "want --hops n") {
				t.Errorf("%s: got %v; want that --hops helps", line, err)
			}
		}
	}
}

func described(e *entry) string {
	user := e.user
	if user == "" {
		user = "-"
	}
	words := []string{e.client, user, e.method, e.host, e.url.String(), e.plan}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// The URL is the one that net/http's server makes of the request.
func TestTargetAsServer(t *testing.T) {
	for _, target := range []string{"/", "/a%2Fb?c=%2F", "//a", "/a;b", "/./a/../b", "*", "http://h.example/x", "/%zz", "x", "/a?b?c#d"} {
		var e entry
		err := e.setTarget([]byte("GET"), target)
		want, wantErr := http.ReadRequest(newReader("GET " + target + " HTTP/1.1\r\nHost: \r\n\r\n"))
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: got %v; want %v", target, err, wantErr)
		} else if err == nil && (*e.url != *want.URL || e.host != want.Host) {
			t.Errorf("%s: got %+v of host %q; want %+v of host %q", target, e.url, e.host, want.URL, want.Host)
		}
	}
}

func TestParseMistakes(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`x`, "no [20/Nov/2026:13:55:36 +0000] where it should be"},
		{`192.0.2.7 - -`, "no [20/Nov"},
		{`192.0.2.7 - - [20/Nov/2026] "GET / HTTP/1.1" 200 18`, "no [20/Nov"},
		{`192.0.2.7 - - ` + at + ` 200 18`, "no [20/Nov"},
		{`192.0.2.7 - - [31/Feb/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 18`, `the time is "31/Feb/2026:13:55:36 +0000"; want one such as`},
		{`192.0.2.7 - - [01/Jan/1970:00:00:00 +0000] "GET / HTTP/1.1" 200 18`, `in the year 1970; want 2000 to 2099`},
		{`192.0.2.7 - - ` + at + ` "GET / HTTP/1.1`, "no quote after the request"},
		{`192.0.2.7 - - ` + at + ` "GET / HTTP/1.1\"`, "no quote after the request"},
		{`192.0.2.7 - - ` + at + ` "-" 408 0`, `the request is "-"; want one such as "GET /hello HTTP/1.1"`},
		{`192.0.2.7 - - ` + at + ` "\x16\x03\x01" 400 0`, `the request is "\x16\x03\x01"`},
		{`192.0.2.7 - - ` + at + ` "\x16 / HTTP/1.1" 400 0`, `the method is "\x16"`},
		{`192.0.2.7 - - ` + at + ` "GET hello HTTP/1.1" 400 0`, `the path is "hello"`},
		{`[GIN] 2026/11/20 - 13:55:36 | 200 |     1.2ms |   192.0.2.7 | GET      "/hello"`, "gin's default format, whose times have no zone; -h shows"},
		{`{`, "not JSON"},
		{`{"time":}`, "not JSON"},
		{`{"time":1} {"time":2}`, "not JSON: text after the object"},
		{`{"client":"192.0.2.7"}`, "no field time or ts or"},
		{`{"time":true,"client":"192.0.2.7"}`, "no field time or"},
		{`{"time":"yesterday","client":"192.0.2.7"}`, `the time is "yesterday"`},
		{`{"time":1795182936}`, "no field client or"},
		{`{"time":1795182936,"client":"192.0.2.7","path":"/"}`, "no field method or"},
		{`{"time":1795182936,"client":"192.0.2.7","method":"GET"}`, "no field path or"},
	} {
		if e, err := newParser().parse([]byte(c.line)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %+v, %v; want %q", c.line, e, err, c.want)
		}
	}
}

func TestParseNamedFields(t *testing.T) {
	p := newParser()
	p.fields.names[fieldTime] = "meta.when"
	p.fields.names[fieldClient] = "nobody, meta.from.ip"
	p.fields.names[fieldUser] = "meta.claims.sub"
	p.fields.names[fieldPlan] = "meta.claims.plan"
	p.fields.prepare()
	e, err := p.parse([]byte(`{"method":"GET","path":"/","user":"other","sub":"other","meta":{"x":[{"when":1}],"from":{"ip":"192.0.2.7"},"when":1795182936000,"claims":{"sub":"alice","plan":"pro"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := described(&e), "192.0.2.7 alice GET / pro"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

func TestParseTime(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"20/Nov/2026:13:55:36 +0000", "2026-11-20T13:55:36Z"},
		{"20/Nov/2026:13:55:36 -0730", "2026-11-20T21:25:36Z"},
		{"2026-11-20T13:55:36Z", "2026-11-20T13:55:36Z"},
		{"2026-11-20T13:55:36.123456789+01:00", "2026-11-20T12:55:36.123456Z"},
		{"2026-11-20T13:55:36.5+0100", "2026-11-20T12:55:36.5Z"},
		{"1795182936", "2026-11-20T13:55:36Z"},
		{"1795182936.25", "2026-11-20T13:55:36.25Z"},
		{"1795182936.1234567891", "2026-11-20T13:55:36.123456Z"},
		{"1795182936123", "2026-11-20T13:55:36.123Z"},
		{"1795182936123.75", "2026-11-20T13:55:36.12375Z"},
		{"1795182936123456", "2026-11-20T13:55:36.123456Z"},
		{"1795182936123456789", "2026-11-20T13:55:36.123456Z"},
		{"946684800", "2000-01-01T00:00:00Z"},
		{"0", ""},
		{"-5", ""},
		{"1795182936.x", ""},
		{"1.7e9", ""},
		{"99999999999999999999", ""},
		{"", ""},
		{"2026-11-20", ""},
		{"2100-01-01T00:00:00Z", ""},
	} {
		var clock timestamps
		micros, err := clock.read([]byte(c.text))
		got := ""
		if err == nil {
			got = time.UnixMicro(micros).UTC().Format(time.RFC3339Nano)
		}
		if got != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.text, got, err, c.want)
		}
	}
}

// FuzzParse looks for lines that crash the parser, and for entries that are not valid
// requests.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`192.0.2.7 - a ` + at + ` "GET /a\"\x41 HTTP/1.1" 200 18`))
	f.Add([]byte(`{"time":"2026-11-20T13:55:36Z","client":"192.0.2.7","request":{"method":"GET","uri":"/"}}`))
	f.Add([]byte(`{"ts":1795182936.5,"remote_addr":"x","request":"GET / HTTP/1.1"}`))

	p := newParser()
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(line) == 0 {
			t.Skip()
		}

		before := string(line)
		e, err := p.parse(line)
		if string(line) != before {
			t.Errorf("%q: the line is now %q", before, line)
		}
		if err != nil {
			return
		}

		if y := time.UnixMicro(e.at).UTC().Year(); y < firstYear-1 || y > lastYear+1 {
			t.Errorf("%q: got the year %d", line, y)
		}
		if e.url == nil || e.method == "" || strings.ContainsAny(e.method, " \"") {
			t.Errorf("%q: got %+v", line, e)
		}

		// The entry holds nothing of the line.
		for i := range line {
			line[i] = 'x'
		}
		got, _ := p.parse([]byte(before))
		if got.at != e.at || described(&got) != described(&e) {
			t.Errorf("%q: got %+v, and again %+v", before, e, got)
		}
	})
}

// gin's lines are readable with the formatter that -h shows.
func TestParseGin(t *testing.T) {
	var log bytes.Buffer
	formatter := func(p gin.LogFormatterParams) string {
		return fmt.Sprintf("%s - - [%s] %q %d %d\n", p.ClientIP,
			p.TimeStamp.Format("02/Jan/2006:15:04:05 -0700"),
			p.Method+" "+p.Request.RequestURI+" "+p.Request.Proto, p.StatusCode, p.BodySize)
	}

	_, shown, _ := strings.Cut(usageEnd, "return fmt.Sprintf(")
	shown, _, _ = strings.Cut(shown, "\n  })")
	source, err := os.ReadFile("entry_test.go")
	if err != nil || shown == "" || !strings.Contains(unspaced(string(source)), unspaced("return fmt.Sprintf("+shown)) {
		t.Errorf("-h shows %s, %v; want what this test runs", shown, err)
	}

	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(gin.LoggerWithConfig(gin.LoggerConfig{Formatter: formatter, Output: &log}))
	r := httptest.NewRequest(http.MethodGet, "/a%22%0Ab?x=%2F", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	engine.ServeHTTP(httptest.NewRecorder(), r)

	e, err := newParser().parse(bytes.TrimSpace(log.Bytes()))
	if err != nil {
		t.Fatalf("%s: %v", &log, err)
	}
	if got, want := described(&e), "192.0.2.7 - GET /a%22%0Ab?x=%2F"; got != want {
		t.Errorf("%s: got %q; want %q", &log, got, want)
	}
	if late := time.Since(time.UnixMicro(e.at)); late < 0 || late > time.Minute {
		t.Errorf("%s: got a time %v ago; want now", &log, late)
	}
}

func unspaced(s string) string { return strings.Join(strings.Fields(s), " ") }

func newReader(s string) *bufio.Reader { return bufio.NewReader(strings.NewReader(s)) }
