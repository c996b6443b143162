package conformance_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/refloat/refloat/internal/convert"
	"github.com/refloat/refloat/internal/test/oracle"
)

const childContainer = "main-container"

// childJob is a Job that can fail for some reasons.
func childJob(reasons []string) map[string]any {
	spec := map[string]any{"backoffLimit": 0, "completions": 1, "parallelism": 1}
	if slices.Contains(reasons, "PodFailurePolicy") {
		spec["podFailurePolicy"] = map[string]any{"rules": []any{map[string]any{
			"action": "FailJob", "onExitCodes": map[string]any{"operator": "In", "values": []int{oracle.PolicyExitCode}},
		}}}
	}
	if slices.Contains(reasons, "DeadlineExceeded") {
		spec["activeDeadlineSeconds"] = 60
	}
	if slices.ContainsFunc(reasons, func(reason string) bool { return strings.Contains(reason, "FailedIndexes") }) {
		delete(spec, "backoffLimit")
		spec["completionMode"], spec["backoffLimitPerIndex"] = "Indexed", 0
	}
	if slices.Contains(reasons, "MaxFailedIndexesExceeded") {
		spec["completions"], spec["maxFailedIndexes"] = 2, 0
	}
	return withPods(spec, nil, childContainer)
}

// startJobSet starts a JobSet whose child Jobs can fail for their reasons.
func startJobSet(c *oracle.Check, s *oracle.JobSet) oracle.Group {
	var jobs []any
	for i := range s.ReplicatedJobs {
		r := &s.ReplicatedJobs[i]
		jobs = append(jobs, map[string]any{"name": r.Name, "replicas": r.Number(), "template": map[string]any{"spec": childJob(r.Reasons)}})
	}
	spec := map[string]any{"replicatedJobs": jobs}
	if f := s.FailurePolicy; f != nil {
		policy, rules := map[string]any{}, []any{}
		if f.MaxRestarts != nil {
			policy["maxRestarts"] = *f.MaxRestarts
		}
		if f.RestartStrategy != "" {
			policy["restartStrategy"] = f.RestartStrategy
		}
		for _, r := range f.Rules {
			rule := map[string]any{"action": r.Action}
			for name, list := range map[string][]string{
				"onJobFailureReasons": r.OnJobFailureReasons, "onJobFailureMessagePatterns": r.OnJobFailureMessagePatterns, "targetReplicatedJobs": r.TargetReplicatedJobs,
			} {
				if len(list) > 0 {
					rule[name] = list
				}
			}
			if r.Name != "" {
				rule["name"] = r.Name
			}
			rules = append(rules, rule)
		}
		if len(rules) > 0 {
			policy["rules"] = rules
		}
		spec["failurePolicy"] = policy
	}
	w := start(c, manifest("jobset.x-k8s.io/v1alpha2", "JobSet", spec), childContainer)
	never := fmt.Sprintf("spec.failurePolicy.rules[%d].action", len(s.Rules())-1) // of the last rule: those before it only set the scene
	if c.LeaveOut(oracle.Reason{
		Holds: slices.ContainsFunc(w.notes, func(n convert.Note) bool { return n.Path == never && n.Now == "FailGroup" }),
		Why:   "a restart where maxRestarts is 0: conversion writes FailGroup, which ends the group with the reason of the child Job",
	}) {
		return nil
	}
	return w
}
