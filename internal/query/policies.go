package query

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// PoliciesAt is a policy generation, and the history of the policies.
type PoliciesAt struct {
	policylog.Snapshot
	history []*policylog.Version
}

// Generation reads a policy generation. Errors: ErrNoPolicies.
func (s *Source) Generation(ctx context.Context, number uint64) (*PoliciesAt, error) {
	if s.Policies == nil {
		return nil, ErrNoPolicies
	}
	var at PoliciesAt
	err := s.Policies(ctx, func(store *policylog.Store) (err error) {
		if at.Snapshot, err = store.At(ctx, number); err != nil {
			return fmt.Errorf("the policies log: %w", err)
		}
		at.history, err = store.History(ctx)
		return err
	})
	return &at, err
}

// LastChange is who last changed, and why, a resource that took part in a decision.
type LastChange struct {
	Resource   string `json:"resource"`
	Generation uint64 `json:"generation"`
	Time       string `json:"time"`
	Author     string `json:"author"`
	Reason     string `json:"reason,omitempty"`
}

// lastChanges finds who last changed, up to the generation that decided, the policy of a decision and, if a limit of
// the settings decided, the settings.
func (p *PoliciesAt) lastChanges(d *chain.Decision) []LastChange {
	var ids []policyfile.ID
	if d.Policy != "" {
		ids = append(ids, policyfile.ID{Kind: policyfile.KindPolicy, Name: d.Policy})
	}
	if d.Code == policy.GlobalLimit || d.LimitFrom == policy.FromGlobal {
		ids = append(ids, policyfile.ID{Kind: policyfile.KindSettings})
	}
	return p.changesOf(ids...)
}

// changesOf finds who last changed resources, those that were ever changed.
func (p *PoliciesAt) changesOf(ids ...policyfile.ID) (changes []LastChange) {
	for _, id := range ids {
		for _, v := range p.history {
			if v.Number == p.Since[id] {
				changes = append(changes, LastChange{id.String(), v.Number, TimeText(v.Time), v.Author, v.Reason})
			}
		}
	}
	return changes
}

// overridesOn returns the overrides of a queue.
func overridesOn(overrides []policylog.Override, queue string) (on []policylog.Override) {
	for _, b := range overrides {
		if b.Node == "" && (b.Queue == "" || b.Queue == queue) {
			on = append(on, b)
		}
	}
	return on
}

// overridesOf returns the overrides that had to do with a decision: those on its queue, breakers only if one
// held it, and those by which it avoids nodes.
func overridesOf(overrides []policylog.Override, d *chain.Decision) []policylog.Override {
	on := overridesOn(overrides, d.Queue)
	if d.Code != policy.BreakerHeld {
		on = slices.DeleteFunc(on, func(b policylog.Override) bool { return b.Category != "" })
	}
	for _, b := range overrides {
		if b.AvoidedUntil > d.Time && slices.Contains(d.AvoidNodes, b.Node) {
			on = append(on, b)
		}
	}
	return on
}

// OverrideText says of an override what it does, since when, and who made it why, in one line.
func OverrideText(o policylog.Override) string {
	effect := OneLine(o.Effect())
	return fmt.Sprintf("%s%s, since %s, by %s: %s", strings.ToUpper(effect[:1]), effect[1:], seconds(o.Time), OneLine(o.Author), OneLine(o.Reason))
}

func seconds(ns int64) string {
	if ns == 0 {
		return "-"
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339)
}

// OneLine removes control characters, line breaks and what changes the direction of text; "" becomes "-".
func OneLine(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(printable, s)
}

func printable(r rune) rune {
	if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) { // also C1 and bidirectional overrides
		return ' '
	}
	return r
}
