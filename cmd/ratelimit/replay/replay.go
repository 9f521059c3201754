// Package replay is the command "ratelimit replay": it sends the requests of an access log
// through the middleware on the log's own clock, and prints what the policies would have
// denied, which subjects, and which limits would fit.
//
//	go run ./cmd/ratelimit replay -h
//
// Where to change what: source.go, logs.go, entry.go, alb.go, jsonline.go, timestamp.go
// and prefix.go read logs; settings.go, funcs.go and routes.go read flags and policies;
// player.go decides; meter.go, top.go and timeline.go count; report.go, chart.go and
// progress.go print, and rewrite.go writes policies.
package replay

import (
	"context"
	"errors"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Command returns the command. policies is the file of policies, which is set when the
// command runs. Mistakes in flags and arguments pass through usageError.
func Command(policies *string, usageError func(error) error) *cobra.Command {
	s := &settings{fields: newFields(), funcs: new(funcs)}
	cmd := &cobra.Command{
		Use:     "replay LOG...",
		Short:   "What would these policies have done to this access log?",
		Long:    usage,
		Example: "  ratelimit replay --policies policies.yaml access.log\n  zcat access.log.*.gz | ratelimit replay --policies policies.yaml --out /tmp -",
		RunE: func(cmd *cobra.Command, args []string) error {
			s.policies, s.files = *policies, args
			if err := s.check(); err != nil {
				return usageError(err)
			}

			// Most of the memory has no pointers and costs the collector nothing, so it may
			// run more often.
			defer debug.SetGCPercent(debug.SetGCPercent(50))
			return s.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s.addFlags(cmd.Flags())
	return cmd
}

// run replays until the logs or the context end, and prints the report.
func (s *settings) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	p, err := newPlayer(s.policies, s.funcs)
	if err != nil {
		return err
	}

	bar := newProgress(stderr, s.files, s.quiet)
	sources, err := openAll(s.files, stdin, s.fields, func(n int) { bar.Add(n) })
	if err != nil {
		return err
	}

	stats, stopped := p.playAll(ctx, sources)
	bar.Exit()
	bar.Clear()

	r := report{player: p, stats: stats, stopped: stopped, share: s.atMost / 100}
	if p.requests == 0 && !stopped {
		return errors.Join(stats.err, r.noRequests())
	}
	r.print(stdout)

	if s.out != "" && p.requests > 0 {
		err = saveCharts(stdout, s.out, p, stats.zone)
	}
	if s.write != "" && p.requests > 0 {
		err = errors.Join(err, r.writePolicies(s.policies, s.write, s.funcs))
	}
	return errors.Join(stats.err, err)
}
