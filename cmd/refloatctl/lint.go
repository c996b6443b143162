package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/authoring/lint"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

const outputSARIF = "sarif"

type lintFlags struct {
	output, categories string
	strict             bool
}

func newLint() *cobra.Command {
	var f lintFlags
	cmd := &cobra.Command{
		Use:   "lint PATH...",
		Short: "Check policy files for errors and likely mistakes",
		Long: `Check policy files, or directories of them, as one policy set. Every problem is
printed with file:line:column, its code, the field, and the fix.

Files with errors cannot be used. If there are none, lint looks for likely mistakes:
a rule shadowed by an earlier one, a rule that can never match, a limit above the
cap, a pattern that matches everything, a category that no executor reports
(--categories FILE: one category or category/subcategory a line), a policy in a
queue's list that never decides because of an earlier one. It reports only what it
can prove; docs/reference/fields.md lists all codes.

Exit code 1 if there is an error or a warning; with --strict also for a note.`,
		Example: `  refloatctl lint examples/policies
  refloatctl lint my-policies --categories categories.txt --strict
  refloatctl lint my-policies -o sarif > lint.sarif`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return lintPaths(cmd, f, args)
		},
	}
	addForms(cmd, &f.output, "text, json (one problem a line) or sarif (SARIF 2.1.0)", outputText, show.FormJSON, outputSARIF)
	cmd.Flags().StringVar(&f.categories, "categories", "", "file with the categories that executors report")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "treat notes as findings")
	return cmd
}

func lintPaths(cmd *cobra.Command, f lintFlags, paths []string) error {
	var categories *lint.Categories
	if f.categories != "" {
		data, err := os.ReadFile(f.categories)
		if err != nil {
			return fmt.Errorf("read categories: %w", err)
		}
		categories, err = lint.ParseCategories(policyfile.File{Name: f.categories, Data: data})
		if problems, ok := errors.AsType[policyfile.Problems](err); ok {
			return printProblems(cmd.OutOrStdout(), f, problems)
		}
	}
	files, err := app.PolicyFiles(cmd.Context(), paths...)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: no policy file there (*.yaml, *.yml or *.json)", strings.Join(paths, ", "))
	}
	problems, err := lint.Lint(files, categories)
	if err != nil {
		return err
	}
	set, parseErr := policyfile.Parse(files)
	if parseErr == nil && len(set.Resources()) == 0 {
		return fmt.Errorf("%s: no resource in the policy files", strings.Join(paths, ", "))
	}
	if err := printProblems(cmd.OutOrStdout(), f, problems); err != nil {
		return err
	}
	if parseErr != nil {
		return parseErr
	}
	if f.output == outputText {
		d := set.Digest()
		fmt.Fprintf(cmd.OutOrStdout(), "%s valid; policy set %x\n", plural.Of(len(files), "file is", "files are"), d[:6])
	}
	return nil
}

// printProblems prints problems, and returns errFinding if one is severe enough.
func printProblems(w io.Writer, f lintFlags, problems policyfile.Problems) error {
	switch f.output {
	case outputSARIF:
		b, err := lint.SARIF(problems)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\n", b)
	case show.FormJSON:
		enc := show.JSONLines(w)
		for _, p := range problems {
			if err := enc.Encode(p); err != nil {
				return err
			}
		}
	default:
		for _, p := range problems {
			fmt.Fprintln(w, p)
		}
	}
	for _, p := range problems {
		if f.strict || p.Severity != policyfile.Note {
			return errFinding
		}
	}
	return nil
}
