package replay

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

const usage = `Replay shows what policies would have done to the traffic of an access log.

  go run ./cmd/ratelimit replay -policies policies.yaml [flags] access.log...

Lines are in Common or Combined log format, with or without a virtual host in
front, or are JSON objects. A file may mix them and may be gzipped; - is
standard input. Several files are merged by time, so the files of a rotated log
may be given in any order.

  -policies file     the policies, in the format of package
                     middleware/policyfile. Keys are client (the address, for
                     IPv6 the /64), user (the log's user) and route (see -route)
  -key name=key      use one of these keys for a key that your program
                     registers, such as tenant=user; repeat it for each
  -cost name=n       use a number for a cost that your program registers
  -route pattern     a route of the application, such as "GET /users/{id}";
                     repeat it for each. Logs have only paths. Without -route,
                     policies apply by path, and the key route uses the routes
                     of the policies
  -plan name         the plan of requests whose line has none
  -at-most percent   share of subjects that a suggested limit may deny something
                     (default 1)
  -out dir           draw replay.png and replay.svg here (default: no chart)
  -quiet             no progress bar
  -h                 this text

Fields of JSON lines. Each is a list of names; the first that exists counts, for
times the first with fractions of a second. A dot leads into an object

`

const usageEnd = `
Times are in RFC 3339 or Common log format, or are Unix time in seconds,
milliseconds, microseconds or nanoseconds. Lines that cannot be read are counted
and the first are shown.

gin's default log is not supported, as its times have no zone. This format is:

  gin.LoggerWithFormatter(func(p gin.LogFormatterParams) string {
      return fmt.Sprintf("%s - - [%s] %q %d %d\n", p.ClientIP,
          p.TimeStamp.Format("02/Jan/2006:15:04:05 -0700"),
          p.Method+" "+p.Request.RequestURI+" "+p.Request.Proto,
          p.StatusCode, p.BodySize)
  })

Nor is the log of chi's Logger. github.com/gorilla/handlers writes Combined log
format instead:

  r.Use(func(next http.Handler) http.Handler {
      return handlers.CombinedLoggingHandler(os.Stdout, next)
  })

HAProxy's log is supported with "option httplog clf". Remove prefixes of docker
compose, Kubernetes or syslog; the message for such a line says how.

The requests go through the middleware and a Memory store on the log's clock.
This shows which requests would have been denied. It cannot show how clients
would have reacted.
`

// jsonFlags are the flags for the fields.
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

// readSettings reads the flags. Errors name the value and what is wanted.
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
			return s, fmt.Errorf("%s comes after a log; want flags before logs", name)
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

// printUsage writes the usage with the default names of JSON fields.
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
