package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/app"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/eventlog/pulsarlog"
	"github.com/refloat/refloat/internal/plural"
)

func newFeed() *cobra.Command {
	var pace, data string
	cmd := &cobra.Command{
		Use:   "feed FILE... (--data DIR | --pulsar URL)",
		Short: "Feed recordings to a data directory, also while `up` runs on it, or to Pulsar",
		Long: `Write recordings (.jsonl.gz) into the events log of a data directory. If ` + "`refloatctl up`" + `
runs on it, that process writes them, and feed waits until it has.

Or publish them to the events topic on Pulsar as Armada does: keyed by job set, in
batches compressed with zlib.

Each message goes to its recorded partition and carries its position and publish time
in the recording. Running it again writes only the messages that are not there yet.`,
		Example: `  refloatctl feed testdata/recordings/plain.jsonl.gz --data /var/lib/refloat
  refloatctl feed testdata/recordings/plain.jsonl.gz --pulsar pulsar://localhost:6650
  refloatctl feed testdata/recordings/chaos.jsonl.gz --pulsar pulsar://localhost:6650 --pace 10x`,
		Args: cobra.MinimumNArgs(1),
	}
	flags := pulsarflags.Bind(cmd)
	cmd.Flags().StringVar(&data, "data", "", "data directory, created if it does not exist")
	cmd.Flags().StringVar(&pace, "pace", "", "speed relative to the recorded times, such as 10x (default: as fast as possible)")
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		factor, err := parsePace(pace)
		if err != nil {
			return usageError{err}
		}
		if onPulsar := flags.Given(); onPulsar == (data != "") {
			return usageError{errors.New("give --data DIR, or --pulsar URL: where to feed")}
		}
		if data != "" {
			return feedData(cmd, data, files, factor)
		}
		return withCluster(cmd.Context(), flags, func(cluster *pulsarlog.Cluster, _ pulsarlog.Config) error {
			return feed(cmd, cluster, flags.Events, files, factor)
		})
	}
	return cmd
}

func feedData(cmd *cobra.Command, data string, files []string, pace float64) error {
	bar := show.NewProgress()
	defer bar.Done()
	for _, file := range files {
		bar.Update("feeding %s", file)
		total, written, err := app.FeedData(cmd.Context(), app.Dir(data), app.Feed{File: file, Pace: pace, Now: time.Now})
		bar.Done()
		switch {
		case err != nil:
			return err
		case written < 0:
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s; the process that runs on %s has fed them, and its log says how many were new\n", file, plural.Of(total, "message"), data)
		default:
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %d of them new in %s\n", file, plural.Of(total, "message"), written, data)
		}
	}
	return nil
}

func feed(cmd *cobra.Command, cluster *pulsarlog.Cluster, name string, files []string, pace float64) (err error) {
	totals := make([]int, len(files))
	needed := 0
	for i, file := range files {
		var n int
		if totals[i], n, err = app.Survey(file); err != nil {
			return err
		}
		needed = max(needed, n)
	}
	topic, err := cluster.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, topic.Close()) }()
	if has := topic.Partitions(); has < needed {
		return fmt.Errorf("the recordings need %s, %s has %d: feed a topic created with `refloatctl topics create --create-events --partitions %d`", plural.Of(needed, "partition"), topic.Name(), has, needed)
	}
	appender := topic.Appender()
	defer func() { err = errors.Join(err, appender.Close()) }()
	bar := show.NewProgress()
	defer bar.Done()
	for i, file := range files {
		f := app.Feed{
			File: file, Log: feedLog{topic, appender, cmd.Context().Done()}, Pace: pace, Now: time.Now,
			Progress: func(n int) { bar.Update("publishing %s: %d of %d messages", file, n, totals[i]) },
		}
		bar.Update("looking for %s in %s", file, topic.Name())
		n, err := f.Run(cmd.Context())
		bar.Done()
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %d of them new in %s\n", file, plural.Of(totals[i], "message"), n, topic.Name())
	}
	return nil
}

// feedLog is the events topic as a feed sees it.
type feedLog struct {
	*pulsarlog.Topic
	*pulsarlog.Appender
	ended <-chan struct{} // closed when the command is interrupted
}

// Open returns a reader that waits for messages up to the current end, so a Read without messages means that
// everything was read.
func (l feedLog) Open(p int, after eventlog.Position) (eventlog.Reader, error) {
	end, err := l.End(p)
	if err != nil {
		return nil, err
	}
	r, err := l.Topic.Open(p, after)
	if err != nil {
		return nil, err
	}
	return &wholeReader{Reader: r, at: after, end: end, ended: l.ended}, nil
}

// Close closes both.
func (l feedLog) Close() error { return errors.Join(l.Appender.Close(), l.Topic.Close()) }

// wholeReader reads up to a given end before it reports that there is no more.
type wholeReader struct {
	eventlog.Reader
	at, end eventlog.Position
	ended   <-chan struct{}
}

func (r *wholeReader) Read(dst []eventlog.Message) (int, error) {
	for {
		n, err := r.Reader.Read(dst)
		if n > 0 {
			r.at = dst[n-1].Position
		}
		if n > 0 || err != nil || r.at.Compare(r.end) >= 0 {
			return n, err
		}
		select {
		case <-r.Changed(): // connection errors arrive this way too
		case <-r.ended:
			return 0, context.Canceled
		}
	}
}

var _ app.FeedLog = feedLog{}

func newImport() *cobra.Command {
	var log string
	var partitions int
	cmd := &cobra.Command{
		Use:   "import FILE --log DIR",
		Short: "Write a recording into a log",
		Long: `Write a recording (.jsonl.gz, one message a line) into an events log, which is created
if it does not exist. Each message keeps its partition and carries its position and
publish time in the recording. Running it again writes only the messages that the log
does not have yet.`,
		Example: `  refloatctl import testdata/recordings/plain.jsonl.gz --log /tmp/plain
  refloatctl replay --log /tmp/plain --policies examples/policies`,
		Args: argument("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if log == "" {
				return usageError{fmt.Errorf("--log DIR is required: where to write the log")}
			}
			bar := show.NewProgress()
			defer bar.Done()
			n, total, err := app.Import(cmd.Context(), args[0], log, partitions, func(done, total int) {
				bar.Update("importing %s: %d of %d messages", args[0], done, total)
			})
			if err != nil {
				return err
			}
			bar.Done()
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %d of them new in %s\n", args[0], plural.Of(total, "message"), n, log)
			return nil
		},
	}
	cmd.Flags().StringVar(&log, "log", "", "directory of the events log (required)")
	cmd.Flags().IntVar(&partitions, "partitions", 0, "partitions of a new log (default: as many as the recording has)")
	return cmd
}
