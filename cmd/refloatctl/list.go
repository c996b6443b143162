package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

// listFlags are the flags of a list: what it selects, in which order, and how much of it.
type listFlags struct {
	deployment
	criteria     jobdb.Criteria
	page         jobdb.Page
	list         string   // its name
	sorts        []string // its orders
	states       []string // as given
	known        []string // all states
	codes        []string
	since, until string
	sort, output string
	token        string
	watch        bool
	every        time.Duration
}

// bindList adds the flags that all lists have.
func (f *listFlags) bindList(cmd *cobra.Command, list string, sorts, states []string) {
	f.list, f.sorts, f.known = list, sorts, states
	f.bind(cmd)
	hidePulsar(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", outputTable, listOutputHelp)
	flags.StringVar(&f.criteria.Queue, "queue", "", "only "+list+" of this queue")
	flags.StringVar(&f.criteria.JobSet, "job-set", "", "only "+list+" of this job set")
	flags.StringVar(&f.criteria.Policy, "policy", "", "only those that this policy decided")
	flags.StringVar(&f.criteria.Rule, "rule", "", "only those that this rule decided")
	if len(states) > 0 {
		flags.StringSliceVar(&f.states, "state", nil, "only "+list+" in these states")
		complete(cmd, "state", states...)
	}
	flags.StringVar(&f.sort, "sort", "", fmt.Sprintf("order: %v; with a minus before it, descending (default %s)", sorts, sorts[0]))
	flags.IntVar(&f.page.Limit, "limit", 0, "maximum number of "+list)
	flags.StringVar(&f.token, "continue", "", "continue a list that --limit ended: the token that it printed")
	flags.BoolVar(&f.watch, "watch", false, "keep running: print rows that are new or have changed, until interrupted")
	flags.DurationVar(&f.every, "every", time.Second, "polling interval of --watch")
	complete(cmd, "sort", sorts...)
	complete(cmd, "output", listOutputs...)
}

// bindFailures adds the flags of lists of what runs and decisions select.
func (f *listFlags) bindFailures(cmd *cobra.Command, of string) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.codes, "code", nil, "only those with a decision with one of these codes")
	flags.StringVar(&f.criteria.Node, "node", "", "only those with a run on this node")
	flags.StringVar(&f.criteria.Category, "category", "", "only those with a run that failed with this error category of Armada")
	flags.StringVar(&f.criteria.Group, "group", "", "only those of members of the group with this name")
	flags.StringVar(&f.since, "since", "", of+" at or after this time (RFC 3339), or less than this duration ago, such as 1h")
	flags.StringVar(&f.until, "until", "", of+" before this time, or more than this duration ago, such as 10m")
	complete(cmd, "code", codeNames()...)
}

func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag does not exist
	}
}

func codeNames() (names []string) {
	for c := policy.RuleRetry; c <= policy.UnitLimit; c++ {
		names = append(names, c.String())
	}
	return names
}

// check reads the flags into criteria and page.
func (f *listFlags) check() (err error) {
	if err := f.checkJobs(); err != nil {
		return err
	}
	for _, name := range f.states {
		n := slices.Index(f.known, name)
		if n < 0 {
			return usageError{fmt.Errorf("--state: %w", suggest.Unknown("state", name, f.known...))}
		}
		f.criteria.States = append(f.criteria.States, uint8(n))
	}
	for _, name := range f.codes {
		code, ok := policy.ParseCode(name)
		if !ok {
			return usageError{fmt.Errorf("--code: %w", suggest.Unknown("code", name, codeNames()...))}
		}
		f.criteria.Codes = append(f.criteria.Codes, code)
	}
	if f.criteria.Since, err = moment("--since", f.since); err != nil {
		return err
	}
	if f.criteria.Until, err = moment("--until", f.until); err != nil {
		return err
	}
	if f.page.Sort, f.page.Descending, err = jobdb.ParseSort(f.sort, f.sorts); err != nil {
		return usageError{fmt.Errorf("--sort: %w", err)}
	}
	switch {
	case f.page.Limit < 0:
		return usageError{fmt.Errorf("--limit %d: want 1 or more, or 0 for all", f.page.Limit)}
	case f.every <= 0:
		return usageError{fmt.Errorf("--every %v: want a duration above 0", f.every)}
	case f.watch && (f.page.Limit > 0 || f.token != ""):
		return usageError{errors.New("--watch shows all of a list: it goes with neither --limit nor --continue")}
	}
	if f.page, err = f.page.Continue(f.list, &f.criteria, f.token); err != nil {
		return usageError{fmt.Errorf("--continue: %w", err)}
	}
	return nil
}

// moment reads a time, or a duration before now; 0: none.
func moment(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return time.Now().Add(-ago).UnixNano(), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Before(time.Unix(0, math.MinInt64)) || at.After(time.Unix(0, math.MaxInt64)) {
		return 0, usageError{fmt.Errorf("%s %q: want a duration such as 24h, or a time such as 2026-12-01T06:00:00Z", flag, text)}
	}
	return at.UnixNano(), nil
}

// runList prints a list, and with --watch what is new or has changed since.
func runList[T any](cmd *cobra.Command, f *listFlags, r *rows[T], key func(T) string, read func(jobdb.Queries, func(T) error) ([]any, error)) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	show, end, err := r.printer(out, f.output)
	if err != nil {
		return err
	}
	if !f.watch {
		var next []any
		err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) (err error) {
			next, err = read(q, show)
			return err
		})
		if err == nil {
			err = end()
		}
		err = errors.Join(err, out.Flush())
		if token := f.page.Token(f.list, &f.criteria, next); token != "" && err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "there are more: --continue %s\n", token)
		}
		return err
	}
	ticker := time.NewTicker(f.every)
	defer ticker.Stop()
	known := map[string][]byte{}
	for {
		err := f.viewJobs(cmd.Context(), func(q jobdb.Queries) error {
			_, err := read(q, func(v T) error {
				var now bytes.Buffer
				if err := jsonLines(&now).Encode(r.object(v)); err != nil || bytes.Equal(known[key(v)], now.Bytes()) {
					return err
				}
				known[key(v)] = now.Bytes()
				return show(v)
			})
			return err
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
