package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/archive"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

func newArchive() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Copy ranges of the logs into an archive, and verify it",
		Long: `Copy ranges of the logs into an archive: plain files with digests, from which every
decision can be derived again after the logs have deleted them. An archive begins at the
beginning of the decision log and grows range by range.`,
	}
	cmd.AddCommand(newArchiveCreate(), newArchiveVerify(), newArchiveList())
	return cmd
}

func newArchiveCreate() *cobra.Command {
	var from deployment
	var o archive.Options
	var output string
	cmd := &cobra.Command{
		Use:   "create DIR (--data DIR | --pulsar URL)",
		Short: "Add what is new in the logs to an archive, as its next range",
		Long: `Copy everything that was decided since the last range of the archive in DIR: the
decisions, the events that they cover, and the policies. The first run creates the
archive. Evaluators and ingesters may run meanwhile; nothing in the logs is changed.

The range is written under another name, read again by the rules of the chain, synced,
and then renamed, so what has its name is complete. After an interruption, run the same
command again: it continues. Nothing is ever overwritten.

The SHA-256 that is printed stands for the whole archive: keep it elsewhere, and pass it
to archive verify.`,
		Example: `  refloatctl archive create /backup/refloat --data .refloat-run
  refloatctl archive create /backup/refloat --pulsar pulsar://pulsar:6650 --pulsar-admin http://pulsar:8080`,
		Args: argument("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := from.checkLogs(); err != nil {
				return err
			}
			for _, p := range o.Partitions {
				if p < 0 {
					return usageError{fmt.Errorf("--partition %d: want 0 or more", p)}
				}
			}
			return createArchive(cmd, from, args[0], o, output)
		},
	}
	cmd.Flags().StringVar(&from.data, "data", "", "data directory of a deployment on one machine")
	from.bindPulsar(cmd)
	cmd.Flags().IntSliceVar(&o.Partitions, "partition", nil, "only this partition; may be repeated (default: all)")
	cmd.Flags().BoolVar(&o.WithoutEvents, "allow-missing-events", false, "archive decisions although events that they cover were deleted: they cannot be derived again")
	addOutput(cmd, &output)
	return cmd
}

func createArchive(cmd *cobra.Command, from deployment, dir string, o archive.Options, output string) error {
	bar := show.NewProgress()
	defer bar.Done()
	o.Now = time.Now()
	o.Progress = func(what string, n int) { bar.Update("archiving %s: %s", what, plural.Of(n, "message")) }
	return from.archiveSource(cmd.Context(), func(src archive.Source) error {
		for _, p := range o.Partitions {
			if n := src.Logs.Events.Partitions(); p >= n {
				return usageError{fmt.Errorf("--partition %d: the logs have %s, from 0", p, plural.Of(n, "partition"))}
			}
		}
		m, err := archive.Create(cmd.Context(), dir, src, o)
		bar.Done()
		if errors.Is(err, archive.ErrEventsGone) {
			return fmt.Errorf("%w\nno later reader can derive these decisions again; --allow-missing-events archives them nevertheless", err)
		}
		if err != nil {
			return err
		}
		a, err := archive.Open(dir)
		if err != nil {
			return err
		}
		if m == nil {
			if output == show.FormTable {
				fmt.Fprintf(cmd.OutOrStdout(), "nothing new was decided; SHA-256 of %s: %s\n", dir, a.Digest())
			}
			return nil
		}
		if output == show.FormJSON {
			return show.JSONLines(cmd.OutOrStdout()).Encode(listed(m, a.Digest()))
		}
		if err := printRange(cmd.OutOrStdout(), m); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "SHA-256 of %s: %s\n", dir, a.Digest())
		return nil
	})
}

// archiveSource opens the logs of a deployment to archive them.
func (d *deployment) archiveSource(ctx context.Context, use func(archive.Source) error) error {
	if !d.onPulsar() {
		return d.readLogs(ctx, func(logs audit.Logs) error {
			return use(archive.Source{Logs: logs, Names: archive.Names{Events: "data/events", Decisions: "data/decisions", Policies: "data/policies"}})
		})
	}
	return d.readPulsar(ctx, func(cluster *pulsarlog.Cluster, logs audit.Logs) error {
		name := func(topic string) string { return strings.TrimPrefix(cluster.TopicName(topic), "persistent://") }
		return use(archive.Source{Logs: logs, Names: archive.Names{Events: name(d.pulsar.Events), Decisions: name(d.pulsar.Decisions), Policies: name(d.pulsar.Policies)}})
	})
}

const archiveHelp = "directory of an archive that holds what the logs no longer hold (default: none)"

// readLogsWith opens the logs behind an archive, if one is given.
func (d *deployment) readLogsWith(ctx context.Context, dir string, use func(audit.Logs) error) error {
	return d.readLogs(ctx, func(logs audit.Logs) error {
		if dir == "" {
			return use(logs)
		}
		a, err := archive.Open(dir)
		if err != nil {
			return err
		}
		return use(a.Join(logs))
	})
}

// archivedRange is the JSON form of a range.
type archivedRange struct {
	Record         string               `json:"record"` // ArchivedRange
	Range          int                  `json:"range"`
	Created        string               `json:"created"`
	Source         archive.Names        `json:"source"`
	Chains         []archive.ChainRange `json:"chains"`
	Files          int                  `json:"files"`
	Bytes          int64                `json:"bytes"`
	ManifestSHA256 string               `json:"manifestSha256,omitempty"`
}

func listed(m *archive.Manifest, digest string) archivedRange {
	return archivedRange{"ArchivedRange", m.Range, m.Created.Format(time.RFC3339), m.Source, m.Chains, len(m.Files), bytesOf(m), digest}
}

func bytesOf(m *archive.Manifest) (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

func printRange(w io.Writer, manifests ...*archive.Manifest) error {
	t := show.NewTable(w, "RANGE", "CREATED", "PARTITION", "ENVELOPES", "EVENTS", "DECISIONS", "EVENTS UP TO", "DECISIONS UP TO", "LINK")
	for _, m := range manifests {
		for _, c := range m.Chains {
			t.Row(fmt.Sprint(m.Range), m.Created.Format(time.RFC3339), fmt.Sprint(c.Partition),
				fmt.Sprintf("%d-%d", c.Begin.Envelope+1, c.End.Envelope), fmt.Sprint(c.Events), fmt.Sprint(c.Decisions), c.End.Events, c.End.Decisions, c.End.Link[:16]+missingEvents(c))
		}
	}
	return t.Flush()
}

func missingEvents(c archive.ChainRange) string {
	if c.EventsMissing == "" {
		return ""
	}
	return " events are missing: " + c.EventsMissing
}

func newArchiveList() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "list DIR",
		Short:   "List the ranges of an archive",
		Long:    "List the ranges of an archive by their manifests. The files are not read: archive verify does that.",
		Example: "  refloatctl archive list /backup/refloat",
		Args:    argument("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := archive.Open(args[0])
			if err != nil {
				return err
			}
			if output == show.FormTable {
				return printRange(cmd.OutOrStdout(), a.Manifests()...)
			}
			enc := show.JSONLines(cmd.OutOrStdout())
			for _, m := range a.Manifests() {
				if err := enc.Encode(listed(m, "")); err != nil {
					return err
				}
			}
			return nil
		},
	}
	addOutput(cmd, &output)
	return cmd
}

func newArchiveVerify() *cobra.Command {
	var output, sum string
	var missing bool
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check an archive: digests, chain, and every decision",
		Long: `Check an archive by itself, without the logs: every file has the digest that its
manifest names, no file is missing or superfluous, each range continues the one before,
the chain of each partition is whole from its first envelope to its last, and deciding
the archived events again by the archived policies gives the archived decisions, byte
for byte. It prints what was verified, and what was not and why.

The files prove each other, but not that nobody replaced all of them: for that, give the
SHA-256 that archive create printed last.

Exit codes: 0 all of it was verified, 1 a problem was found, or something could not be
verified.`,
		Example: `  refloatctl archive verify /backup/refloat
  refloatctl archive verify /backup/refloat -o json`,
		Args: argument("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := asking(func(bar *show.Progress) (*archive.Report, error) {
				return archive.Verify(cmd.Context(), args[0], func(what string) { bar.Update("verifying %s", what) })
			})
			if err != nil {
				return err
			}
			if sum != "" && r.Digest != sum {
				r.Problems = append(r.Problems, archive.Problem{What: fmt.Sprintf("its SHA-256 is %s, not the expected %s", r.Digest, sum)})
			}
			if output == show.FormJSON {
				err = reportArchiveJSON(cmd.OutOrStdout(), r)
			} else {
				reportArchive(cmd.OutOrStdout(), args[0], r)
			}
			if err == nil && !r.Whole() && (!missing || len(r.Problems) > 0) {
				return errFinding
			}
			return err
		},
	}
	cmd.Flags().StringVar(&sum, "sha256", "", "SHA-256 of the archive, as archive create printed it (default: not compared)")
	cmd.Flags().BoolVar(&missing, "allow-missing-events", false, "accept decisions that cannot be derived again because their events were deleted before they were archived")
	addOutput(cmd, &output)
	return cmd
}

func reportArchive(w io.Writer, dir string, r *archive.Report) {
	for _, p := range r.Problems {
		fmt.Fprintf(w, "problem: %s\n", query.OneLine(p.String()))
	}
	fmt.Fprintf(w, "files: %d of %s have the digest that their manifest names, %d bytes\n", r.Files, plural.Of(r.Ranges, "range"), r.Bytes)
	if len(r.Problems) > 0 && len(r.Chains) == 0 {
		fmt.Fprintln(w, "not verified: chain and decisions, because of these problems")
	}
	for _, c := range r.Chains {
		fmt.Fprintf(w, "partition %d: envelopes 1 to %d in %s, %s, %s, running hash %s\n", c.Partition, c.End.Envelope, plural.Of(c.Ranges, "range"),
			plural.Of(c.Events, "message"), plural.Of(c.Decisions, "decision"), c.End.Running)
		if left := c.Events - c.Derived; c.NotDerived != "" {
			fmt.Fprintf(w, "partition %d: not verified: deciding %s of %d again: %s\n", c.Partition, plural.Of(left, "message"), c.Events, query.OneLine(c.NotDerived))
		}
	}
	for _, dir := range r.Unfinished {
		fmt.Fprintf(w, "note: %s is an unfinished copy, which is not part of the archive; archive create continues it\n", dir)
	}
	switch {
	case len(r.Problems) > 0:
		fmt.Fprintf(w, "%s in %s\n", plural.Of(len(r.Problems), "problem"), dir)
	case r.Whole():
		fmt.Fprintf(w, "verified: %s is whole, and deciding it again gives the same decisions, byte for byte; SHA-256 %s\n", dir, r.Digest)
	default:
		fmt.Fprintf(w, "files and chain of %s are whole; not everything could be decided again; SHA-256 %s\n", dir, r.Digest)
	}
}

// The JSON forms of a verification: one object for each problem and each partition, then the
// sum.
type (
	archiveProblem struct {
		Record string `json:"record"` // ArchiveProblem
		archive.Problem
	}
	archivedChain struct {
		Record string `json:"record"` // ArchivedChain
		archive.Chain
	}
	archiveVerified struct {
		Record     string   `json:"record"` // ArchiveVerified
		Verified   bool     `json:"verified"`
		Ranges     int      `json:"ranges"`
		Files      int      `json:"files"`
		Bytes      int64    `json:"bytes"`
		Problems   int      `json:"problems"`
		SHA256     string   `json:"sha256"`
		Unfinished []string `json:"unfinished,omitempty"`
	}
)

func reportArchiveJSON(w io.Writer, r *archive.Report) error {
	enc := show.JSONLines(w)
	for _, p := range r.Problems {
		if err := enc.Encode(archiveProblem{"ArchiveProblem", p}); err != nil {
			return err
		}
	}
	for _, c := range r.Chains {
		if err := enc.Encode(archivedChain{"ArchivedChain", c}); err != nil {
			return err
		}
	}
	return enc.Encode(archiveVerified{"ArchiveVerified", r.Whole(), r.Ranges, r.Files, r.Bytes, len(r.Problems), r.Digest, slices.Clone(r.Unfinished)})
}
