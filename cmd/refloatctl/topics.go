package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/internal/doctor"
)

func newTopics() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "Create the Pulsar topics of a deployment",
		Long:  "Create the Pulsar topics of a deployment. `refloatctl doctor` checks them.",
	}
	cmd.AddCommand(newTopicsCreate())
	return cmd
}

func newTopicsCreate() *cobra.Command {
	var spec doctor.Spec
	var dry bool
	var retainEvents, retainDecisions string
	cmd := &cobra.Command{
		Use:   "create --pulsar URL --pulsar-admin URL",
		Short: "Create the topics decisions and policies, and the subscriptions",
		Long: `Create the topics decisions, with as many partitions as events has, and policies,
with one; set their retention; and create the durable subscriptions
refloat-evaluator on events and refloat-ingester on decisions and events, all at the
beginning. Existing topics and subscriptions are left as they are, so the command can
be run again.

Events is Armada's topic: it only gets the subscriptions, unless --create-events
creates it. They retain events that are not decided, or not in the job database yet,
whatever the retention. So give --no-ingester if no ingester will run, or events are
retained for ingesters that never come.

Decisions are retained for ever unless --retain-decisions says how long. Only what
` + "`refloatctl archive create`" + ` has copied and ` + "`archive verify`" + ` has checked may be deleted, so run both at
least twice in that time; doctor --archive checks that. Policies are always retained for
ever: a generation's number is its position in the log.

When events gets more partitions, a job set may move to another partition, where
nothing is known of its jobs. Evaluators therefore stop, and decisions grows only with
--grow. Let the existing job sets finish, or accept that the jobs of those that move are
not retried any more (their failures are UnknownJob); then run this with --grow, and
start the evaluators once with --accept-partitions N.`,
		Example: `  refloatctl topics create --pulsar pulsar://pulsar:6650 --pulsar-admin http://pulsar:8080 --dry-run
  refloatctl topics create --pulsar pulsar://pulsar:6650 --pulsar-admin http://pulsar:8080 --create-events --partitions 12
  refloatctl topics create --pulsar pulsar://pulsar:6650 --pulsar-admin http://pulsar:8080 --retain-decisions 90d --retain-events 14d`,
		Args: noArgument,
	}
	flags := pulsarflags.Bind(cmd)
	cmd.Flags().IntVar(&spec.Partitions, "partitions", 0, "partitions of events, to create or to check (default: as many as it has)")
	cmd.Flags().BoolVar(&spec.CreateEvents, "create-events", false, "create events too if it does not exist, with infinite retention")
	cmd.Flags().BoolVar(&spec.Grow, "grow", false, "increase the partitions of decisions to those of events")
	cmd.Flags().BoolVar(&spec.NoIngester, "no-ingester", false, "create no subscriptions for ingesters, because only evaluators will run")
	cmd.Flags().StringVar(&retainDecisions, "retain-decisions", "forever", "how long decisions are retained: forever, or at least 1d, such as 90d")
	cmd.Flags().StringVar(&retainEvents, "retain-events", "", "how long events are retained after their acknowledgement: forever, or a time such as 7d (default: as they are; forever with --create-events)")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only show what would be done")
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if spec.Partitions < 0 {
			return usageError{fmt.Errorf("--partitions %d: want 1 or more, or omit it", spec.Partitions)}
		}
		var err error
		if spec.RetainDecisions, err = parseRetention("retain-decisions", retainDecisions, minRetainDecisions); err != nil {
			return usageError{err}
		}
		if spec.NoIngester && spec.RetainDecisions != doctor.Forever {
			return usageError{errors.New("--no-ingester with --retain-decisions: the ingesters' subscription is what keeps the last decisions of an idle partition, which evaluators need; retain them for ever")}
		}
		if retainEvents != "" {
			if spec.RetainEvents, err = parseRetention("retain-events", retainEvents, time.Minute); err != nil {
				return usageError{err}
			}
		}
		return withDeployment(cmd.Context(), flags, func(d doctor.Deployment) error { return createTopics(cmd, d, spec, dry) })
	}
	return cmd
}

// minRetainDecisions leaves an evaluator time to come back with its state, whose last envelope must still be in
// the log.
const minRetainDecisions = 24 * time.Hour

// parseRetention parses "forever" or a duration, which may be in days, in whole minutes.
func parseRetention(flag, text string, least time.Duration) (doctor.Retention, error) {
	if text == "forever" {
		return doctor.Forever, nil
	}
	var d time.Duration
	days, err := strconv.ParseUint(strings.TrimSuffix(text, "d"), 10, 16)
	if strings.HasSuffix(text, "d") && err == nil {
		d = time.Duration(days) * 24 * time.Hour
	} else if d, err = time.ParseDuration(text); err != nil {
		return doctor.Retention{}, fmt.Errorf("--%s %q: want forever, or a time such as 30d or 36h", flag, text)
	}
	if d < least || d%time.Minute != 0 || d/time.Minute > math.MaxInt32 {
		return doctor.Retention{}, fmt.Errorf("--%s %s: want forever, or at least %v, in whole minutes", flag, text, least)
	}
	return doctor.Retention{Minutes: int64(d / time.Minute), MB: -1}, nil
}

func createTopics(cmd *cobra.Command, d doctor.Deployment, spec doctor.Spec, dry bool) error {
	steps, err := doctor.Plan(cmd.Context(), d, spec)
	if errors.Is(err, doctor.ErrRefused) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%v\n", err)
		return errFinding
	}
	if err != nil {
		return err
	}
	todo := 0
	for i := range steps {
		s := &steps[i]
		switch {
		case s.Done:
			fmt.Fprintf(cmd.OutOrStdout(), "as is  %s\n", s.What)
			continue
		case dry:
			fmt.Fprintf(cmd.OutOrStdout(), "would  %s\n", s.What)
		default:
			if err := s.Do(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "did    %s\n", s.What)
		}
		todo++
	}
	if todo == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "nothing to do")
	}
	return nil
}
