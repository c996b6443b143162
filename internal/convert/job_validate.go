package convert

import (
	"fmt"
	"math"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Limits of a Job (batch/v1).
const (
	maxPodFailureRules      = 20
	maxExitCodes            = 255
	maxPodConditions        = 20
	maxSuccessRules         = 20
	maxIndexedParallelism   = 100_000
	maxFailedIndexes        = 100_000
	manyCompletions         = 100_000
	maxParallelismOfMany    = 10_000
	maxFailedIndexesOfMany  = 10_000
	wantNotNegative         = "write 0 or more"
	needsIndexed            = "set completionMode: Indexed"
	actionsOfPodFailureRule = "Count, FailIndex, FailJob or Ignore"
)

// validateJob reports what the API server of Kubernetes would refuse.
func (d *document) validateJob(path string, s *batchv1.JobSpec) {
	at := func(field string) string { return join(path, field) }
	notNegative := func(field string, n *int32) {
		if n != nil && *n < 0 {
			d.fail(at(field), "must be greater than or equal to 0", wantNotNegative)
		}
	}
	notNegative("parallelism", s.Parallelism)
	notNegative("completions", s.Completions)
	notNegative("backoffLimit", s.BackoffLimit)
	notNegative("backoffLimitPerIndex", s.BackoffLimitPerIndex)
	notNegative("maxFailedIndexes", s.MaxFailedIndexes)
	notNegative("ttlSecondsAfterFinished", s.TTLSecondsAfterFinished)
	if n := s.ActiveDeadlineSeconds; n != nil && (*n < 0 || *n > math.MaxInt32) {
		d.fail(at("activeDeadlineSeconds"), fmt.Sprintf("must be from 0 to %d", math.MaxInt32), wantNotNegative)
	}
	if s.Parallelism != nil && *s.Parallelism == 0 && (s.Completions == nil || *s.Completions > 0) {
		d.fail(at("parallelism"), "with 0, no pod ever starts", "write 1 or more")
	}
	indexed := s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
	if m := s.CompletionMode; m != nil && !indexed && *m != batchv1.NonIndexedCompletion {
		d.fail(at("completionMode"), "an unsupported value", "use Indexed or NonIndexed")
	}
	if indexed {
		d.validateIndexed(path, s)
	}
	if s.BackoffLimitPerIndex != nil && !indexed {
		d.fail(at("backoffLimitPerIndex"), "requires indexed completion mode", needsIndexed)
	}
	if s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil {
		d.fail(at("maxFailedIndexes"), "requires backoffLimitPerIndex", "set backoffLimitPerIndex, or remove it")
	}
	if p := s.PodReplacementPolicy; p != nil {
		switch {
		case *p == batchv1.Failed:
		case s.PodFailurePolicy != nil:
			d.fail(at("podReplacementPolicy"), "unsupported with a podFailurePolicy", "use Failed, or remove it")
		case *p != batchv1.TerminatingOrFailed:
			d.fail(at("podReplacementPolicy"), "an unsupported value", "use TerminatingOrFailed or Failed")
		}
	}
	if s.PodFailurePolicy != nil {
		d.validatePodFailurePolicy(path, s)
	}
	if s.SuccessPolicy != nil {
		d.validateSuccessPolicy(path, s, indexed)
	}
	switch p := s.Template.Spec.RestartPolicy; {
	case p != "" && p != corev1.RestartPolicyNever && p != corev1.RestartPolicyOnFailure:
		d.fail(at("template.spec.restartPolicy"), "an unsupported value", "use Never or OnFailure")
	case s.PodFailurePolicy != nil && p == corev1.RestartPolicyOnFailure:
		d.fail(at("template.spec.restartPolicy"), "only Never is supported when podFailurePolicy is specified", "use Never")
	}
}

func (d *document) validateIndexed(path string, s *batchv1.JobSpec) {
	at := func(field string) string { return join(path, field) }
	if s.Completions == nil {
		d.fail(at("completions"), "required with completionMode: Indexed", "write how many indexes there are")
		return
	}
	if n := s.Parallelism; n != nil && *n > maxIndexedParallelism {
		d.fail(at("parallelism"), fmt.Sprintf("must be less than or equal to %d when completionMode is Indexed", maxIndexedParallelism), "lower it")
	}
	if n := s.MaxFailedIndexes; n != nil && *n > *s.Completions {
		d.fail(at("maxFailedIndexes"), fmt.Sprintf("must be less than or equal to completions, %d", *s.Completions), "lower it")
	}
	if n := s.MaxFailedIndexes; n != nil && *n > maxFailedIndexes {
		d.fail(at("maxFailedIndexes"), fmt.Sprintf("must be less than or equal to %d", maxFailedIndexes), "lower it")
	}
	if *s.Completions <= manyCompletions || s.BackoffLimitPerIndex == nil {
		return
	}
	const when = "when completions are above 100000 and used with backoff limit per index"
	switch n := s.MaxFailedIndexes; {
	case n == nil:
		d.fail(at("maxFailedIndexes"), "must be specified "+when, "write it")
	case *n > maxFailedIndexesOfMany:
		d.fail(at("maxFailedIndexes"), fmt.Sprintf("must be less than or equal to %d %s", maxFailedIndexesOfMany, when), "lower it")
	}
	if n := s.Parallelism; n != nil && *n > maxParallelismOfMany {
		d.fail(at("parallelism"), fmt.Sprintf("must be less than or equal to %d %s", maxParallelismOfMany, when), "lower it")
	}
}

func (d *document) validatePodFailurePolicy(path string, s *batchv1.JobSpec) {
	rules := s.PodFailurePolicy.Rules
	if len(rules) > maxPodFailureRules {
		d.fail(join(path, "podFailurePolicy.rules"), fmt.Sprintf("too many: %d, must have at most %d items", len(rules), maxPodFailureRules), "remove some")
	}
	for i := range rules {
		r, at := &rules[i], fmt.Sprintf("%s.podFailurePolicy.rules[%d]", path, i)
		switch _, known := podFailureActions()[r.Action]; {
		case r.Action == "":
			d.fail(join(at, "action"), "required", "write "+actionsOfPodFailureRule)
		case !known:
			d.fail(join(at, "action"), "an unsupported value", "use "+actionsOfPodFailureRule)
		case r.Action == batchv1.PodFailurePolicyActionFailIndex && s.BackoffLimitPerIndex == nil:
			d.fail(join(at, "action"), "FailIndex requires backoffLimitPerIndex", "set backoffLimitPerIndex, or use FailJob")
		}
		switch {
		case r.OnExitCodes != nil && len(r.OnPodConditions) > 0:
			d.fail(at, "specifying both onExitCodes and onPodConditions is not supported", "make two rules of it")
		case r.OnExitCodes == nil && len(r.OnPodConditions) == 0:
			d.fail(at, "specifying one of onExitCodes and onPodConditions is required", "add one")
		case r.OnExitCodes != nil:
			d.validateExitCodes(join(at, "onExitCodes"), r.OnExitCodes, &s.Template.Spec)
		default:
			d.validatePodConditions(join(at, "onPodConditions"), r.OnPodConditions)
		}
	}
}

func (d *document) validateExitCodes(path string, r *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *corev1.PodSpec) {
	switch r.Operator {
	case "":
		d.fail(join(path, "operator"), "required", "write In or NotIn")
	case batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn:
	default:
		d.fail(join(path, "operator"), "an unsupported value", "use In or NotIn")
	}
	if name := r.ContainerName; name != nil {
		named := func(c corev1.Container) bool { return c.Name == *name }
		if !slices.ContainsFunc(pod.Containers, named) && !slices.ContainsFunc(pod.InitContainers, named) {
			d.fail(join(path, "containerName"), "must be one of the container or initContainer names in the pod template", "correct the name, or leave it out for all containers")
		}
	}
	values := join(path, "values")
	switch n := len(r.Values); {
	case n == 0:
		d.fail(values, "at least one value is required", "write the exit codes")
	case n > maxExitCodes:
		d.fail(values, fmt.Sprintf("too many: %d, must have at most %d items", n, maxExitCodes), "use the other operator, or fewer values")
	}
	for i, v := range r.Values {
		at := fmt.Sprintf("%s[%d]", values, i)
		switch {
		case v == 0 && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn:
			d.fail(at, "must not be 0 for the In operator", "remove it: a container that exits with 0 did not fail")
		case slices.Contains(r.Values[:i], v):
			d.fail(at, "a duplicate", "remove it")
		case i > 0 && r.Values[i-1] > v:
			d.fail(at, "must be ordered", "sort the values")
		}
	}
}

func (d *document) validatePodConditions(path string, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) {
	if n := len(patterns); n > maxPodConditions {
		d.fail(path, fmt.Sprintf("too many: %d, must have at most %d items", n, maxPodConditions), "remove some")
	}
	for i, p := range patterns {
		at := fmt.Sprintf("%s[%d]", path, i)
		if !qualified(string(p.Type)) {
			d.fail(join(at, "type"), "not the type of a condition", "write its name, such as DisruptionTarget")
		}
		switch p.Status {
		case "", corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
		default:
			d.fail(join(at, "status"), "an unsupported value", `use "True", "False" or "Unknown", in quotes`)
		}
	}
}

// qualified reports whether s is a qualified name: up to 63 of letters, digits, -, _ and ., after a domain and a slash or not.
func qualified(s string) bool {
	domain, name, ok := strings.Cut(s, "/")
	if !ok {
		domain, name = "a", s
	}
	const ends = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return name != "" && len(name) <= 63 && strings.Trim(name, ends+"-_.") == "" && strings.ContainsRune(ends, rune(name[0])) &&
		strings.ContainsRune(ends, rune(name[len(name)-1])) && len(domain) <= 253 && !slices.ContainsFunc(splitLabels(domain), func(l string) bool { return !validLabel(l) })
}

// splitLabels splits a domain name.
func splitLabels(s string) []string { return strings.Split(s, ".") }

func (d *document) validateSuccessPolicy(path string, s *batchv1.JobSpec, indexed bool) {
	at := join(path, "successPolicy")
	if !indexed {
		d.fail(at, "requires indexed completion mode", needsIndexed)
	}
	rules := s.SuccessPolicy.Rules
	switch n := len(rules); {
	case n == 0:
		d.fail(join(at, "rules"), "at least one rule must be specified when successPolicy is", "add one, or remove successPolicy")
	case n > maxSuccessRules:
		d.fail(join(at, "rules"), fmt.Sprintf("too many: %d, must have at most %d items", n, maxSuccessRules), "remove some")
	}
	completions := or(s.Completions, 0)
	for i, r := range rules {
		rule := fmt.Sprintf("%s.rules[%d]", at, i)
		if r.SucceededCount == nil && r.SucceededIndexes == nil {
			d.fail(rule, "at least one of succeededCount or succeededIndexes must be specified", "add one")
		}
		size := completions
		if r.SucceededIndexes != nil {
			n, ok := indexCount(*r.SucceededIndexes, completions)
			if !ok {
				d.fail(join(rule, "succeededIndexes"), "not a list of indexes", fmt.Sprintf("write such as 0,3-5,7, in order, below %d", completions))
			}
			size = n
		}
		if n := r.SucceededCount; n != nil && (*n < 1 || *n > size) {
			d.fail(join(rule, "succeededCount"), fmt.Sprintf("must be from 1 to %d, the number of indexes that it is about", size), "correct it")
		}
	}
}

// indexCount is how many indexes a text such as 0,3-5,7 names.
func indexCount(s string, completions int32) (total int32, ok bool) {
	last := int32(-1)
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, okA := index(from)
		b := a
		okB := true
		if isRange {
			b, okB = index(to)
		}
		if !okA || !okB || a <= last || b < a || isRange && b == a || b >= completions {
			return 0, false
		}
		total, last = total+b-a+1, b
	}
	return total, true
}

func index(s string) (int32, bool) {
	n := int32(0)
	if s == "" || len(s) > 9 {
		return 0, false
	}
	for _, r := range s {
		if r < '0' || r > '9' {
			return 0, false
		}
		n = n*10 + r - '0'
	}
	return n, true
}
