package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/query"
)

type orderFlags struct {
	client
	queue, set, group, file, reason, request, output string
	max                                              uint32
	dry                                              bool
}

// ordering makes a command that orders what becomes of jobs; over is of a start, and else nil.
func ordering(action policy.OrderAction, over *time.Duration, cmd *cobra.Command) *cobra.Command {
	var f orderFlags
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := f.ask(cmd, args)
		if err != nil {
			return usageError{err}
		}
		if r.Action = action.String(); over != nil && *over != 0 {
			r.Over = durationpb.New(*over)
		}
		found := 0
		err = f.policies(cmd.Context(), func(ctx context.Context, p pb.PoliciesClient) error {
			answer, err := p.Order(ctx, r)
			if err != nil {
				return err
			}
			found = len(answer.Jobs)
			return showOrder(cmd.OutOrStdout(), f.output, answer, f.dry)
		})
		if err != nil || found > 0 {
			return err
		}
		if err := missing(cmd.Context(), f.questions(), &jobdb.Criteria{Queue: f.queue, JobSet: f.set}); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "nothing was ordered: job set %s of queue %s has no job that this can be about\n", query.OneLine(f.set), query.OneLine(f.queue))
		return errFinding
	}
	cmd.Args = cobra.ArbitraryArgs
	f.bind(cmd)
	cmd.Flags().StringVar(&f.set, "job-set", "", "the jobs of this job set, of --queue, that it can be about")
	cmd.Flags().StringVar(&f.queue, "queue", "", "queue of --job-set")
	cmd.Flags().StringVar(&f.group, "group", "", "not supported: a group starts and ends as a whole")
	cmd.Flags().StringVarP(&f.file, "filename", "f", "", "file with one job id a line, - for stdin")
	cmd.Flags().Uint32Var(&f.max, "max", 1, "if more jobs are meant, none is ordered (at most 1000)")
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason, recorded in the decision log and shown with each job (required)")
	cmd.Flags().StringVar(&f.request, "request-id", "", "id of the order: repeated with the same id, it is one order")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "only show which jobs it would be about, and which refuse it")
	addOutput(cmd, &f.output)
	completeFlag(cmd, "queue", queues.by(&f.client))
	return cmd
}

func (f *orderFlags) ask(cmd *cobra.Command, args []string) (*pb.OrderRequest, error) {
	r := &pb.OrderRequest{Jobs: args, Queue: f.queue, JobSet: f.set, Max: f.max, Reason: f.reason, RequestId: f.request, DryRun: f.dry}
	if f.file != "" {
		ids, err := idsIn(f.file, cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		r.Jobs = append(r.Jobs, ids...)
	}
	switch {
	case f.group != "":
		return nil, fmt.Errorf("--group %s: %s", f.group, policy.RefusedGroup.Sentence())
	case len(r.Jobs) > 0 && (f.set != "" || f.queue != ""):
		return nil, errors.New("give either job ids, or --job-set with --queue")
	case len(r.Jobs) == 0 && f.file != "":
		return nil, fmt.Errorf("-f %s: no job id in it", f.file)
	case len(r.Jobs) == 0 && (f.set == "" || f.queue == ""):
		return nil, errors.New("give whole job ids, -f FILE, or --job-set SET with --queue QUEUE")
	case strings.TrimSpace(f.reason) == "":
		return nil, errors.New("--reason TEXT is required: it is recorded, and shown with each job")
	}
	return r, nil
}

// idsIn reads job ids, one a line.
func idsIn(file string, stdin io.Reader) (ids []string, err error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("-f: %w", err)
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		id := strings.TrimSpace(lines.Text())
		if id == "" {
			continue
		}
		if strings.ContainsAny(id, " \t,") {
			return nil, fmt.Errorf("-f %s: line %d: want one job id, and nothing else, on a line", file, n)
		}
		ids = append(ids, id)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("-f %s: %w", file, err)
	}
	return ids, nil
}

type orderJSON struct {
	Order string        `json:"order"`
	Dry   bool          `json:"dryRun,omitempty"`
	Jobs  []orderedJSON `json:"jobs"`
}

type orderedJSON struct {
	JobID   string `json:"jobId"`
	Queue   string `json:"queue,omitempty"`
	JobSet  string `json:"jobSet,omitempty"`
	RunID   string `json:"runId,omitempty"`
	Refusal string `json:"refusal,omitempty"`
	Why     string `json:"why,omitempty"`
}

// errRefused reports that no job takes the order.
var errRefused = errors.New("every job refuses the order")

// showOrder prints what becomes of an order.
func showOrder(w io.Writer, output string, r *pb.OrderResponse, dry bool) error {
	out, refused := orderJSON{Order: r.Order, Dry: dry, Jobs: []orderedJSON{}}, 0
	for _, j := range r.Jobs {
		out.Jobs = append(out.Jobs, orderedJSON{j.JobId, j.Queue, j.JobSet, j.RunId, j.Refusal, j.Why})
		if j.Refusal != "" {
			refused++
		}
	}
	if output == show.FormJSON {
		if err := show.JSONLines(w).Encode(out); err != nil {
			return err
		}
	} else {
		for _, j := range r.Jobs {
			if j.Refusal != "" {
				fmt.Fprintf(w, "%s refused, %s: %s\n", j.JobId, j.Refusal, j.Why)
			} else {
				fmt.Fprintf(w, "%s ordered%s\n", j.JobId, dryNote(dry))
			}
		}
		fmt.Fprintf(w, "%s, %d refused\n", plural.Of(len(r.Jobs), "job"), refused)
		if !dry && refused < len(r.Jobs) {
			fmt.Fprintf(w, "order %s: `refloatctl explain JOB` shows its answer in the decision log\n", r.Order)
		}
	}
	if len(r.Jobs) > 0 && refused == len(r.Jobs) {
		return errRefused
	}
	return nil
}

func newRetry() *cobra.Command {
	return ordering(policy.OrderRetry, nil, &cobra.Command{
		Use:   "retry (JOB... | -f FILE | --queue QUEUE --job-set SET) --reason TEXT",
		Short: "Run jobs once more that failed for good",
		Long: `Have jobs run once more whose last run failed for good, by your own decision: it counts
against no limit. It is an event on the job's own partition, and its answer is in the
decision log, with you and the reason. Job ids are whole ids. A job in a gang or a group,
one that was cancelled, or that Armada no longer has, refuses it.`,
		Example: `  refloatctl retry 01h2xcejqtf2nbrexx3vqjhp41 --reason "the registry is back"
  refloatctl retry --queue ml --job-set nightly --max 50 --reason INC-1234 --dry-run
  refloatctl get jobs --queue ml --state Failed -o json | jq -r .jobId | refloatctl retry -f - --max 50 --reason INC-1234`,
	})
}

func newStart() *cobra.Command {
	var over time.Duration
	cmd := ordering(policy.OrderStart, &over, &cobra.Command{
		Use:   "start (JOB... | -f FILE | --queue QUEUE --job-set SET) --reason TEXT",
		Short: "Start retries now that wait",
		Long: `Have jobs that wait for a retry start now, by your own decision: what a breaker held, or
a backoff or a retry budget delays. A pause of retries still holds, and so does a pod of the
old run that may be alive. With --over, they start one after the other within that time. The
answer is in the decision log, with you and the reason.`,
		Example: `  refloatctl start 01h2xcejqtf2nbrexx3vqjhp41 --reason "the registry is back?"
  refloatctl get decisions --code BreakerHeld --category image-pull --since 2h -o json | jq -r .jobId | sort -u |
    refloatctl start -f - --max 1000 --over 2m --reason "the registry is back"`,
	})
	cmd.Flags().DurationVar(&over, "over", 0, "start them one after the other within this time (at most 1h)")
	return cmd
}

func newGiveUp() *cobra.Command {
	return ordering(policy.OrderGiveUp, nil, &cobra.Command{
		Use:   "give-up (JOB... | -f FILE | --queue QUEUE --job-set SET) --reason TEXT",
		Short: "Do not run jobs again that wait for a retry",
		Long: `Give up jobs that wait for a retry, by your own decision: they are cancelled. A run
that goes on is not touched: it refuses the order, and ` + "`armadactl cancel`" + ` is for that. The
answer is in the decision log, with you and the reason.`,
		Example: `  refloatctl give-up 01h2xcejqtf2nbrexx3vqjhp41 --reason "wrong input"`,
	})
}
