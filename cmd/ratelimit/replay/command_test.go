package replay

import (
	"context"
	"io"

	"github.com/spf13/cobra"
)

// run runs the command below one that has its global flag.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var policies string
	root := &cobra.Command{Use: "ratelimit", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().StringVar(&policies, "policies", "", "")
	root.AddCommand(Command(&policies, func(err error) error { return err }))
	root.SetArgs(append([]string{"replay"}, args...))
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}
