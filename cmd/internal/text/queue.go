package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// Queue prints what happened to the failed runs of a queue or a job set.
func Queue(w io.Writer, s *query.QueueStory) error {
	name := s.Name()
	if s.Since != "" {
		name += " since " + show.Millis(s.Since)
	}
	effects := s.Effects()
	fmt.Fprintf(w, "%s%s: %s: %s\n", show.Bold(w, strings.ToUpper(name[:1])), name[1:], plural.Of(s.Decisions, "decision"), effects.Words())
	for _, c := range []struct {
		heading string
		counts  []query.Tally
	}{{"CODE", s.Codes}, {"RULE", s.Rules}, {"CAUSE" + strings.ToUpper(s.NewestCauses()), s.Causes}} {
		if len(c.counts) == 0 {
			continue
		}
		fmt.Fprintln(w)
		t := show.NewTable(w, "COUNT", c.heading)
		for _, n := range c.counts {
			t.Row(fmt.Sprint(n.Count), n.Key)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		what string
		*query.Fates
		time func(*query.Fate) string
		head string
	}{
		{"Failed for good", &s.Failed, func(f *query.Fate) string { return show.Millis(f.Ended) }, "ENDED"},
		{"Pending retries", &s.Pending, func(f *query.Fate) string { return show.Millis(f.RetryAfter) }, "RETRY AFTER"},
	} {
		fmt.Fprintf(w, "\n%s: %s\n", show.Bold(w, l.what), plural.Of(l.Count, "job"))
		if l.Count == 0 {
			continue
		}
		t := show.NewTable(w, "  JOB", "RUNS", l.head, "CODE", "RULE", "WHY")
		for i := range l.Jobs {
			j := &l.Jobs[i]
			t.Row("  "+j.JobID, fmt.Sprint(j.Runs), l.time(j), j.Code, j.Rule, j.Reason)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if more := l.Count - len(l.Jobs); more > 0 {
			fmt.Fprintf(w, "  and %d more: --limit 0 lists all\n", more)
		}
	}
	inForce(w, s.Policies)
	return nil
}

func inForce(w io.Writer, p *query.InForce) {
	if p == nil {
		fmt.Fprintf(w, "\n%s are in the policies log: give --pulsar URL or --data DIR to see what is in force\n", show.Bold(w, "Policies"))
		return
	}
	applying, mode := strings.Join(p.Applying, ", then "), ""
	if applying == "" {
		applying = "none, so that failed runs are decided as Armada does"
	}
	if p.Shadow {
		mode = "; the queue is in shadow"
	}
	fmt.Fprintf(w, "\n%s in force, generation %d, for jobs that name none: %s; globalMaxRetries %d%s\n", show.Bold(w, "Policies"), p.Generation, query.OneLine(applying), p.Limit, mode)
	for i := range p.Changes {
		fmt.Fprintf(w, "  %s\n", changeText(&p.Changes[i]))
	}
	for _, o := range p.Overrides {
		fmt.Fprintf(w, "  %s\n", o)
	}
}
