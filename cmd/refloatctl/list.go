package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/query"
)

// listFlags are the flags of a list: what it selects, in which order, and how much of it.
type listFlags struct {
	deployment
	ask          query.List
	list         string // its name
	since, until string
	output       string
	watch        bool
	every        time.Duration
}

// bindList adds the flags that all lists have.
func (f *listFlags) bindList(cmd *cobra.Command, list string) {
	f.list = list
	sorts, states := query.Sorts(list), query.States(list)
	f.bindJobs(cmd)
	flags := cmd.Flags()
	addForms(cmd, &f.output, show.ListHelp, show.ListForms()...)
	f.bindWhose(cmd, list)
	if list == query.Runs || list == query.Decisions {
		flags.StringVar(&f.ask.JobID, "job", "", "only "+list+" of this job")
	}
	if len(states) > 0 {
		flags.StringSliceVar(&f.ask.States, "state", nil, "only "+list+" in these states")
		complete(cmd, "state", states...)
	}
	flags.StringVar(&f.ask.Sort, "sort", "", fmt.Sprintf("order: %v; with a minus before it, descending (default %s)", sorts, sorts[0]))
	flags.IntVar(&f.ask.Limit, "limit", 0, "maximum number of "+list)
	flags.StringVar(&f.ask.Continue, "continue", "", "continue a list that --limit ended: the token that it printed")
	flags.BoolVar(&f.watch, "watch", false, "keep running: print rows that are new or have changed, until interrupted")
	flags.DurationVar(&f.every, "every", time.Second, "polling interval of --watch")
	complete(cmd, "sort", sorts...)
}

// bindWhose adds the flags that say whose rows are listed.
func (f *listFlags) bindWhose(cmd *cobra.Command, list string) {
	flags := cmd.Flags()
	flags.StringVar(&f.ask.Queue, "queue", "", "only "+list+" of this queue")
	flags.StringVar(&f.ask.JobSet, "job-set", "", "only "+list+" of this job set")
	of := "of members of the group "
	if list == query.Groups {
		of = ""
	}
	flags.StringVar(&f.ask.Group, "group", "", "only "+list+" "+of+"with this name")
	flags.StringVar(&f.ask.Policy, "policy", "", "only those that this policy decided")
	flags.StringVar(&f.ask.Rule, "rule", "", "only those that this rule decided: NAME, or POLICY/NAME")
}

// bindFailures adds the flags of lists of what runs and decisions select.
func (f *listFlags) bindFailures(cmd *cobra.Command, of string) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.ask.Codes, "code", nil, "only those with a decision with one of these codes")
	flags.StringVar(&f.ask.Node, "node", "", "only those with a run on this node")
	flags.StringVar(&f.ask.Category, "category", "", "only those with a run that failed with this error category of Armada")
	flags.StringVar(&f.since, "since", "", of+" at or after this time (RFC 3339), or less than this duration ago, such as 1h")
	flags.StringVar(&f.until, "until", "", of+" before this time, or more than this duration ago, such as 10m")
	complete(cmd, "code", query.Codes()...)
}

func complete(cmd *cobra.Command, flag string, values ...string) {
	completeFlag(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// check checks the flags, and reads times.
func (f *listFlags) check() (err error) {
	if err := f.checkJobs(); err != nil {
		return err
	}
	if f.ask.Since, err = moment("--since", f.since); err != nil {
		return err
	}
	if f.ask.Until, err = moment("--until", f.until); err != nil {
		return err
	}
	switch {
	case f.every <= 0:
		return usageError{fmt.Errorf("--every %v: want a duration above 0", f.every)}
	case f.watch && (f.ask.Limit > 0 || f.ask.Continue != ""):
		return usageError{errors.New("--watch shows all of a list: it goes with neither --limit nor --continue")}
	}
	return f.flag(f.ask.Check(f.list))
}

// flag names the flag that asked for something that cannot be asked for.
func (*listFlags) flag(err error) error {
	bad, ok := errors.AsType[*query.Invalid](err)
	switch {
	case !ok:
		return err
	case bad.Param == "limit":
		return usageError{fmt.Errorf("--limit %w", bad.Err)}
	}
	return usageError{fmt.Errorf("--%s: %w", bad.Param, bad.Err)}
}

// moment reads a time, or a duration before now; 0: none.
func moment(flag, text string) (int64, error) {
	at, err := query.Moment(text, time.Now())
	if err != nil {
		return 0, usageError{fmt.Errorf("%s %w", flag, err)}
	}
	return at, nil
}

// hint says why a list may be empty: what it selects by does not exist, or is older. It is only help, and its errors are not shown.
func (f *listFlags) hint(cmd *cobra.Command) {
	from := f.answers(nil)
	if err := missing(cmd.Context(), from, &f.ask.Criteria); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), err)
		return
	}
	newestHint(cmd, from, &f.ask)
}

// missing is the usage error about the first flag whose value nothing has; nil: something has each, or that is unknown.
func missing(ctx context.Context, from query.Answers, c *jobdb.Criteria) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	if bad := query.Missing(ctx, from, c); bad != nil {
		return usageError{fmt.Errorf("--%s: %s", strings.Replace(bad.Param, "set", "job-set", 1), query.OneLine(bad.Err.Error()))}
	}
	return nil
}

// nothingCalled says in the error about something that was not found which of the names it was asked by nothing has, and then where
// it is listed.
func nothingCalled(ctx context.Context, from query.Answers, c *jobdb.Criteria, err error, listed string) error {
	if none, ok := errors.AsType[*query.NotFound](err); ok {
		ctx, cancel := context.WithTimeout(ctx, lookupTime)
		defer cancel()
		if bad := query.Missing(ctx, from, c); bad != nil {
			none.Text = query.OneLine(bad.Err.Error())
		}
		if !strings.HasSuffix(none.Text, "?") {
			none.Text += ";"
		}
		none.Text += " " + listed
	}
	return err
}

// newestHint says when the newest decision is, if it is before what was asked for.
func newestHint(cmd *cobra.Command, from query.Answers, asked *query.List) {
	ctx, cancel := context.WithTimeout(cmd.Context(), lookupTime)
	defer cancel()
	newest, err := query.NewestBefore(ctx, from, asked)
	if at, bad := time.Parse(time.RFC3339, newest); err == nil && newest != "" && bad == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "the newest decision is about a failure at %s, before --since: try --since %s\n",
			newest, at.Add(-time.Hour).UTC().Format(time.RFC3339))
	}
}

// What identifies a row of a watched list.
func jobID(j *query.Job) any           { return [...]any{j.Partition, j.JobID} }
func runID(r *query.Run) any           { return [...]any{r.Partition, r.JobID, r.RunID} }
func decisionID(d *audit.Decision) any { return [...]any{d.Partition, d.Number} }
func groupID(g *query.Group) any       { return [...]any{g.Partition, g.Queue, g.JobSet, g.Group} }

// listing is a command that lists the answers to a question.
type listing[T any] struct {
	cobra.Command
	list     string // its name in package query
	rows     show.Rows[T]
	id       func(T) any // identifies a row of a watched list
	ask      func(query.Answers, context.Context, *query.List, func(T) error) (string, error)
	failures string // what --since and --until select, where runs and decisions select what is listed; "": nothing does
}

func (l *listing[T]) command(f *listFlags) *cobra.Command {
	cmd := &l.Command
	cmd.Args = noArgument
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return l.run(cmd, f)
	}
	f.bindList(cmd, l.list)
	if l.failures != "" {
		f.bindFailures(cmd, l.failures)
	}
	completeValues(cmd, &f.deployment)
	return cmd
}

// run prints a list, and with --watch what is new or has changed since.
func (l *listing[T]) run(cmd *cobra.Command, f *listFlags) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	row, end, err := l.rows.Printer(out, f.output)
	if err != nil {
		return usageError{err}
	}
	from := f.answers(nil)
	if !f.watch {
		n := 0
		token, err := l.ask(from, cmd.Context(), &f.ask, func(v T) error { n++; return row(v) })
		if err == nil {
			err = end()
		}
		err = errors.Join(err, out.Flush())
		if err == nil && n == 0 {
			f.hint(cmd)
		}
		if token != "" && err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "there are more: --continue %s\n", token)
		}
		return err
	}
	ticker := time.NewTicker(f.every)
	defer ticker.Stop()
	known := map[any][]byte{}
	for {
		_, err := l.ask(from, cmd.Context(), &f.ask, func(v T) error {
			var now bytes.Buffer
			if err := show.JSONLines(&now).Encode(v); err != nil || bytes.Equal(known[l.id(v)], now.Bytes()) {
				return err
			}
			known[l.id(v)] = now.Bytes()
			return row(v)
		})
		if cmd.Context().Err() != nil {
			return nil
		}
		if err == nil {
			err = end()
		}
		if err := errors.Join(err, out.Flush()); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-cmd.Context().Done():
			return nil
		}
	}
}
