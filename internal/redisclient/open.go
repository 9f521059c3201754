// Package redisclient makes the clients of Redis that are opened by a URL.
package redisclient

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Options returns the settings of a URL for a Timeout, and their Dialer. Unless the URL says otherwise, a read may take all of
// the Timeout, and a wait for a connection takes no longer.
func Options(rawURL string, timeout time.Duration) (o *redis.UniversalOptions, dials *Dialer, err error) {
	o, err = parseURL(rawURL)
	if err == nil {
		err = checkOptions(o)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("redis URL: %w", err)
	}

	// Under RESP3 go-redis 9.23 waits up to 50 ms before the first command on a TLS 1.3 connection: it takes the session
	// tickets that have arrived there for a push message.
	setDefault(&o.Protocol, 2)
	// Pipelines would get a second pool, whose connections are never dialled
	// ahead. Without it they take the spare connections of the ordinary one.
	setDefault(&o.PipelinePoolSize, -1)
	setDefault(&o.MinIdleConns, idleConns)
	setDefault(&o.ConnMaxIdleTime, idleTime)

	o.DisableIdentity = true // saves the first call on a connection a round trip
	o.ContextTimeoutEnabled = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

	// What may have run is not repeated, and a caller waits no longer than the Timeout.
	setDefault(&o.MaxRetries, -1)
	setDefault(&o.DialerRetries, 1)
	setDefault(&o.DialTimeout, dialTimeout)
	setDefault(&o.PoolTimeout, min(rediskit.DefaultTimeout, timeout))

	read := readTimeout
	if len(o.Addrs) > 1 {
		read = clusterReadTimeout
	}
	setDefault(&o.ReadTimeout, max(read, timeout))

	dials = newDialer(o)
	o.Dialer = dials.Dial
	return o, dials, nil
}

// checkOptions returns an error for a parameter with which go-redis panics, or no call works. Those
// that are not in the URL are 0.
func checkOptions(o *redis.UniversalOptions) error {
	const most, buffer = 100_000, 64 << 20
	for _, p := range []struct {
		name               string
		value, least, most int
	}{
		{"db", o.DB, 0, math.MaxInt32},
		{"pool_size", o.PoolSize, 0, most},
		{"pipeline_pool_size", o.PipelinePoolSize, -1, most},
		{"pipeline_read_buffer_size", o.PipelineReadBufferSize, 0, buffer},
		{"pipeline_write_buffer_size", o.PipelineWriteBufferSize, 0, buffer},
		{"min_idle_conns", o.MinIdleConns, 0, most},
		{"max_idle_conns", o.MaxIdleConns, 0, most},
		{"max_active_conns", o.MaxActiveConns, 0, most},
		{"max_concurrent_dials", o.MaxConcurrentDials, 0, most},
		{"max_retries", o.MaxRetries, -1, most},
	} {
		if p.value < p.least || p.value > p.most {
			return fmt.Errorf("%s is %d; want %d to %d", p.name, p.value, p.least, p.most)
		}
	}

	switch {
	case o.Protocol != 0 && o.Protocol != 2 && o.Protocol != 3:
		return fmt.Errorf("protocol is %d; want 2 or 3", o.Protocol)
	// A URL with 0 has a negative time here, by which go-redis waits without end.
	case o.DialTimeout < 0 || o.DialTimeout > maxWait:
		return fmt.Errorf("dial_timeout is 0 or less, or too long; want 1ms to %v", maxWait)
	case o.PoolTimeout < 0 || o.PoolTimeout > maxWait:
		return fmt.Errorf("pool_timeout is 0 or less, or too long; want 1ms to %v", maxWait)
	}
	return nil
}

const maxWait = time.Hour

func setDefault[T comparable](p *T, v T) { *p = cmp.Or(*p, v) }

const (
	dialTimeout = 500 * time.Millisecond
	idleConns   = 2

	// Load balancers and NATs forget connections that are idle for 4 minutes or more, without a word to either end.
	idleTime = 3 * time.Minute

	readTimeout = 3 * time.Second

	// go-redis asks one node after another for the topology, without a deadline. A
	// node that hangs must not delay the answer of the others.
	clusterReadTimeout = 500 * time.Millisecond
)

// parseURL returns the options that the URL sets; the others are zero. No error repeats what may be a password, or a value.
func parseURL(rawURL string) (*redis.UniversalOptions, error) {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	scheme = strings.ToLower(scheme)
	if !slices.Contains([]string{"redis", "rediss", "unix"}, scheme) {
		return nil, errors.New("scheme is missing or not known; want redis://, rediss:// or unix://, as in redis://localhost:6379/0")
	}

	// By hand: net/url takes one host only.
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	at := strings.LastIndexByte(authority, '@') + 1
	user, hosts := authority[:at], authority[at:]
	if err := checkParts(scheme, user, hosts, path); err != nil {
		return nil, err
	}

	var o *redis.UniversalOptions
	for host := range strings.SplitSeq(hosts, ",") {
		parsed, err := redis.ParseURL(scheme + "://" + user + host + path)
		if err != nil {
			return nil, withoutValue(err)
		}

		if o == nil {
			o = universal(parsed)
		}
		o.Addrs = append(o.Addrs, parsed.Addr)
		// go-redis would want the first host's name in every certificate. Without a name it wants the address of the node.
		if o.TLSConfig != nil && o.TLSConfig.ServerName != parsed.TLSConfig.ServerName {
			o.TLSConfig.ServerName = ""
		}
	}

	if len(o.Addrs) > 1 && o.DB != 0 {
		return nil, fmt.Errorf("database is %d; want 0, the only one of a cluster", o.DB)
	}
	return o, nil
}

// checkParts finds URLs in which the parser would take a password for something else. The log shows hosts and paths.
func checkParts(scheme, user, hosts, path string) error {
	_, query, _ := strings.Cut(path, "?")
	_, wrongQuery := url.ParseQuery(query)
	u, wrongUser := url.Parse("redis://" + user + "host")

	switch wrongHost := slices.IndexFunc(strings.Split(hosts, ","), invalidHost); {
	case strings.Contains(user, ","):
		return errors.New("user and password stand once, in front of the first host; write a comma in them as %2C")
	case wrongUser != nil || u.Host != "host" || scheme != "unix" && strings.Contains(path, "@"): // of a password with a slash
		return errors.New("user or password holds a character that a URL does not take as it is; write it as %XX")
	case wrongQuery != nil || strings.Contains(path, "#"): // go-redis would drop the rest
		return errors.New("the path or a parameter holds a character that a URL does not take as it is; write it as %XX")
	case scheme != "unix" && wrongHost >= 0:
		return fmt.Errorf("host %d is empty or not valid; want host or host:port, with a port of 1 to 65535, as in redis://host1:6379,host2:6379", wrongHost+1)
	case scheme == "unix" && (hosts != "" || !strings.HasPrefix(path, "/") || user == "" && passwordInPath.MatchString(path)):
		return errors.New("want the path of a unix socket after the slashes, as in unix:///run/redis/redis.sock or " +
			"unix://user:password@/run/redis/redis.sock; write other slashes and @ as %XX")
	}
	return nil
}

var (
	passwordInPath = regexp.MustCompile(`^[^@]*:.*@`)
	hostForm       = regexp.MustCompile(`^(?:[^][:#]+|\[[^][#]+\])(?::([0-9]+))?$`)
)

func invalidHost(host string) bool {
	m := hostForm.FindStringSubmatch(host)
	if m == nil {
		return true
	}
	port, err := strconv.ParseUint(cmp.Or(m[1], "6379"), 10, 16)
	return err != nil || port == 0
}

// withoutValue returns an error of redis.ParseURL up to the URL or the value that it repeats. Names of parameters stay.
func withoutValue(err error) error {
	what, of, _ := strings.Cut(strings.TrimPrefix(err.Error(), "redis: "), ": ")
	switch {
	case errors.As(err, new(*url.Error)):
		return errors.New("host or database holds a character that a URL does not take as it is; write it as %XX")
	case what == "unexpected option":
		return fmt.Errorf("%s: %s; want parameters of redis.ParseURL, such as pool_size, and rediss:// for TLS", what, of)
	}
	return fmt.Errorf("%s; want one as redis.ParseURL takes it", what) // invalid database number
}

// universal copies the fields of a redis.Options that UniversalOptions has too.
func universal(parsed *redis.Options) *redis.UniversalOptions {
	o := new(redis.UniversalOptions)
	from := reflect.ValueOf(parsed).Elem()
	for field, to := range reflect.ValueOf(o).Elem().Fields() {
		if f := from.FieldByName(field.Name); f.IsValid() && f.Type() == to.Type() {
			to.Set(f)
		}
	}
	return o
}
