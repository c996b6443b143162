package text

import (
	"fmt"
	"io"
	"time"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// Decisions prints how often what was decided, and with what effect.
func Decisions(out io.Writer, s *query.Summary) {
	total := uint64(0)
	fmt.Fprintf(out, "%s\n", show.Bold(out, "Decisions"))
	t := show.NewTable(out, "  DECISION", "CODE", "POLICY", "RULE", "COUNT")
	for i := range s.Decisions {
		c := &s.Decisions[i]
		t.Row("  "+c.Decision+EffectNote(c.Effect()), c.Code, c.Policy, c.Rule, fmt.Sprint(c.Count))
		total += c.Count
	}
	t.Row("  total", " ", " ", " ", fmt.Sprint(total))
	_ = t.Flush()
}

// Jobs prints the states of jobs, and what was not decided or came too late.
func Jobs(out io.Writer, s *query.Summary, took time.Duration) {
	fmt.Fprintf(out, "\n%s\n", show.Bold(out, "Jobs"))
	t := show.NewTable(out, "  STATE", "COUNT")
	for _, c := range s.Jobs {
		t.Row("  "+c.State, fmt.Sprint(c.Count))
	}
	_ = t.Flush()
	for _, c := range s.NotDecided {
		fmt.Fprintf(out, "\n  %s not decided: %s", plural.Of(c.Count, "failed run"), c.Reason)
	}
	for _, c := range s.Parked {
		fmt.Fprintf(out, "\n  %d parked: %s", c.Count, c.Reason)
	}
	for _, r := range s.Releases {
		fmt.Fprintf(out, "\n  partition %d: %s released without a decision, %s, the last at %s", r.Partition, plural.Of(r.Messages, "message"), plural.Of(r.Times, "time"), r.Last)
	}
	if s.Superseded > 0 {
		fmt.Fprintf(out, "\n  %s superseded: after the events were released, without effect", plural.Of(s.Superseded, "decision"))
	}
	fmt.Fprintf(out, "\n  %s, %.1f s\n", plural.Of(s.Runs, "run"), took.Seconds())
}
