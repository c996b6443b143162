package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

const (
	formatCSV     = "csv"
	formatParquet = "parquet"
)

// rowGroup is how many rows a Parquet file keeps in memory at a time.
const rowGroup = 50_000

func newExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Export decisions, runs or jobs as Parquet or CSV",
		Long: `Export decisions, runs or jobs of a job database for analysis elsewhere, as Parquet or CSV,
with the criteria of ` + "`refloatctl get`" + `. Both forms have the same columns. Times are UTC, to
the nanosecond; what is unknown is null, or empty in CSV. A decision has the number
that it has in its partition. In CSV, a text that a spreadsheet would take for a formula
(it begins with =, +, -, @, a tab or a carriage return) has an apostrophe before it,
unless --csv-raw is given.`,
	}
	cmd.AddCommand(newExportDecisions(), newExportRuns(), newExportJobs())
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
	for _, name := range []string{"watch", "every", "continue", "output"} {
		_ = cmd.Flags().MarkHidden(name)
	}
	cmd.Flags().StringVar(&f.format, "format", "", "parquet or csv (default: by the name of --out, else csv)")
	cmd.Flags().StringVar(&f.out, "out", "", "file to write, which must not exist; default: stdout")
	cmd.Flags().BoolVar(&f.raw, "csv-raw", false, "leave texts as they are in CSV, also those that a spreadsheet takes for formulas")
	complete(cmd, "format", formatParquet, formatCSV)
}

// checkExport reads the flags.
func (f *exportFlags) checkExport() (err error) {
	if f.watch || f.ask.Continue != "" || f.output != outputTable {
		return usageError{errors.New("export writes one file: it takes none of -o, --watch and --continue")}
	}
	if f.format == "" {
		f.format = formatCSV
		if strings.HasSuffix(f.out, "."+formatParquet) {
			f.format = formatParquet
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
	write, end := csvWriter[R](out, f.raw)
	if f.format == formatParquet {
		write, end = parquetWriter[R](out)
	}
	rows := 0
	err = f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
		_, err := read(q, func(row *R) error {
			rows++
			return write(row)
		})
		return err
	})
	if err == nil {
		err = end()
	}
	if err == nil && f.out != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "wrote %d rows to %s\n", rows, f.out)
	}
	return err
}

func parquetWriter[R any](w io.Writer) (write func(*R) error, end func() error) {
	p := parquet.NewGenericWriter[R](w, parquet.Compression(&parquet.Zstd), parquet.CreatedBy("refloat", "", ""))
	pending := 0
	return func(row *R) error {
		if _, err := p.Write([]R{*row}); err != nil {
			return fmt.Errorf("write Parquet: %w", err)
		}
		if pending++; pending < rowGroup {
			return nil
		}
		pending = 0
		return p.Flush()
	}, p.Close
}

func csvWriter[R any](w io.Writer, raw bool) (write func(*R) error, end func() error) {
	buffered := bufio.NewWriter(w)
	c := csv.NewWriter(buffered)
	var names []string
	for field := range reflect.TypeFor[R]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("parquet"), ",")
		names = append(names, name)
	}
	headed := false
	head := func() error {
		if headed {
			return nil
		}
		headed = true
		return c.Write(names)
	}
	return func(row *R) error {
			if err := head(); err != nil {
				return err
			}
			cells := make([]string, len(names))
			for i, v := range reflect.ValueOf(row).Elem().Fields() {
				cells[i.Index[0]] = cellText(v)
				if !raw && v.Kind() == reflect.String {
					cells[i.Index[0]] = defused(v.String())
				}
			}
			return c.Write(cells)
		}, func() error {
			err := head()
			c.Flush()
			return errors.Join(err, c.Error(), buffered.Flush())
		}
}

// defused puts an apostrophe before a text that a spreadsheet would take for a formula: users choose names and messages
// (https://owasp.org/www-community/attacks/CSV_Injection).
func defused(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

func cellText(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	if at, ok := reflect.TypeAssert[time.Time](v); ok {
		return at.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v.Interface())
}

// exported makes a time of a row's column; 0 is unknown.
func exported(ns int64) *time.Time {
	if ns == 0 {
		return nil
	}
	at := time.Unix(0, ns).UTC()
	return &at
}

// exportedDecision is a decision as exports have it.
type exportedDecision struct {
	Partition  int64      `parquet:"partition"`
	Number     int64      `parquet:"number"`
	FailedAt   time.Time  `parquet:"failed_at,timestamp(nanosecond)"`
	Queue      string     `parquet:"queue,dict"`
	JobSet     string     `parquet:"job_set,dict"`
	JobID      string     `parquet:"job_id"`
	RunID      string     `parquet:"run_id"`
	RunIndex   int64      `parquet:"run_index"`
	Decision   string     `parquet:"decision,dict"`
	Code       string     `parquet:"code,dict"`
	Policy     string     `parquet:"policy,dict"`
	Rule       string     `parquet:"rule,dict"`
	Reason     string     `parquet:"reason"`
	DelayMS    int64      `parquet:"delay_ms"`
	RetryAfter *time.Time `parquet:"retry_after,optional,timestamp(nanosecond)"`
	RuleUsed   *int64     `parquet:"rule_used,optional"`
	RuleLimit  *int64     `parquet:"rule_limit,optional"`
	GlobalUsed int64      `parquet:"global_used"`
	GlobalMax  int64      `parquet:"global_limit"`
	AvoidNodes string     `parquet:"avoid_nodes"` // separated by commas
	Shadow     bool       `parquet:"shadow"`
	Effective  bool       `parquet:"effective"`
	Generation int64      `parquet:"policy_generation"`
	Group      string     `parquet:"group,dict"`
	Part       string     `parquet:"part,dict"`
	Replica    *int64     `parquet:"replica,optional"`
	Index      *int64     `parquet:"member_index,optional"`
	UnitReason string     `parquet:"unit_reason,dict"`
	Action     string     `parquet:"group_action,dict"`
}

func newExportDecisions() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "decisions (--data DIR | --job-db URL)",
		Short: "Export decisions",
		Example: `  refloatctl export decisions --data .refloat-run --out decisions.parquet
  refloatctl export decisions --data .refloat-run --since 24h --queue ml > decisions.csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exportRows(cmd, &f, func(q jobdb.Queries, write func(*exportedDecision) error) ([]any, error) {
				return q.DecisionList(&f.sel.Criteria, f.sel.Page, func(d *jobdb.Decision) error {
					row := exportDecision(d)
					return write(&row)
				})
			})
		},
	}
	f.bindExport(cmd, query.Decisions)
	f.bindFailures(cmd, "only decisions on failures")
	return cmd
}

func exportDecision(d *jobdb.Decision) exportedDecision {
	shown := audit.DecisionOf(d.Partition, &d.Decision)
	row := exportedDecision{
		Partition: int64(d.Partition), Number: int64(d.Number), FailedAt: time.Unix(0, d.Time).UTC(), Queue: d.Queue, JobSet: d.JobSet, JobID: d.JobID,
		RunID: d.RunID, RunIndex: int64(d.RunIndex), Decision: shown.Decision, Code: shown.Code, Policy: d.Policy, Rule: d.Rule, Reason: shown.Reason,
		DelayMS: d.DelayMS, RetryAfter: exported(d.RetryAfter), GlobalUsed: int64(d.GlobalUsed), GlobalMax: int64(d.GlobalLimit),
		AvoidNodes: strings.Join(d.AvoidNodes, ","), Shadow: d.Shadow, Effective: d.Acted, Generation: int64(d.Generation),
		Group: shown.Group, Part: shown.Part, Replica: wide(shown.Replica), Index: wide(shown.Index), UnitReason: shown.UnitReason, Action: shown.GroupAction,
		RuleUsed: wide(shown.RuleUsed), RuleLimit: wide(shown.RuleLimit),
	}
	return row
}

func wide(n *uint32) *int64 {
	if n == nil {
		return nil
	}
	return new(int64(*n))
}

// exportedRun is a run as exports have it.
type exportedRun struct {
	Partition   int64      `parquet:"partition"`
	JobID       string     `parquet:"job_id"`
	RunID       string     `parquet:"run_id"`
	RunIndex    int64      `parquet:"run_index"`
	State       string     `parquet:"state,dict"`
	Executor    string     `parquet:"executor,dict"`
	Node        string     `parquet:"node,dict"`
	Pool        string     `parquet:"pool,dict"`
	Leased      *time.Time `parquet:"leased,optional,timestamp(nanosecond)"`
	Running     *time.Time `parquet:"running,optional,timestamp(nanosecond)"`
	Ended       *time.Time `parquet:"ended,optional,timestamp(nanosecond)"`
	Preempted   bool       `parquet:"preempted"`
	Error       string     `parquet:"error,dict"`
	Category    string     `parquet:"category,dict"`
	Subcategory string     `parquet:"subcategory,dict"`
	Message     string     `parquet:"message"`
	Outcome     string     `parquet:"outcome,dict"`
	Decision    *int64     `parquet:"decision,optional"` // its number
}

func newExportRuns() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:     "runs (--data DIR | --job-db URL)",
		Short:   "Export runs of jobs",
		Example: "  refloatctl export runs --data .refloat-run --state Failed --out runs.parquet",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exportRows(cmd, &f, func(q jobdb.Queries, write func(*exportedRun) error) ([]any, error) {
				return q.RunList(&f.sel.Criteria, f.sel.Page, func(r *jobdb.Run) error {
					row := exportedRun{
						Partition: int64(r.Partition), JobID: r.JobID, RunID: r.RunID, RunIndex: int64(r.Index), State: r.State.String(), Executor: r.Executor,
						Node: r.Node, Pool: r.Pool, Leased: exported(r.Times.Leased), Running: exported(r.Times.Running), Ended: exported(r.Times.Ended),
						Preempted: r.Flags.Preempted, Error: r.Error.Reason, Category: r.Error.Category, Subcategory: r.Error.Subcategory, Message: r.Error.Message,
						Outcome: r.Outcome.String(),
					}
					if r.Decision != 0 {
						row.Decision = new(int64(r.Decision))
					}
					return write(&row)
				})
			})
		},
	}
	f.bindExport(cmd, query.Runs)
	f.bindFailures(cmd, "only runs leased")
	return cmd
}

// exportedJob is a job as exports have it.
type exportedJob struct {
	Partition  int64      `parquet:"partition"`
	JobID      string     `parquet:"job_id"`
	Queue      string     `parquet:"queue,dict"`
	JobSet     string     `parquet:"job_set,dict"`
	State      string     `parquet:"state,dict"`
	Final      bool       `parquet:"final"`
	Submitted  *time.Time `parquet:"submitted,optional,timestamp(nanosecond)"`
	Ended      *time.Time `parquet:"ended,optional,timestamp(nanosecond)"`
	RetryAfter *time.Time `parquet:"retry_after,optional,timestamp(nanosecond)"`
	Runs       int64      `parquet:"runs"`
	Priority   int64      `parquet:"priority"`
	Namespace  string     `parquet:"namespace,dict"`
	GangID     string     `parquet:"gang_id,dict"`
	Group      string     `parquet:"group,dict"`
	Part       string     `parquet:"part,dict"`
	Replica    *int64     `parquet:"replica,optional"`
	Index      *int64     `parquet:"member_index,optional"`
	Armada     string     `parquet:"armada_error,dict"` // of its own verdict, if it failed the job
}

func newExportJobs() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:     "jobs (--data DIR | --job-db URL)",
		Short:   "Export jobs",
		Example: "  refloatctl export jobs --data .refloat-run --out jobs.parquet",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exportRows(cmd, &f, func(q jobdb.Queries, write func(*exportedJob) error) ([]any, error) {
				return q.JobList(&f.sel.Criteria, f.sel.Page, func(j *jobdb.Job) error {
					row := exportedJob{
						Partition: int64(j.Partition), JobID: j.JobID, Queue: j.Queue, JobSet: j.JobSet, State: j.State.String(), Final: j.Final,
						Submitted: exported(j.Times.Submitted), Ended: exported(j.Times.Ended), RetryAfter: exported(j.Queueing.RetryAfter), Runs: int64(j.Queueing.Runs),
						Priority: j.Queueing.Priority, Namespace: j.Submit.Namespace, GangID: j.Submit.GangID, Armada: j.Armada.Reason,
					}
					if m := &j.Member; m.GroupID != "" {
						row.Group, row.Part, row.Replica, row.Index = m.Group, m.Part, new(int64(m.Replica)), new(int64(m.Index))
					}
					return write(&row)
				})
			})
		},
	}
	f.bindExport(cmd, query.Jobs)
	f.bindFailures(cmd, "only jobs submitted")
	cmd.Flags().BoolVar(&f.ask.Waiting, "waiting", false, "only jobs with a pending retry")
	return cmd
}
