package text

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/audit/shadow"
	"github.com/refloat/refloat/internal/query"
)

// ShadowOf says what a report about decisions in shadow is about.
type ShadowOf struct {
	Queue, Since string // as asked for; "": all
	Policies     string // that decided a recorded history; "": those in force at the time did
	Jobs         int    // maximum number of failed runs to show for each queue
}

// ShadowQueue is the part of a report about one queue.
type ShadowQueue struct {
	*query.ShadowQueue
	Runs []*query.ShadowRun
}

// Shadow prints a report about decisions in shadow.
func Shadow(w io.Writer, f ShadowOf, queues []*ShadowQueue) error {
	if len(queues) == 0 {
		where := ""
		if f.Queue != "" {
			where += " in queue " + query.OneLine(f.Queue)
		}
		if f.Since != "" {
			where += " since " + f.Since
		}
		fmt.Fprintf(w, "no failed run was decided in shadow%s\n", where)
		return nil
	}
	unknown := false
	for _, q := range queues {
		unknown = unknown || q.Jobs.WouldRetry > 0
		if err := shadowQueue(w, f, q); err != nil {
			return err
		}
	}
	if unknown {
		fmt.Fprintln(w, "Whether a retry that was not made would have succeeded is unknown.")
	}
	return nil
}

func shadowQueue(w io.Writer, f ShadowOf, q *ShadowQueue) error {
	fmt.Fprintf(w, "%s %s\n\n", show.Bold(w, fmt.Sprintf("In queue %s, %s:", query.OneLine(q.Queue), decidedBy(f, q))), strings.Join(q.Jobs.Sentences(slices.ContainsFunc(q.Rules, func(r query.ShadowRule) bool { return r.WouldFail.Runs > 0 })), "\n"))
	t := show.NewTable(w, "  RULE", "WE WOULD", "RUNS", "ARMADA FAILED", "RAN AGAIN", "THEN SUCCEEDED", "CANCELLED", "OPEN", "WAIT", "CODES")
	for _, r := range q.Rules {
		row := func(would, wait string, n *shadow.Tally) {
			if n.Runs > 0 {
				t.Row("  "+shadowRule(r.Policy, r.Rule), would, fmt.Sprint(n.Runs), fmt.Sprint(n.ArmadaFailed), fmt.Sprint(n.RanAgain),
					fmt.Sprint(n.ThenSucceeded), fmt.Sprint(n.Cancelled), fmt.Sprint(n.Open), wait, codesText(n.Codes))
			}
		}
		wait := ""
		if r.Waits != nil {
			wait = r.Waits.Median
			if r.Waits.Longest != r.Waits.Median {
				wait = fmt.Sprintf("median %s, longest %s", r.Waits.Median, r.Waits.Longest)
			}
		}
		row("retry", wait, &r.WouldRetry)
		row("fail", "", &r.WouldFail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return differing(w, f, q)
}

// decidedBy names the policies that decided.
func decidedBy(f ShadowOf, q *ShadowQueue) string {
	switch {
	case f.Policies != "":
		return "by the policies in " + f.Policies
	case q.EnforcedSince == 0:
		return fmt.Sprintf("decided in shadow since generation %d", q.FirstGeneration)
	case q.FirstGeneration == q.LastGeneration:
		return fmt.Sprintf("decided in shadow by generation %d, enforced since generation %d", q.FirstGeneration, q.EnforcedSince)
	}
	return fmt.Sprintf("decided in shadow by generations %d to %d, enforced since generation %d", q.FirstGeneration, q.LastGeneration, q.EnforcedSince)
}

// differing prints the failed runs on which Armada acted differently, starting with those whose success would
// have been lost.
func differing(w io.Writer, f ShadowOf, q *ShadowQueue) error {
	var differ []*query.ShadowRun
	for _, r := range q.Runs {
		if r.Differs {
			differ = append(differ, r)
		}
	}
	slices.SortStableFunc(differ, func(a, b *query.ShadowRun) int { return rank(a) - rank(b) })
	shown := differ[:min(len(differ), f.Jobs)]
	if len(shown) > 0 {
		t := show.NewTable(w, "  JOB", "RUN", "RULE", "CODE", "WE WOULD", "ARMADA")
		for _, r := range shown {
			d := &r.Decision
			would, did := "fail it", "failed it"
			if d.RetryAfter != "" {
				would = "retry it after " + r.Wait
			}
			if r.Armada == shadow.RanAgain.String() {
				did = "reran it; the job is " + r.JobState
			}
			t.Row("  "+d.JobID, fmt.Sprint(d.RunIndex), shadowRule(d.Policy, d.Rule), d.Code, would, did)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if more := len(differ) - len(shown); more > 0 {
			fmt.Fprintf(w, "  and %d more: --jobs %d shows all\n", more, len(differ))
		}
		fmt.Fprintln(w)
	}
	return nil
}

func rank(r *query.ShadowRun) int {
	switch {
	case r.Lost:
		return 0
	case r.Decision.RetryAfter == "":
		return 1
	}
	return 2
}

func shadowRule(policy, rule string) string {
	if policy == "" {
		return "none"
	}
	return policy + "/" + rule
}

// codesText lists codes with their counts, the most frequent first.
func codesText(codes map[string]int) string {
	names := slices.SortedFunc(maps.Keys(codes), func(a, b string) int {
		if codes[a] != codes[b] {
			return codes[b] - codes[a]
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, codes[name])
	}
	return strings.Join(names, ", ")
}
