package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/refloat/refloat/cmd/internal/text"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/query"
)

// whyNot shows the smallest changes that would have given another outcome.
func whyNot(cmd *cobra.Command, e *query.Explanation, f explainFlags) error {
	d := &e.Decision
	found, err := f.answers(nil).WhyNot(cmd.Context(), d.JobID, int(d.RunIndex), f.whyNot)
	if none, ok := errors.AsType[*query.NoAnswer](err); ok {
		fmt.Fprintln(cmd.ErrOrStderr(), none)
		return errFinding
	}
	if err != nil {
		return fmt.Errorf("--why-not: %w", err)
	}
	err = printed(cmd, func(w io.Writer) error {
		if f.output == show.FormJSON {
			return show.JSONLines(w).Encode(found)
		}
		return text.WhyNot(w, e, found)
	})
	if err == nil && len(found.Changes) == 0 {
		return errFinding
	}
	return err
}
