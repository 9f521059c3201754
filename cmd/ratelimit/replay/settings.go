package replay

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

const usage = `Replay shows what policies would have done to the traffic of an access log.

Lines are in Common or Combined log format, with or without a virtual host in
front, of an Application Load Balancer of AWS, or are JSON objects. A file may
mix them and may be gzipped; - is standard input. Several files are merged by
time, so the files of a rotated log may be given in any order.

Keys of the policies are client (the address, for IPv6 the /64), user (the log's
user) and route (see --route); --key adds names for them. Logs have paths and no
routes: without --route, policies apply by path, and the key route uses the
routes of the policies.

Times are in RFC 3339 or Common log format, or are Unix time in seconds,
milliseconds, microseconds or nanoseconds. Lines that cannot be read are counted
and the first are shown.

` + usageEnd

const usageEnd = `gin's default log is not supported, as its times have no zone. This format is:

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
would have reacted.`

// jsonFlags are the flags for the fields of JSON lines.
var jsonFlags = [fieldsCount]string{
	fieldTime: "json-time", fieldClient: "json-client", fieldUser: "json-user", fieldPlan: "json-plan",
	fieldRequest: "json-request", fieldMethod: "json-method", fieldPath: "json-path", fieldHost: "json-host",
}

type settings struct {
	policies, out string
	write         string
	atMost        float64
	quiet         bool
	funcs         *funcs
	fields        *fields
	files         []string
}

// addFlags adds the flags of the command.
func (s *settings) addFlags(flags *pflag.FlagSet) {
	flags.Func("key", "use `client, user or route` for a key that your program registers, as in tenant=user; repeat it for each", s.funcs.addKey)
	flags.Func("cost", "use a `number` for a cost that your program registers, as in rows=10", s.funcs.addCost)
	flags.Func("route", "a `pattern` of the application's routes, such as \"GET /users/{id}\"; repeat it for each", s.funcs.routes.add)
	flags.StringVar(&s.funcs.plan, "plan", "", "the `name` of the plan of requests whose line has none")
	flags.IntVar(&s.fields.hops, "hops", 0, "of a list of addresses in the log, as X-Forwarded-For: the `number` of proxies that append to it")
	flags.Float64Var(&s.atMost, "at-most", 1, "`percent` of subjects that a suggested limit may deny something")
	flags.StringVar(&s.out, "out", "", "draw replay.png and replay.svg in this `folder`")
	flags.StringVar(&s.write, "write", "", "write the policies with the suggested limits into this new `file`")
	flags.BoolVar(&s.quiet, "quiet", false, "no progress bar")

	for field, name := range jsonFlags {
		flags.StringVar(&s.fields.names[field], name, s.fields.names[field],
			"`names` of this field in JSON lines: the first that exists counts, for times the first with fractions of a second; a dot leads into an object")
	}
}

// check returns an error that names the value and what is wanted.
func (s *settings) check() error {
	s.fields.prepare()

	stdins := 0
	for _, name := range s.files {
		if name == "-" {
			stdins++
		}
	}

	switch {
	case s.policies == "":
		return errors.New("--policies is missing; want a file, see -h")
	case !(s.atMost >= 0 && s.atMost < 100):
		return fmt.Errorf("--at-most is %v; want a percentage from 0 to less than 100", s.atMost)
	case s.fields.hops < 0:
		return fmt.Errorf("--hops is %d; want 1 or more", s.fields.hops)
	case len(s.files) == 0:
		return errors.New("no log is given; want files, or - for standard input")
	case len(s.files) > maxFiles:
		return fmt.Errorf("%d logs are given; want at most %d", len(s.files), maxFiles)
	case stdins > 1:
		return errors.New("- is given twice; want standard input once")
	}
	return nil
}
