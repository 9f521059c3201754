package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

const usage = `Replay tells what policies would have done to the traffic of an access log.

  go run ./examples/replay -policies policies.yaml [flags] access.log...

Files are in Common or Combined log format, with the virtual host before it or
without, or hold a JSON object a line, mixed as they like, and may be gzipped; -
is standard input. Several are merged by time, so those of a rotated log may be
given in any order.

  -policies file     as package middleware/policyfile describes it. Keys are
                     client (the address; IPv6 by /64), user (the log's user) and
                     route (the route, see -route)
  -key name=key      a key that only your program knows, and which of these stands
                     for it, such as tenant=user; once for each
  -cost name=n       a cost that only your program knows, as a number
  -route pattern     a route of the application, such as "GET /users/{id}", as a log
                     tells only paths; once for each. Without any, the key route
                     goes by the policies' own routes
  -plan name         the plan of requests whose line tells none
  -at-most percent   of subjects that a suggested limit may refuse something
                     (default 1)
  -out dir           where to draw replay.png and replay.svg (default: no chart)
  -quiet             no progress bar
  -h                 this text

Fields of JSON lines, each a list of names of which the first that is there
counts, and of the times the first with parts of a second; a dot leads into an
object

`

const usageEnd = `
Times are RFC 3339, that of the Common log format, or Unix time in seconds,
milliseconds, microseconds or nanoseconds. A line that cannot be read is counted
and shown, and no reason to stop.

gin's own log is not read, as its times have no zone. This makes it one that is:

  gin.LoggerWithFormatter(func(p gin.LogFormatterParams) string {
      return fmt.Sprintf("%s - - [%s] %q %d %d\n", p.ClientIP,
          p.TimeStamp.Format("02/Jan/2006:15:04:05 -0700"),
          p.Method+" "+p.Request.RequestURI+" "+p.Request.Proto,
          p.StatusCode, p.BodySize)
  })

Nor is that of chi's Logger. In its place github.com/gorilla/handlers writes
Combined log format:

  r.Use(func(next http.Handler) http.Handler {
      return handlers.CombinedLoggingHandler(os.Stdout, next)
  })

HAProxy writes a log that is read with "option httplog clf". A prefix in front of
each line, of docker compose, Kubernetes or syslog, must be cut off; the message
for such a line says how.

The requests go through the middleware and its Memory store on the log's clock.
That shows what would have been refused of what did come; how clients answer to
a refusal no log tells.
`

// jsonFlags name the fields.
var jsonFlags = [fieldsCount]string{
	fieldTime: "json-time", fieldClient: "json-client", fieldUser: "json-user", fieldPlan: "json-plan",
	fieldRequest: "json-request", fieldMethod: "json-method", fieldPath: "json-path", fieldHost: "json-host",
}

type settings struct {
	policies, out string
	atMost        float64
	quiet         bool
	funcs         *funcs
	fields        *fields
	files         []string
}

// readSettings reads the flags. Its errors name the value and what would be
// right.
func readSettings(args []string) (settings, error) {
	s := settings{fields: newFields(), funcs: new(funcs)}
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.policies, "policies", "", "")
	flags.Func("key", "", s.funcs.addKey)
	flags.Func("cost", "", s.funcs.addCost)
	flags.Func("route", "", s.funcs.routes.add)
	flags.StringVar(&s.funcs.plan, "plan", "", "")
	flags.Float64Var(&s.atMost, "at-most", 1, "")
	flags.StringVar(&s.out, "out", "", "")
	flags.BoolVar(&s.quiet, "quiet", false, "")
	for field, name := range jsonFlags {
		flags.StringVar(&s.fields.names[field], name, s.fields.names[field], "")
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return s, flag.ErrHelp
	} else if err != nil {
		return s, fmt.Errorf("%w; see -h", err)
	}
	s.files = flags.Args()
	s.fields.prepare()
	stdins := 0
	for _, name := range s.files {
		if strings.HasPrefix(name, "-") && name != "-" {
			return s, fmt.Errorf("%s stands behind a log; want flags before them", name)
		}
		if name == "-" {
			stdins++
		}
	}
	switch {
	case s.policies == "":
		return s, errors.New("-policies is missing; want a file, see -h")
	case !(s.atMost >= 0 && s.atMost < 100):
		return s, fmt.Errorf("-at-most is %v; want a percentage from 0 to less than 100", s.atMost)
	case len(s.files) == 0:
		return s, errors.New("no log is given; want files, or - for standard input")
	case len(s.files) > maxFiles:
		return s, fmt.Errorf("%d logs are given; want at most %d", len(s.files), maxFiles)
	case stdins > 1:
		return s, errors.New("- is given twice; want standard input once")
	}
	return s, nil
}

// printUsage writes the usage, with the names of fields that are looked for.
func printUsage(w io.Writer) {
	io.WriteString(w, usage)
	for field, names := range newFields().names {
		line := fmt.Sprintf("  -%-17s ", jsonFlags[field])
		for i, name := range strings.SplitAfter(names, ",") {
			if i > 0 && len(line)+len(name) > 80 {
				fmt.Fprintln(w, line)
				line = strings.Repeat(" ", 21)
			}
			line += name
		}
		fmt.Fprintln(w, line)
	}
	io.WriteString(w, usageEnd)
}
