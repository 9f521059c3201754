// Package redisclient makes the clients of Redis that are opened by a URL.
package redisclient

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
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
		{"max_redirects", o.MaxRedirects, -1, most},
		{"dialer_retries", o.DialerRetries, 0, most},
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

// tlsParameter matches what other clients have in place of rediss://.
var tlsParameter = regexp.MustCompile(`[?&](tls|ssl)=`)

// parseURL returns the options that the URL sets; the others are zero.
func parseURL(rawURL string) (*redis.UniversalOptions, error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || strings.ContainsAny(scheme, ":@") { // it may be a password with ://
		return nil, errors.New("scheme:// is missing; want redis://, rediss:// or unix://, as in redis://localhost:6379/0")
	}

	scheme = strings.ToLower(scheme)
	if scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		return nil, fmt.Errorf("scheme is %q; want redis://, rediss:// or unix://, as in redis://localhost:6379/0", clip(scheme))
	}

	// By hand: net/url takes one host only, and repeats a password in its errors.
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if tlsParameter.MatchString(path) {
		return nil, errors.New("there is no parameter tls or ssl; want rediss:// for TLS")
	}

	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}

	if err := checkUser(user); err != nil {
		return nil, err
	}

	if scheme == "unix" {
		if err := checkSocket(user, hosts, path); err != nil {
			return nil, err
		}
		return parseOne(scheme + "://" + user + path)
	}

	if err := checkHosts(user, hosts, path); err != nil {
		return nil, err
	}
	if strings.Contains(hosts, ",") {
		return parseCluster(scheme+"://"+user, strings.Split(hosts, ","), path)
	}
	return parseOne(scheme + "://" + user + hosts + path)
}

func parseOne(rawURL string) (*redis.UniversalOptions, error) {
	parsed, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, withoutURL(err)
	}
	o := universal(parsed)
	o.Addrs = []string{parsed.Addr} // go-redis knows a unix socket by its first slash
	return o, nil
}

// parseCluster reads a URL that is prefix, hosts and path.
func parseCluster(prefix string, hosts []string, path string) (*redis.UniversalOptions, error) {
	database, query, _ := strings.Cut(path, "?")
	if database != "" && database != "/" && database != "/0" {
		return nil, fmt.Errorf("database is %q; want 0, the only one of a cluster", clip(database[1:]))
	}

	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	skipVerify := false
	if params.Has("skip_verify") { // go-redis reads it for a single server only
		one, err := redis.ParseURL(prefix + hosts[0] + "?skip_verify=" + url.QueryEscape(params.Get("skip_verify")))
		if err != nil {
			return nil, withoutURL(err)
		}
		skipVerify = one.TLSConfig.InsecureSkipVerify
		params.Del("skip_verify")
	}

	parsed, err := redis.ParseClusterURL(prefix + hosts[0] + "?" + params.Encode())
	if err != nil {
		return nil, withoutURL(err)
	}
	for i, host := range hosts {
		if hostForm.FindStringSubmatch(host)[2] == "" {
			hosts[i] += ":6379"
		}
	}

	o := universal(parsed)
	o.Addrs = slices.Concat(hosts, parsed.Addrs[1:]) // the first of these is hosts[0], others are parameters

	if o.TLSConfig != nil {
		o.TLSConfig.InsecureSkipVerify = skipVerify
		for _, addr := range o.Addrs {
			if host, _, _ := net.SplitHostPort(addr); host != o.TLSConfig.ServerName {
				// go-redis would want the first host's name in every certificate.
				// Without a name it wants the address of the node.
				o.TLSConfig.ServerName = ""
			}
		}
	}
	return o, nil
}

// universal copies the fields of a redis.Options or redis.ClusterOptions that
// UniversalOptions has too.
func universal(parsed any) *redis.UniversalOptions {
	o := new(redis.UniversalOptions)
	from := reflect.ValueOf(parsed).Elem()
	for field, to := range reflect.ValueOf(o).Elem().Fields() {
		if f := from.FieldByName(field.Name); f.IsValid() && f.Type() == to.Type() {
			to.Set(f)
		}
	}
	return o
}

var hostForm = regexp.MustCompile(`^([^][:]*|\[[^][]+\])(:[0-9]+)?$`)

var errUserinfo = errors.New("user or password holds a character that a URL does not take as it is; write it as %XX")

// The checks find URLs in which the parser would take a password for something
// else, and repeat it in its error.

func checkUser(user string) error {
	if strings.Contains(user, ",") && strings.Count(user, "@") > 1 {
		return errors.New("user and password stand once, in front of the first host; write a comma in them as %2C")
	}
	if u, err := url.Parse("redis://" + user + "host"); err != nil || u.Host != "host" {
		return errUserinfo
	}
	return nil
}

func checkHosts(user, hosts, path string) error {
	if strings.Contains(path, "@") {
		return errUserinfo // it is the rest of a password with a slash, or can be written %40
	}

	for host := range strings.SplitSeq(hosts, ",") {
		name, _, colon := strings.Cut(host, ":")
		m := hostForm.FindStringSubmatch(host)

		switch {
		case m != nil && len(m[2]) > 1 && !isPort(m[2][1:]):
			return errors.New("a port is too large; want 1 to 65535")
		case m != nil && name != "":
		case name == "":
			return errors.New("a host is empty; want redis://host:6379 or redis://host1:6379,host2:6379")
		case user == "" && colon:
			// What follows may be a password without its @.
			return fmt.Errorf("host is %q and more, which is no port; want host or host:port", clip(name))
		default:
			return fmt.Errorf("host is %q; want host or host:port", clip(host))
		}
	}
	return nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func checkSocket(user, hosts, path string) error {
	before, _, at := strings.Cut(path, "@")
	switch {
	case user == "" && at && strings.Contains(before, ":"): // a password in the path, which errors and the log show
		return errors.New("user:password@ is in the path; want unix://user:password@/run/redis/redis.sock, and elsewhere an @ as %40")
	case hosts == "" && strings.HasPrefix(path, "/"):
		return nil
	case at:
		return errUserinfo
	default:
		return errors.New("want the path of a unix socket after the slashes, as in unix:///run/redis/redis.sock")
	}
}

// withoutURL drops the URL from an error: it may hold a password.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// clip shortens a text for an error.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}
