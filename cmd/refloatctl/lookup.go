package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/jobdb"
)

// completeJob completes job ids from the job database that the flags name.
func completeJob(cmd *cobra.Command, from *deployment) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) (ids []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 || cmd.PreRunE != nil && cmd.PreRunE(cmd, args) != nil || from.checkJobs() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		err := from.viewJobs(completionContext(cmd), func(q jobdb.Queries) error {
			_, err := q.JobList(&jobdb.Criteria{JobPrefix: begun}, jobdb.Page{Limit: 50, Descending: true}, func(j *jobdb.Job) error {
				ids = append(ids, cobra.CompletionWithDesc(j.JobID, fmt.Sprintf("%s %s, %s", j.Queue, j.JobSet, j.State)))
				return nil
			})
			return err
		})
		if err != nil {
			cobra.CompErrorln(err.Error())
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeGroup completes names of groups likewise.
func completeGroup(cmd *cobra.Command, from *deployment) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
		if len(args) > 0 || cmd.PreRunE != nil && cmd.PreRunE(cmd, args) != nil || from.checkJobs() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		enough := errors.New("enough")
		err := from.viewJobs(completionContext(cmd), func(q jobdb.Queries) error {
			_, err := q.GroupList(&jobdb.Criteria{}, jobdb.Page{}, func(g *jobdb.Group) error {
				if strings.HasPrefix(g.Name, begun) && !slices.Contains(names, g.Name) {
					names = append(names, g.Name)
				}
				if len(names) == 50 {
					return enough
				}
				return nil
			})
			return err
		})
		if err != nil && !errors.Is(err, enough) {
			cobra.CompErrorln(err.Error())
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completionContext is the command's; a completion may come before it has one.
func completionContext(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
