package app

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/protection"
)

// judgeNodes finds suspects, and has retries avoid them.
func (g *guard) judgeNodes(ctx context.Context, p *policy.Protection, newest *policylog.Snapshot, now int64) error {
	settled := func(node string) bool {
		return slices.ContainsFunc(newest.ActiveOverrides(), func(o policylog.Override) bool { return o.Node == node && o.Author != policylog.Guard && !o.Over(now) })
	}
	fresh := g.window.Judge(p, slices.Concat(g.issued, g.noted), settled, now)
	for i := range fresh {
		s := &fresh[i]
		g.log.Warn("a node is a suspect", slog.String("node", s.Node), slog.Time("until", time.Unix(0, s.Until).UTC()), slog.Bool("certain", s.Certain),
			slog.String("reason", s.Reason), slog.Bool("shadow", p.Shadow))
	}
	if len(fresh) > 0 && !p.Shadow {
		if err := g.issue(ctx, fresh, now); err != nil {
			return err
		}
	}
	g.count(p, fresh, now)
	return nil
}

// count counts suspicions, and keeps those in shadow, which no generation has.
func (g *guard) count(p *policy.Protection, fresh []protection.Suspicion, now int64) {
	mode := "Enforce"
	if p.Shadow {
		mode = "Shadow"
		for _, s := range fresh {
			g.noted = append(slices.DeleteFunc(g.noted, func(was protection.Suspicion) bool { return was.Node == s.Node && was.Since == s.Since }), s)
		}
	}
	g.metrics.suspicions.WithLabelValues(mode).Add(float64(len(fresh)))
	suspects := map[string]bool{}
	for _, s := range slices.Concat(g.issued, g.noted, fresh) {
		if s.Until > now {
			suspects[s.Node] = true
		}
	}
	g.metrics.suspects.Set(float64(len(suspects)))
}

// suspicionsIn finds the suspicions of the last day in the generations, newest first.
func suspicionsIn(history []*policylog.Version, now int64) []protection.Suspicion {
	issued := []protection.Suspicion{}
	known := map[protection.Suspicion]bool{} // with node and time only
	for _, v := range history {              // newest first
		for _, o := range v.Overrides {
			key := protection.Suspicion{Node: o.Node, Since: o.Time}
			if o.Author == policylog.Guard && o.Node != "" && !known[key] {
				known[key] = true
				issued = append(issued, protection.Suspicion{Node: o.Node, Since: o.Time, Until: o.AvoidedUntil})
			}
		}
		if v.Time < now-int64(24*time.Hour) {
			break
		}
	}
	return issued
}

// issue makes the overrides of suspicions, except for nodes of which somebody has decided meanwhile. It removes those of the
// guard that are over.
func (g *guard) issue(ctx context.Context, fresh []protection.Suspicion, now int64) error {
	reasons := make([]string, len(fresh))
	for i := range fresh {
		reasons[i] = "node " + fresh[i].Node + ": " + fresh[i].Reason
	}
	_, err := g.policies.Do(ctx, policylog.Edit{
		Author: policylog.Guard, Reason: strings.Join(reasons, "\n"), Urgent: true,
		Make: func(s policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
			on := slices.Clone(s.ActiveOverrides())
			made := false
			for i := range fresh {
				if with, ok := overriding(on, &fresh[i], now); ok {
					on, made = with, true
				}
			}
			if !made {
				return s.Base, s.ActiveOverrides(), nil
			}
			return s.Base, slices.DeleteFunc(on, func(o policylog.Override) bool { return o.Author == policylog.Guard && o.Over(now) }), nil
		},
	})
	return err
}

// overriding adds the override of a suspicion to others, or makes the guard's own one longer. It is not ok if the node has another
// one that is not over.
func overriding(on []policylog.Override, s *protection.Suspicion, now int64) (_ []policylog.Override, ok bool) {
	fresh := policylog.Override{
		Override: policyfile.Override{Node: s.Node, AvoidedUntil: s.Until}, Author: policylog.Guard, Reason: s.Reason, Time: s.Since,
	}
	for i := range on {
		switch o := &on[i]; {
		case o.Node != s.Node || o.Over(now):
		case o.Author != policylog.Guard || o.Time != s.Since || o.AvoidedUntil >= s.Until:
			return on, false
		default:
			*o = fresh
			return on, true
		}
	}
	return append(on, fresh), true
}
