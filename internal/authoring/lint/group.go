package lint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/policy"
)

const (
	codeRefused     = "RP117"
	codeParallelism = "RP118"
	codeMaxFailed   = "RP119"
	codeNoEffect    = "RP120"
	codeFewRestarts = "RP122"
)

// group checks a group policy.
func (l *linter) group(g *policy.GroupPolicy) {
	for i := range g.Rules {
		l.groupRule(g, i)
	}
	for i := range g.Parts {
		l.part(&g.Parts[i], fmt.Sprintf("parts[%d]", i))
	}
	l.fewRestarts(g)
}

// A member that does not wait for the others may use up fewRestarts restarts before they are back:
// they have usualGrace to stop, unless their pods say otherwise, and it fails again after some 10 s.
const (
	fewRestarts = 3
	usualGrace  = 30 * time.Second
)

func (l *linter) fewRestarts(g *policy.GroupPolicy) {
	most := or(g.MaxRestarts)
	if most == 0 || most > fewRestarts || g.Backoff.RestartDelay(1) >= usualGrace || !restartsSeveral(g) || l.doc.States("restartStrategy") {
		return
	}
	l.report("maxRestarts", codeFewRestarts, fmt.Sprintf("%d may be used up before all members are back: those that run have their termination grace to stop, and a member that fails fast starts before them", most),
		"write restartStrategy: BlockingRecreate if members need each other, or Recreate if they do not")
}

// restartsSeveral reports whether a restart that counts may be of several members.
func restartsSeveral(g *policy.GroupPolicy) bool {
	sizeOf := func(r *policy.GroupRule) (n uint32) {
		if len(g.Parts) == 0 {
			return 2 // open
		}
		for i := range g.Parts {
			p := &g.Parts[i]
			of := len(r.Parts) == 0 || slices.Contains(r.Parts, p.Name)
			switch {
			case r.Action == policy.RestartUnit && of:
				n = max(n, p.Members)
			case r.Action == policy.RestartPart && of:
				n = max(n, p.Replicas*p.Members)
			case r.Action == policy.RestartGroup:
				n += p.Replicas * p.Members
			}
		}
		return n
	}
	for i := range g.Rules {
		r := &g.Rules[i]
		if !r.Uncounted && sizeOf(r) > 1 {
			return true
		}
		if len(r.OnReasons) == 0 && len(r.Parts) == 0 && r.OnMessage == nil {
			return false // the others are not reached
		}
	}
	return sizeOf(&policy.GroupRule{Action: g.DefaultAction()}) > 1
}

func (l *linter) groupRule(g *policy.GroupPolicy, i int) {
	r := &g.Rules[i]
	path := fmt.Sprintf("rules[%d]", i)
	if by := coveredByRules(g, i); by != nil {
		var names []string
		for _, n := range by {
			names = append(names, g.Rules[n].Name)
		}
		message := names[0] + " matches whenever it does"
		if len(names) > 1 {
			message = "one of " + strings.Join(names, ", ") + " matches whenever it does"
		}
		l.report(path, codeShadowed, "never reached: "+message, "remove it, move it up, or restrict the earlier rules")
	}
	if why := groupRuleNever(r); why != "" {
		l.report(path, codeNever, "never matches: "+why, "remove the matcher that cannot hold, or the rule")
	}
	if r.OnMessage != nil && r.OnMessage.Reach() == policy.EveryMessage {
		l.report(path+".onMessage.pattern", codePattern, "matches every message", "give a pattern that distinguishes messages, or omit the matcher")
	}
	switch most := or(g.MaxRestarts); {
	case !r.Action.Restarts():
		for _, field := range []string{".countsTowardsMax", ".limit"} {
			if l.doc.States(path + field) {
				l.report(path+field, codeNoEffect, "without effect: "+r.Action.String()+" restarts nothing", "remove it, or choose an action that restarts")
			}
		}
	case r.Limit != nil && *r.Limit == 0:
		l.report(path+".limit", codeRefused, "a limit of 0: whenever the rule matches, the group fails", "raise limit, or write action: FailGroup")
	case !r.Uncounted && most == 0:
		l.report(path, codeRefused, "maxRestarts is 0: whenever the rule matches, the group fails", "set maxRestarts, or countsTowardsMax: false")
	case !r.Uncounted && r.Limit != nil && *r.Limit > most:
		l.report(path+".limit", codeAboveCap, fmt.Sprintf("%d is above maxRestarts %d, which is reached first", *r.Limit, most), fmt.Sprintf("lower it to at most %d, or raise maxRestarts", most))
	}
}

// groupRuleNever explains why no failure of a unit matches the rule; "" if that is not proven.
func groupRuleNever(r *policy.GroupRule) string {
	if r.OnMessage != nil && r.OnMessage.Reach() == policy.NoMessage {
		return "the pattern matches no text"
	}
	return ""
}

func (l *linter) part(p *policy.PartDefinition, path string) {
	if p.Parallelism >= p.Members && p.Parallelism > 0 && p.Members > 0 && l.doc.States(path+".parallelism") {
		l.report(path+".parallelism", codeParallelism, fmt.Sprintf("%d holds no member: a unit has %d", p.Parallelism, p.Members), "omit it, or lower it")
	}
	if p.MaxFailedMembers == nil {
		return
	}
	switch most, spare := *p.MaxFailedMembers, p.Members-p.MinMembers; {
	case most >= p.Members:
		l.report(path+".maxFailedMembers", codeMaxFailed, fmt.Sprintf("never exceeded: a unit has %d members", p.Members), "omit it, or lower it")
	case most > spare && len(p.SuccessRules) == 0 && l.doc.States(path+".minMembers"):
		l.report(path+".maxFailedMembers", codeMaxFailed, fmt.Sprintf("with more than %d failed, minMembers %d is out of reach, and the unit goes on until %d have failed", spare, p.MinMembers, most+1), fmt.Sprintf("lower it to %d to fail the unit at once", spare))
	}
}

// coveredByRules returns the indices of earlier rules that together match whenever rule i does; nil if that is not
// proven. It splits the rule by reason and part: each such failure of a unit must have its own earlier rule.
func coveredByRules(g *policy.GroupPolicy, i int) []int {
	r := &g.Rules[i]
	if groupRuleNever(r) != "" {
		return nil
	}
	reasons := r.OnReasons
	if len(reasons) == 0 {
		for known := policy.PodFailurePolicy; known <= policy.MemberCancelled; known++ {
			reasons = append(reasons, known)
		}
	}
	parts := r.Parts
	if len(parts) == 0 {
		parts = partsOf(g)
	}
	if len(reasons)*len(parts) > maxParts {
		return nil
	}
	var earlier, by []int
	for n := range i {
		if coversMessage(g.Rules[n].OnMessage, r.OnMessage) {
			earlier = append(earlier, n)
		}
	}
	for _, reason := range reasons {
		for _, part := range parts {
			at := slices.IndexFunc(earlier, func(n int) bool {
				e := &g.Rules[n]
				return (len(e.OnReasons) == 0 || slices.Contains(e.OnReasons, reason)) && (len(e.Parts) == 0 || slices.Contains(e.Parts, part))
			})
			if at < 0 {
				return nil
			}
			if n := earlier[at]; !slices.Contains(by, n) {
				by = append(by, n)
			}
		}
	}
	slices.Sort(by)
	return by
}

func partsOf(g *policy.GroupPolicy) []string {
	if len(g.Parts) == 0 {
		return []string{policy.MainPart}
	}
	names := make([]string, len(g.Parts))
	for i := range g.Parts {
		names[i] = g.Parts[i].Name
	}
	return names
}

// coversMessage reports whether it is proven that a matches whenever b does. Both need a message.
func coversMessage(a, b *policy.Pattern) bool {
	switch {
	case a == nil:
		return true
	case b == nil:
		return false
	}
	return a.Covers(b)
}

// or returns what p points to, 0 if it is nil.
func or(p *uint32) uint32 {
	if p == nil {
		return 0
	}
	return *p
}
