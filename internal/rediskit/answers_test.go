package rediskit

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// The texts are the replies to an EVALSHA of Redis 6.2.16, 7.0.15, 7.4.1 and 8.6.3 and of Valkey
// 8.1.1 and 9.1.2, where they differ.
func TestDown(t *testing.T) {
	const wrapped = "ERR Error running script (call to f_af5dce47ec74c5567ab2215f93fb5f73137df67a): @user_script:57: @user_script: 57: "
	const since7 = " script: af5dce47ec74c5567ab2215f93fb5f73137df67a, on @user_script:57."
	for _, tt := range []struct {
		server, text string
		want         bool
	}{
		{"6.2", wrapped + "-OOM command not allowed when used memory > 'maxmemory'.", true},
		{"6.2", wrapped + "-NOREPLICAS Not enough good replicas to write.", true},
		{"6.2", wrapped + "-READONLY You can't write against a read only replica.", true},
		{"6.2", wrapped + "-MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.", true},
		{"6.2, a command", wrapped + "The user executing the script can't run this command or subcommand", true},
		{"6.2, a key", wrapped + "The user executing the script can't access at least one of the keys mentioned in the command arguments", true},
		{"6.2", wrapped + "Unknown Redis command called from Lua script", true},
		{"6.2", "ERR unknown command `evalsha`, with args beginning with: `af5dce47ec74c5567ab2215f93fb5f73137df67a`, `1`, `k`, ", true},
		{"6.2", "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand", true},
		{"7.0", "OOM command not allowed when used memory > 'maxmemory'." + since7, true},
		{"7.0", "NOREPLICAS Not enough good replicas to write." + since7, true},
		{"7.0", "READONLY You can't write against a read only replica." + since7, true},
		{"7.0", "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk." + since7, true},
		{"7.0", "ERR The user executing the script can't run this command or subcommand" + since7, true},
		{"7.0", "ERR Unknown Redis command called from script" + since7, true},
		{"7.0 and later", "ERR unknown command 'evalsha', with args beginning with: 'af5dce47ec74c5567ab2215f93fb5f73137df67a' '1' 'k' ", true},
		{"7.0, the keys", "NOPERM this user has no permissions to access one of the keys used as arguments", true},
		{"7.4, 8.6", "ERR ACL failure in script: User u has no permissions to run the 'set' command" + since7, true},
		{"7.4, 8.6, Valkey", "NOPERM User u has no permissions to run the 'evalsha' command", true},
		{"7.4, 8.6, Valkey, the keys", "NOPERM No permissions to access a key", true},
		{"Valkey 8.1", "ERR Unknown command called from script" + since7, true},
		{"Valkey 9.1", "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk. script: on @user_script:57.", true},
		{"Valkey 9.1", "ERR ACL failure in script: User u has no permissions to run the 'set' command script: on @user_script:57.", true},
		{"all", "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", true},
		{"all", "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", true},
		{"Valkey", "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", true},
		{"all", "NOAUTH Authentication required.", true},
		{"all", "ERR Protocol error: unauthenticated multibulk length", true},
		{"all", "ERR Protocol error: unauthenticated bulk length", true},
		{"all", "LOADING Redis is loading the dataset in memory", true},
		{"all", "ERR max number of clients reached", true},
		{"all", "CLUSTERDOWN Hash slot not served", true},

		{"a proxy", "ERR unsupported command 'evalsha'", true},
		{"a proxy", "ERR handle request, command 'EVALSHA' is not allowed", true},
		{"a proxy", "ERR Proxy fail to parse command", true},
		{"a managed service", "ERR command eval not support for your account", true},
		{"a proxy", "ERR upstream connection failure", true},
		{"a proxy", "no upstream host", true},
		{"a proxy", "", true},

		{"ElastiCache Serverless", "ERR This Redis command is not allowed from script" + since7, true},

		// Errors of one call.
		{"all", "NOSCRIPT No matching script. Please use EVAL.", false},
		{"all", "TRYAGAIN Multiple keys request during rehashing of slot", false},
		{"all", "MOVED 3999 127.0.0.1:6381", false},
		{"Alibaba Cloud", "ERR eval/evalsha command keys must be in same slot", false},
		{"all", "CROSSSLOT Keys in request don't hash to the same slot", false},
		{"6.2", wrapped + "WRONGTYPE Operation against a key holding the wrong kind of value", false},
		{"6.2", "ERR Error running script (call to f_af5dce47ec74c5567ab2215f93fb5f73137df67a): @user_script:57: user_script:57: attempt to index a nil value", false},
		{"7.0", "ERR user_script:57: attempt to index a nil value script: af5dce47ec74c5567ab2215f93fb5f73137df67a, on @user_script:57.", false},
		{"6.2, a command", wrapped + "value is not an integer or out of range", false},
		{"7.0, a command", "ERR value is not an integer or out of range" + since7, false},
		{"Valkey 9.1, a command", "ERR value is not an integer or out of range script: on @user_script:57.", false},
		{"a cluster", "ASK 3999 127.0.0.1:6381", false},
	} {
		for _, err := range []error{serverError(tt.text), fmt.Errorf("redisstore: %w", serverError(tt.text))} {
			if got := Down(err); got != tt.want {
				t.Errorf("%s: an outage is %v; want %v: %v", tt.server, got, tt.want, err)
			}
		}
	}

	if Down(redis.Nil) {
		t.Error("a reply that is nil is an outage; want none")
	}
	if !Down(errors.New("EOF")) {
		t.Error("an error that Redis did not answer is no outage; want one")
	}
}
