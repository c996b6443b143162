package text

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/refloat/refloat/cmd/internal/show"
	"github.com/refloat/refloat/internal/audit"
	"github.com/refloat/refloat/internal/audit/report"
	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/query"
)

// Report prints what was verified, and what was not.
func Report(w io.Writer, r *report.Report, mayWait bool) {
	if r.Problem != "" {
		fmt.Fprintf(w, "%s: %s\n", audit.LogDamaged, query.OneLine(r.Problem))
		return
	}
	differ := 0
	for i := range r.Partitions {
		p := &r.Partitions[i]
		if p.Difference != nil {
			differ++
			difference(w, p)
			continue
		}
		linked := p.Unknown
		if linked == nil {
			linked = &report.Unknown{}
		}
		fmt.Fprintf(w, "partition %d: %s in %s, %s, policy generation %d, %s; running hash %s; %s not decided yet; ignored: %s\n",
			p.Partition, plural.Of(p.Messages, "message"), plural.Of(p.Envelopes-linked.Envelopes, "envelope"), plural.Of(p.Decisions, "decision"),
			p.Generation, plural.Of(p.Epochs, "epoch"), p.RunningHash, plural.Of(p.Waiting, "message"), ignoredText(p.Ignored))
		if p.Begin.Envelope > 0 {
			fmt.Fprintf(w, "partition %d: envelopes 1 to %d, with %s, were not read: the state after them is that of a checkpoint\n", p.Partition, p.Begin.Envelope, plural.Of(p.Given, "decision"))
		}
		if p.Unknown != nil {
			fmt.Fprintf(w, "partition %d: only linked, not decided again: %s with %s, which answer %s; %s acknowledged that the state was lost, and the events up to %v are unknown\n",
				p.Partition, plural.Of(linked.Envelopes, "envelope"), plural.Of(linked.Decisions, "decision"), plural.Of(linked.Messages, "message"), linked.By, linked.UpTo)
		}
	}
	if differ > 0 {
		fmt.Fprintf(w, "differences in %d of %s\n", differ, plural.Of(len(r.Partitions), "partition"))
		return
	}
	fmt.Fprintln(w, Verified(r))
	if r.Waiting > 0 && !mayWait {
		fmt.Fprintf(w, "not verified: the decision log does not answer %s. Is it complete? If an evaluator is running, use --allow-waiting\n", plural.Of(r.Waiting, "message"))
	}
}

// Verified says what was decided again, and what was not.
func Verified(r *report.Report) string {
	text := fmt.Sprintf("verified: deciding %s again gives the same %s, byte for byte", plural.Of(r.Messages, "message"), plural.Of(r.Decisions, "decision"))
	if r.Messages == 0 && r.Linked+r.Given > 0 {
		text = "nothing was decided again"
	}
	if r.Linked > 0 {
		text += fmt.Sprintf("; of %s before a loss of the state, only the hashes were checked", plural.Of(r.Linked, "decision"))
	}
	if r.Given > 0 {
		text += fmt.Sprintf("; %s before the checkpoints were not read", plural.Of(r.Given, "decision"))
	}
	return text
}

// difference prints the first difference of a partition: what it is, where, and both
// readings.
func difference(w io.Writer, p *report.Partition) {
	d := p.Difference
	where := ""
	if d.Decisions != "" {
		where += ", at " + d.Decisions + " in the decision log"
	}
	if d.Event != "" {
		where += ", for the message at " + d.Event
	}
	fmt.Fprintf(w, "partition %d: %s: envelope %d%s\n  %s\n", p.Partition, d.Kind, d.Envelope, where, query.OneLine(d.Text))
	for _, f := range d.Fields {
		fmt.Fprintf(w, "  %s: the log has %s, deciding again gives %s\n", f.Field, query.OneLine(f.Logged), query.OneLine(f.Derived))
	}
	if d.Kind == audit.InputGone {
		fmt.Fprintln(w, "  if what was deleted is in an archive, give it with --archive DIR")
		if p.Begin.Envelope == 0 {
			fmt.Fprintln(w, "  if evaluators write checkpoints, --checkpoints URL begins at the newest ones: what came before is then not decided again")
		}
	}
}

func ignoredText(ignored map[string]uint64) string {
	var parts []string
	for _, why := range chain.AllIgnored() {
		if n := ignored[why.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", why, n))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

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
