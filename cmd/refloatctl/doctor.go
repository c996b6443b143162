package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/archive"
	"github.com/refloat/refloat/internal/doctor"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

func newDoctor() *cobra.Command {
	var output, bookie, jobDB, archived string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "doctor --pulsar URL --pulsar-admin URL [--job-db URL]",
		Short: "Check the topics, the settings and the job database of a deployment",
		Long: `Check the Pulsar topics and settings of a deployment, and show which process holds
which partition; with --job-db also a job database in PostgreSQL, or only that; with
--archive, whether what decisions and events no longer hold is archived. Each
finding says what is wrong, why it matters, and which command fixes it. Nothing is
changed.

Exit codes: 0 no errors (there may be warnings), 1 errors,
2 usage, 3 the admin API or the brokers cannot be reached.`,
		Example: `  refloatctl doctor --pulsar pulsar://pulsar:6650 --pulsar-admin http://pulsar:8080
  refloatctl doctor --pulsar pulsar://pulsar:6650 --pulsar-admin http://pulsar:8080 -o json
  PGPASSWORD=… refloatctl doctor --job-db postgres://armada@db:5432/scheduler`,
		Args: noArgument,
	}
	flags := pulsarflags.Bind(cmd)
	addOutput(cmd, &output)
	cmd.Flags().StringVar(&bookie, "bookie", "", "HTTP address of a bookie with httpServerEnabled=true, to check its settings too, such as http://bookie:8000 (default: none)")
	cmd.Flags().StringVar(&jobDB, "job-db", "", "job database in PostgreSQL, postgres://user@host:5432/database, best with the password in PGPASSWORD or ~/.pgpass (default: none)")
	settings.Secret(cmd, "job-db")
	cmd.Flags().StringVar(&archived, "archive", "", "directory of the archive, if decisions are not retained for ever (default: none)")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "show only warnings and errors")
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if jobDB != "" && !strings.HasPrefix(jobDB, "postgres") {
			return usageError{errors.New("--job-db: doctor checks only PostgreSQL: give postgres://user@host:5432/database")}
		}
		if archived != "" && !flags.Given() {
			return usageError{errors.New("--archive is compared with the topics: give --pulsar URL too")}
		}
		bar := show.NewProgress()
		defer bar.Done()
		if jobDB != "" && !flags.Given() {
			return reportFindings(cmd.OutOrStdout(), doctor.CheckDatabase(doctor.GatherDatabase(cmd.Context(), jobDB, time.Now()), nil), nil, output, quiet)
		}
		return withDeployment(cmd.Context(), flags, func(d doctor.Deployment) error {
			d.Bookie = bookie
			d.Progress = func(what string) { bar.Update("asking for %s", what) }
			facts, err := doctor.Gather(cmd.Context(), d)
			bar.Done()
			if err == nil && archived != "" {
				facts.Archive, err = archivedIn(archived, time.Now())
			}
			if err != nil {
				return err
			}
			var more []doctor.Finding
			if jobDB != "" {
				db := doctor.GatherDatabase(cmd.Context(), jobDB, time.Now())
				facts.RolledBack = db.RolledBack
				more = doctor.CheckDatabase(db, endsOf(d.Cluster, d.Events))
			}
			return reportFacts(cmd.OutOrStdout(), facts, more, output, quiet)
		})
	}
	return cmd
}

// archivedIn returns how far an archive reaches.
func archivedIn(dir string, now time.Time) (*doctor.Archived, error) {
	a, err := archive.Open(dir)
	if err != nil {
		return nil, err
	}
	all := a.Manifests()
	out := &doctor.Archived{Dir: dir, Age: now.Sub(all[len(all)-1].Created), Events: map[int]eventlog.Position{}, Decisions: map[int]eventlog.Position{}}
	for _, m := range all {
		for _, c := range m.Chains {
			events, e1 := eventlog.ParsePosition(c.End.Events)
			decisions, e2 := eventlog.ParsePosition(c.End.Decisions)
			if err := errors.Join(e1, e2); err != nil {
				return nil, err
			}
			out.Events[c.Partition], out.Decisions[c.Partition] = events, decisions
		}
	}
	return out, nil
}

// withCluster connects to the cluster during a call.
func withCluster(ctx context.Context, flags *pulsarflags.Flags, call func(*pulsarlog.Cluster, pulsarlog.Config) error) error {
	config, err := flags.Config(nil)
	if err != nil {
		return usageError{err}
	}
	cluster, err := pulsarlog.Connect(ctx, config)
	if err != nil {
		return err
	}
	return errors.Join(call(cluster, config), cluster.Close())
}

// withDeployment also connects to the admin API.
func withDeployment(ctx context.Context, flags *pulsarflags.Flags, call func(doctor.Deployment) error) error {
	if err := flags.RequireAdmin(); err != nil && flags.Given() {
		return usageError{err}
	}
	return withCluster(ctx, flags, func(cluster *pulsarlog.Cluster, config pulsarlog.Config) error {
		admin, err := doctor.NewAdmin(config)
		if err != nil {
			return err
		}
		return call(doctor.Deployment{
			Admin: admin, Cluster: cluster, Service: config.ServiceURL,
			Events: flags.Events, Decisions: flags.Decisions, Policies: flags.Policies,
		})
	})
}

// reportFacts prints the findings and returns errFinding if there are errors.
func reportFacts(w io.Writer, facts *doctor.Facts, more []doctor.Finding, output string, quiet bool) error {
	result := reportFindings(w, append(doctor.Check(facts), more...), doctor.ClientsOf(facts), output, quiet)
	if result != nil && !errors.Is(result, errFinding) {
		return result
	}
	if err := facts.Service.Err; err != nil && !errors.Is(err, doctor.ErrNotChecked) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the client cannot reach the brokers: %w", err)
	}
	return result
}

// endsOf returns the ends of a topic's partitions, as far as known.
func endsOf(cluster *pulsarlog.Cluster, name string) map[int]eventlog.Position {
	ends := map[int]eventlog.Position{}
	if topic, err := cluster.Open(name); err == nil {
		for p := range topic.Partitions() {
			if end, err := topic.End(p); err == nil {
				ends[p] = end
			}
		}
	}
	return ends
}

// reportFindings prints findings, and returns errFinding if there are errors among them.
func reportFindings(w io.Writer, findings []doctor.Finding, clients []doctor.Clients, output string, quiet bool) error {
	out := bufio.NewWriter(w)
	var err error
	if output == show.FormJSON {
		err = reportJSON(out, findings, clients, quiet)
	} else {
		err = reportTable(out, findings, clients, quiet)
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	if doctor.Worst(findings) == doctor.Error {
		return errFinding
	}
	return nil
}

func reportTable(w io.Writer, findings []doctor.Finding, clients []doctor.Clients, quiet bool) error {
	var count [3]int
	for _, f := range findings {
		count[f.Severity]++
		if quiet && f.Severity == doctor.OK {
			continue
		}
		fmt.Fprintf(w, "%-5s %s  %s: %s\n", f.Severity, f.Code, query.OneLine(f.About), query.OneLine(f.What))
		if f.Why != "" {
			fmt.Fprintf(w, "      why: %s\n", query.OneLine(f.Why))
		}
		if f.Fix != "" {
			fmt.Fprintf(w, "      fix: %s\n", query.OneLine(f.Fix))
		}
	}
	if len(clients) > 0 && !quiet {
		fmt.Fprintln(w)
		t := show.NewTable(w, "PARTITION", "EVALUATOR", "BEHIND", "OWNER", "SINCE", "INGESTER", "BEHIND")
		for _, h := range clients {
			t.Row(fmt.Sprint(h.Partition), party(h.Evaluator), fmt.Sprint(h.Events), owner(h), h.Owner.Since, party(h.Ingester), fmt.Sprint(h.Decisions))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintf(w, "%s, %s, %d ok\n", plural.Of(count[doctor.Error], "error"), plural.Of(count[doctor.Warn], "warning"), count[doctor.OK])
	return err
}

// owner formats the owner of a partition, or why it has none.
func owner(h doctor.Clients) string {
	if h.Refused != "" {
		return "refused: " + h.Refused
	}
	return party(h.Owner)
}

// party formats a process by name and host. Its port is that of one of its connections, and each has another.
func party(p doctor.Party) string {
	host, _, err := net.SplitHostPort(p.Address)
	if err != nil {
		host = p.Address
	}
	return strings.TrimSpace(p.Name + " " + host)
}

// The JSON lines of a report.
type (
	findingJSON struct {
		Record string `json:"record"` // Finding
		doctor.Finding
	}
	clientsJSON struct {
		Record string `json:"record"` // Holder
		doctor.Clients
	}
)

func reportJSON(w io.Writer, findings []doctor.Finding, clients []doctor.Clients, quiet bool) error {
	enc := show.JSONLines(w)
	for _, f := range findings {
		if quiet && f.Severity == doctor.OK {
			continue
		}
		if err := enc.Encode(findingJSON{"Finding", f}); err != nil {
			return err
		}
	}
	if quiet {
		return nil
	}
	for _, h := range clients {
		if err := enc.Encode(clientsJSON{"Holder", h}); err != nil {
			return err
		}
	}
	return nil
}
