package gcra

import (
	"regexp"
	"slices"
	"strings"
)

// serverFailed reports whether an error that Redis answered says that the server
// is of no use to any call now, and not only to the one that it answers.
func serverFailed(text string) bool {
	text = commandError(text)
	return slices.ContainsFunc(serverFailures, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// serverFailures are how such errors begin, as commandError returns them.
var serverFailures = []string{
	"READONLY", "LOADING", "OOM", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "BUSY",
	"NOAUTH", "WRONGPASS", "NOPERM", "max number of clients reached",

	// NOPERM for a command in the script: before Redis 7.2, and since.
	"The user executing the script", "ACL failure in script",

	"DENIED", "DB index is out of range", "SELECT is not allowed in cluster mode", "This instance has cluster support disabled",

	// No EVALSHA or EVAL, or in the script no such command: Redis, and Valkey.
	"unknown command", "Unknown Redis command called from", "Unknown command called from",
}

// commandError is the error of the command that failed, without what stands in
// front of it: "ERR ", and before Redis 7.0, for a command in a script,
//
//	ERR Error running script (call to f_<sha>): @user_script:57: @user_script: 57: -OOM command not allowed ...
func commandError(text string) string {
	return text[len(beforeCommandError.FindString(text)):]
}

var beforeCommandError = regexp.MustCompile(`^(ERR )?(Error running script \(call to f_[0-9a-f]+\): (@user_script: ?[0-9]+: )*-?)?`)
