package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/api"
	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/query"
)

// protectionStory is what is known of a breaker, a node or a retry budget.
type protectionStory struct {
	About string         `json:"about"`
	Now   []string       `json:"now"`               // what holds, in sentences
	Past  []overrideStep `json:"history,omitempty"` // newest first
	Do    []copied       `json:"commands,omitempty"`
}

// copied is a command to copy.
type copied struct {
	Command string `json:"command"`
	For     string `json:"for"`
}

// overrideStep is a generation in which an override began or ended.
type overrideStep struct {
	Generation uint64 `json:"generation"`
	Time       string `json:"time"`
	What       string `json:"what"`
	By         string `json:"by"`
	Reason     string `json:"reason"`
}

// where is the place of the policies, as flags.
func (c *client) where() string {
	if c.data != "" {
		return (&deployment{data: c.data}).String()
	}
	return "--server " + show.Quoted(c.server)
}

// storyGenerations is how many generations a story looks at: the newest.
const storyGenerations = 1000

// overridesOf returns all overrides, and the generations in which some of them began or ended.
func overridesOf(ctx context.Context, c pb.PoliciesClient, of func(*policyfile.Override) bool) (now []*pb.BrakeState, past []overrideStep, err error) {
	list, err := c.List(ctx, &pb.ListRequest{})
	if err != nil {
		return nil, nil, err
	}
	h, err := c.History(ctx, &pb.HistoryRequest{Limit: storyGenerations})
	if err != nil {
		return nil, nil, err
	}
	overridesIn := func(i int) (all []policylog.Override) {
		if i == len(h.Generations) {
			return nil
		}
		for _, b := range h.Generations[i].Brakes {
			if o := api.OverrideOf(b); of(&o.Override) {
				all = append(all, o)
			}
		}
		return all
	}
	for i, g := range h.Generations {
		began, ended := policylog.OverridesChanged(overridesIn(i+1), overridesIn(i), g.Time.AsTime().UnixNano())
		for _, o := range ended {
			past = append(past, overrideStep{g.Generation, rfc3339(g.Time), "no longer: " + o.Effect(), g.Author, g.Reason})
		}
		for _, o := range began {
			past = append(past, overrideStep{g.Generation, rfc3339(g.Time), o.Effect(), o.Author, o.Reason})
		}
	}
	return list.Brakes, past, nil
}

// explainProtection returns a command that tells the story of what its argument names.
func explainProtection(name, arg, short, long string, bind func(*cobra.Command), tell func(context.Context, pb.PoliciesClient, query.Answers, string) (*protectionStory, error)) *cobra.Command {
	var f getPoliciesFlags
	cmd := &cobra.Command{
		Use:     name + " " + arg + " (--data DIR | --server HOST:PORT)",
		Short:   short,
		Long:    long,
		Example: "  refloatctl explain " + name + " " + arg + " --data .refloat-run",
		Args:    argument(arg),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.reading(cmd.Context(), func(ctx context.Context, c pb.PoliciesClient) error {
				s, err := tell(ctx, c, f.jobAnswers(), args[0])
				if err != nil {
					return err
				}
				for i := range s.Do {
					if strings.HasPrefix(s.Do[i].Command, "refloatctl ") {
						s.Do[i].Command += " " + f.where()
					}
				}
				if f.output == show.FormJSON {
					return show.JSONLines(cmd.OutOrStdout()).Encode(s)
				}
				return s.print(cmd.OutOrStdout())
			})
		},
	}
	f.bind(cmd)
	addOutput(cmd, &f.output)
	bind(cmd)
	return cmd
}

func (s *protectionStory) print(w io.Writer) error {
	fmt.Fprintln(w, show.Bold(w, query.OneLine(s.About)))
	for _, line := range s.Now {
		fmt.Fprintf(w, "  %s\n", query.OneLine(line))
	}
	if len(s.Past) > 0 {
		fmt.Fprintln(w)
		t := show.NewTable(w, "GENERATION", "TIME", "WHAT", "BY", "WHY")
		for _, p := range s.Past {
			t.Row(fmt.Sprint(p.Generation), p.Time, query.OneLine(p.What), query.OneLine(p.By), query.OneLine(p.Reason))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	t := show.NewTable(w, "TO", "RUN")
	for _, c := range s.Do {
		t.Row(c.For, c.Command)
	}
	return t.Flush()
}

func newExplainBreaker() *cobra.Command {
	var queue, subcategory string
	return explainProtection("breaker", "CATEGORY", "Explain what a breaker holds, why it opened and when it ends",
		`Tell of the breakers of a failure category: which are open, why, what they hold, when they end, and
when others opened and closed, with the guard's or the person's reason. --queue and --subcategory
select one.`, func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&queue, "queue", "", "only breakers of this queue")
			cmd.Flags().StringVar(&subcategory, "subcategory", "", "only breakers of this subcategory")
		}, func(ctx context.Context, c pb.PoliciesClient, jobs query.Answers, category string) (*protectionStory, error) {
			of := func(o *policyfile.Override) bool {
				return o.Category == category && (queue == "" || o.Queue == queue) && (subcategory == "" || o.Subcategory == subcategory)
			}
			now, past, err := overridesOf(ctx, c, of)
			if err != nil {
				return nil, err
			}
			s := &protectionStory{About: "Breakers of category " + category, Past: past}
			for _, b := range breakersOf(now, time.Now().UnixNano()) {
				if !of(&b.override.Override) {
					continue
				}
				s.Now = append(s.Now, query.OverrideText(*b.override))
				if n, err := query.CountBreaker(ctx, jobs, b.override); err != nil {
					s.Now = append(s.Now, "what it holds is not known: "+err.Error())
				} else if n != nil {
					s.Now = append(s.Now, n.Text())
				}
				held, scope := []string(nil), []string{"--all"}
				if b.Queue != "" {
					scope = []string{"--queue", b.Queue}
					held = scope
				}
				if b.Subcategory != "" {
					scope = append(scope, "--subcategory", b.Subcategory)
				}
				s.Do = append(s.Do,
					step("list what it held", append([]string{"get", "decisions", "--code", policy.BreakerHeld.String(), "--category", b.Category, "--since", b.Since}, held...)...),
					step("try one of these", "start", "JOB", "--reason", "is it back?"),
					step("close it", append([]string{"close", "breaker", "--category", b.Category}, append(scope, "--reason", "it is back")...)...))
			}
			if len(s.Now) == 0 {
				s.Now = []string{"none is open by an override"}
				s.Do = []copied{step("open one", "open", "breaker", "--category", category, "--all", "--for", "30m", "--reason", "TEXT")}
			}
			if len(past) == 0 {
				if bad := query.Missing(ctx, jobs, &jobdb.Criteria{Category: category, Queue: queue}); bad != nil {
					return nil, usageError{bad.Err}
				}
			}
			return s, nil
		})
}

// step is a command to copy, without where it looks, and what it is for.
func step(what string, words ...string) copied {
	for i, w := range words {
		words[i] = show.Quoted(w)
	}
	return copied{"refloatctl " + strings.Join(words, " "), what}
}

func newExplainNode() *cobra.Command {
	return explainProtection("node", "NAME", "Explain why retries avoid a node, and what fails there",
		`Tell of a node: whether retries avoid it or it is trusted, why, until when and since when, with what
the guard saw; and the causes of the newest failed runs there.`, func(*cobra.Command) {},
		func(ctx context.Context, c pb.PoliciesClient, jobs query.Answers, node string) (*protectionStory, error) {
			now, past, err := overridesOf(ctx, c, func(o *policyfile.Override) bool { return o.Node == node })
			if err != nil {
				return nil, err
			}
			s, avoided := &protectionStory{About: "Node " + node, Past: past}, false
			for _, b := range now {
				if o := api.OverrideOf(b); o.Node == node && !o.Over(time.Now().UnixNano()) {
					s.Now = append(s.Now, query.OverrideText(o))
					avoided = o.AvoidedUntil != 0
				}
			}
			if len(s.Now) == 0 {
				s.Now = []string{"no override says that retries avoid it, or that it is trusted"}
			}
			of := &query.List{Criteria: jobdb.Criteria{Node: node, States: []uint8{uint8(jobdb.RunFailed)}}, Sort: "-ended", Limit: 1000}
			causes, n := map[string]int{}, 0
			_, err = jobs.ListRuns(ctx, of, func(r *query.Run) error {
				causes[r.Error+" "+r.Category]++
				n++
				return nil
			})
			if n == 0 && len(past) == 0 {
				if bad := query.Missing(ctx, jobs, &jobdb.Criteria{Node: node}); bad != nil {
					return nil, usageError{bad.Err}
				}
			}
			var parts []string
			for cause, n := range causes {
				parts = append(parts, fmt.Sprintf("%d × %s", n, strings.TrimSpace(cause)))
			}
			slices.Sort(parts)
			switch {
			case err != nil:
				s.Now = append(s.Now, "what failed there is not known: "+err.Error())
			case n == 0:
				s.Now = append(s.Now, "no run failed there")
			default:
				s.Now = append(s.Now, fmt.Sprintf("failed runs there, of the newest %d at most: %s", of.Limit, strings.Join(parts, ", ")))
			}
			if avoided {
				s.Do = append(s.Do, step("end that", "trust", "node", node, "--for", "24h", "--reason", "mended"), copied{"kubectl cordon " + show.Quoted(node), "keep first runs away too"})
			} else {
				s.Do = append(s.Do, step("have retries avoid it", "avoid", "node", node, "--for", "6h", "--reason", "TEXT"))
			}
			s.Do = append(s.Do, step("list its runs", "get", "runs", "--node", node))
			return s, nil
		})
}

func newExplainBudget() *cobra.Command {
	return explainProtection("budget", "NAME", "Explain what a retry budget granted, and what is left of it",
		`Tell of a retry budget: what it says, how it decided of the newest decisions for which it was the one that
held back the most, and what the last one of them said of its window. Each partition has a budget of its own.`, func(*cobra.Command) {},
		func(ctx context.Context, c pb.PoliciesClient, jobs query.Answers, name string) (*protectionStory, error) {
			got, err := c.Get(ctx, &pb.GetRequest{Kind: policyfile.KindBudget, Name: name})
			if err != nil {
				return nil, err
			}
			s := &protectionStory{About: "Retry budget " + name}
			set, err := query.SetOf([]*pb.Resource{got})
			if err != nil {
				return nil, err
			}
			budget := &set.Budgets()[0]
			s.Now = append(s.Now, query.TermsOf(budget).String())
			uses, err := query.UsesOfBudget(ctx, jobs, budget, got.Generation)
			if err != nil {
				s.Now = append(s.Now, "what it decided is not known: "+err.Error())
			} else {
				s.Now = append(s.Now, uses.Words()...)
			}
			s.Do = []copied{
				step("change it, with `apply`", "get", "budgets", name, "-o", "yaml"),
			}
			if !budget.Refuse {
				s.Do = append(s.Do, step("start a retry that it delayed", "start", "JOB", "--reason", "TEXT"))
			}
			return s, nil
		})
}
