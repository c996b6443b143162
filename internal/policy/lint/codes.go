package lint

import (
	"slices"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// Code is what one code of a problem means.
type Code struct {
	Code     string
	Severity policyfile.Severity
	Title    string
	Text     string
}

// Codes is the table of all codes, in order.
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
	{"RP001", policyfile.Error, "not YAML", "The file cannot be read as YAML (or JSON). What follows the place was not read."},
	{"RP002", policyfile.Error, "too big", "The file is bigger or nested deeper than any policy file needs to be."},
	{"RP003", policyfile.Error, "fancy YAML", "Anchors, aliases, merge keys and tags are refused: write values out."},
	{"RP004", policyfile.Error, "unknown apiVersion", "A policy is armadaproject.io/v1, or armadaproject.io/v1beta1 in Armada's flat form."},
	{"RP005", policyfile.Error, "unknown kind", "Policy files hold RetryPolicy, Queue and RetrySettings; tests are RetryPolicyTest."},
	{"RP010", policyfile.Error, "unknown field", "The field does not exist here. A field that is ignored would be a limit that does not hold."},
	{"RP011", policyfile.Error, "duplicate key", "One field stands twice in one mapping."},
	{"RP012", policyfile.Error, "wrong type", "A list where a word should be, a number where a duration should be, and so on."},
	{"RP013", policyfile.Error, "missing field", "A field that must be there is not."},
	{"RP014", policyfile.Error, "not supported", "Armada knows the field, this version of Refloat does not act on it."},
	{"RP020", policyfile.Error, "bad name", "Names of policies and rules are 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends."},
	{"RP021", policyfile.Error, "reserved name", "No rule is called default: that is what a defaultAction counts under."},
	{"RP022", policyfile.Error, "duplicate name", "Two policies, two queues, two rules of one policy, or two tests of one file have one name; or there are two RetrySettings."},
	{"RP030", policyfile.Error, "unknown value", "The field takes one of a few words, and this is none of them."},
	{"RP031", policyfile.Error, "duplicate value", "One value stands twice in one list."},
	{"RP032", policyfile.Error, "out of range", "A number, or the length of a text, is outside what is allowed."},
	{"RP033", policyfile.Error, "exit code 0", "A container that exits with 0 did not fail, so In [0] never matches."},
	{"RP034", policyfile.Error, "bad duration", "Durations are whole milliseconds with a unit: 500ms, 10s, 1h30m."},
	{"RP035", policyfile.Error, "bad decimal", "Multipliers and jitter are plain decimal numbers with at most three decimals."},
	{"RP036", policyfile.Error, "bad pattern", "Not a regular expression of RE2."},
	{"RP037", policyfile.Error, "bad time", "Times are RFC 3339: 2026-12-01T06:00:00Z."},
	{"RP038", policyfile.Error, "no value", "The field is there and holds nothing. Leave it out, or say something."},
	{"RP039", policyfile.Error, "control character", "Text that plays tricks in a terminal or a log line."},
	{"RP040", policyfile.Error, "no matcher", "A rule has at least one of onConditions, onExitCodes, onTerminationMessage and onFailureCategory."},
	{"RP041", policyfile.Error, "subcategory alone", "A subcategory narrows a category: name that too."},
	{"RP042", policyfile.Error, "two ways to say one thing", "Both type and multiplier in one backoff; in a test, both containers and exitCode."},
	{"RP043", policyfile.Error, "too much to decide by", "More rules, or bigger patterns, than a policy may have: they bound what a decision costs."},
	{"RP050", policyfile.Error, "impossible failure", "A test lets a run fail as no executor can report it, such as with a returned lease and an exit code."},
	{"RP101", policyfile.Warning, "condition of the pod with a container", "With containerName only OOMKilled can hold: the others are facts of the pod or the run."},
	{"RP102", policyfile.Warning, "no such policy", "A queue or the settings name a policy that is not there. It is skipped, and named in each decision."},
	{"RP103", policyfile.Warning, "shadowed rule", "Earlier rules of the policy match whenever this one does, so it is never reached."},
	{"RP104", policyfile.Warning, "policy named twice", "It counts once, at its first place in the queue's list."},
	{"RP105", policyfile.Warning, "initialDelay above maxDelay", "maxDelay always wins."},
	{"RP106", policyfile.Warning, "rule that never matches", "What the rule asks for cannot hold together of any failure."},
	{"RP107", policyfile.Warning, "limit above the cap", "globalMaxRetries refuses before this limit does."},
	{"RP108", policyfile.Note, "maxDelay never reached", "With the retries that are allowed the delay stays below it. Harmless, but perhaps the growth is not what was meant."},
	{"RP109", policyfile.Warning, "pattern that matches everything", "Every message matches, so the matcher only asks for there being one."},
	{"RP110", policyfile.Warning, "unknown category", "Not in the list given by --categories: executors report categories exactly as configured, and case counts."},
	{"RP111", policyfile.Note, "rule unseen in a queue", "In this queue's list, rules of earlier policies match whenever this one does. It may still act in other queues."},
	{"RP112", policyfile.Note, "defaultAction unused in a queue", "The first policy of the list that states a defaultAction decides; later ones are not asked."},
	{"RP113", policyfile.Warning, "policy that decides nothing in a queue", "Earlier policies of the list take every failure that its rules match, and its defaultAction is not used."},
	{"RP114", policyfile.Warning, "name that no container has", "Kubernetes names containers with 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends. The rule never matches."},
	{"RP115", policyfile.Warning, "category that no run has", "Armada keeps at most 63 characters of a category or subcategory. A longer one never matches."},
	{"RP116", policyfile.Warning, "policy that says nothing", "No rules and no defaultAction. Where no other policy applies, every failure ends the job."},
}
