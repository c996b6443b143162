package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// facts are what an explanation states about a decision, by name: names of fields of
// `-o json`, and a few more.
type facts map[string]string

// readBack reads the text of `explain` as people do, by docs/reference/semantics.md and docs/reference/audit.md.
// Text that it does not understand is an error, and so is a fact that is stated twice in
// two ways. It does not look at the rules that did not match, the messages of the failure
// and of Armada, and who changed the policies, because these are not of the record.
func readBack(text string) (facts, error) {
	r := reader{facts: facts{}}
	blocks := strings.Split(strings.TrimRight(text, "\n"), "\n\n")
	for i, block := range blocks {
		lines := strings.Split(block, "\n")
		switch first := lines[0]; {
		case i == 0:
			r.head(lines)
		case strings.HasPrefix(first, "Decision "):
			r.decision(lines)
		case first == "Rules, in order":
			r.ladder(lines[2:])
		case strings.HasPrefix(first, "Rules are in the policies log"):
		case strings.HasPrefix(first, "Group "):
			r.group(lines)
		case first == "Counts":
			r.counts(lines[1:])
		case strings.HasPrefix(first, "Delay "):
			r.delay(block)
		case strings.HasPrefix(first, "Where "):
			r.line(first, `Where decision (?P<number>\d+) of partition (?P<partition>\d+), policy generation (?P<generation>\d+) \(set (?P<policySet>[0-9a-f]{12})\), event at (?P<position>\S+)`)
		default:
			r.fail("what is %q?", first)
		}
	}
	return r.facts, r.err
}

type reader struct {
	facts facts
	err   error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) state(name, value string) {
	if old, ok := r.facts[name]; ok && old != value {
		r.fail("%s is %q and %q", name, old, value)
	}
	r.facts[name] = value
}

// patterns are compiled once, for tests that run in parallel: regular expressions by their text.
var patterns sync.Map

// match states the named groups of a pattern that fits all of a text.
func (r *reader) match(text, pattern string) bool {
	compiled, ok := patterns.Load(pattern)
	if !ok {
		compiled, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(`^(?s:`+pattern+`)$`))
	}
	re := compiled.(*regexp.Regexp)
	found := re.FindStringSubmatchIndex(text)
	if found == nil {
		return false
	}
	for i, name := range re.SubexpNames() {
		if name != "" && found[2*i] >= 0 {
			r.state(name, text[found[2*i]:found[2*i+1]])
		}
	}
	return true
}

func (r *reader) line(text, pattern string) {
	if !r.match(text, pattern) {
		r.fail("%q is not %s", text, pattern)
	}
}

func (r *reader) head(lines []string) {
	if len(lines) < 3 {
		r.fail("the head has %d lines", len(lines))
		return
	}
	r.line(lines[0], `Job (?P<jobId>.*?)  queue (?P<queue>.*?), job set (?P<jobSet>.*)`)
	r.line(lines[1], `Run (?P<runIndex>\d+) \((?P<runId>.*)\) failed at (?P<eventTime>\S+)(?: on node (?P<node>.*))?`)
	n := 0
	for _, line := range lines[2:] {
		switch {
		case strings.HasPrefix(line, "  condition "):
			r.facts["conditions"] += strings.TrimPrefix(line, "  condition ") + " "
		case r.match(line, `  category (?P<category>.*)`), line == "  no facts that a rule could match":
		case r.match(line, fmt.Sprintf(`  (?P<sort%d>(?:init )?container) (?P<container%d>\S+) exited with (?P<exitCode%d>-?\d+) \(.*\)`, n, n, n)):
			n++
		case r.match(line, `  running for (?P<running>\S+)`):
		case r.match(line, `  [A-Za-z]*: .*`): // the error's own message
		default:
			r.fail("what of the failure is %q?", line)
		}
	}
}

func (r *reader) decision(lines []string) {
	r.line(lines[0], `Decision (?P<decision>JobRequeued|JobFailed)(?P<besideKind> \(shadow\))?, (?P<code>[A-Za-z]+)`)
	if len(lines) < 2 {
		r.fail("the decision has no sentence")
		return
	}
	r.sentence(strings.TrimPrefix(lines[1], "  "))
	for _, line := range lines[2:] {
		if !r.match(line, `  next run: pod (?P<podName>.*), not before (?P<retryAfter>\S+)`) {
			r.line(line, `  the next run would have been: pod (?P<podName>.*), not before (?P<retryAfter>\S+)`)
			r.state("shadow", "true")
		}
	}
}

const (
	byRule   = `(?:the default action of policy (?P<policyOfDefault>.+?)|rule (?P<rule>.+?) of policy (?P<policy>.+?))`
	perRule  = `(?P<ruleUsed>\d+) of (?P<ruleLimit>\d+) \((?P<limitFrom>rule|policy|global) limit\)`
	perJob   = `(?P<globalUsed>\d+) of (?P<globalLimit>\d+)`
	perGroup = `(?P<groupRuleText>the default of the group \(no rule matched\)|rule .+? of the group)`
	none     = `its group policy allows (?P<noRestarts>no counted restart) \(maxRestarts is 0 or not set\)`
	restarts = `(?:(?P<restartsUsed>\d+) of (?P<maxRestarts>\d+) counted restarts|not counted, and ` + none + `)`
	at       = `not before (?P<retryAfter>\S+?)`
	usedUp   = `retry budget (?P<budget>.+?) is used up \((?P<budgetFirsts>\d+) first runs? in its window\)`
)

// codeSentences are those of the codes (semantics.md, sections 5, 8 and 12), what they state
// about a group follows them.
var codeSentences = map[string]string{
	"RuleRetry":     byRule + ` retries the job: ` + perRule + `, ` + perJob + ` in total`,
	"DefaultRetry":  byRule + ` retries the job: ` + perRule + `, ` + perJob + ` in total`,
	"RuleIgnore":    byRule + ` retries the job without counting`,
	"RuleFail":      byRule + ` fails the job`,
	"DefaultFail":   `(?:no rule matched; ` + byRule + ` fails the job|no rule matched, and no policy has a default action: the job fails)`,
	"RuleLimit":     byRule + ` has used up its retries: ` + perRule,
	"PolicyLimit":   byRule + ` has used up its retries: ` + perRule,
	"GlobalLimit":   byRule + ` would retry the job, but it has used up all its retries: ` + perJob,
	"KillSwitch":    byRule + ` would retry the job, but retries are switched off`,
	"FailFast":      `the job asks to fail at its first failure \(annotation armadaproject\.io/failFast\)`,
	"NoPolicy":      `no policy applies, and Armada itself requeues only returned leases`,
	"LeaseReturned": `the lease was returned and no rule matches: requeued as Armada would do`,
	"LegacyLimit":   `the lease was returned too often and no rule matches: failed as Armada would do`,
	"GangRetry":     byRule + ` retries the job, and with it the whole gang(?:, without counting|: ` + perRule + `, ` + perJob + ` in total)`,
	"GangFail": `(?:` + byRule + ` would retry the job, but its gang cannot be retried as a whole, because a member was cancelled` +
		`|the job belongs to a gang, and no rule matches: Armada itself requeues a returned lease of a job, but not of a gang` +
		`|the job belongs to a gang and is in no group, so that the gang cannot be retried as a whole: a GroupFinding says why, or it was submitted before version 3 of the semantics)`,
	"BudgetRefused": byRule + ` (?P<budgetRefuses>would retry the job, but ` + usedUp + `)`,
	"GroupRestart": `(?:the run was told to stop, because its group or unit restarts(?: \((?:` + byRule + "|(?P<byRestarts>`restarts`) of policy (?P<policy>.+?)|(?P<byDefault>the default) of policy (?P<policy>.+?))" + `\))?` +
		`|no rule matched, and no policy has a default action: the job fails|` + byRule + ` (?:fails the job|(?P<budgetRefuses>would retry the job, but ` + usedUp + `)))`,
	"GroupEnded":  `the group had stopped the job, so its policies were not asked`,
	"UnitLimit":   byRule + ` would retry the job, but its unit has used up its retries \(retryLimit\)`,
	"BreakerHeld": byRule + ` would retry the job now, but a breaker is open for the category of the failure: the retry is held, and counts against no limit`,
}

// groupSentence is what a unit's failure did (semantics.md, section 12).
const groupSentence = `the unit (?:failed \((?P<unitReason>[A-Za-z]+)\)|(?P<succeeded>succeeded))(?:, and (?P<effect>` +
	perGroup + ` would restart it, but (?P<refused>the rule's own limit is used up \(` + restarts + `\)|the restarts are used up: ` + restarts + `|` + none + `(?:, or the rule's own limit is used up)?); the group fails` +
	"|(?P<byPart>`restarts` of its part) restarts the unit" +
	`|` + perGroup + ` restarts (?P<scope>the whole group|its part|the unit): ` + restarts +
	`|(?P<noPolicy>no group policy with rules or maxRestarts applies: by default, the group fails with it)` +
	`|` + perGroup + ` fails the group` +
	`|` + perGroup + ` leaves it failed and halts the group: nothing that is held is started any more` +
	`|stays failed, though no rule says so: [^;]+; the rest of the group goes on` +
	`|` + perGroup + ` leaves it failed(?:: too few members are left, and a unit with a cancelled member is never restarted)?; the rest of the group goes on)` +
	`(?P<keep>, without the members that succeeded)?(?P<noted>; nothing of that is done: the queue is in shadow, or retries are not enabled)?)?`

// waiting is when and where a retry runs.
const waiting = `, (?:(?P<atOnce>at once)` +
	`|` + at + ` \((?P<delay>[^ ]+) after the failure\)` +
	`|` + at + `, because (?P<budgetWaits>` + usedUp + `) \(otherwise (?P<delay>[^ ]+) after the failure\)` +
	`|` + at + `, (?P<gangWaits>when all of the gang may start again) \((?P<delay>[^ ]+) after the failure for this job\)` +
	`|` + at + `, (?P<breaker>when no breaker holds it any more) \(otherwise (?P<delay>[^ ]+) after the failure\)` +
	`|` + at + `, (?P<paused>when the pause of retries ends) \(otherwise (?P<delay>[^ ]+) after the failure\))` +
	`(?:, not on (?P<avoidNodes>.+?))?(?: \((?P<nodesLeftOut>\d+) earlier nodes are left out\))?`

func (r *reader) sentence(s string) {
	sentence, ok := codeSentences[r.facts["code"]]
	if !ok {
		r.fail("code %q has no sentence", r.facts["code"])
		return
	}
	pattern := sentence + `(?:; ` + groupSentence + `)?`
	if r.facts["decision"] == "JobRequeued" {
		pattern += waiting
	}
	pattern += `(?:; (?P<budgetNoted>` + usedUp + `, in shadow: it would (?:refuse the retry|grant the retry for (?P<budgetAt>[^ ;]+))))?`
	r.line(s, pattern+`(?:; policies skipped: (?P<skippedPolicies>.+?))?(?P<inSentence>; shadow: this decision has no effect)?`)
	if p, ok := r.facts["policyOfDefault"]; ok {
		delete(r.facts, "policyOfDefault")
		r.state("policy", p)
		r.state("rule", "default")
	}
	if _, ok := r.facts["byRestarts"]; ok {
		delete(r.facts, "byRestarts")
		r.state("rule", "restarts")
	} else if _, ok := r.facts["byDefault"]; ok {
		delete(r.facts, "byDefault")
		r.state("rule", "")
	}
	_, beside := r.facts["besideKind"]
	_, inSentence := r.facts["inSentence"]
	if beside != inSentence {
		r.fail("shadow beside the kind: %v, in the sentence: %v", beside, inSentence)
	} else if beside {
		r.state("shadow", "true")
	}
	delete(r.facts, "besideKind")
	delete(r.facts, "inSentence")
	for _, name := range []string{"budgetWaits", "budgetNoted", "budgetRefuses"} {
		if _, ok := r.facts[name]; ok {
			r.facts[name] = "true"
		}
	}
	r.effect()
}

// effect puts what a group does into the words of `-o json`.
func (r *reader) effect() {
	f := r.facts
	effect, ok := f["effect"]
	delete(f, "effect")
	if !ok {
		return
	}
	scope, refused := f["scope"], f["refused"]
	switch {
	case refused != "", f["noPolicy"] != "", strings.Contains(effect, " fails the group"):
		r.state("groupAction", "FailGroup")
	case f["byPart"] != "", scope == "the unit":
		r.state("groupAction", "RestartUnit")
	case scope == "its part":
		r.state("groupAction", "RestartPart")
	case scope != "":
		r.state("groupAction", "RestartGroup")
	case strings.Contains(effect, "halts the group"):
		r.state("groupAction", "Halt")
	default:
		r.state("groupAction", "Leave")
	}
	switch rule := f["groupRuleText"]; {
	case f["byPart"] != "":
		r.state("groupRule", "restarts")
	case strings.HasPrefix(rule, "the default"):
		r.state("groupRule", "")
	default:
		r.state("groupRule", strings.TrimSuffix(strings.TrimPrefix(rule, "rule "), " of the group"))
	}
	if f["noRestarts"] != "" {
		r.state("restartsUsed", "0")
		r.state("maxRestarts", "0")
	} else if refused != "" {
		used, _ := strconv.Atoi(f["restartsUsed"])
		limit, _ := strconv.Atoi(f["maxRestarts"])
		if strings.Contains(refused, "own limit") != (used < limit) {
			r.fail("%d of %d restarts, and %s", used, limit, refused)
		}
	}
	maps.DeleteFunc(f, func(name, _ string) bool {
		return slices.Contains([]string{"scope", "byPart", "groupRuleText", "noPolicy", "noRestarts"}, name)
	})
	for _, name := range []string{"refused", "keep", "noted"} {
		if _, ok := f[name]; ok {
			f[name] = "true"
		}
	}
}

// ladder finds the rule that matched.
func (r *reader) ladder(lines []string) {
	for _, line := range lines {
		if strings.HasSuffix(line, "matches: first match wins") {
			r.line(line, `  ✓  (?P<matchedPolicy>\S+) +(?P<matchedRule>\S+) +matches: first match wins`)
		}
	}
}

func (r *reader) group(lines []string) {
	r.line(lines[0], `Group (?P<group>.*), part (?P<part>.*?), replica (?P<replica>\d+), index (?P<index>\d+); generation (?P<unitGeneration>\d+) of the unit`)
	for _, line := range lines[1:] {
		line = strings.TrimPrefix(line, "  ")
		if again := (reader{facts: facts{}}); again.match(line, groupSentence) {
			again.effect()
			for name, value := range again.facts {
				r.state(name, value)
			}
			if again.err != nil {
				r.fail("%w", again.err)
			}
			continue
		}
		want, known := map[string]string{
			"all members of the gang start again together; the rules of the group were not asked": "GangRetry",
			"the policies of the job were not asked: what became of the group came first":         "GroupRestart GroupEnded",
			"the unit goes on: only this member starts again":                                     "JobRequeued",
			"the unit did not fail by this, so the rules of the group were not asked":             "JobFailed",
		}[line]
		if !known || !strings.Contains(want, r.facts["code"]) && want != r.facts["decision"] {
			r.fail("what is %q about a member, with %s?", line, r.facts["code"])
		}
	}
}

func (r *reader) counts(lines []string) {
	const budget = `  budget: (?P<budgetEffect>Budget[A-Za-z]+) (?P<budget>.+): (?P<budgetLeft>\d+) left before, for (?P<budgetFirsts>\d+) first runs? in its window` +
		`(?:; (?:granted|it would grant the next one) at (?P<budgetAt>\S+))?(?P<budgetInShadow> \(in shadow: nothing is held back\))?`
	for _, line := range lines {
		if r.match(line, budget) {
			if _, ok := r.facts["budgetInShadow"]; ok {
				r.facts["budgetInShadow"] = "true"
			}
			continue
		}
		if !r.match(line, `  job:  (?P<globalBefore>\d+) before, (?P<globalUsed>\d+) after, limit (?P<globalLimit>\d+) \(globalMaxRetries\)`) {
			r.line(line, `  rule: (?P<ruleBefore>\d+) before, (?P<ruleUsed>\d+) after, limit (?P<ruleLimit>\d+) from the (?P<limitFrom>rule|policy|global)`)
		}
	}
}

// delay also does the sum that an explanation shows.
func (r *reader) delay(text string) {
	text, sum, shown := strings.Cut(strings.TrimPrefix(text, "Delay "), " = ")
	text = strings.TrimSuffix(text, ": immediately, like Armada")
	r.state("delay", text)
	if !shown {
		return
	}
	m := regexp.MustCompile(`^min\((\S+) × (\S+)\^\((\d+)−1\), (\S+)\) = ([^ ,;]+)(?:, plus jitter ([^ ;]+))?(?:; at least termination grace (\S+) \+ slack ([^ ,]+), so that the old pod is gone)?(?:; retries are paused until (\S+))?$`).FindStringSubmatch(sum)
	if m == nil {
		r.fail("what is the sum %q?", sum)
		return
	}
	took := func(i int) time.Duration {
		if m[i] == "" {
			return 0
		}
		d, err := time.ParseDuration(m[i])
		if err != nil {
			r.fail("%v", err)
		}
		return d
	}
	factor, err := strconv.ParseFloat(m[2], 64)
	n, err2 := strconv.Atoi(m[3])
	if err != nil || err2 != nil {
		r.fail("numbers of %q: %v, %v", sum, err, err2)
		return
	}
	want := float64(took(1))
	for range min(n-1, 1000) {
		want *= factor
	}
	if want = min(want, float64(took(4))); want-float64(took(5)) > 2e6 || want-float64(took(5)) < -2e6 {
		r.fail("%s: it is %v", sum, time.Duration(want))
	}
	if total := max(took(5)+took(6), took(7)+took(8)); total.String() != text {
		r.fail("delay %s, but the sum %q is %v", text, sum, total)
	}
}
