package main

import (
	"errors"
	"io"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/query"
)

func newExplainGroup() *cobra.Command {
	var f getGroupFlags
	cmd := &cobra.Command{
		Use:   "group NAME (--data DIR | --job-db URL | --server HOST:PORT)",
		Short: "Tell the history of a group of jobs",
		Long: `Tell the history of a group of jobs from the records of the decision log that the job
database keeps, in log order: what bound it, which members were held, released,
restarted or stopped, each decision on a member with what its unit and its group did
about it, and how the group ended.`,
		Example: "  refloatctl explain group training --data .refloat-run --queue ml --job-set run-7",
		Args:    argument("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.name = args[0]
			return explainGroup(cmd, &f)
		},
	}
	f.bind(cmd)
	hidePulsar(cmd)
	f.bindServer(cmd)
	addOutput(cmd, &f.output)
	f.bindSet(cmd)
	completeArg(cmd, &f.deployment, groupNames)
	completeValues(cmd, &f.deployment)
	return cmd
}

func explainGroup(cmd *cobra.Command, f *getGroupFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	h, err := f.answers(nil).GroupHistory(cmd.Context(), f.key())
	if err != nil {
		return f.asked(cmd, groupError(err))
	}
	return printed(cmd, func(w io.Writer) error {
		if f.output == show.FormJSON {
			return historyJSON(w, h.Lines)
		}
		err := text.Group(w, &h.Group)
		text.History(w, h.Lines)
		return err
	})
}

func historyJSON(w io.Writer, history []query.Line) (err error) {
	enc := show.JSONLines(w)
	for i := range history {
		err = errors.Join(err, enc.Encode(history[i].Shown()))
	}
	return err
}
