package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// QueuePermissions lists the groups that may do something with one queue, who need not have the permission for all.
type QueuePermissions struct {
	View     []string `json:"view"`     // see its jobs, runs, decisions and groups: GetJobs
	Override []string `json:"override"` // pause its retries, or switch it to shadow mode: PauseRetries, ShadowRetries
	Kill     []string `json:"kill"`     // kill its retries: KillRetries
	Apply    []string `json:"apply"`    // create, change and delete its resource: BindRetryPolicies
}

// groups returns who has a permission on the queue.
func (q *QueuePermissions) groups(verb Verb) []string {
	switch verb { //nolint:exhaustive // the others are for all queues only
	case GetJobs:
		return q.View
	case PauseRetries, ShadowRetries:
		return q.Override
	case KillRetries:
		return q.Kill
	case BindRetryPolicies:
		return q.Apply
	}
	return nil
}

// ofQueues are the permissions that a queue has.
var ofQueues = []Verb{GetJobs, PauseRetries, ShadowRetries, KillRetries, BindRetryPolicies}

func (a *Auth) checkQueues() error {
	for _, queue := range slices.Sorted(maps.Keys(a.Queues)) {
		switch {
		case queue == "":
			return errors.New(`queuePermissions.: a queue needs a name`)
		case queue == "*":
			return errors.New(`queuePermissions.*: there are no patterns: permissionGroupMapping grants permissions on all queues`)
		case !policyfile.Visible(queue):
			return fmt.Errorf("queuePermissions.%q: the name has an invisible character: remove it", queue)
		}
	}
	return nil
}

// MayOn returns an error if the caller lacks a permission on a queue; "": on all.
func (a *Auth) MayOn(who Principal, verb Verb, queue string) error {
	if a != nil && queue != "" {
		q := a.Queues[queue]
		if shared(q.groups(verb), who.Groups) {
			return nil
		}
	}
	return a.May(who, verb)
}

func shared(some, others []string) bool {
	return slices.ContainsFunc(some, func(g string) bool { return slices.Contains(others, g) })
}

// mayAnywhere returns an error if the caller lacks a permission on all queues and on each single one.
func (a *Auth) mayAnywhere(who Principal, verb Verb) error {
	err := a.May(who, verb)
	if err != nil && len(a.on(who, verb)) > 0 {
		return nil
	}
	return err
}

// on lists the queues on which the caller has a permission that need not hold for all.
func (a *Auth) on(who Principal, verb Verb) (queues []string) {
	for _, queue := range slices.Sorted(maps.Keys(a.Queues)) {
		if q := a.Queues[queue]; shared(q.groups(verb), who.Groups) {
			queues = append(queues, queue)
		}
	}
	return queues
}

// knows reports whether a caller may know of a queue: without permissions on single queues, whoever signs in; with some, who
// has one on it, or one of those on all.
func (a *Auth) knows(who Principal, queue string) bool {
	return a == nil || len(a.Queues) == 0 || slices.ContainsFunc(ofQueues, func(v Verb) bool { return a.MayOn(who, v, queue) == nil })
}

// knowsID does the same for a resource: policies and settings are of no queue.
func (a *Auth) knowsID(who Principal, id policyfile.ID) bool {
	return id.Kind != policyfile.KindQueue || a.knows(who, id.Name)
}

// known returns the overrides that a caller may know of.
func (a *Auth) known(who Principal, all []policylog.Override) []policylog.Override {
	return slices.DeleteFunc(slices.Clone(all), func(o policylog.Override) bool { return o.Queue != "" && !a.knows(who, o.Queue) })
}

// shown returns what a caller may know of a generation, before which other overrides were in force: its changes, its overrides, and
// what these change, in words; false: nothing.
func (s *Service) shown(who Principal, v *policylog.Version, before []policylog.Override) (_ []policylog.Change, _ []policylog.Override, lines []string, _ bool) {
	a := s.Auth
	changes := slices.DeleteFunc(slices.Clone(v.Changes), func(c policylog.Change) bool { return !a.knowsID(who, c.ID) })
	overrides := a.known(who, v.Overrides)
	hidden := len(changes) < len(v.Changes) || len(overrides) < len(v.Overrides) || len(a.known(who, before)) < len(before)
	began, ended := policylog.OverridesChanged(before, v.Overrides, v.Time)
	lines = append(s.lines(who, began, ""), s.lines(who, ended, noLonger)...)
	return changes, overrides, lines, !hidden || len(changes) > 0 || len(lines) > 0
}

// about lists the resources that files name, if a caller need not know of all queues.
func (a *Auth) about(files ...policyfile.File) []policyfile.ID {
	if a == nil || len(a.Queues) == 0 {
		return nil
	}
	_, ids, err := policyfile.Empty().With(files...)
	if err != nil {
		return nil // the change fails before it looks at what exists
	}
	return ids
}

// seen is the context key of the queues whose jobs an admitted caller may see.
type seen struct{}

type queueSet struct {
	some []string
	all  bool
}

func (a *Auth) withQueues(ctx context.Context, who Principal) context.Context {
	set := queueSet{all: a.May(who, GetJobs) == nil}
	if !set.all {
		set.some = a.on(who, GetJobs)
	}
	return context.WithValue(ctx, seen{}, set)
}

// QueuesOf returns the queues whose jobs the caller of a request may see. Who was not admitted sees none.
func QueuesOf(ctx context.Context) (some []string, all bool) {
	set, _ := ctx.Value(seen{}).(queueSet)
	return set.some, set.all
}

// OfAllQueues is a context that sees the jobs of all queues, for what reads them on behalf of several callers, or for one
// whom it shows only his own.
func OfAllQueues(ctx context.Context) context.Context {
	return context.WithValue(ctx, seen{}, queueSet{all: true})
}
