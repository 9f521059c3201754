package gcra

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Open returns a [Redis] on a client of its own, with settings fit for a
// limiter: no retries, short dials, deadlines that bound reads too, and on a
// cluster a topology that is looked up again, in the background, once it is two
// seconds old, and reads that end after 500 ms. It does not connect; a server
// that is away when the program starts is found when it comes. Close the store
// when done.
//
// The URL is redis://user:password@host:6379/0, or rediss:// for TLS. Several
// hosts, redis://host1:6379,host2:6379, are the seeds of a cluster. Parameters
// as in [redis.ParseURL], such as ?pool_size=20, override the settings.
func Open(rawURL string) (*Redis, error) {
	dials := new(dialer)
	client, err := dial(rawURL, dials)
	if err != nil {
		return nil, fmt.Errorf("gcra: redis URL: %w", err)
	}
	r := NewRedis(client)
	r.owned, r.dials = true, dials
	return r, nil
}

const (
	dialTimeout = 500 * time.Millisecond
	poolTimeout = defaultTimeout
	idleConns   = 2

	// The topology is asked of one node after another, without a deadline. One
	// that stands still must not hold up the news of who has taken its place.
	clusterReadTimeout = 500 * time.Millisecond
)

func dial(rawURL string, dials *dialer) (redis.UniversalClient, error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		return nil, errors.New("scheme is missing; want redis:// or rediss://, as in redis://localhost:6379/0")
	}
	if scheme != "redis" && scheme != "rediss" {
		return nil, fmt.Errorf("scheme is %q; want redis:// or rediss://, as in redis://localhost:6379/0", clip(scheme))
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	if err := checkAuthority(user, hosts, path); err != nil {
		return nil, err
	}
	first, others, several := strings.Cut(hosts, ",")
	one := scheme + "://" + user + first + path
	if !several {
		o, err := redis.ParseURL(one)
		if err != nil {
			return nil, withoutURL(err)
		}
		o.ContextTimeoutEnabled = true
		o.MaintNotificationsConfig = noMaintenance()
		orInt(&o.MaxRetries, -1)
		orInt(&o.DialerRetries, 1)
		orInt(&o.MinIdleConns, idleConns)
		orDuration(&o.DialTimeout, dialTimeout)
		orDuration(&o.PoolTimeout, poolTimeout)
		dials.dial = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
		o.Dialer = dials.Dial
		return redis.NewClient(o), nil
	}
	for host := range strings.SplitSeq(others, ",") {
		sep := "?"
		if strings.Contains(one, "?") {
			sep = "&"
		}
		one += sep + "addr=" + url.QueryEscape(host)
	}
	o, err := redis.ParseClusterURL(one)
	if err != nil {
		return nil, withoutURL(err)
	}
	o.ContextTimeoutEnabled = true
	o.MaintNotificationsConfig = noMaintenance()
	o.ClusterStateReloadInterval = 2 * time.Second
	orDuration(&o.ReadTimeout, clusterReadTimeout)
	orInt(&o.MaxRetries, -1)
	orInt(&o.DialerRetries, 1)
	orInt(&o.MinIdleConns, idleConns)
	orDuration(&o.DialTimeout, dialTimeout)
	orDuration(&o.PoolTimeout, poolTimeout)
	dials.dial = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
	o.Dialer = dials.Dial
	return redis.NewClusterClient(o), nil
}

var hostForm = regexp.MustCompile(`^([^][:]+|\[[^][]+\])?(:[0-9]+)?$`)

var errUserinfo = errors.New("user or password holds a character that a URL does not take as it is; write it as %XX")

// checkAuthority finds what would make the parser take a password for
// something else, and then repeat it in its error.
func checkAuthority(user, hosts, path string) error {
	if u, err := url.Parse("redis://" + user + "host"); err != nil || u.Host != "host" {
		return errUserinfo
	}
	for host := range strings.SplitSeq(hosts, ",") {
		switch {
		case hostForm.MatchString(host) && host != "" && host[0] != ':':
		case hostForm.MatchString(host):
			return errors.New("a host is empty; want redis://host:6379 or redis://host1:6379,host2:6379")
		case strings.Contains(path, "@"):
			return errUserinfo // a slash or question mark in it ended the host
		default:
			return fmt.Errorf("host is %q; want host or host:port", clip(host))
		}
	}
	return nil
}

func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

func orInt(p *int, v int) {
	if *p == 0 {
		*p = v
	}
}

func orDuration(p *time.Duration, v time.Duration) {
	if *p == 0 {
		*p = v
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
