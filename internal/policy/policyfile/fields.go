package policyfile

// fieldText is what one field of the files means: the single source of
// `refloatctl explain-field`, of the descriptions in the JSON Schema and of the
// table in docs/policies.md.
type fieldText struct {
	at      string // the end of its path, and before it a kind where that matters
	unset   string // what holds where it is not set
	limits  string
	meaning string
}

// fieldTexts are found by the longest end of a path that stands here.
var fieldTexts = [...]fieldText{
	{"RetryPolicy:", "", "", "A retry policy: a named list of rules that decide what becomes of a failed run. Rules are tried in order, and the first that matches decides."},
	{"RetryPolicy/v1beta1:", "", "", "A retry policy in Armada's own flat form. Rules match by category only, and an absent retryLimit is 0: never."},
	{"Queue:", "", "", "What is bound to a queue: its policies, in order, and whether its decisions are acted on."},
	{"RetrySettings:", "", "", "What holds for all queues. There is one of it at most."},
	{"apiVersion", "", "", "The version of the format."},
	{"kind", "", "", "What the document is."},
	{"metadata", "", "", "What names the policy."},
	{"metadata.name", "", "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends", "The name by which queues and jobs refer to the policy. Rules count under it, so renaming a policy begins their counts anew."},
	{"RetryPolicy/v1beta1:name", "", "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends", "The name by which queues and jobs refer to the policy."},
	{"RetryPolicy:spec", "", "", "What the policy says."},
	{"RetrySettings:spec", "", "", "What the settings are."},
	{"spec.retryLimit", "globalMaxRetries of the settings", "0 to 1000000", "How many retries each rule of the policy grants to one job, unless the rule says otherwise. It counts retries, not runs: 3 allows four runs. 0 means never."},
	{"RetryPolicy/v1beta1:retryLimit", "0: never", "0 to 1000000", "How many retries each rule grants to one job. In this form an absent limit is 0, never, as it is in Armada."},
	{"rules.retryLimit", "that of the policy, then globalMaxRetries", "0 to 1000000", "How many retries the rule grants to one job. It counts retries, not runs: 3 allows four runs. 0 means never."},
	{"defaultAction", "Fail, with an empty policy and rule", "Fail or Retry", "What happens when no rule matches. The first policy in a queue's list that states one decides. A Retry counts under the name default."},
	{"selectableByJobs", "jobsMaySelect of the settings", "", "Whether jobs may ask for the policy in their annotation armadaproject.io/retry-policy. A policy that is not is skipped there."},
	{"rules", "no rules", "at most 1000", "The rules, tried in order; the first that matches decides. In a queue with several policies their rules are one list."},
	{"rules.name", "its place, such as #0; it counts under its matchers", "1 to 63 of a-z, 0-9 and -, not default", "The name of the rule, and what it counts under: a named rule keeps its count whatever is edited."},
	{"rules.action", "", "Retry, Fail or Ignore", "What happens when the rule matches. Retry: run again, counted against the limits. Fail: the job fails. Ignore: run again without counting, against nothing but the kill switch."},
	{"RetryPolicy/v1beta1:rules.action", "", "Retry or Fail", "What happens when the rule matches."},
	{"rules.onConditions", "not asked", "no value twice", "Matches when one of these facts holds: OOMKilled, Evicted, DeadlineExceeded, Preempted, Unschedulable (a lease returned before the run was tried), LeaseReturned (after), LeaseExpired."},
	{"rules.onExitCodes", "not asked", "", "Matches by the exit code of the targeted container: the first one, in the order of the report, that the rule sees and that did not exit with 0. Without one it never matches."},
	{"onExitCodes.operator", "", "In or NotIn", "Whether the code must be among the values, or must not."},
	{"onExitCodes.values", "", "no value twice; not 0 with In", "The exit codes, as many as you need. Kubernetes allows 255, to keep its objects small; here the size of the file is the limit, a longer list costs a decision nothing, and containers on Windows exit with more than 255 codes."},
	{"rules.onTerminationMessage", "not asked", "", "Matches by the termination message of any container that the rule sees. An empty message never matches."},
	{"onTerminationMessage.pattern", "", "RE2, 4096 bytes, 5000 parts with its repetitions written out, and 50000 in one policy", "The regular expression, found anywhere in the message unless it has ^ or $. Write it in single quotes."},
	{"rules.onFailureCategory", "not asked", "no value twice", "Matches when the executor's failure category is one of these, exactly; case counts."},
	{"rules.onFailureSubcategory", "not asked", "only with onFailureCategory", "Narrows onFailureCategory to these subcategories, exactly."},
	{"rules.onCategory", "", "", "Matches when the executor's failure category is this one, exactly."},
	{"rules.onSubcategory", "not asked", "", "Narrows onCategory to this subcategory, exactly."},
	{"rules.containerName", "any container", "", "Only this container's exit code, reason and message count. Of the conditions only OOMKilled can then hold."},
	{"rules.includeInitContainers", "false", "", "Whether init containers are seen too. A containerName that names one needs it."},
	{"backoff", "each field from the level above", "", "How long a retry waits: the least of initialDelay × multiplier^(n−1) and maxDelay, where n is the rule's n-th retry of this job; then jitter. Each field is inherited by itself: rule, policy, the settings' defaultBackoff."},
	{"defaultBackoff", "0s, 10m, 2, 0", "", "The backoff where neither rule nor policy says otherwise, field by field."},
	{"initialDelay", "0s", "whole milliseconds", "How long the first retry waits."},
	{"maxDelay", "10m", "whole milliseconds", "The longest delay, before jitter."},
	{"multiplier", "2", "1 to 1000000, three decimals", "By how much the delay grows with each retry. 1: it does not."},
	{"type", "the delay grows by multiplier", "not together with multiplier", "Constant is a multiplier of 1."},
	{"jitter", "0", "0 to 1, three decimals", "Adds up to this part of the delay, so that what failed together does not come back together. It is drawn from the run's id, and so the same in every replay."},
	{"antiAffinity", "that of the policy, then none", "", "Where the next run must not start."},
	{"antiAffinity.mode", "", "none, node or allNodes", "node avoids the node of this failure, allNodes those of all attempted runs of the job that failed, none avoids nothing."},
	{"replacement", "that of the policy, then WhenFailed", "WhenFailed or WhenTerminated", "Whether the next run may start when the old one is known to have failed, or must wait until its pod is gone. Preempted and LeaseExpired always wait."},
	{"Queue:name", "", "as Armada knows it", "The queue."},
	{"retryPolicies", "defaultPolicyName of the settings", "", "The policies for the queue's jobs, in order; their rules are one list, first match wins. A name that does not exist is skipped and named in each decision."},
	{"mode", "that of the settings, then Enforce", "Enforce or Shadow", "Shadow: decisions are made, counted and shown, and nobody acts on them."},
	{"RetrySettings:spec.mode", "Enforce", "Enforce or Shadow", "The mode of queues that state none."},
	{"killed", "false", "", "The kill switch of the queue: true fails what would be retried."},
	{"pausedUntil", "not paused", "a time of RFC 3339", "Retries that a policy grants start no earlier than this. A pause ends by itself."},
	{"enabled", "true", "", "false: no policy decides, and pods have the names that they had without retries."},
	{"globalMaxRetries", "20", "0 to 1000000", "How many retries one job gets over all rules. 0 is the kill switch for everyone. Lowering it fails jobs that are over it at their next failure."},
	{"defaultPolicyName", "no policy", "", "The policy of jobs for which neither their queue nor their annotation names one that exists."},
	{"legacyMaxAttempts", "4", "0 to 1000000", "Where no policy decides, a job fails at this many returned leases of runs that were tried, as in Armada."},
	{"terminationSlack", "0s", "whole milliseconds", "How much later than the termination grace a pod may be gone. An executor on a real cluster learns of a preemption up to 10 s late."},
	{"horizon", "24h", "more than 0s", "How long jobs that ended are remembered, to recognize late reports of them."},
	{"jobsMaySelect", "true", "", "Whether jobs may name policies in their annotation that do not say so themselves (selectableByJobs)."},
}
