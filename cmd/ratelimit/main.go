// Ratelimit is the command for operators of limiters:
//
//	go run ./cmd/ratelimit replay -h
//
// Each command is a folder beside this file.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/seed-e377111c/ratelimit/cmd/ratelimit/replay"
)

const usage = `Ratelimit is the command for operators of limiters.

  ratelimit replay   what would these policies have done to this access log?

ratelimit replay -h lists its flags.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs a command and returns the exit code: 2 for a usage that is wrong.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}

	switch args[0] {
	case "replay":
		return replay.Main(args[1:])
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return 0
	default:
		fmt.Fprintf(stderr, "ratelimit: there is no command %q; want replay, see ratelimit -h\n", args[0])
		return 2
	}
}
