package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

type recordFlags struct {
	topic, out, from, to string
	partition            int
	follow               bool
}

const (
	fromEarliest = "earliest"
	toNow        = "now"
	allOfThem    = -1
)

func newRecord() *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record --pulsar URL --topic TOPIC --out FILE|DIR",
		Short: "Write a Pulsar topic's history to a recording or a log",
		Long: `Write a topic's history to a recording (FILE, which ends in .jsonl.gz) or to a log
directory (DIR), to analyse it elsewhere. Recording stops at the end that the topic
had at the start, or with --follow when interrupted.

A recording is written to FILE.partial and renamed when it is complete. Messages keep
their partition, position, publish time, key and properties. In a recording, messages
that were fed from another recording keep its positions and times, and partitions are
merged by publish time, each in its own order. A directory is an exact copy, for
audits; a later run continues where it ended.

A gap in the middle is an error. A missing beginning is reported.`,
		Example: `  refloatctl record --pulsar pulsar://localhost:6650 --topic events --out events.jsonl.gz
  refloatctl record --pulsar pulsar://localhost:6650 --topic decisions --out /backup/decisions
  refloatctl record --pulsar pulsar://localhost:6650 --topic events --from 2026-11-20T08:00:00Z --to 2026-11-20T09:00:00Z --out hour.jsonl.gz`,
		Args: noArgument,
	}
	flags := pulsarflags.BindCluster(cmd)
	set := cmd.Flags()
	set.StringVar(&f.topic, "topic", "", "topic to record: name, tenant/namespace/name, or full (required)")
	set.StringVar(&f.out, "out", "", "recording to write, as x.jsonl.gz, or log directory (required)")
	set.StringVar(&f.from, "from", fromEarliest, "first message: earliest, a position such as 12:345:6, or a time such as 2026-11-20T08:00:00Z")
	set.StringVar(&f.to, "to", toNow, "last message: now, a position, or a time")
	set.IntVar(&f.partition, "partition", allOfThem, "only this partition (default: all)")
	set.BoolVar(&f.follow, "follow", false, "continue with new messages, until interrupted")
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		span, err := f.span()
		if err != nil {
			return usageError{err}
		}
		return withCluster(cmd.Context(), flags, func(cluster *pulsarlog.Cluster, _ pulsarlog.Config) error {
			return record(cmd, cluster, f, span)
		})
	}
	return cmd
}

// bound is one end of a recording: a position, a time, or neither.
type bound struct {
	position *eventlog.Position
	time     *time.Time
}

// span is the range to record.
type span struct {
	from, to bound
	follow   bool
}

func (f *recordFlags) span() (s span, err error) {
	switch {
	case f.topic == "":
		return s, errors.New("--topic TOPIC is required: which topic to record")
	case f.out == "":
		return s, errors.New("--out FILE.jsonl.gz or DIR is required: where to write")
	case f.partition < allOfThem:
		return s, fmt.Errorf("--partition %d: want 0 or more, or omit it for all", f.partition)
	case f.follow && f.to != toNow:
		return s, errors.New("--follow and --to: give only one")
	}
	s.follow = f.follow
	if s.from, err = parseBound("from", f.from, fromEarliest); err != nil {
		return s, err
	}
	s.to, err = parseBound("to", f.to, toNow)
	return s, err
}

func parseBound(flag, text, word string) (bound, error) {
	if text == word {
		return bound{}, nil
	}
	if at, err := eventlog.ParsePosition(text); err == nil && at.Ledger >= 0 && at.Entry >= 0 && at.Batch >= 0 {
		return bound{position: &at}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Before(time.Unix(0, math.MinInt64)) || at.After(time.Unix(0, math.MaxInt64)) {
		return bound{}, fmt.Errorf("--%s %q: want %s, a position such as 12:345:6, or a time such as 2026-11-20T08:00:00Z", flag, text, word)
	}
	return bound{time: &at}, nil
}

func record(cmd *cobra.Command, cluster *pulsarlog.Cluster, f recordFlags, s span) (err error) {
	topic, err := cluster.Open(f.topic)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topic.Close()) }()
	partitions, err := choose(f.partition, topic.Partitions(), s)
	if err != nil {
		return usageError{err}
	}
	name := strings.TrimPrefix(topic.Name(), "persistent://")
	to, err := openTarget(f.out, name, topic.Partitions())
	if err != nil {
		return err
	}
	bar := show.NewProgress()
	defer bar.Done()
	r := &recorder{
		topic: topic, partitions: partitions, span: s, to: to,
		note: func(format string, args ...any) {
			bar.Done()
			fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
		},
		progress: func(n int, at int64) {
			bar.Update("recording %s: %s, up to %s", name, plural.Of(n, "message"), query.TimeText(at))
		},
	}
	err = r.run(cmd.Context())
	bar.Done()
	ended := s.follow && cmd.Context().Err() != nil // the normal way to end it
	if ended && errors.Is(err, cmd.Context().Err()) {
		err = nil
	}
	if err = errors.Join(err, to.close(err == nil)); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s of %s in %s\n", name, plural.Of(r.written, "message"), plural.Of(len(partitions), "partition"), f.out)
	for i, p := range partitions {
		if c := r.counts[i]; c.messages > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "  partition %d: %s, %v to %v\n", p, plural.Of(c.messages, "message"), c.first, c.last)
		}
	}
	return nil
}

// choose lists the partitions to record.
func choose(one, has int, s span) ([]int, error) {
	switch {
	case one >= has:
		return nil, fmt.Errorf("--partition %d: the topic has %s, from 0", one, plural.Of(has, "partition"))
	case one >= 0:
		return []int{one}, nil
	case has > 1 && (s.from.position != nil || s.to.position != nil):
		return nil, fmt.Errorf("a position belongs to one partition, and the topic has %d: choose one with --partition, or give a time", has)
	}
	all := make([]int, has)
	for p := range all {
		all[p] = p
	}
	return all, nil
}
