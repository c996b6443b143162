package policyfile

// fieldText documents one field of the files: the single source of `refloatctl explain-field`, of the descriptions
// in the JSON Schema and of the table in docs/reference/fields.md.
type fieldText struct {
	at      string // suffix of its path, preceded by a kind where that matters
	unset   string // effective value if it is not set
	limits  string
	meaning string
}

// fieldTexts, groupTexts and matcherTexts are found by the longest suffix of a path listed there.
var fieldTexts = [...]fieldText{
	{"RetryPolicy:", "", "", "A retry policy: a named list of rules that decide whether a failed run is retried. Rules are tried in order, and the first match decides."},
	{"RetryPolicy/v1beta1:", "", "", "A retry policy in Armada's own flat form. Rules match by category only, and an omitted retryLimit is 0 (never)."},
	{"GroupPolicy:", "", "", "A group policy: which parts a group of jobs has, how many of their members must succeed, and what restarts when some fail. Jobs name it by their annotation refloat.github.io/group-policy."},
	{"Queue:", "", "", "The binding of a queue: its policies, in order, and whether its decisions take effect."},
	{"RetrySettings:", "", "", "The settings for all queues. There is at most one such document."},
	{"apiVersion", "", "", "The version of the format."},
	{"kind", "", "", "The kind of the document."},
	{"metadata", "", "", "The metadata of the policy."},
	{"metadata.name", "", "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends", "The name by which queues and jobs refer to the policy. Rules are counted under it, so renaming a policy resets their counts."},
	{"RetryPolicy/v1beta1:name", "", "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends", "The name by which queues and jobs refer to the policy."},
	{"GroupPolicy:metadata.name", "", "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends", "The name by which jobs refer to the group policy."},
	{"RetryPolicy:spec", "", "", "The content of the policy."},
	{"GroupPolicy:spec", "", "", "The content of the group policy. parts are fixed for a group when its first member is submitted; rules, limits and backoff are always those in force."},
	{"RetrySettings:spec", "", "", "The settings themselves."},
	{"spec.retryLimit", "globalMaxRetries of the settings", "0 to 1000000", "How many retries each rule of the policy grants to one job, unless the rule overrides it. It counts retries, not runs: 3 allows four runs. 0 means never."},
	{"RetryPolicy/v1beta1:retryLimit", "0: never", "0 to 1000000", "How many retries each rule grants to one job. In this form an omitted limit is 0 (never), as in Armada."},
	{"rules.retryLimit", "the policy's, else globalMaxRetries", "0 to 1000000", "How many retries the rule grants to one job. It counts retries, not runs: 3 allows four runs. 0 means never."},
	{"defaultAction", "Fail, with an empty policy and rule", "Fail, Retry or FailUnit", "What happens when no rule matches. The first policy in a queue's list that has one decides. A Retry is counted under the rule name default."},
	{"selectableByJobs", "jobsMaySelect of the settings", "", "Whether jobs may select the policy by their annotation armadaproject.io/retry-policy. If not, the policy is skipped there."},
	{"RetryPolicy:spec.maxRetries", "globalMaxRetries of the settings", "0 to 1000000", "How many retries one job gets in total, over all rules, where this policy grants the next one. It replaces globalMaxRetries, and is at most the settings' policyMaxRetries."},
	{"rules", "no rules", "at most 1000", "The rules, tried in order; the first match decides. The rules of all policies of a queue form one list."},
	{"rules.name", "its index, such as #0; it is counted under its matchers", "1 to 63 of a-z, 0-9 and -, not default", "The name of the rule, under which it is counted: a named rule keeps its count whatever else is edited."},
	{"rules.action", "", "Retry, Fail, Ignore or FailUnit", "What happens when the rule matches. Retry: run again, counted against the limits. Fail: fail the job. Ignore: run again without counting; only the kill switch prevents it. FailUnit: fail the job, and if it is a member of a group, its unit at once, for the reason unitReason."},
	{"unitReason", "PodFailurePolicy", "a value of onReasons but MemberCancelled; only with the action FailUnit", "The reason for which the unit fails, by which rules of the group tell failures apart."},
	{"RetryPolicy/v1beta1:rules.action", "", "Retry or Fail", "What happens when the rule matches."},
	{"rules.onCategory", "", "", "Matches if the executor's failure category is this one. The comparison is exact."},
	{"rules.onSubcategory", "any", "", "Restricts onCategory to this subcategory. The comparison is exact."},
	{"rules.containerName", "any container", "", "Considers only the exit code, reason and message of this container. OOMKilled is then the only condition that can hold."},
	{"rules.includeInitContainers", "false", "", "Whether init containers are considered too. Required if containerName names one."},
	{"backoff", "inherited, field by field", "", "The delay before a retry: the smaller of initialDelay × multiplier^(n−1) and maxDelay for the rule's n-th retry of the job, plus jitter. Each field is inherited separately: from the rule, the policy, or the settings' defaultBackoff."},
	{"defaultBackoff", "0s, 10m, 2, 0", "", "The backoff where neither rule nor policy sets one, field by field."},
	{"initialDelay", "0s", "whole milliseconds", "The delay of the first retry."},
	{"maxDelay", "10m", "whole milliseconds", "The maximum delay, before jitter."},
	{"multiplier", "2", "1 to 1000000, three decimals", "The factor by which the delay grows with each retry. 1 keeps it constant."},
	{"type", "the delay grows by multiplier", "not together with multiplier", "Constant means a multiplier of 1, Exponential one of 2."},
	{"jitter", "0", "0 to 1, three decimals", "Adds up to this fraction of the delay, so that jobs that failed together are not retried together. It is derived from the run id, and so is the same in every replay."},
	{"antiAffinity", "the policy's, else none", "", "Where the next run must not start."},
	{"antiAffinity.mode", "", "none, node or allNodes", "node avoids the node of this failure, allNodes the nodes of all attempted runs of the job that failed, none avoids no node."},
	{"replacement", "the policy's, else WhenFailed", "WhenFailed or WhenTerminated", "Whether the next run may start as soon as the old run has failed, or must wait until its pod is gone. After Preempted and LeaseExpired it always waits; a failure that proves that the pod is over, such as an exit code, waits for nothing."},
	{"Queue:name", "", "as in Armada", "The name of the queue."},
	{"retryPolicies", "defaultPolicyName of the settings", "", "The policies for the queue's jobs, in order; their rules form one list, and the first match decides. A policy that does not exist is skipped, and each decision names it."},
	{"mode", "the settings', else Enforce", "Enforce or Shadow", "Shadow: decisions are made, counted and shown, but take no effect."},
	{"RetrySettings:spec.mode", "Enforce", "Enforce or Shadow", "The mode of queues that set none."},
	{"killed", "false", "", "The kill switch of the queue: true fails runs that would be retried."},
	{"pausedUntil", "not paused", "an RFC 3339 time", "Retries that a policy grants, and restarts by groups, start no earlier than this. A pause ends by itself."},
	{"enabled", "true", "", "false: no policy is applied, and pods have the same names as without retries."},
	{"globalMaxRetries", "20", "0 to 1000000", "How many retries one job gets in total, over all rules. 0 stops all retries. If you lower it, jobs that are above it fail at their next failure."},
	{"policyMaxRetries", "globalMaxRetries", "0 to 1000000", "To how many retries of one job in total maxRetries of a policy may raise globalMaxRetries. Unset, no policy raises it."},
	{"defaultPolicyName", "no policy", "", "The policy of jobs for which neither the queue nor the annotation names an existing policy."},
	{"legacyMaxAttempts", "4", "0 to 1000000", "If no policy applies, a job fails when this many leases of attempted runs were returned, as in Armada."},
	{"terminationSlack", "0s", "whole milliseconds", "How much longer than the termination grace period a pod may take to disappear. On a real cluster, executors learn of a preemption up to 10 s late."},
	{"horizon", "24h", "more than 0s", "How long ended jobs are remembered, to recognise late events about them."},
	{"avoidNodes", "no node", "at most 1000", "Nodes that every retry avoids, besides those of its rule: of failures before until. What the guard and `refloatctl avoid` add is an override beside these."},
	{"avoidNodes.name", "", "as in Kubernetes", "The name of the node."},
	{"avoidNodes.until", "", "an RFC 3339 time", "When retries may start there again."},
	{"jobsMaySelect", "true", "", "The default of selectableByJobs: whether jobs may select policies by their annotation."},
}
