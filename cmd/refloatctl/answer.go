package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// answer asks a question of what the flags name, and shows each answer: as an object a line, or as text. What was not found,
// or is not clear, is a finding.
func answer[T any](cmd *cobra.Command, d *deployment, form string, ask func(context.Context, query.Answers) ([]T, error), text func(io.Writer, T) error) error {
	all, err := asking(func(bar *show.Progress) ([]T, error) { return ask(cmd.Context(), d.answers(bar)) })
	if err != nil {
		return d.asked(cmd, err)
	}
	return printed(cmd, func(w io.Writer) (err error) {
		for _, v := range all {
			switch form {
			case show.FormJSON:
				err = errors.Join(err, show.JSONLines(w).Encode(v))
			case show.FormYAML:
				err = errors.Join(err, show.WriteYAML(w, v))
			default:
				err = errors.Join(err, text(w, v))
			}
		}
		return err
	})
}

// one is the answer to a question that has one.
func one[T any](v T, err error) ([]T, error) { return []T{v}, err }

// asking shows the progress of a question until its answer is there.
func asking[T any](ask func(*show.Progress) (T, error)) (T, error) {
	bar := show.NewProgress()
	defer bar.Done()
	return ask(bar)
}

// printed prints what a command answers.
func printed(cmd *cobra.Command, text func(io.Writer) error) error {
	out := show.NewBuffer(cmd.OutOrStdout())
	return errors.Join(text(out), out.Flush())
}

// asked turns the error of a question into that of a command: what was not found, or is several things, is a finding, which it
// prints.
func (d *deployment) asked(cmd *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*query.Invalid](err); ok {
		return usageError{bad}
	}
	if several, ok := errors.AsType[*query.Ambiguous](err); ok {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s are called %q; choose one:\n", plural.Of(len(several.Groups), "group"), several.Name)
		for _, g := range several.Groups {
			fmt.Fprintf(cmd.ErrOrStderr(), "  --queue %s --job-set %s\n", query.OneLine(g.Queue), query.OneLine(g.JobSet))
		}
		return errFinding
	}
	missing, ok := errors.AsType[*query.NotFound](err)
	if !ok {
		return err
	}
	if missing.Text != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), missing.Text)
		return errFinding
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is not in the job database; `refloatctl get jobs %s` lists its jobs\n%s", missing.What, d, query.PrunedText(missing.Pruned))
	if len(missing.Pruned) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "  `refloatctl explain` derives a pruned job from the logs, as far back as they reach: give --pulsar URL or --data DIR")
	}
	return errFinding
}

// list prints a list that is read at once.
func list[T any](cmd *cobra.Command, form string, rows *show.Rows[T], values []T) error {
	return printed(cmd, func(w io.Writer) error {
		row, end, err := rows.Printer(w, form)
		if err != nil {
			return usageError{err}
		}
		for _, v := range values {
			err = errors.Join(err, row(v))
		}
		return errors.Join(err, end())
	})
}
