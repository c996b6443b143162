package lint

import (
	"slices"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Code documents one problem code.
type Code struct {
	Code     string
	Severity policyfile.Severity
	Title    string
	Text     string
}

// Codes returns the table of all codes, in order.
func Codes() []Code { return slices.Clone(codes[:]) }

func severityOf(code string) policyfile.Severity {
	for _, c := range codes {
		if c.Code == code {
			return c.Severity
		}
	}
	return policyfile.Warning
}

var codes = [...]Code{
	{"RP001", policyfile.Error, "not YAML", "The file cannot be read as YAML (or JSON). The rest of the file was not read."},
	{"RP002", policyfile.Error, "too big", "The file is bigger or nested deeper than any policy file needs to be."},
	{"RP003", policyfile.Error, "fancy YAML", "Anchors, aliases, merge keys and tags are rejected: write out the values."},
	{"RP004", policyfile.Error, "unknown apiVersion", "The apiVersion of a policy is armadaproject.io/v1, or armadaproject.io/v1beta1 in Armada's flat form; that of a group policy and a retry budget is refloat.github.io/v1."},
	{"RP005", policyfile.Error, "unknown kind", "Policy files contain RetryPolicy, GroupPolicy, Queue, RetryBudget and RetrySettings; test files contain RetryPolicyTest."},
	{"RP010", policyfile.Error, "unknown field", "The field does not exist. It is not ignored, because a misspelt limit would then silently not apply."},
	{"RP011", policyfile.Error, "duplicate key", "A field occurs twice in one mapping."},
	{"RP012", policyfile.Error, "wrong type", "The value has the wrong type, such as a list in place of a word, or a number in place of a duration."},
	{"RP013", policyfile.Error, "missing field", "A required field is missing."},
	{"RP014", policyfile.Error, "not supported", "Armada has the field, but this version of Refloat does not support it."},
	{"RP020", policyfile.Error, "bad name", "Names of policies, group policies, budgets, parts and rules are 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends."},
	{"RP021", policyfile.Error, "reserved name", "No rule of a policy may be named default: a defaultAction is counted under that name. No rule of a group policy may be named restarts: restarts of a unit by itself are recorded under that name."},
	{"RP022", policyfile.Error, "duplicate name", "Two policies, two group policies, two queues, two retry budgets, two rules or parts of one policy, or two tests of one file have the same name; or there are two RetrySettings."},
	{"RP030", policyfile.Error, "unknown value", "The value is not one of those that the field allows."},
	{"RP031", policyfile.Error, "duplicate value", "A value occurs twice in one list."},
	{"RP032", policyfile.Error, "out of range", "A number, or the length of a text, is outside the allowed range."},
	{"RP033", policyfile.Error, "exit code 0", "A container that exits with 0 did not fail, so In [0] never matches."},
	{"RP034", policyfile.Error, "bad duration", "Durations are whole milliseconds with a unit: 500ms, 10s, 1h30m."},
	{"RP035", policyfile.Error, "bad decimal", "Multipliers and jitter are plain decimal numbers with at most three decimals."},
	{"RP036", policyfile.Error, "bad pattern", "The value is not an RE2 regular expression."},
	{"RP037", policyfile.Error, "bad time", "Times are RFC 3339: 2026-12-01T06:00:00Z."},
	{"RP038", policyfile.Error, "no value", "The field is present but empty. Omit it, or give it a value."},
	{"RP039", policyfile.Error, "control character", "The text contains control characters, which could corrupt a terminal or a log line, or a name has characters that do not show or that reorder text."},
	{"RP040", policyfile.Error, "no matcher", "A rule needs at least one matcher, such as onConditions or onExitCodes. onFailureSubcategory alone is not enough."},
	{"RP041", policyfile.Error, "subcategory alone", "A subcategory restricts a category: give the category too."},
	{"RP042", policyfile.Error, "conflicting fields", "Both type and multiplier in one backoff; lessThan not above atLeast; maxFailedMembers without onMemberFailure: Continue; a retry budget that delays without a floor; in a test, both containers and exitCode."},
	{"RP043", policyfile.Error, "policy too complex", "The policy has more rules, parts or members, or larger patterns, than allowed, or the settings more nodes, or there are more retry budgets. The limits bound the cost of a decision."},
	{"RP044", policyfile.Error, "cycle", "Parts of a group wait for each other, so none of them would ever start."},
	{"RP050", policyfile.Error, "impossible failure", "A test contains a failure that no executor can report, such as a returned lease with an exit code."},
	{"RP101", policyfile.Warning, "condition of the pod with a container", "With containerName only OOMKilled can hold: the other conditions apply to the pod or the run."},
	{"RP102", policyfile.Warning, "policy does not exist", "A queue or the settings name a policy that does not exist. It is skipped, and each decision names it."},
	{"RP103", policyfile.Warning, "shadowed rule", "Earlier rules of the policy match whenever this one does, so it is never reached."},
	{"RP104", policyfile.Warning, "policy named twice", "Only its first occurrence in the queue's list is effective."},
	{"RP105", policyfile.Warning, "initialDelay above maxDelay", "maxDelay always applies."},
	{"RP106", policyfile.Warning, "rule that never matches", "No failure can satisfy all matchers of the rule."},
	{"RP107", policyfile.Warning, "limit above the cap", "globalMaxRetries or the maxRetries of the policy, or maxRestarts of a group policy, is always reached before this limit."},
	{"RP108", policyfile.Note, "maxDelay never reached", "Within the allowed number of retries the delay stays below maxDelay. This is harmless, but the delay may grow more slowly than intended."},
	{"RP109", policyfile.Warning, "pattern that matches everything", "Every message matches, so the matcher only requires that there is a message."},
	{"RP110", policyfile.Warning, "unknown category", "The category is not in the list given by --categories. Executors report categories exactly as configured, and the comparison is case-sensitive."},
	{"RP111", policyfile.Note, "rule unreachable in a queue", "In this queue's list, rules of earlier policies match whenever this one does. It may still be effective in other queues."},
	{"RP112", policyfile.Note, "defaultAction unused in a queue", "The first policy in the list that has a defaultAction decides; those of later policies are not used."},
	{"RP113", policyfile.Warning, "policy that decides nothing in a queue", "Earlier policies in the list match every failure that its rules match, and its defaultAction is not used."},
	{"RP114", policyfile.Warning, "impossible container name", "Kubernetes names containers with 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends. The rule never matches."},
	{"RP115", policyfile.Warning, "impossible category", "Armada stores at most 63 characters of a category or subcategory. A longer one never matches."},
	{"RP116", policyfile.Warning, "policy without effect", "No rules and no defaultAction. If no other policy applies, every failure ends the job."},
	{"RP117", policyfile.Warning, "restart that is always refused", "The rule counts towards maxRestarts, and maxRestarts is 0 or unset; or its own limit is 0. Whenever it matches, the group fails."},
	{"RP118", policyfile.Note, "parallelism without effect", "A unit has no more members than that, so none of them is ever held for it."},
	{"RP119", policyfile.Note, "maxFailedMembers without effect", "A unit can no longer succeed, or has no members left, before so many have failed. It only delays the end of a unit, which may be intended."},
	{"RP120", policyfile.Warning, "field without effect", "countsTowardsMax and limit are about restarts, and the action of the rule restarts nothing."},
	{"RP121", policyfile.Warning, "restarts that never restart", "The limit of restarts is 0 or unset, so the group's rules are asked at once."},
	{"RP122", policyfile.Note, "few restarts for members that need each other", "maxRestarts is at most 3, and restartStrategy is not stated, so that each member starts again as soon as it can. A member that fails within 10 s uses up three restarts in the 30 s that the others have, by default, to stop."},
	{"RP123", policyfile.Warning, "more nodes to avoid than a retry avoids", "A decision names at most 50 nodes, those of the job first, and says how many it leaves out. Cordon nodes that are to stay away."},
	{"RP124", policyfile.Warning, "budget that grants nothing", "Neither first runs nor the floor of a retry budget pay for a retry, so it refuses every one."},
	{"RP125", policyfile.Warning, "window of seconds", "The window of a retry budget is shorter than a minute. The first run of a job that runs for longer has left it when it fails, and pays for no retry."},
	{"RP126", policyfile.Warning, "budget that is never asked", "No policy that applies to the queue of a retry budget grants a retry that counts (or of any, if it is of all queues), perhaps because there is no such queue: it limits nothing. Retries by Ignore and by groups are not asked of budgets."},
}
