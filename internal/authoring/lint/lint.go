package lint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/policy/policyfile"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/suggest"
)

// The codes of this package; those of package policyfile are there.
const (
	codeShadowed   = "RP103" // shared with package policyfile, which detects only equal matchers
	codeNever      = "RP106"
	codeAboveCap   = "RP107"
	codeMaxDelay   = "RP108"
	codePattern    = "RP109"
	codeCategory   = "RP110"
	codeUnseen     = "RP111"
	codeNoDefault  = "RP112"
	codeUnseenList = "RP113"
)

// Lint returns the problems of the files; if there are none, it returns likely mistakes. If categories is nil, any
// category is valid.
func Lint(files []policyfile.File, categories *Categories) (policyfile.Problems, error) {
	problems := policyfile.Lint(files)
	if slices.ContainsFunc(problems, func(p policyfile.Problem) bool { return p.Severity == policyfile.Error }) {
		return problems, nil
	}
	set, err := policyfile.Parse(files)
	if err != nil {
		return nil, err
	}
	docs, err := policyfile.Documents(files)
	if err != nil {
		return nil, err
	}
	l := &linter{set: set, categories: categories, problems: problems, policies: map[string]policy.Outline{}}
	for _, o := range set.Outlines() {
		l.policies[o.Name] = o
	}
	l.settings = slices.ContainsFunc(docs, func(d policyfile.Document) bool { return d.Kind == policyfile.KindSettings })
	for i := range docs {
		l.doc = &docs[i]
		switch l.doc.Kind {
		case "RetryPolicy":
			l.policy(l.policies[l.doc.Name])
		case policyfile.KindGroup:
			l.group(set.GroupPolicy(l.doc.Name))
		case "Queue":
			l.queue()
		case policyfile.KindBudget:
			l.budget()
		case policyfile.KindSettings:
			l.openBreakers()
		}
	}
	l.problems.Sort()
	return l.problems, nil
}

// linter checks one document after the other.
type linter struct {
	set        *policyfile.Set
	categories *Categories
	settings   bool // are among the files
	policies   map[string]policy.Outline
	doc        *policyfile.Document
	problems   policyfile.Problems
}

func (l *linter) report(field, code, message, fix string) {
	p := l.doc.Problem(field, policyfile.Problem{Code: code, Message: message, Fix: fix, Severity: severityOf(code)})
	same := func(other policyfile.Problem) bool {
		return other.Code == p.Code && other.File == p.File && other.Line == p.Line && other.Column == p.Column && other.Path == p.Path
	}
	if !slices.ContainsFunc(l.problems, same) {
		l.problems = append(l.problems, p)
	}
}

// openBreakers checks the categories whose retries the settings hold.
func (l *linter) openBreakers() {
	if l.categories == nil {
		return
	}
	for i := 0; l.doc.States(fmt.Sprintf("openBreakers[%d].category", i)); i++ {
		path := fmt.Sprintf("openBreakers[%d]", i)
		l.label(path+".category", l.categories.names(), "category")
		category := l.doc.Problem(path+".category", policyfile.Problem{}).Value
		if known, closed := l.categories.below([]string{category}); closed && l.doc.States(path+".subcategory") {
			l.label(path+".subcategory", known, "subcategory")
		}
	}
}

func (l *linter) policy(o policy.Outline) {
	for i := range o.Rules {
		r := &o.Rules[i]
		path := fmt.Sprintf("rules[%d]", i)
		if by := coveredBy(o.Rules[:i], r); by != nil {
			l.report(path, codeShadowed, "never reached: "+namesOf(o.Rules, by), "remove it, move it up, or restrict the earlier rules")
		}
		if why := r.Never(); why != "" {
			l.report(path, codeNever, "never matches: "+why, "remove the matcher that cannot hold, or the rule")
		}
		l.pattern(path, r)
		l.labels(path, r)
		l.aboveCap(path, r, policy.FromRule)
		if l.doc.States(path + ".backoff.maxDelay") {
			l.maxDelay(path+".backoff.maxDelay", []policy.Rule{*r})
		}
	}
	l.aboveCap("", &o.Default, policy.FromPolicy)
	if l.doc.States("backoff.maxDelay") {
		var use []policy.Rule
		for i, r := range o.Rules {
			if !l.doc.States(fmt.Sprintf("rules[%d].backoff.maxDelay", i)) {
				use = append(use, r)
			}
		}
		l.maxDelay("backoff.maxDelay", append(use, o.Default))
	}
}

// namesOf names the rules that match whenever another one does.
func namesOf(rules []policy.Rule, by []int) string {
	var names []string
	for _, i := range by {
		names = append(names, rules[i].Key.Policy+"/"+rules[i].Shown)
	}
	if len(names) == 1 {
		return names[0] + " matches whenever it does"
	}
	return "one of " + strings.Join(names, ", ") + " matches whenever it does"
}

func (l *linter) pattern(path string, r *policy.Rule) {
	message, ok := policy.Find[policy.TerminationMessage](&r.Matchers)
	if !ok {
		return
	}
	const fix = "give a pattern that distinguishes messages, or omit the matcher"
	switch message.Reach() {
	case policy.EveryMessage:
		l.report(path+".onTerminationMessage.pattern", codePattern, "matches every message", fix)
	case policy.EveryMessageWithText:
		l.report(path+".onTerminationMessage.pattern", codePattern, "matches every message except empty lines", fix)
	case policy.NoMessage, policy.SomeMessages:
	}
}

func (l *linter) labels(path string, r *policy.Rule) {
	if l.categories == nil {
		return
	}
	for i := 0; l.doc.States(fmt.Sprintf("%s.onFailureCategory[%d]", path, i)); i++ {
		l.label(fmt.Sprintf("%s.onFailureCategory[%d]", path, i), l.categories.names(), "category")
	}
	if l.doc.States(path + ".onCategory") { // Armada's flat form
		l.label(path+".onCategory", l.categories.names(), "category")
	}
	categories, _ := policy.Find[policy.Categories](&r.Matchers)
	known, closed := l.categories.below(categories)
	if !closed {
		return
	}
	for i := 0; l.doc.States(fmt.Sprintf("%s.onFailureSubcategory[%d]", path, i)); i++ {
		l.label(fmt.Sprintf("%s.onFailureSubcategory[%d]", path, i), known, "subcategory")
	}
	if l.doc.States(path + ".onSubcategory") {
		l.label(path+".onSubcategory", known, "subcategory")
	}
}

func (l *linter) label(field string, known []string, what string) {
	value := l.doc.Problem(field, policyfile.Problem{}).Value
	if slices.Contains(known, value) {
		return
	}
	fix := suggest.Fix(value, known, "use "+strings.Join(known, ", "))
	l.report(field, codeCategory, "the list of categories does not contain this "+what, fix)
}

// aboveCap finds limits that the job's overall limit makes unreachable.
func (l *linter) aboveCap(path string, r *policy.Rule, level policy.LimitFrom) {
	most := l.mostRetries(r)
	if r.LimitFrom != level || r.Limit <= most || most == 0 || r.Action == "Ignore" || level == policy.FromRule && r.Action != "Retry" {
		return
	}
	field := "retryLimit"
	if path != "" {
		field = path + ".retryLimit"
	}
	by, fix := fmt.Sprintf("globalMaxRetries %d", most), "raise globalMaxRetries"
	switch {
	case l.doc.States("maxRetries") && most < r.AskedRetries:
		by, fix = fmt.Sprintf("what the settings permit, %d", most), "raise policyMaxRetries"
	case l.doc.States("maxRetries"):
		by, fix = fmt.Sprintf("maxRetries %d", most), "raise maxRetries"
	}
	l.report(field, codeAboveCap, fmt.Sprintf("%d is above %s, which is reached first", r.Limit, by), fmt.Sprintf("lower it to at most %d, or %s", most, fix))
}

// mostRetries returns the limit on all retries of a job. What settings permit a policy is not known without them.
func (l *linter) mostRetries(r *policy.Rule) uint32 {
	if l.settings {
		return r.MaxRetries
	}
	return r.AskedRetries
}

// maxDelay finds maximum delays that no retry of the rules reaches.
func (l *linter) maxDelay(field string, rules []policy.Rule) {
	longest, retries, limit := time.Duration(-1), uint64(0), time.Duration(0)
	for i := range rules {
		r := &rules[i]
		n := uint64(min(r.Limit, l.mostRetries(r)))
		if r.Action == "Ignore" {
			n = 1 << 32 // unlimited
		}
		if r.Action != "Retry" && r.Action != "Ignore" || n == 0 {
			continue
		}
		if d := r.Delay(n); d > longest {
			longest, retries, limit = d, n, r.MaxDelay
		}
		if r.Delay(n) >= r.MaxDelay {
			return
		}
	}
	if longest < 0 {
		return
	}
	message := fmt.Sprintf("%v is never reached: the longest delay, of retry %d, is %v", limit, retries, longest)
	if retries == 1<<32 {
		message = fmt.Sprintf("%v is never reached: the delay is always %v", limit, longest)
	}
	l.report(field, codeMaxDelay, message, fmt.Sprintf("omit it, lower it to %v, or let the delay grow faster", longest))
}

// queue finds what a later policy in a queue's list can never affect.
func (l *linter) queue() {
	type place struct {
		name, field string
	}
	var places []place
	for i := 0; l.doc.States(fmt.Sprintf("retryPolicies[%d]", i)); i++ {
		field := fmt.Sprintf("retryPolicies[%d]", i)
		name := l.doc.Problem(field, policyfile.Problem{}).Value
		if _, exists := l.policies[name]; exists && !slices.ContainsFunc(places, func(p place) bool { return p.name == name }) {
			places = append(places, place{name, field})
		}
	}
	var before []policy.Rule
	stated := ""
	for _, p := range places {
		o := l.policies[p.name]
		unseen := l.unseen(before, &o)
		action := o.Default.Action != ""
		switch {
		case len(before) > 0 && len(unseen) == len(o.Rules) && (!action || stated != ""):
			l.report(p.field, codeUnseenList, "decides nothing in this queue: earlier policies match everything that it matches", "remove it from the list, or move it up")
		default:
			for _, u := range unseen {
				l.report(p.field, codeUnseen, u, "move the policy up, or remove the rule if no other queue needs it")
			}
			if action && stated != "" {
				l.report(p.field, codeNoDefault, "its defaultAction is never used in this queue: "+stated+" has one", "remove one of them if that is not intended")
			}
		}
		if action && stated == "" {
			stated = o.Name
		}
		before = append(before, o.Rules...)
	}
}

// unseen describes the rules of a policy that earlier policies make unreachable.
func (l *linter) unseen(before []policy.Rule, o *policy.Outline) []string {
	var all []string
	for i := range o.Rules {
		r := &o.Rules[i]
		if coveredBy(o.Rules[:i], r) != nil {
			continue // reported where the policy is defined
		}
		earlier := append(slices.Clip(before), o.Rules[:i]...)
		if by := coveredBy(earlier, r); by != nil {
			all = append(all, r.Key.Policy+"/"+r.Shown+" is never reached in this queue: "+namesOf(earlier, by))
		}
	}
	return all
}
