package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/refloat/refloat/internal/api/pb"
)

type overrideFlags struct {
	client
	queue, reason, until, output string
	category, subcategory        string
	length                       time.Duration
	all, force, everything, dry  bool
}

func (f *overrideFlags) bindAll(cmd *cobra.Command) {
	f.bindChange(cmd)
	cmd.Flags().StringVar(&f.queue, "queue", "", "only this queue (required, or --all)")
	cmd.Flags().BoolVar(&f.all, "all", false, "all queues at once")
	cmd.Flags().BoolVar(&f.force, "force", false, "accept a queue or category that nothing here names")
	completeFlag(cmd, "queue", queues.by(&f.client))
}

func (f *overrideFlags) bindChange(cmd *cobra.Command) {
	f.bind(cmd)
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason, shown to everyone affected and recorded in the history (required)")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "only show what would be in force")
	addOutput(cmd, &f.output)
}

func (f *overrideFlags) check() error {
	targets := 0
	for _, given := range []bool{f.queue != "", f.all, f.everything} {
		if given {
			targets++
		}
	}
	switch {
	case targets > 1 && f.everything:
		return usageError{errors.New("give only one of --queue NAME, --all (what is set for all queues at once) and --everything")}
	case targets > 1:
		return usageError{fmt.Errorf("--queue %s and --all: give one of them, not both", f.queue)}
	case targets == 0:
		return usageError{errors.New("give --queue NAME, or --all for all queues")}
	case f.reason == "":
		return usageError{errors.New("--reason TEXT is required: it is shown to everyone affected")}
	}
	return nil
}

// objectOf checks the arguments of a command: the word that says what it is about, and those of the other names.
func objectOf(cmd *cobra.Command, args []string, word string, names ...string) error {
	want := strings.Join(append([]string{cmd.Name(), word}, names...), " ")
	switch {
	case len(args) == 0:
		return fmt.Errorf("what to %s is missing: `%s`", cmd.Name(), want)
	case args[0] != word:
		return fmt.Errorf("argument %q: want `%s`", args[0], want)
	case len(args) <= len(names):
		return fmt.Errorf("%s is missing: `%s`", names[len(args)-1], want)
	case len(args) > 1+len(names):
		return fmt.Errorf("argument %q is one too many: want `%s`, and the rest by flags", args[1+len(names)], want)
	}
	return nil
}

// about makes a command whose only argument is its object, `retries`.
func about(cmd *cobra.Command) *cobra.Command {
	cmd.ValidArgs = []string{"retries"}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		return objectOf(cmd, args, "retries")
	}
	return cmd
}

func newKill() *cobra.Command {
	var f overrideFlags
	cmd := about(&cobra.Command{
		Use:   "kill retries (--queue NAME | --all) --reason TEXT",
		Short: "Stop all retries, until `resume retries`",
		Long: `Fail every run that a policy would retry, in one queue or in all. It takes effect in
each partition with the next failure decided there; ` + "`get policies`" + ` shows where it is in
effect. Jobs that are already requeued are not affected. ` + "`resume retries`" + ` ends it.`,
		Example: `  refloatctl kill retries --all --reason "bad node image, INC-1234"
  refloatctl kill retries --queue ml --reason "runaway jobs"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.override(cmd, &pb.BrakeRequest{Kill: true})
		},
	})
	f.bindAll(cmd)
	return cmd
}

func newPause() *cobra.Command {
	var f overrideFlags
	cmd := about(&cobra.Command{
		Use:   "pause retries (--queue NAME | --all) (--until TIME | --for DURATION) --reason TEXT",
		Short: "Delay retries until a given time",
		Long: `Delay the start of every retry, and of every restart by a group, decided from now on
until a given time, in one queue or in all. No job fails because of it. (In a decision log
of a version before 4 of the semantics, a group leaves a unit failed that would restart.) It
ends by itself, or earlier by ` + "`resume retries`" + ` for failures decided after that.`,
		Example: `  refloatctl pause retries --all --for 2h --reason "storage maintenance"
  refloatctl pause retries --queue ml --until 2026-12-01T06:00:00Z --reason "quota"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			until, err := f.end(time.Now())
			if err != nil {
				return usageError{err}
			}
			return f.override(cmd, &pb.BrakeRequest{PausedUntil: timestamppb.New(until)})
		},
	})
	f.bindAll(cmd)
	cmd.Flags().StringVar(&f.until, "until", "", "end of the pause, as an RFC 3339 time")
	cmd.Flags().DurationVar(&f.length, "for", 0, "length of the pause, from now")
	return cmd
}

// end is when the override ends.
func (f *overrideFlags) end(now time.Time) (time.Time, error) {
	switch {
	case f.until != "" && f.length != 0:
		return now, errors.New("--until and --for: give one of them, not both")
	case f.until == "" && f.length == 0:
		return now, errors.New("give --until TIME or --for DURATION")
	}
	if f.length != 0 {
		if f.length < 0 {
			return now, fmt.Errorf("--for %s: want a duration above 0", f.length)
		}
		return now.Add(f.length), nil
	}
	until, err := time.Parse(time.RFC3339, f.until)
	if err != nil {
		return now, fmt.Errorf("--until %q: want a time such as 2026-12-01T06:00:00Z", f.until)
	}
	if !until.After(now) {
		return now, fmt.Errorf("--until %s: this time is in the past", f.until)
	}
	return until, nil
}

// aboutNode makes a command whose arguments are `node` and a name.
func (f *overrideFlags) aboutNode(cmd *cobra.Command, request func(node string, until *timestamppb.Timestamp) *pb.BrakeRequest) *cobra.Command {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		return objectOf(cmd, args, "node", "NAME")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		until, err := f.end(time.Now())
		if err == nil && f.reason == "" {
			err = errors.New("--reason TEXT is required: it is shown to everyone affected")
		}
		if err != nil {
			return usageError{err}
		}
		r := request(args[1], timestamppb.New(until))
		r.Reason, r.DryRun = f.reason, f.dry
		return f.changed(cmd, f.output, nil, f.dry, func(ctx context.Context, c pb.PoliciesClient) (*pb.Change, error) { return c.Brake(ctx, r) })
	}
	f.bindChange(cmd)
	cmd.Flags().StringVar(&f.until, "until", "", "until when, as an RFC 3339 time")
	cmd.Flags().DurationVar(&f.length, "for", 0, "for how long, from now")
	return cmd
}

// aboutBreaker makes a command whose argument is `breaker`, and gives it the flags that name one.
func (f *overrideFlags) aboutBreaker(cmd *cobra.Command) *cobra.Command {
	cmd.ValidArgs = []string{"breaker"}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		return objectOf(cmd, args, "breaker")
	}
	f.bindAll(cmd)
	cmd.Flags().StringVar(&f.category, "category", "", "failure category whose retries are held (required)")
	cmd.Flags().StringVar(&f.subcategory, "subcategory", "", "only this subcategory")
	return cmd
}

func newOpen() *cobra.Command {
	var f overrideFlags
	cmd := f.aboutBreaker(&cobra.Command{
		Use:   "open breaker --category NAME (--queue NAME | --all) (--until TIME | --for DURATION) --reason TEXT",
		Short: "Hold the retries of one failure category for a while",
		Long: `Hold every retry that policies grant from now on after a failure of one category, in one
queue or in all, until a given time. A held retry counts against no limit of its job and no
retry budget: use it while something is down that jobs are not to blame for, for example a
registry. Members of gangs and groups are not held. ` + "`close breaker`" + ` ends it earlier, for failures
decided after that; ` + "`start`" + ` starts what is held, and ` + "`get breakers`" + ` lists what is
open.`,
		Example: `  refloatctl open breaker --category image-pull --all --for 30m --reason "registry is down, INC-1234"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			until, err := f.end(time.Now())
			if err == nil {
				err = f.hasCategory()
			}
			if err != nil {
				return usageError{err}
			}
			return f.override(cmd, &pb.BrakeRequest{Category: f.category, Subcategory: f.subcategory, HeldUntil: timestamppb.New(until)})
		},
	})
	cmd.Flags().StringVar(&f.until, "until", "", "when held retries start at the latest, as an RFC 3339 time")
	cmd.Flags().DurationVar(&f.length, "for", 0, "how long from now retries are held at most")
	return cmd
}

func (f *overrideFlags) hasCategory() error {
	if f.category == "" {
		return errors.New("--category NAME is required: `refloatctl get runs -o json` shows that of each failed run")
	}
	return nil
}

func newClose() *cobra.Command {
	var f overrideFlags
	return f.aboutBreaker(&cobra.Command{
		Use:   "close breaker --category NAME (--queue NAME | --all) --reason TEXT",
		Short: "End `open breaker`",
		Long: `Close the breaker of one category, of one queue or of all, so that failures decided from now
on are retried as policies say. Give --subcategory if it was opened with one. Retries that
are held already keep their time, until ` + "`start`" + ` starts them.`,
		Example: `  refloatctl close breaker --category image-pull --all --reason "registry is back"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.hasCategory(), f.check()); err != nil {
				return usageError{err}
			}
			return f.changed(cmd, f.output, nil, f.dry, func(ctx context.Context, c pb.PoliciesClient) (*pb.Change, error) {
				return c.Release(ctx, &pb.ReleaseRequest{
					Queue: f.queue, All: f.all, Force: f.force, Category: f.category, Subcategory: f.subcategory, Reason: f.reason, DryRun: f.dry,
				})
			})
		},
	})
}

func newAvoid() *cobra.Command {
	var f overrideFlags
	return f.aboutNode(&cobra.Command{
		Use:   "avoid node NAME (--until TIME | --for DURATION) --reason TEXT",
		Short: "Have all retries avoid a node for a while",
		Long: `Have every retry that is decided from now on avoid a node, whatever its rule says of
nodes, until a given time. First runs are the scheduler's: to keep them away too, cordon
the node. ` + "`trust node`" + ` ends it earlier.`,
		Example: `  refloatctl avoid node gpu-17 --for 6h --reason "XID errors, INC-1234"`,
	}, func(node string, until *timestamppb.Timestamp) *pb.BrakeRequest {
		return &pb.BrakeRequest{Node: node, AvoidedUntil: until}
	})
}

func newTrust() *cobra.Command {
	var f overrideFlags
	return f.aboutNode(&cobra.Command{
		Use:   "trust node NAME (--until TIME | --for DURATION) --reason TEXT",
		Short: "Let retries start on a node again, whatever the guard says",
		Long: `End ` + "`avoid node`" + `, also that of the guard, and keep the guard from suspecting the node
until a given time. Nodes that the settings list under avoidNodes stay avoided.`,
		Example: `  refloatctl trust node gpu-17 --for 24h --reason "GPU replaced"`,
	}, func(node string, until *timestamppb.Timestamp) *pb.BrakeRequest {
		return &pb.BrakeRequest{Node: node, TrustedUntil: until}
	})
}

func (f *overrideFlags) override(cmd *cobra.Command, r *pb.BrakeRequest) error {
	if err := f.check(); err != nil {
		return err
	}
	r.Queue, r.All, r.Force, r.Reason, r.DryRun = f.queue, f.all, f.force, f.reason, f.dry
	return f.changed(cmd, f.output, nil, f.dry, func(ctx context.Context, c pb.PoliciesClient) (*pb.Change, error) { return c.Brake(ctx, r) })
}

func newResume() *cobra.Command {
	var f overrideFlags
	cmd := about(&cobra.Command{
		Use:   "resume retries (--queue NAME | --all | --everything) --reason TEXT",
		Short: "End `kill retries` and `pause retries`",
		Long: `End kill and pause of one queue, those of all queues at once (--all), or with --everything
both. Policies and queue bindings do not change, and breakers stay open: ` + "`close breaker`" + `
closes one.`,
		Example: `  refloatctl resume retries --queue ml --reason "fixed"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.changed(cmd, f.output, nil, f.dry, func(ctx context.Context, c pb.PoliciesClient) (*pb.Change, error) {
				return c.Release(ctx, &pb.ReleaseRequest{Queue: f.queue, All: f.all, Force: f.force, Everything: f.everything, Reason: f.reason, DryRun: f.dry})
			})
		},
	})
	f.bindAll(cmd)
	cmd.Flags().BoolVar(&f.everything, "everything", false, "those of all queues at once, and those of single queues")
	return cmd
}
