package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Print the JSON Schema of policy files",
		Long: `Print the JSON Schema (2020-12) of policy files, or of one kind: RetryPolicy (both
forms), GroupPolicy, Queue, RetryBudget or RetrySettings. Editors use it for completion and checks; lint checks more.
A running API serves it at /schema.json. An editor applies it to one document: in a file of
several, repeat the line below after each ---.`,
		Example: `  refloatctl schema > my-policies/.schema.json
  # then, as the first line of each YAML document in my-policies:
  # yaml-language-server: $schema=.schema.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind := ""
			if len(args) > 0 {
				kind = args[0]
			}
			b, err := policyfile.JSONSchema(kind)
			if err != nil {
				return usageError{err}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", b)
			return nil
		},
	}
}

func newExplainField() *cobra.Command {
	return &cobra.Command{
		Use:   "field [KIND.]FIELD",
		Short: "Document a field of policy files",
		Long: `Document a field of policy files: its meaning, type, default and limits, and its
subfields. The field is a path in a RetryPolicy, unless another kind is given as its
first part.`,
		Example: `  refloatctl explain field spec.rules.backoff
  refloatctl explain field Queue.retryPolicies
  refloatctl explain field RetrySettings`,
		Args: argument("FIELD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, below, err := policyfile.Describe(args[0])
			if err != nil {
				return usageError{err}
			}
			printField(cmd.OutOrStdout(), f, below)
			return nil
		},
	}
}

func printField(w io.Writer, f policyfile.Field, below []policyfile.Field) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s %s\n", show.Bold(w, name), value)
		}
	}
	line("KIND:    ", f.Kind)
	line("FIELD:   ", f.Path)
	line("TYPE:    ", f.Type)
	line("DEFAULT: ", f.Default)
	line("LIMITS:  ", f.Limits)
	fmt.Fprintf(w, "\n%s\n", wrapped(f.Text, 88))
	if len(below) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", show.Bold(w, "FIELDS"))
	t := show.NewTable(w, "  NAME", "TYPE", "DEFAULT", "DESCRIPTION")
	for _, b := range below {
		first, _, _ := strings.Cut(b.Text, ". ")
		t.Row("  "+b.Name(), b.Type, b.Default, strings.TrimSuffix(first, "."))
	}
	_ = t.Flush()
}

// wrapped wraps a text into lines.
func wrapped(s string, width int) string {
	var b strings.Builder
	at := 0
	for word := range strings.FieldsSeq(s) {
		if at > 0 && at+1+len(word) > width {
			b.WriteByte('\n')
			at = 0
		} else if at > 0 {
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String()
}
