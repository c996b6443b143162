package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
)

const (
	lookupTime = 2 * time.Second // for a completion
	maxOffered = 50
	// lookedAt is the number of names, or of newest rows, that are looked at.
	lookedAt = 1000
)

// lookup finds what may complete an argument or the value of a flag.
type lookup func(ctx context.Context, from query.Answers, begun string, offer func(value, description string)) error

// asker is what the flags of a command name: a deployment, or a server.
type asker interface {
	// completes returns where values for completions are looked up; nil: the flags name nothing yet.
	completes(ctx context.Context, cmd *cobra.Command) query.Answers
}

func (d *deployment) completes(_ context.Context, cmd *cobra.Command) query.Answers {
	if cmd.PreRunE != nil && cmd.PreRunE(cmd, nil) != nil || d.checkJobs() != nil {
		return nil
	}
	d.warnings = nil // a completion has no room for them
	return d.answers(nil)
}

func (c *client) completes(ctx context.Context, _ *cobra.Command) query.Answers {
	if c.find(ctx) != nil {
		return nil
	}
	return c.questions()
}

// by returns the completion of a lookup.
func (l lookup) by(from asker) cobra.CompletionFunc {
	return offered(func(ctx context.Context, cmd *cobra.Command, begun string, offer func(string, string)) error {
		answers := from.completes(ctx, cmd)
		if answers == nil {
			return nil
		}
		return l(ctx, answers, begun, offer)
	})
}

// offered returns a completion: some of the values that are found, those that begin as what was typed.
func offered(find func(ctx context.Context, cmd *cobra.Command, begun string, offer func(value, description string)) error) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) (found []string, _ cobra.ShellCompDirective) {
		ctx := cmd.Context()
		if ctx == nil { // a completion may come before the command has one
			ctx = context.Background()
		}
		ctx, cancel := context.WithTimeout(ctx, lookupTime)
		defer cancel()
		seen := map[string]bool{"": true}
		err := find(ctx, cmd, begun, func(value, description string) {
			if seen[value] || !strings.HasPrefix(value, begun) || len(found) == maxOffered || !isWord(value) {
				return
			}
			seen[value] = true
			if description != "" {
				value = cobra.CompletionWithDesc(value, query.OneLine(description))
			}
			found = append(found, value)
		})
		if err != nil {
			cobra.CompErrorln(query.OneLine(err.Error()))
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// isWord reports whether a shell takes a text as it is. Users of Armada choose the names of their queues and jobs, and what a
// completion offers ends up on somebody's command line.
func isWord(text string) bool {
	return !strings.HasPrefix(text, "-") && !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:@+,=%", r)
	})
}

// completeResource completes the name of a resource of a kind, or, where kind is "", a kind and then the name.
func completeResource(cmd *cobra.Command, c *client, kind string) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		of := kind
		switch {
		case kind == "" && len(args) == 0:
			return slices.Sorted(maps.Keys(resourceKinds)), cobra.ShellCompDirectiveNoFileComp
		case kind == "" && len(args) == 1:
			of = resourceKinds[args[0]]
		case len(args) > 0:
			of = ""
		}
		if of == "" || of == policyfile.KindSettings {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return offered(func(ctx context.Context, _ *cobra.Command, _ string, offer func(string, string)) error {
			return c.reading(ctx, func(ctx context.Context, p pb.PoliciesClient) error {
				list, err := p.List(ctx, &pb.ListRequest{Kind: of})
				for _, r := range list.GetResources() {
					offer(r.Name, "")
				}
				return err
			})
		})(cmd, args, begun)
	}
}

// completeArg completes the only argument of a command.
func completeArg(cmd *cobra.Command, from asker, l lookup) {
	complete := l.by(from)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, begun)
	}
}

// completeValues completes the values of those flags of a command that name something which jobs and decisions have.
func completeValues(cmd *cobra.Command, from asker) {
	for flag, l := range valueFlags {
		if cmd.Flags().Lookup(flag) != nil {
			completeFlag(cmd, flag, l.by(from))
		}
	}
}

// valueFlags are the flags that completeValues completes.
var valueFlags = map[string]lookup{
	"job": jobIDs, "group": named("group"), "queue": queues, "job-set": named("set"), "node": named("node"), "category": named("category"),
	"policy": named("policy"), "rule": named("rule"),
}

func completeFlag(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // the flag does not exist
	}
}

func jobIDs(ctx context.Context, from query.Answers, begun string, offer func(string, string)) error {
	ask := &query.List{Limit: maxOffered, Sort: "-submitted"}
	ask.JobPrefix = begun
	_, err := from.ListJobs(ctx, ask, func(j *query.Job) error {
		offer(j.JobID, fmt.Sprintf("%s %s, %s", j.Queue, j.JobSet, j.State))
		return nil
	})
	return err
}

var queues = named("queue")

// named finds names of a kind of query.Kinds.
func named(kind string) lookup {
	return func(ctx context.Context, from query.Answers, begun string, offer func(string, string)) error {
		found, err := from.Search(ctx, query.SearchQuestion{Text: begun, Kinds: []string{kind}, Limit: lookedAt})
		if err != nil {
			return err
		}
		for _, m := range found.Matches {
			about := ""
			if m.Queue != "" {
				about = fmt.Sprintf("%s %s, %s", m.Queue, m.JobSet, m.State)
			}
			offer(m.Name, about)
		}
		return nil
	}
}

// jobSets finds job sets of the newest jobs as `explain job-set` names them.
func jobSets(ctx context.Context, from query.Answers, _ string, offer func(string, string)) error {
	_, err := from.ListJobs(ctx, &query.List{Limit: lookedAt, Sort: "-submitted"}, func(j *query.Job) error {
		offer(j.Queue+"/"+j.JobSet, "")
		return nil
	})
	return err
}
