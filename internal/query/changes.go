package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/authoring/diff"
	"github.com/refloat/refloat/internal/jobdb"
	"github.com/refloat/refloat/internal/plural"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// GenerationPrefix begins the name of a generation where policies may also be files; elsewhere it may be left out.
const GenerationPrefix = "generation:"

// GenerationAt returns the generation of the policies that a text names: its number, or the newest that could be used at a time or a
// duration ago (pastMoment). "" is the newest; 0 is what was before the first. history has all of them, newest first. Errors: *Invalid.
func GenerationAt(text string, history []*pb.Generation, now time.Time) (uint64, error) {
	named, prefixed := strings.CutPrefix(text, GenerationPrefix)
	if n, err := strconv.ParseUint(named, 10, 64); err == nil {
		if n > 0 && !slices.ContainsFunc(history, func(g *pb.Generation) bool { return g.Generation == n }) {
			return 0, invalid("", "%s: there is no generation %d: `refloatctl history` lists them", text, n)
		}
		return n, nil
	}
	if prefixed && named == "" {
		return 0, invalid("", "%s: which one? Give a number, a time, or a duration ago such as 24h", text)
	}
	at, err := pastMoment(named, now)
	if err != nil {
		return 0, &Invalid{Err: fmt.Errorf("%w, or a generation such as 7", err)}
	}
	for _, g := range history {
		if g.Unusable == "" && (named == "" || g.Time.AsTime().UnixNano() <= at) {
			return g.Generation, nil
		}
	}
	if len(history) == 0 {
		return 0, invalid("", "no policies were published: the policies log is empty")
	}
	oldest := history[len(history)-1]
	return 0, invalid("", "%s: the policies log begins later, with generation %d at %s; 0 is what was before the first", text, oldest.Generation, seconds(oldest.Time.AsTime().UnixNano()))
}

// PolicyReader is where generations of the policies are read, as far as the caller may see them: the policy API.
type PolicyReader interface {
	List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error)
}

// SetAt reads the policies of a generation; 0: there are none.
func SetAt(ctx context.Context, from PolicyReader, generation uint64) (*policyfile.Set, error) {
	if generation == 0 {
		return policyfile.Empty(), nil
	}
	list, err := from.List(ctx, &pb.ListRequest{Generation: generation})
	if err != nil {
		return nil, err
	}
	return SetOf(list.Resources)
}

// SetOf makes a set of the resources in an answer of the policy API.
func SetOf(resources []*pb.Resource) (*policyfile.Set, error) {
	var files []policyfile.File
	for _, r := range resources {
		text, err := json.Marshal(r.Document.AsMap())
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Kind, r.Name, err)
		}
		files = append(files, policyfile.File{Name: r.Kind + " " + r.Name, Data: text})
	}
	set, err := policyfile.Parse(files)
	if err != nil {
		return nil, fmt.Errorf("this program does not understand the server's policies; upgrade it: %w", err)
	}
	return set, nil
}

// PolicyChanges is what changed from one generation of the policies to another.
type PolicyChanges struct {
	From, To      uint64
	Single        bool // it is the only one, compared with itself
	Before, After *policyfile.Set
	Fields        []diff.Change
	Made          []*pb.Generation // those after From, up to To, newest first

	about []Around
	more  int // beyond them
}

// maxAbout bounds what decisions are counted of.
const maxAbout = 12

// ChangesBetween compares two generations. history has all of them, newest first. Errors: *Invalid, and those of the reader.
func ChangesBetween(ctx context.Context, read PolicyReader, history []*pb.Generation, from, to uint64) (c *PolicyChanges, err error) {
	if from > to {
		return nil, invalid("", "generation %d is older than %d: compare the older one with the newer one", to, from)
	}
	c = &PolicyChanges{From: from, To: to, Single: from == to && len(history) == 1}
	if c.Before, err = SetAt(ctx, read, from); err != nil {
		return nil, err
	}
	if c.After, err = SetAt(ctx, read, to); err != nil {
		return nil, err
	}
	for _, g := range history {
		if from < g.Generation && g.Generation <= to {
			c.Made = append(c.Made, g)
		}
	}
	if c.Fields, err = diff.Rules(c.Before, c.After); err != nil {
		return nil, err
	}
	c.findAbout()
	return c, nil
}

// findAbout lists what the decisions are counted of: all, and the queues, policies and rules that changed.
func (c *PolicyChanges) findAbout() {
	if len(c.Made) == 0 {
		return
	}
	period := Around{First: c.Made[len(c.Made)-1].Time.AsTime().UnixNano(), Last: c.Made[0].Time.AsTime().UnixNano()}
	add := func(queue, policy, rule string) {
		a := period
		a.Queue, a.Policy, a.Rule = queue, policy, rule
		switch {
		case slices.Contains(c.about, a):
		case len(c.about) > maxAbout:
			c.more++
		default:
			c.about = append(c.about, a)
		}
	}
	add("", "", "")
	for _, f := range c.Fields {
		switch f.Kind {
		case diff.Queue:
			add(f.Name, "", "")
		case diff.Policy:
			add("", f.Name, "")
		case diff.Rule:
			name, rule := ruleOf(f.Name, slices.Concat(c.After.Outlines(), c.Before.Outlines()))
			add("", name, "")
			add("", name, rule)
		case diff.Budget:
			for _, b := range slices.Concat(c.After.Budgets(), c.Before.Budgets()) {
				if b.Name == f.Name && b.Queue != "" {
					add(b.Queue, "", "")
				}
			}
		}
	}
}

// ruleOf returns the policy and the rule that a change names, as decisions do.
func ruleOf(name string, in []policy.Outline) (string, string) {
	for _, o := range in {
		for i := range o.Rules {
			if diff.RuleName(o.Name, &o.Rules[i]) == name {
				return o.Name, o.Rules[i].Shown
			}
		}
	}
	return "", ""
}

// DecisionsOf is what became of the failed runs of a queue, a policy or a rule before and after changes.
type DecisionsOf struct {
	Of     string `json:"of"` // in words
	Queue  string `json:"queue,omitempty"`
	Policy string `json:"policy,omitempty"`
	Rule   string `json:"rule,omitempty"`
	BeforeAfter
}

// DecisionHeads are the heads of DecisionsOf.Cells.
func DecisionHeads() []string {
	return []string{"Decisions of", "Retried", "Failed for good", "Share retried", "Without effect"}
}

// Cells are the numbers as people read them, each before and after.
func (d *DecisionsOf) Cells() []string {
	cells := []string{d.Of}
	for _, of := range []func(*Effects) string{
		func(n *Effects) string { return strconv.FormatUint(n.Retried, 10) },
		func(n *Effects) string { return strconv.FormatUint(n.FailedForGood, 10) },
		func(n *Effects) string {
			if n.Retried+n.FailedForGood == 0 {
				return "-"
			}
			return fmt.Sprintf("%.0f %%", 100*float64(n.Retried)/float64(n.Retried+n.FailedForGood))
		},
		func(n *Effects) string { return strconv.FormatUint(n.WithoutEffect(), 10) },
	} {
		cells = append(cells, of(&d.Before)+" → "+of(&d.After))
	}
	return cells
}

// Count counts the decisions before and after the changes. What only callers who may see all queues see is left out for others.
func (c *PolicyChanges) Count(ctx context.Context, count func(context.Context, Around) (BeforeAfter, error)) (all []DecisionsOf, err error) {
	for _, a := range c.about {
		n, err := count(ctx, a)
		if errors.Is(err, ErrAllQueues) {
			continue
		}
		if err != nil {
			return all, err
		}
		d := DecisionsOf{"all", a.Queue, a.Policy, a.Rule, n}
		switch {
		case a.Queue != "":
			d.Of = "queue " + a.Queue
		case a.Rule != "":
			d.Of = "rule " + RuleName(a.Policy, a.Rule)
		case a.Policy != "":
			d.Of = "policy " + a.Policy
		}
		all = append(all, d)
	}
	return all, nil
}

// Seen returns those of which there is a decision, before or after.
func Seen(decisions []DecisionsOf) []DecisionsOf {
	return slices.DeleteFunc(slices.Clone(decisions), func(d DecisionsOf) bool { return d.Before.All()+d.After.All() == 0 })
}

// Counted says of which time the numbers that Count returned are, and of what there are none.
func (c *PolicyChanges) Counted(decisions []DecisionsOf, now time.Time) string {
	first, last := c.Made[len(c.Made)-1], c.Made[0]
	before, after := fmt.Sprintf("in the 24 hours before generation %d came", first.Generation), "after it"
	if first != last {
		after = fmt.Sprintf("after generation %d", last.Generation)
	}
	seen := len(Seen(decisions))
	if seen == 0 {
		return fmt.Sprintf("There is no decision %s, or %s; each is counted when its run failed, also if it is of a recording", before, after)
	}
	text := fmt.Sprintf("Decisions %s → %s", before, after)
	next := (jobdb.HourOf(last.Time.AsTime().UnixNano()) + 1) * 3600e9
	if hours := max(0, now.UnixNano()-next) / 3600e9; hours < around {
		text += fmt.Sprintf(", of which %s passed", plural.Of(hours, "whole hour"))
	}
	text += "; the hour of a change is in neither"
	if seen < len(decisions) {
		text += "; what has no decision in both is left out"
	}
	if c.more > 0 {
		text += fmt.Sprintf("; without those of %s more", plural.Of(c.more, "resource"))
	}
	return text
}
