// Ratelimit is the command for operators of limiters:
//
//	go run ./cmd/ratelimit -h
//
// main.go has the root command and the exit codes, redis.go the connection, file.go and
// servers.go the policies, print.go what is printed. check.go, subject.go (peek and reset), top.go,
// override.go (set, ban, unset and unban) and overridelist.go (list and import) have the commands,
// overrideset.go what Redis has of overrides. replay is a folder of its own.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	_ "time/tzdata" // for calendars in a zone, on a machine without the database

	"github.com/spf13/cobra"

	"github.com/seed-e377111c/ratelimit/cmd/ratelimit/replay"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

const long = `Ratelimit is the command for operators of limiters.

Commands that ask Redis need --redis, or REDIS_URL, and --prefix, or
RATELIMIT_PREFIX, unless your servers use the default. Servers say in Redis what
their policies are. Replay needs a file of policies, and others take one by
--policies, or RATELIMIT_POLICIES, for servers that say nothing: such as

  policies: [{name: client, key: any, limit: 60/minute}]

A subject is the text of a key, such as ip:192.0.2.7 or, of a JWT with its
issuer, "sub:https://login.example.com|alice". Top prints subjects.

Overrides and bans hold on servers that follow them (Config.Override and package
middleware/fleet). Only reset, override and ban change limits or buckets. Exit
codes: 0, 1 if there is a problem, 2 for a wrong usage.`

const examples = `  export REDIS_URL=redis://localhost:6379/0

  ratelimit check policies.yaml                         # is this file right?
  ratelimit top                                         # who is limited?
  ratelimit peek ip:192.0.2.7                           # why?
  ratelimit ban ip:192.0.2.0/24 --for 1h                # deny this network,
  ratelimit override set ip:192.0.2.7 default --for 1h  # but let this client
  ratelimit unban ip:192.0.2.0/24                       # through; and take
  ratelimit override unset ip:192.0.2.7                 # both back`

// command is what all commands share: the global flags.
type command struct {
	global *cobra.Command // the root, which has the flags

	redis, prefix, policies string
	json                    bool

	started bool // the flags and the arguments are valid
}

// errFound ends a command that has printed what is wrong.
var errFound = errors.New("problem found")

// usageError is the error of a wrong usage.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run runs a command and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once

	c := new(command)
	root := c.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)

	if err == nil {
		return 0
	}
	if !errors.Is(err, errFound) {
		for line := range strings.Lines(cmd.CommandPath() + ": " + err.Error()) {
			note(stderr, "%s", line)
		}
	}
	if wrongUsage := !c.started || errors.As(err, &usageError{}); wrongUsage {
		note(stderr, "See %s --help.", cmd.CommandPath())
		return 2
	}
	return 1
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:              "ratelimit",
		Short:            "The command for operators of limiters",
		Long:             long,
		Example:          examples,
		SilenceErrors:    true,
		SilenceUsage:     true,
		TraverseChildren: true,
		Args:             noCommand,
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range globals {
				if c.global.Flags().Changed(name) && cmd.Flags().Lookup(name) == nil {
					return usagef("--%s has no effect on %s", name, cmd.Name())
				}
			}
			c.started = true
			return nil
		},
	}

	c.global = root
	flags := root.Flags()
	flags.StringVar(&c.redis, "redis", "", "`URL` of Redis, such as redis://localhost:6379/0; several hosts are a cluster (default: $REDIS_URL)")
	flags.StringVar(&c.prefix, "prefix", cmp.Or(os.Getenv("RATELIMIT_PREFIX"), "rl:"), "`text` that begins the keys in Redis, as redisstore's Prefix; or set $RATELIMIT_PREFIX")
	flags.StringVar(&c.policies, "policies", os.Getenv("RATELIMIT_POLICIES"), "`file` of policies that the servers read; or set $RATELIMIT_POLICIES")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprint(".FlagUsagesWrapped ", columns)))
	flags.BoolVar(&c.json, "json", false, "print JSON")

	root.AddCommand(
		c.check(),
		c.peek(),
		c.reset(),
		c.top(),
		c.override(),
		c.ban(),
		c.unban(),
		c.uses(replay.Command(&c.policies, func(err error) error { return usageError{err} }), "policies"),
	)

	return root
}

var globals = []string{"redis", "prefix", "policies", "json"}

// uses adds global flags to a command. They may also precede its name.
func (c *command) uses(cmd *cobra.Command, flags ...string) *cobra.Command {
	for _, name := range flags {
		cmd.Flags().AddFlag(c.global.Flags().Lookup(name))
	}
	return cmd
}

// noCommand returns an error for the name of a command that there is not.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		return fmt.Errorf("there is no command %q; did you mean %s?", shown(args[0]), oneOf(like))
	}
	return fmt.Errorf("there is no command %q", shown(args[0]))
}

// asUsed returns an error unless there are as many arguments as the command's Use names.
func asUsed(cmd *cobra.Command, args []string) error {
	want := len(strings.Fields(cmd.Use)) - 1
	if len(args) == want || len(args) > want && strings.HasSuffix(cmd.Use, "...") {
		return nil
	}
	if len(args) == 0 && want > 0 {
		return fmt.Errorf("%s is missing; want %s", strings.Fields(cmd.Use)[1], cmd.Use)
	}
	var all []string
	for _, arg := range args {
		all = append(all, shown(arg))
	}
	return fmt.Errorf("arguments are %q; want %s", all, cmd.Use)
}

// shown returns an argument without what may be the user and the password of a URL.
func shown(arg string) string { return userinfo.ReplaceAllString(arg, "://...@") }

var userinfo = regexp.MustCompile(`(?s)://.*@`)
