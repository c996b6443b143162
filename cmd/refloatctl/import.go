package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/plural"
)

func newImport() *cobra.Command {
	var log string
	var partitions int
	cmd := &cobra.Command{
		Use:   "import FILE --log DIR",
		Short: "Write a recording into a log",
		Long: `Write a recording (.jsonl.gz, one message a line) into an events log, which is created
if it does not exist. Each message keeps its partition and carries its position and
publish time in the recording. Running it again writes only the messages that the log
does not have yet.`,
		Example: `  refloatctl import testdata/recordings/plain.jsonl.gz --log /tmp/plain
  refloatctl replay --log /tmp/plain --policies examples/policies`,
		Args: argument("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if log == "" {
				return usageError{fmt.Errorf("--log DIR is required: where to write the log")}
			}
			bar := show.NewProgress()
			defer bar.Done()
			n, total, err := app.Import(cmd.Context(), args[0], log, partitions, func(done, total int) {
				bar.Say("importing %s: %d of %d messages", args[0], done, total)
			})
			if err != nil {
				return err
			}
			bar.Done()
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %d of them new in %s\n", args[0], plural.Of(total, "message"), n, log)
			return nil
		},
	}
	cmd.Flags().StringVar(&log, "log", "", "directory of the events log (required)")
	cmd.Flags().IntVar(&partitions, "partitions", 0, "partitions of a new log (default: as many as the recording has)")
	return cmd
}
