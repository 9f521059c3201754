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

// parseURL returns the options that the URL sets; the others are zero.
func parseURL(rawURL string) (*redis.UniversalOptions, error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || strings.ContainsAny(scheme, ":@") { // it may be a password with ://
		return nil, errors.New("scheme:// is missing; want redis://, rediss:// or unix://, as in redis://localhost:6379/0")
	}

	scheme = strings.ToLower(scheme)
	if scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		return nil, fmt.Errorf("scheme is %.80q; want redis://, rediss:// or unix://, as in redis://localhost:6379/0", scheme)
	}

	// By hand: net/url takes one host only, and repeats a password in its errors.
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}

	if err := checkUser(user); err != nil {
		return nil, err
	}

	var addrs []string
	var err error
	if scheme == "unix" {
		addrs, err = socket(user, hosts, path)
	} else {
		addrs, err = addresses(hosts, path)
	}
	if err != nil {
		return nil, err
	}

	_, query, _ := strings.Cut(path, "?")
	params, err := url.ParseQuery(query)
	if err == nil && (params.Has("tls") || params.Has("ssl")) { // as other clients have it
		err = errors.New("there is no parameter tls or ssl; want rediss:// for TLS")
	}
	if err != nil {
		return nil, err
	}

	// go-redis reads the first address, and what is common to all.
	first, _, _ := strings.Cut(hosts, ",")
	parsed, err := redis.ParseURL(scheme + "://" + user + first + path)
	// The URL of an error may hold a password.
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err
	}
	if err != nil && strings.Contains(err.Error(), "unexpected option") {
		err = fmt.Errorf("%w; want parameters of redis.ParseURL, such as pool_size", err)
	}
	if err != nil {
		return nil, err
	}
	o := universal(parsed)
	o.Addrs = addrs
	o.Addrs[0] = parsed.Addr // the path of a unix socket, which go-redis knows by its first slash
	return o, checkCluster(o)
}

// checkCluster completes the options of a cluster.
func checkCluster(o *redis.UniversalOptions) error {
	if len(o.Addrs) == 1 {
		return nil
	}
	if o.DB != 0 {
		return fmt.Errorf("database is %d; want 0, the only one of a cluster", o.DB)
	}

	for _, addr := range o.Addrs {
		if host, _, _ := net.SplitHostPort(addr); o.TLSConfig != nil && host != o.TLSConfig.ServerName {
			// go-redis would want the first host's name in every certificate.
			// Without a name it wants the address of the node.
			o.TLSConfig.ServerName = ""
		}
	}
	return nil
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

var errUserinfo = errors.New("user or password holds a character that a URL does not take as it is; write it as %XX")

// The checks find URLs in which the parser would take a password for something
// else, and repeat it in its error.

func checkUser(user string) error {
	if strings.Contains(user, ",") && strings.Count(user, "@") > 1 || laterUser.MatchString(user) {
		return errors.New("user and password stand once, in front of the first host; write a comma in them as %2C")
	}
	if u, err := url.Parse("redis://" + user + "host"); err != nil || u.Host != "host" {
		return errUserinfo
	}
	return nil
}

// laterUser matches hosts in front of the user and password, as in h1:6379,user:password@.
var laterUser = regexp.MustCompile(`^[^:]*,|,.*:`)

var hostForm = regexp.MustCompile(`^([^][:#]+|\[[^][#]+\])(?::([0-9]+))?$`)

// addresses returns the hosts of a URL with their ports.
func addresses(hosts, path string) (addrs []string, err error) {
	if strings.Contains(path, "@") {
		return nil, errUserinfo // it is the rest of a password with a slash, or can be written %40
	}

	for host := range strings.SplitSeq(hosts, ",") {
		name, _, _ := strings.Cut(host, ":")
		name, _, _ = strings.Cut(name, "#")
		if name == "" {
			return nil, errors.New("a host is empty; want redis://host:6379 or redis://host1:6379,host2:6379")
		}

		port := "no"
		m := hostForm.FindStringSubmatch(host)
		if m != nil {
			port = cmp.Or(m[2], "6379")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			// What follows the name may be a password without its @.
			return nil, fmt.Errorf("host is %.80q and more, which is no port; want host or host:port, with a port of 1 to 65535", name)
		}

		u, err := url.Parse("//" + m[1])
		if err != nil {
			return nil, fmt.Errorf("host is %.80q; want a name or an address", name)
		}
		addrs = append(addrs, net.JoinHostPort(u.Hostname(), port))
	}

	database, _, _ := strings.Cut(path, "?")
	if _, err := strconv.Atoi(cmp.Or(strings.Trim(database, "/"), "0")); err != nil { // it may be a password
		return nil, errors.New("database is no number; want one after the hosts, as in redis://localhost:6379/0")
	}
	return addrs, nil
}

// socket returns no host, which go-redis wants in front of the path of a unix socket.
func socket(user, hosts, path string) (addrs []string, err error) {
	before, _, at := strings.Cut(path, "@")
	// Errors and the log show a path, and so a password in it.
	password := user == "" && at && strings.Contains(before, ":")
	if hosts != "" || !strings.HasPrefix(path, "/") || password {
		return nil, errors.New("want the path of a unix socket after the slashes, as in unix:///run/redis/redis.sock or " +
			"unix://user:password@/run/redis/redis.sock; write other slashes and @ as %XX")
	}
	return []string{""}, nil
}
