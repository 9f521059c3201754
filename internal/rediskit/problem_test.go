package rediskit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// serverError is an error reply of a server.
type serverError string

func (a serverError) Error() string { return string(a) }

func (serverError) RedisError() {}

var _ redis.Error = serverError("")

// The errors are real servers': Redis 7.0's, if the comment names no version.
func TestDiagnose(t *testing.T) {
	const place = " script: ba09a7d3e35dce50934a741530b469ce76db8b05, on @user_script:57."
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6379}, Err: err}
	}
	plain, known, cluster := Conn{}, Conn{Answered: true}, Conn{Cluster: true, Answered: true}
	for _, tt := range []struct {
		err  error
		conn Conn
		code diag.Code
		says string // in the cause or the hint
	}{
		{nil, plain, "", ""},
		{context.Canceled, plain, "", ""},
		{fmt.Errorf("asking: %w", context.Canceled), plain, "", ""},

		{dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), plain, diag.RedisUnreachable, "check that Redis runs there"},
		{dial(&net.DNSError{Err: "no such host", Name: "redis.invalid", Server: "192.0.2.1:53", IsNotFound: true}), plain, diag.RedisUnreachable, "no such host"},
		{redis.Nil, cluster, diag.RedisProtocol, "unknown-endpoint"}, // the topology
		{io.EOF, plain, diag.RedisUnreachable, "try rediss://"},
		{io.EOF, plain, diag.RedisUnreachable, "twemproxy"},
		{os.NewSyscallError("read", syscall.ECONNRESET), plain, diag.RedisUnreachable, "try rediss://"},
		{io.EOF, known, diag.RedisUnreachable, "EOF"},
		{context.DeadlineExceeded, plain, diag.RedisUnreachable, "deadline exceeded"},
		{fmt.Errorf("no answer within 50ms: %w", context.DeadlineExceeded), plain, diag.RedisUnreachable, "check host, port and firewall"},
		{fmt.Errorf("no answer within 50ms: %w", context.DeadlineExceeded), plain, diag.RedisUnreachable, "try redis://"},
		{fmt.Errorf("no answer within 50ms: %w", context.DeadlineExceeded), plain, diag.RedisUnreachable, "Protocol: 2"},
		{dial(fmt.Errorf("by a proxy: %w", context.DeadlineExceeded)), plain, diag.RedisUnreachable, "try redis://"},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, plain, diag.RedisUnreachable, "try redis://"},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, plain, diag.RedisUnreachable, "try redis://"},
		{errors.New("redis: all sentinels specified in configuration are unreachable"), plain, diag.RedisUnreachable, "all sentinels"},

		{serverError("WRONGPASS invalid username-password pair or user is disabled."), plain, diag.RedisAuth, "check user and password"},
		{serverError("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"), plain, diag.RedisAuth, "check user and password"},
		{serverError("ERR Protocol error: unauthenticated multibulk length"), plain, diag.RedisAuth, "redis://:password@host:port"},
		{serverError("NOAUTH Authentication required."), plain, diag.RedisAuth, "redis://:password@host:port"},
		{serverError("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"), plain, diag.RedisAuth, "NOAUTH"},
		{serverError("DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user. In this mode connections are only accepted from the loopback interface."), plain, diag.RedisAuth, "set a password on the server"},

		{serverError("NOPERM this user has no permissions to run the 'evalsha' command"), plain, diag.RedisPermission, "'evalsha'"},
		{serverError("NOPERM User limiter has no permissions to run the 'evalsha' command"), plain, diag.RedisPermission, "'evalsha'"}, // 7.2
		{serverError("NOPERM this user has no permissions to access one of the keys used as arguments"), plain, diag.RedisPermission, "with your Prefix"},
		{serverError("NOPERM this user has no permissions to run the 'select' command"), plain, diag.RedisPermission, "+select"},
		{serverError("ERR The user executing the script can't run this command or subcommand" + place), plain, diag.RedisPermission, "SECURITY.md"},
		{serverError("ERR ACL failure in script: User limiter has no permissions to run the 'set' command" + place), plain, diag.RedisPermission, "'set'"}, // 7.2

		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, plain, diag.RedisCertificate, "SSL_CERT_FILE"},
		{&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "redis"}}, plain, diag.RedisCertificate, "connect to a name"},
		{&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, plain, diag.RedisCertificate, "renew"},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")}, plain, diag.RedisCertificate, "TLSConfig.Certificates"},

		{errors.New(`redis: can't parse map reply: "HTTP/1.1 400 Bad Request"`), plain, diag.RedisProtocol, "check host and port"},
		{fmt.Errorf("%w: string; want a list", ErrReply), plain, diag.RedisProtocol, "directly"},
		{serverError("ERR unknown command 'evalsha', with args beginning with: 'ba09' '1' 'rl:{alice}:p' "), plain, diag.RedisProtocol, "EVALSHA"},
		{serverError("ERR This Redis command is not allowed from script" + place), plain, diag.RedisProtocol, "allows TIME in scripts"},
		{serverError("ERR Error running script (call to f_ba09): @user_script:31: @user_script: 31: This Redis command is not allowed from scripts"), plain, diag.RedisProtocol, "allows TIME in scripts"}, // 6.2
		{serverError("ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array"), plain, diag.RedisProtocol, "script_check_enable"},                   // Alibaba Cloud
		{serverError("ERR DB index is out of range"), plain, diag.RedisProtocol, "16 by default"},
		{serverError("ERR SELECT is not allowed in cluster mode"), plain, diag.RedisProtocol, "use database 0"},
		{serverError("MOVED 14517 127.0.0.1:29213"), plain, diag.RedisProtocol, "redis://host1:6379,host2:6379"},
		{serverError("CROSSSLOT Keys in request don't hash to the same slot"), plain, diag.RedisProtocol, "redis://host1:6379,host2:6379"},
		{serverError("ERR This instance has cluster support disabled"), cluster, diag.RedisProtocol, "one host"},
		{serverError("MOVED 14517 127.0.0.1:29213"), cluster, diag.RedisRefuses, "MOVED"}, // a slot is moved
		{serverError("TRYAGAIN Multiple keys request during rehashing of slot"), cluster, "", ""},

		{serverError("READONLY You can't write against a read only replica." + place), plain, diag.RedisRefuses, "connect to the master"},
		{serverError("ERR Error running script (call to f_ba09): @user_script:57: @user_script: 57: -READONLY You can't write against a read only replica."), plain, diag.RedisRefuses, "connect to the master"}, // 6.2
		{serverError("OOM command not allowed when used memory > 'maxmemory'." + place), plain, diag.RedisRefuses, "raise maxmemory"},
		{serverError("LOADING Redis is loading the dataset in memory"), plain, diag.RedisRefuses, "loading"},
		{serverError("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."), plain, diag.RedisRefuses, "save"},
		{serverError("NOREPLICAS Not enough good replicas to write." + place), plain, diag.RedisRefuses, "min-replicas-to-write"},
		{serverError("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), plain, diag.RedisRefuses, "connect to the master"},
		{serverError("CLUSTERDOWN Hash slot not served"), plain, diag.RedisRefuses, "CLUSTER INFO"},
		{serverError("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."), plain, diag.RedisRefuses, "see SCRIPT KILL"},
		{serverError("BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."), plain, diag.RedisRefuses, "and FUNCTION KILL"},
		{serverError("ERR max number of clients reached"), plain, diag.RedisRefuses, "raise maxclients"},
		{serverError("ERR something new"), plain, diag.RedisRefuses, "something new"},
	} {
		p := Diagnose(tt.err, tt.conn)
		if p.Code != tt.code || !strings.Contains(p.Cause+"; "+p.Hint, tt.says) || (p.Code != "") != (p.What != "") {
			t.Errorf("%v, %+v: got %+v; want code %q, and %q in the cause or the hint", tt.err, tt.conn, p, tt.code, tt.says)
		}
		if strings.HasSuffix(p.Cause, ".") || strings.Contains(p.Cause, "alice") {
			t.Errorf("%v: got the cause %q; want it without arguments", tt.err, p.Cause)
		}
	}
}

// The cause of an error is short, on one line, and contains no password. A server that does not
// know AUTH repeats its arguments.
func TestCause(t *testing.T) {
	for _, tt := range []struct{ err, want string }{
		{"ERR unknown command 'AUTH', with args beginning with: 'limiter' 'hunter2' ", "ERR unknown command 'AUTH'"},
		{"ERR unknown command `auth`, args: `limiter` `hunter2`", "ERR unknown command `auth`"},
		{"ERR first\r\nsecond", "ERR first"},
		{strings.Repeat("x", 1000), strings.Repeat("x", 200)},
		{strings.Repeat("é", 101) + "x", strings.Repeat("é", 100)},
		{"x" + strings.Repeat("é", 101), "x" + strings.Repeat("é", 99)},
	} {
		if got := Diagnose(serverError(tt.err), Conn{}).Cause; got != tt.want {
			t.Errorf("%q: got %q; want %q", tt.err, got, tt.want)
		}
	}
}
