package lint

import (
	"fmt"
	"slices"
	"time"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/suggest"
)

const (
	codeNothingGranted = "RP124"
	codeShortWindow    = "RP125"
	codeNeverAsked     = "RP126"
)

// shortWindow is a window that most runs outlast: their first run has left it when they fail.
const shortWindow = time.Minute

// budget checks a retry budget, of those that the set has.
func (l *linter) budget() {
	all := l.set.Budgets()
	i := slices.IndexFunc(all, func(b policy.Budget) bool { return b.Name == l.doc.Name })
	if i < 0 {
		return
	}
	b := &all[i]
	if b.Ratio == 0 && b.Floor == 0 {
		l.report("ratio", codeNothingGranted, "with a floor of 0 too, every retry is refused", "raise the ratio or the floor, or let the policies grant no retries")
	}
	if b.Window < shortWindow {
		l.report("window", codeShortWindow, fmt.Sprintf("%v is shorter than most runs: the first run of a job has left the window when it fails", b.Window), "choose some minutes, such as the default of 10m")
	}
	if why, fix := l.neverAsked(b.Queue); why != "" {
		l.report("queue", codeNeverAsked, why, fix)
	}
}

// neverAsked says why no retry of a queue, or of all, is asked of a budget, as far as these files say; "": some are.
func (l *linter) neverAsked(queue string) (why, fix string) {
	names, listed := []string(nil), []string(nil)
	for _, id := range l.set.Resources() {
		switch id.Kind {
		case policyfile.KindPolicy:
			names = append(names, id.Name)
		case policyfile.KindQueue:
			listed = append(listed, id.Name)
		}
	}
	exists := slices.Contains(listed, queue)
	if queue != "" {
		if names = l.set.Applying(queue, ""); !exists && !l.settings {
			names = nil // no default policy is known
		}
	}
	switch near := suggest.Nearest(queue, listed); {
	case slices.ContainsFunc(names, func(name string) bool { o := l.policies[name]; return l.retries(&o) }):
		return "", ""
	case queue == "":
		return "no policy grants a retry that counts, so it has nothing to limit", "add a rule with action Retry, or remove the budget"
	case !exists && near != "":
		return "there is no such queue here, and no policy applies to it that grants a retry that counts", "did you mean " + near + "?"
	case !exists:
		return "there is no such queue here, and no policy applies to it that grants a retry that counts", "add the queue with its retryPolicies, or remove the budget"
	}
	return "no policy of the queue grants a retry that counts, so it has nothing to limit (unless jobs name policies themselves)", "add a rule with action Retry, or remove the budget"
}

// retries says whether a policy grants retries that count.
func (l *linter) retries(o *policy.Outline) bool {
	return slices.ContainsFunc(append(slices.Clip(o.Rules), o.Default), func(r policy.Rule) bool {
		return r.Action == "Retry" && r.Limit > 0 && l.mostRetries(&r) > 0
	})
}
