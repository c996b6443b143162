package main

import (
	"context"
	"fmt"
	"io"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/query"
)

// tellStory shows all runs of a job as one story.
func tellStory(cmd *cobra.Command, f *explainFlags) error {
	next := false
	return answer(cmd, &f.deployment, f.output, func(ctx context.Context, from query.Answers) ([]*query.Story, error) {
		return from.Stories(ctx, f.job)
	}, func(w io.Writer, s *query.Story) error {
		if next {
			fmt.Fprintln(w)
		}
		next = true
		err := text.Story(w, s)
		text.ByGroup(w, s.ByGroup)
		return err
	})
}
