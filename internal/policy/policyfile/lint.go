package policyfile

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

// Lint returns the problems of the files; if there are none, it returns likely mistakes.
func Lint(files []File) Problems {
	docs, problems := parse(files)
	if len(problems) > 0 {
		return problems
	}
	exists := make(map[string]bool)
	for i := range docs {
		if p := docs[i].policy; p != nil {
			exists[string(p.Name)] = true
		}
	}
	for i := range docs {
		l := &linter{&docs[i], exists}
		switch {
		case l.policy != nil:
			l.lintPolicy(&l.policy.Spec)
		case l.group != nil:
			l.lintGroup(&l.group.Spec)
		case l.queue != nil:
			l.lintQueue(l.queue)
		case l.settings != nil:
			l.lintDelay(join(l.spec, "defaultBackoff"), &l.settings.DefaultBackoff)
			l.lintReference(join(l.spec, "defaultPolicyName"), l.settings.DefaultPolicyName)
			l.lintAvoided(l.settings.AvoidNodes)
		}
	}
	if len(docs) > 0 {
		problems = *docs[0].problems // all documents share it
	}
	problems.sort()
	return problems
}

// linter checks one document.
type linter struct {
	*document
	exists map[string]bool // by name
}

func (l *linter) warn(path string, f fault) {
	l.report(l.nearest(path), path, f)
	(*l.problems)[len(*l.problems)-1].Severity = Warning
}

func (l *linter) lintPolicy(p *policySpec) {
	l.lintDelay(join(l.spec, "backoff"), &p.Backoff)
	for i := range p.Rules {
		path := join(l.spec, fmt.Sprintf("rules[%d]", i))
		l.lintDelay(path+".backoff", &p.Rules[i].Backoff)
		l.lintConditions(path, &p.Rules[i])
		l.lintNames(path, &p.Rules[i])
	}
	if len(p.Rules) == 0 && p.DefaultAction == noAction {
		l.warn(l.spec, fault{
			codeLintSilent, "no rules and no defaultAction: on its own, it retries no run", "set a defaultAction, or add rules",
		})
	}
	p.settle() // sorts the lists, so that equal matchers have one identity
	known := schema{}
	first := make(map[string]int)
	for i := range p.Rules {
		id := p.Rules[i].identity(known)
		if earlier, hidden := first[id]; hidden {
			l.warn(join(l.spec, fmt.Sprintf("rules[%d]", i)), fault{
				codeLintShadowed, fmt.Sprintf("never reached: rules[%d] matches the same", earlier), "remove one of them",
			})
			continue
		}
		first[id] = i
	}
}

// lintConditions warns of conditions of the pod in a rule about one container: they cannot hold.
func (l *linter) lintConditions(path string, r *ruleSpec) {
	for i, c := range r.OnConditions {
		if r.ContainerName != "" && policy.Condition(c) != policy.OOMKilled {
			l.warn(fmt.Sprintf("%s.onConditions[%d]", path, i), fault{
				codeLintCondition, c.text() + " never holds for a single container", "remove it, or containerName",
			})
		}
	}
}

// maxLabel is the length in characters of Armada's columns for category and subcategory of a run.
const maxLabel = 63

// lintNames warns of names that no container and no run can have. Files may contain them, because earlier
// generations do, but they never match.
func (l *linter) lintNames(path string, r *ruleSpec) {
	if name := string(r.ContainerName); name != "" && goodName(name) != (fault{}) {
		l.warn(path+".containerName", fault{
			codeLintContainer, "never matches: Kubernetes rejects containers with this name", "use 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends",
		})
	}
	l.lintLabels(path, "onFailureCategory", "onCategory", r.OnFailureCategory)
	l.lintLabels(path, "onFailureSubcategory", "onSubcategory", r.OnFailureSubcategory)
}

// lintLabels warns of labels that are too long for Armada. flat is the name of the field in Armada's form, which
// takes a single label.
func (l *linter) lintLabels(path, field, flat string, labels []label) {
	for i, text := range labels {
		n := utf8.RuneCountInString(string(text))
		if n <= maxLabel {
			continue
		}
		at := fmt.Sprintf("%s.%s[%d]", path, field, i)
		if l.at[path+"."+flat] != nil {
			at = path + "." + flat
		}
		l.warn(at, fault{codeLintLabel, fmt.Sprintf("never matches: %d characters, and Armada stores at most %d", n, maxLabel), "write the name as the executor reports it"})
	}
}

func (l *linter) lintGroup(g *groupSpec) {
	l.lintDelay(join(l.spec, "backoff"), &g.Backoff)
	l.lintRestarts(join(l.spec, "unit.restarts"), g.Unit.Restarts)
	for i := range g.Parts {
		l.lintRestarts(join(l.spec, fmt.Sprintf("parts[%d].restarts", i)), g.Parts[i].Restarts)
	}
}

func (l *linter) lintRestarts(path string, r *restartsSpec) {
	if r == nil {
		return
	}
	l.lintDelay(path+".backoff", &r.Backoff)
	if r.On != never && or(r.Limit, 0) == 0 {
		l.warn(path, fault{codeLintNoRestart, "a limit of 0: the unit never restarts by itself", "raise limit, or write on: Never"})
	}
}

func (l *linter) lintQueue(q *queueSpec) {
	first := make(map[policyName]int)
	for i, name := range q.RetryPolicies {
		path := join(l.spec, fmt.Sprintf("retryPolicies[%d]", i))
		if earlier, twice := first[name]; twice {
			l.warn(path, fault{codeLintRepeated, fmt.Sprintf("%s is already at retryPolicies[%d]", name, earlier), "remove one of them: only the first is effective"})
			continue
		}
		first[name] = i
		l.lintReference(path, name)
	}
}

// lintAvoided warns of more nodes than a decision names (semantics.md 7).
func (l *linter) lintAvoided(nodes nodeList) {
	const named = 50
	if len(nodes) > named {
		l.warn(join(l.spec, "avoidNodes"), fault{
			codeLintAvoided, fmt.Sprintf("%d nodes, and a retry avoids at most %d", len(nodes), named), "cordon nodes that are to stay away, and remove them here",
		})
	}
}

func (l *linter) lintReference(path string, name policyName) {
	if name != "" && !l.exists[string(name)] {
		fix := suggest.Fix(string(name), slices.Sorted(maps.Keys(l.exists)), "add the policy or remove its name")
		l.warn(path, fault{codeLintPolicy, "policy " + string(name) + " does not exist, so it is skipped", fix})
	}
}

func (l *linter) lintDelay(path string, b *backoffSpec) {
	if b.InitialDelay != nil && b.MaxDelay != nil && *b.InitialDelay > *b.MaxDelay {
		l.warn(path+".initialDelay", fault{codeLintDelay, "longer than maxDelay, which always applies", "lower it or raise maxDelay"})
	}
}
