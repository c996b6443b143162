package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/armada/cutover"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

func newCutover() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cutover",
		Short: "Replace Armada's scheduler ingester by ours, and roll back",
		Long: `Replace Armada's scheduler ingester by ours on the same database, at the exact
message where it stopped, and roll back. These commands start and stop no process.
docs/operate.md describes the procedure.`,
	}
	cmd.AddCommand(
		newCutoverStep("plan", "Check whether Armada's ingester can be replaced now", `Check the position of Armada's ingester, its database and our tables; report what
prevents a cut-over, how to fix it, and what start would do. Nothing is changed.

Exit codes: 0 start would succeed, 1 it would refuse, 2 usage, 3 the cluster or the
database cannot be reached.`),
		newCutoverStep("start", "Take over where Armada's ingester stopped", `Make the position of Armada's ingester, which must be stopped, the position of ours,
and print the command lines to start our ingesters and evaluators. Armada's
subscription stays: it is the way back, and the broker retains the messages after it.
Unfinished jobs whose SubmitJob has expired from events are republished from Armada's
tables, in a form that only our evaluators and ingesters read. After a cutover back,
our tables are emptied first.

It refuses while the subscription has consumers, if its position is not exact or no
longer in the topic, and if our ingester already has a position. When it refuses, and
with --rehearse, nothing is written.

Exit codes: 0 done, 1 refused, 2 usage, 3 the cluster or the database cannot be
reached.`),
		newCutoverStep("back", "Hand back to Armada's ingester where ours stopped", `End all pending retries in Armada's tables, and move Armada's subscription to the last
message that our ingester, which must be stopped, applied. From then on our ingesters
refuse to start on this database, until cutover start. It is safe to run it again.

It refuses while either ingester runs, if ours stopped in the middle of a batch, and,
without --leave-cursor, if its position is no longer in the topic. When it refuses, and
with --rehearse, nothing is written.

Exit codes: 0 done, 1 refused, 2 usage, 3 the cluster or the database cannot be
reached.`),
	)
	return cmd
}

const (
	flagControl  = "control-plane"
	controlPlane = "control-plane" // unless Armada's configuration renames it
)

// cutoverFlags holds the flags of all its subcommands.
type cutoverFlags struct {
	pulsar   *pulsarflags.Flags
	site     cutover.Site
	rehearse bool
	output   string
}

func newCutoverStep(name, short, long string) *cobra.Command {
	var f cutoverFlags
	const needs = " --pulsar URL --pulsar-admin URL --job-db postgres://…"
	cmd := &cobra.Command{
		Use: name + needs, Short: short, Long: long, Args: noArgument,
		Example: "  refloatctl cutover " + name + " --pulsar pulsar://pulsar:6650 --pulsar-admin http://pulsar:8080 --job-db postgres://scheduler@db:5432/scheduler",
	}
	f.pulsar = pulsarflags.Bind(cmd)
	set := cmd.Flags()
	set.StringVar(&f.site.JobDB, "job-db", "", "Armada's scheduler database: postgres://user@host:5432/database, best with the password in PGPASSWORD or ~/.pgpass")
	settings.Secret(cmd, "job-db")
	set.StringVar(&f.site.Subscription, "subscription", "scheduler-ingester", "subscription of Armada's scheduler ingester on events and on control-plane")
	set.StringVar(&f.site.Control, flagControl, controlPlane, "Armada's control-plane topic, taken over and handed back like events; empty: not touched")
	if name == "back" {
		set.BoolVar(&f.site.LeaveCursor, "leave-cursor", false, "if our position is no longer in a topic, let Armada's ingester resume where its subscription is; messages in between are applied twice or not at all")
		set.StringVar(&f.site.NodeLabel, "node-id-label", "", "Armada's scheduling.nodeIdLabel (default kubernetes.io/hostname)")
	}
	if name != "plan" {
		set.BoolVar(&f.rehearse, "rehearse", false, "do everything except writing, and report what would be done")
	}
	addOutput(cmd, &f.output)
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd, name) }
	return cmd
}

func (f *cutoverFlags) run(cmd *cobra.Command, name string) error {
	switch {
	case f.site.JobDB == "":
		return usageError{errors.New("--job-db URL is required: Armada's scheduler database, postgres://user@host:5432/database")}
	case f.site.Subscription == "":
		return usageError{errors.New("--subscription is empty: give the subscription of Armada's scheduler ingester")}
	}
	if err := f.pulsar.RequireAdmin(); err != nil && f.pulsar.Given() {
		return usageError{err}
	}
	return withCluster(cmd.Context(), f.pulsar, func(cluster *pulsarlog.Cluster, _ pulsarlog.Config) error {
		site := f.site
		site.Cluster, site.Events, site.Decisions, site.Now = cluster, f.pulsar.Events, f.pulsar.Decisions, time.Now
		do := site.Start
		if name == "back" {
			do = site.Back
		}
		report, err := do(cmd.Context(), f.rehearse || name == "plan")
		if report == nil || err != nil && !errors.Is(err, cutover.ErrRefused) {
			return err
		}
		return f.report(cmd, name, report)
	})
}

// report prints what was found and done. A refusal is a finding.
func (f *cutoverFlags) report(cmd *cobra.Command, name string, r *cutover.Report) error {
	verb := "did"
	if f.rehearse || name == "plan" || r.Refused() {
		verb = "would"
	}
	var commands []string
	if name != "back" && !r.Refused() {
		commands = f.commands(cmd, r.State)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	report := printCutover
	if f.output == show.FormJSON {
		report = printCutoverJSON
	}
	if err := errors.Join(report(out, r, verb, commands), out.Flush()); err != nil {
		return err
	}
	if r.Refused() {
		return errFinding
	}
	return nil
}

// commands returns the next command lines, with this one's flags for the cluster and the database, but without
// secrets.
func (f *cutoverFlags) commands(cmd *cobra.Command, s *cutover.State) []string {
	var flags []string
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if !strings.HasPrefix(flag.Name, "pulsar") || flag.Value.Type() == "bool" && flag.Value.String() == "false" {
			return
		}
		value := " " + show.Quoted(flag.Value.String())
		if flag.Value.Type() == "bool" {
			value = ""
		}
		flags = append(flags, "--"+flag.Name+value)
	})
	cluster := strings.Join(flags, " ")
	evaluator := "evaluator " + cluster + " --data DIR --policies PATH --checkpoints URL"
	if slices.ContainsFunc(s.Partitions, func(p cutover.Partition) bool { return !p.Whole }) {
		evaluator += " --accept-history-from beginning"
	}
	db := strings.TrimPrefix(deployment{jobDB: f.site.JobDB}.String(), "--job-db ")
	if f.site.Control != controlPlane {
		cluster += " --" + flagControl + " " + show.Quoted(f.site.Control)
	}
	return []string{evaluator, "ingester " + cluster + " --mode holdback --job-db " + show.Quoted(db)}
}

func printCutover(w io.Writer, r *cutover.Report, verb string, commands []string) error {
	t := show.NewTable(w, "TOPIC", "PARTITION", "ARMADA UP TO", "BACKLOG", "CONSUMERS", "EVENTS SINCE", "OURS UP TO", "CONSUMERS")
	for _, p := range r.All() {
		taken, since, ours := "?", "", ""
		if !p.Cursor.Missing && p.Applied.Why == nil {
			taken = upTo(p.Applied.At)
		}
		if p.First != 0 {
			since = query.TimeText(p.First)
		}
		if p.Positions != nil {
			ours = upTo(p.Positions.Events)
		}
		t.Row(topicWord(p), fmt.Sprint(p.Number), taken, fmt.Sprint(p.Cursor.Backlog), strings.Join(p.Cursor.Consumers, " "), since, ours, strings.Join(p.Ingesters, " "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s, %d of them with a pending retry\n", plural.Of(r.Database.Live, "unfinished job"), r.Database.PendingRetries)
	for _, f := range r.Findings {
		kind := "note  "
		if f.Refuses {
			kind = "refuse"
		}
		fmt.Fprintf(w, "%s %s: %s\n", kind, query.OneLine(f.About), query.OneLine(f.What))
		if f.Fix != "" {
			fmt.Fprintf(w, "       fix: %s\n", query.OneLine(f.Fix))
		}
	}
	for _, s := range r.Steps {
		word := verb
		if s.Done {
			word = "as is"
		}
		fmt.Fprintf(w, "%-6s %s\n", word, s.What)
	}
	if len(commands) > 0 {
		fmt.Fprintln(w, "\nThen start, on any number of machines:")
	}
	for _, c := range commands {
		fmt.Fprintf(w, "  %s\n", query.OneLine(c))
	}
	if len(commands) > 0 {
		fmt.Fprintln(w, "With --policies, change these files later: `refloatctl apply` is refused. For `apply`, give --api HOST:PORT instead, and apply them when an evaluator runs.")
	}
	return nil
}

// cutoverPartitionJSON is the JSON form of a partition.
type cutoverPartitionJSON struct {
	Record          string   `json:"record"` // Partition
	Topic           string   `json:"topic"`  // events or control-plane
	Partition       int      `json:"partition"`
	ArmadaUpTo      string   `json:"armadaUpTo,omitempty"` // omitted if unknown
	ArmadaBacklog   int64    `json:"armadaBacklog"`
	ArmadaConsumers []string `json:"armadaConsumers"`
	EventsSince     string   `json:"eventsSince,omitempty"`
	Whole           bool     `json:"whole"`
	OlderJobs       int64    `json:"olderJobs"`
	OursUpTo        string   `json:"oursUpTo,omitempty"`
	OurConsumers    []string `json:"ourConsumers"`
}

type cutoverFindingJSON struct {
	Record string `json:"record"` // Finding
	cutover.Finding
}

type cutoverStepJSON struct {
	Record string `json:"record"` // Step
	What   string `json:"what"`
	State  string `json:"state"` // did, would, as is
}

type cutoverCommandJSON struct {
	Record  string `json:"record"` // Command
	Command string `json:"command"`
}

func printCutoverJSON(w io.Writer, r *cutover.Report, verb string, commands []string) error {
	enc := show.JSONLines(w)
	var errs []error
	for _, p := range r.All() {
		line := cutoverPartitionJSON{
			Record: "Partition", Topic: topicWord(p), Partition: p.Number, ArmadaBacklog: p.Cursor.Backlog, Whole: p.Whole, OlderJobs: p.Older,
			ArmadaConsumers: append([]string{}, p.Cursor.Consumers...), OurConsumers: append([]string{}, p.Ingesters...),
		}
		if !p.Cursor.Missing && p.Applied.Why == nil {
			line.ArmadaUpTo = p.Applied.At.String()
		}
		if p.First != 0 {
			line.EventsSince = query.TimeText(p.First)
		}
		if p.Positions != nil {
			line.OursUpTo = p.Positions.Events.String()
		}
		errs = append(errs, enc.Encode(line))
	}
	for _, f := range r.Findings {
		errs = append(errs, enc.Encode(cutoverFindingJSON{"Finding", f}))
	}
	for _, s := range r.Steps {
		state := verb
		if s.Done {
			state = "as is"
		}
		errs = append(errs, enc.Encode(cutoverStepJSON{"Step", s.What, state}))
	}
	for _, c := range commands {
		errs = append(errs, enc.Encode(cutoverCommandJSON{"Command", c}))
	}
	return errors.Join(errs...)
}

func topicWord(p *cutover.Partition) string {
	if p.Control {
		return controlPlane
	}
	return "events"
}

// upTo formats a position for people.
func upTo(at eventlog.Position) string {
	if at == eventlog.Start {
		return "beginning"
	}
	return at.String()
}
