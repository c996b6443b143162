package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/refloat/refloat/cmd/internal/export"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

const (
	formatCSV     = "csv"
	formatParquet = "parquet"
)

func newExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Export decisions, runs or jobs as Parquet or CSV",
		Long: `Export decisions, runs or jobs of a job database for analysis elsewhere, as Parquet or CSV,
with the criteria of ` + "`refloatctl get`" + `. Both forms have the same columns. Times are UTC, to
the nanosecond; what is unknown is null, or empty in CSV. A decision has the number
that it has in its partition. What a run held, from its lease to its end, is in core, GiB
and GPU hours (cpu_hours, …): unknown ones are null, not 0. In CSV, a text that a spreadsheet would take for a formula
(it begins with =, +, -, @, a tab or a carriage return) has an apostrophe before it,
unless --csv-raw is given.`,
	}
	cmd.AddCommand(newExportDecisions(), newExportRuns(), newExportJobs())
	return cmd
}

func newExportDecisions() *cobra.Command {
	return (&exporting[jobdb.Decision, export.Decision]{
		list: query.Decisions, failures: "only decisions on failures", read: jobdb.Queries.DecisionList, row: export.DecisionOf,
		Command: cobra.Command{
			Use:   "decisions (--data DIR | --job-db URL)",
			Short: "Export decisions",
			Example: `  refloatctl export decisions --data .refloat-run --out decisions.parquet
  refloatctl export decisions --data .refloat-run --since 24h --queue ml > decisions.csv`,
		},
	}).command(&exportFlags{})
}

func newExportRuns() *cobra.Command {
	return (&exporting[jobdb.HeldRun, export.Run]{
		list: query.Runs, failures: "only runs leased", read: jobdb.Queries.HeldRunList, row: export.RunOf,
		Command: cobra.Command{
			Use:     "runs (--data DIR | --job-db URL)",
			Short:   "Export runs of jobs",
			Example: "  refloatctl export runs --data .refloat-run --state Failed --out runs.parquet",
		},
	}).command(&exportFlags{})
}

func newExportJobs() *cobra.Command {
	var f exportFlags
	cmd := (&exporting[jobdb.Job, export.Job]{
		list: query.Jobs, failures: "only jobs submitted", read: jobdb.Queries.JobList, row: export.JobOf,
		Command: cobra.Command{
			Use:     "jobs (--data DIR | --job-db URL)",
			Short:   "Export jobs",
			Example: "  refloatctl export jobs --data .refloat-run --out jobs.parquet",
		},
	}).command(&f)
	cmd.Flags().BoolVar(&f.ask.Waiting, "waiting", false, "only jobs with a pending retry")
	return cmd
}

// exporting is a command that exports what a list has: each T as a row R.
type exporting[T, R any] struct {
	cobra.Command
	list, failures string // as a listing has them
	read           func(jobdb.Queries, *jobdb.Criteria, jobdb.Page, func(*T) error) ([]any, error)
	row            func(*T) R
}

func (e *exporting[T, R]) command(f *exportFlags) *cobra.Command {
	cmd := &e.Command
	cmd.Args = noArgument
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return exportRows(cmd, f, func(q jobdb.Queries, write func(*R) error) ([]any, error) {
			return e.read(q, &f.sel.Criteria, f.sel.Page, func(v *T) error {
				row := e.row(v)
				return write(&row)
			})
		})
	}
	f.bindExport(cmd, e.list)
	f.bindFailures(cmd, e.failures)
	return cmd
}

// exportFlags are the flags of an export.
type exportFlags struct {
	listFlags
	format, out string
	raw         bool
	sel         query.Selection
}

func (f *exportFlags) bindExport(cmd *cobra.Command, list string) {
	f.bindList(cmd, list)
	for _, name := range []string{"watch", "every", "continue", "output", "server"} {
		_ = cmd.Flags().MarkHidden(name)
	}
	cmd.Flags().StringVar(&f.format, "format", "", "parquet or csv (default: by the ending of --out; csv on stdout)")
	cmd.Flags().StringVar(&f.out, "out", "", "file to write, which must not exist; default: stdout")
	cmd.Flags().BoolVar(&f.raw, "csv-raw", false, "leave texts as they are in CSV, also those that a spreadsheet takes for formulas")
	complete(cmd, "format", formatParquet, formatCSV)
}

// checkExport reads the flags.
func (f *exportFlags) checkExport() (err error) {
	if f.watch || f.ask.Continue != "" || f.output != show.FormTable {
		return usageError{errors.New("export writes one file: it takes none of -o, --watch and --continue")}
	}
	if f.onServer() {
		return usageError{errors.New("export reads the job database itself: give --data DIR or --job-db URL instead of --server")}
	}
	if f.format == "" {
		f.format = formatCSV
		if f.out != "" {
			f.format = strings.ToLower(strings.TrimPrefix(filepath.Ext(f.out), "."))
		}
		if f.format != formatCSV && f.format != formatParquet {
			return usageError{fmt.Errorf("--out %s: neither a .%s nor a .%s file: give one of these endings, or --format", f.out, formatCSV, formatParquet)}
		}
	}
	if f.format != formatCSV && f.format != formatParquet {
		return usageError{fmt.Errorf("--format: %w", suggest.Unknown("format", f.format, formatParquet, formatCSV))}
	}
	if f.raw && f.format != formatCSV {
		return usageError{errors.New("--csv-raw: the format is not csv")}
	}
	if err := f.check(); err != nil {
		return err
	}
	f.sel, err = f.ask.Select(f.list)
	return err
}

// exportRows writes the rows that read visits.
func exportRows[R any](cmd *cobra.Command, f *exportFlags, read func(jobdb.Queries, func(*R) error) ([]any, error)) (err error) {
	if err := f.checkExport(); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.out != "" {
		file, failed := os.OpenFile(f.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(failed, fs.ErrExist) {
			return fmt.Errorf("--out %s: there is such a file or directory already: give another name, or remove it", f.out)
		}
		if failed != nil {
			return fmt.Errorf("export: %w", failed)
		}
		defer func() {
			if err = errors.Join(err, file.Close()); err != nil {
				_ = os.Remove(f.out) // half of a file would pass for the whole
			}
		}()
		out = file
	}
	write, end := export.CSV[R](out, f.raw)
	if f.format == formatParquet {
		write, end = export.Parquet[R](out)
	}
	rows := 0
	err = f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		_, err := read(q, func(row *R) error {
			rows++
			return write(row)
		})
		return err
	})
	if err == nil && rows == 0 {
		err = missing(cmd.Context(), f.answers(nil), &f.ask.Criteria)
	}
	if err == nil {
		err = end()
	}
	if err == nil && f.out != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "wrote %d rows to %s\n", rows, f.out)
	}
	return err
}
