package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/pulsarflags"
	"github.com/refloat/refloat/cmd/internal/settings"
	"github.com/refloat/refloat/internal/doctor"
)

func newTopics() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "Create the Pulsar topics of a deployment",
		Long:  "Create the Pulsar topics of a deployment. `refloatctl doctor` checks them.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usageError{errors.New("topics what? create")}
		},
	}
	cmd.AddCommand(newTopicsCreate())
	return cmd
}

func newTopicsCreate() *cobra.Command {
	var wish doctor.Wish
	var dry bool
	cmd := &cobra.Command{
		Use:   "create --pulsar URL --pulsar-admin URL",
		Short: "Create the topics decisions and policies, and the subscriptions",
		Long: `Create the topics decisions, with as many partitions as events has, and
policies, with one; keep both for ever; and create the durable subscriptions
refloat-evaluator on events, refloat-ingester on decisions and on events, all at
the beginning. What is there already is left as it is, so it can be run again.

Events is Armada's topic: it gets the subscriptions and is not changed otherwise,
unless --create-events makes it. They keep what is not decided, and what is not in
the job database, whatever the retention: so where no ingester is to run, say
--no-ingester, or events are kept for ingesters that never come.

When events has grown, a job set may go to another partition, where nothing is
known of its jobs. So evaluators stop, and decisions grows only when --grow says
so. Let the job sets of before end, or accept that their counts start anew; then
run this with --grow, and start the evaluators once with --accept-partitions N.`,
		Example: `  refloatctl topics create --pulsar pulsar://pulsar:6650 --pulsar-admin http://pulsar:8080 --dry-run
  refloatctl topics create --pulsar pulsar://pulsar:6650 --pulsar-admin http://pulsar:8080 --create-events --partitions 12`,
		Args: cobra.NoArgs,
	}
	flags := pulsarflags.Bind(cmd)
	cmd.Flags().IntVar(&wish.Partitions, "partitions", 0, "partitions of events, where that is created or to be checked (default: as many as it has)")
	cmd.Flags().BoolVar(&wish.CreateEvents, "create-events", false, "create events too when it is not there, and keep it for ever")
	cmd.Flags().BoolVar(&wish.Grow, "grow", false, "let decisions grow to the partitions of events")
	cmd.Flags().BoolVar(&wish.NoIngester, "no-ingester", false, "create no subscriptions for ingesters: only evaluators are to run")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be done")
	settings.Bind(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := loadSettings(cmd); err != nil {
			return err
		}
		if wish.Partitions < 0 {
			return usageError{fmt.Errorf("--partitions %d: give 1 or more, or leave it out", wish.Partitions)}
		}
		return withDeployment(cmd.Context(), flags, func(d doctor.Deployment) error { return createTopics(cmd, d, wish, dry) })
	}
	return cmd
}

func createTopics(cmd *cobra.Command, d doctor.Deployment, wish doctor.Wish, dry bool) error {
	steps, err := doctor.Plan(cmd.Context(), d, wish)
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
