package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/authoring/suite"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/query"
	"github.com/refloat/refloat/internal/suggest"
)

// unitFlags are the flags of eval that describe a unit which failed.
type unitFlags struct {
	policy, part, reason                 string
	restarts, ruleRestarts, unitRestarts uint32
	succeeded                            bool
}

func (u *unitFlags) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&u.policy, "group-policy", "", "decide about a unit that failed by this group policy, instead of about a job")
	flags.StringVar(&u.part, "part", "", "part of the unit (default: the only one of the group policy)")
	flags.StringVar(&u.reason, "unit-reason", "", "why the unit failed: PodFailurePolicy, DeadlineExceeded, BackoffLimitExceeded (default), MaxFailedIndexesExceeded, FailedIndexes or MemberCancelled")
	flags.Uint32Var(&u.restarts, "restarts", 0, "counted restarts of the group so far")
	flags.Uint32Var(&u.ruleRestarts, "rule-restarts", 0, "restarts so far by the rule that matches (default: --restarts)")
	flags.Uint32Var(&u.unitRestarts, "unit-restarts", 0, "restarts of the unit by itself so far")
	flags.BoolVar(&u.succeeded, "unit-succeeded", false, "the unit succeeded, for restarts that are Always")
}

func (u *unitFlags) check(cmd *cobra.Command, verify string) error {
	changed := cmd.Flags().Changed
	if u.policy == "" {
		for _, name := range []string{"part", "unit-reason", "restarts", "rule-restarts", "unit-restarts", "unit-succeeded"} {
			if changed(name) {
				return usageError{fmt.Errorf("--%s needs --group-policy NAME", name)}
			}
		}
		return nil
	}
	for _, name := range []string{"failures", "gang", "fail-fast", "retry-policy", "init-container", "grace-seconds", "at"} {
		if changed(name) {
			return usageError{fmt.Errorf("--%s is about a job: omit it with --group-policy", name)}
		}
	}
	if _, ok := policy.ParseUnitReason(u.reason); !ok && u.reason != "" {
		return usageError{suggest.Unknown("--unit-reason", u.reason, suite.UnitReasons()...)}
	}
	if u.succeeded && u.reason != "" {
		return usageError{errors.New("--unit-succeeded: a unit that succeeded has no --unit-reason")}
	}
	if _, ok := policy.ParseGroupAction(verify); !ok && verify != "" && verify != noAction {
		return usageError{suggest.Unknown("--verify", verify, append(suite.GroupActions(), noAction)...)}
	}
	return nil
}

// noAction is what --verify calls that nothing follows from the success of a unit.
const noAction = "None"

// evalUnit decides about one hypothetical unit that failed.
func evalUnit(cmd *cobra.Command, f evalFlags, failure *suite.Failure, set *policyfile.Set, queue string) error {
	g := set.GroupPolicy(f.unit.policy)
	if g == nil {
		var names []string
		for _, id := range set.Resources() {
			if id.Kind == policyfile.KindGroup {
				names = append(names, id.Name)
			}
		}
		if len(names) == 0 {
			return usageError{fmt.Errorf("--group-policy %q: the files have no group policy", f.unit.policy)}
		}
		return usageError{suggest.Unknown("--group-policy", f.unit.policy, names...)}
	}
	u, err := f.unit.failure(cmd, g)
	if err != nil {
		return err
	}
	if !u.Succeeded && u.Reason != policy.MemberCancelled {
		u.Run = &policy.Failure{Containers: failure.Containers}
	}
	u.Barred = !set.Restarts(queue)
	v, traces := set.UnitEnded(u), set.UnitLadder(u)
	if f.output == show.FormJSON {
		err = show.JSONLines(cmd.OutOrStdout()).Encode(unitJSON(u, &v, traces))
	} else {
		why := audit.WhyNotRestarted(set.Set, queue, math.MaxInt64) // a pause does not
		if why == "" && u.Reason == policy.MemberCancelled {
			why = "a member was cancelled that would have to run again"
		}
		printUnit(cmd.OutOrStdout(), u, &v, traces, why)
	}
	if err != nil {
		return err
	}
	got := v.Action.String()
	if v.Action == policy.NoGroupAction {
		got = noAction
	}
	return verified(cmd, f.verify, got)
}

// failure returns the unit that the flags describe.
func (u *unitFlags) failure(cmd *cobra.Command, g *policy.GroupPolicy) (*policy.UnitFailure, error) {
	parts := []string{policy.MainPart}
	if len(g.Parts) > 0 {
		parts = nil
		for i := range g.Parts {
			parts = append(parts, g.Parts[i].Name)
		}
	}
	out := &policy.UnitFailure{
		Policy: u.policy, Part: u.part, Succeeded: u.succeeded, Reason: policy.BackoffLimitExceeded,
		UnitRestarts: u.unitRestarts, Counted: u.restarts, AllRestarts: u.restarts,
		CanReach: func(policy.GroupAction, bool) bool { return true },
	}
	if out.Part == "" && len(parts) == 1 {
		out.Part = parts[0]
	}
	switch {
	case out.Part == "":
		return nil, usageError{fmt.Errorf("--part is required: the group policy has %s", strings.Join(parts, ", "))}
	case !slices.Contains(parts, out.Part):
		return nil, usageError{suggest.Unknown("--part", out.Part, parts...)}
	}
	if reason, ok := policy.ParseUnitReason(u.reason); ok {
		out.Reason = reason
	}
	if u.succeeded {
		out.Reason = policy.NoUnitReason
	}
	byRule := u.restarts
	if cmd.Flags().Changed("rule-restarts") {
		byRule = u.ruleRestarts
		out.AllRestarts = max(out.AllRestarts, byRule)
	}
	out.Restarted = func(string) uint32 { return byRule }
	if out.Reason == policy.MemberCancelled {
		out.CanReach = func(policy.GroupAction, bool) bool { return false } // the unit could not succeed any more
	}
	return out, nil
}

func printUnit(w io.Writer, u *policy.UnitFailure, v *policy.UnitVerdict, traces []policy.GroupRuleTrace, why string) {
	what := "failed: " + u.Reason.String()
	if u.Succeeded {
		what = "succeeded"
	}
	fmt.Fprintf(w, "%s of part %s, which %s\n", show.Bold(w, "A unit"), u.Part, what)
	if u.Run != nil {
		for _, c := range u.Run.Containers {
			fmt.Fprintf(w, "  container %s exited with %d", c.Name, c.ExitCode)
			if c.Message != "" {
				fmt.Fprintf(w, ", saying %q", c.Message)
			}
			fmt.Fprintln(w)
		}
	}
	verdict := chain.GroupVerdict{Reason: u.Reason, Action: v.Action, Rule: v.Rule, RestartsUsed: v.Used, MaxRestarts: v.Max, Keep: v.Keep, Refused: v.Refused}
	fmt.Fprintf(w, "\n%s %s\n  %s\n", show.Bold(w, "Verdict"), cmp.Or(v.Action.String(), "nothing is done"), query.OneLine(audit.GroupSentence(&verdict, why)))
	if v.Action.Restarts() {
		fmt.Fprintf(w, "  not before %s after the failure, nor before the old pods are gone\n", policyfile.Short(v.Delay))
	}
	fmt.Fprintf(w, "\n%s\n", show.Bold(w, "Rules"))
	for _, r := range traces {
		fmt.Fprintf(w, "  %s\n", suite.GroupRuleTraceText(u.Policy, r))
	}
}

// groupRuleTraceJSON is the JSON form of one rule of a group policy as it was tried.
type groupRuleTraceJSON struct {
	Rule    string `json:"rule"` // "": no rule matched
	Action  string `json:"action"`
	Tried   bool   `json:"tried"`
	Matched bool   `json:"matched"`
	Failed  string `json:"failed,omitempty"`
	Why     string `json:"why,omitempty"`
}

func groupLadderJSON(traces []policy.GroupRuleTrace) []groupRuleTraceJSON {
	out := []groupRuleTraceJSON{}
	for _, r := range traces {
		out = append(out, groupRuleTraceJSON{r.Rule, r.Action.String(), r.Tried, r.Matched, r.Failed, r.Why})
	}
	return out
}

// unitOut is the JSON form of a verdict on a unit.
type unitOut struct {
	Policy       string               `json:"policy"`
	Part         string               `json:"part"`
	UnitReason   string               `json:"unitReason"`
	GroupAction  string               `json:"groupAction"`
	GroupRule    string               `json:"groupRule"`
	Refused      bool                 `json:"refused"`
	RestartsUsed uint32               `json:"restartsUsed"`
	MaxRestarts  uint32               `json:"maxRestarts"`
	Delay        string               `json:"delay,omitempty"`
	Ladder       []groupRuleTraceJSON `json:"ladder"`
}

func unitJSON(u *policy.UnitFailure, v *policy.UnitVerdict, traces []policy.GroupRuleTrace) unitOut {
	out := unitOut{
		Policy: u.Policy, Part: u.Part, UnitReason: u.Reason.String(), GroupAction: v.Action.String(), GroupRule: v.Rule,
		Refused: v.Refused, RestartsUsed: v.Used, MaxRestarts: v.Max, Ladder: groupLadderJSON(traces),
	}
	if v.Action.Restarts() {
		out.Delay = v.Delay.String()
	}
	return out
}

// groupOut is the JSON form of what an event of a test did to its group.
type groupOut struct {
	Verdicts  []unitEndJSON        `json:"verdicts"` // on units that ended
	Ladder    []groupRuleTraceJSON `json:"ladder"`   // of the first of them
	Restarted []string             `json:"restarted"`
	Held      []string             `json:"held"`
	Released  []string             `json:"released"`
	Stopped   []string             `json:"stopped"`
	State     string               `json:"state"`
	Reason    string               `json:"reason"`
	Used      uint32               `json:"restartsUsed"`
	Max       uint32               `json:"maxRestarts"`
	Units     []unitStateJSON      `json:"units"`
}

type unitEndJSON struct {
	UnitReason  string `json:"unitReason"`
	GroupAction string `json:"groupAction"`
	GroupRule   string `json:"groupRule"`
}

type unitStateJSON struct {
	Part       string `json:"part"`
	Replica    uint32 `json:"replica"`
	State      string `json:"state"`
	Generation uint32 `json:"generation"`
}

func groupOutcomeJSON(g *suite.GroupOutcome) *groupOut {
	if g == nil {
		return nil
	}
	out := &groupOut{
		Verdicts: []unitEndJSON{}, Ladder: groupLadderJSON(g.Ladder), Units: []unitStateJSON{},
		Restarted: orEmpty(g.Restarted), Held: orEmpty(g.Held), Released: orEmpty(g.Unheld), Stopped: orEmpty(g.Stopped),
		State: g.State.String(), Reason: g.Reason.String(), Used: g.Used, Max: g.Max,
	}
	for _, v := range g.Ended {
		out.Verdicts = append(out.Verdicts, unitEndJSON{v.Reason.String(), v.Action.String(), v.Rule})
	}
	for i := range g.Units {
		u := &g.Units[i]
		out.Units = append(out.Units, unitStateJSON{u.Part, u.Replica, u.StateName(), u.Generation})
	}
	return out
}

// orEmpty is a list that JSON shows as [], not as null.
func orEmpty(items []string) []string { return append([]string{}, items...) }
