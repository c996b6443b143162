package whynot

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// facts are what a failure has that a matcher asks about.
type facts struct {
	// propose proposes others, also those that rules name.
	propose func(p *proposer, rules []ruleSpec)
	// listed lists them as a rule's list would name them; nil: the matcher has no list.
	listed func(*policy.Failure) []any
}

// byMatcher has the facts of each matcher.
var byMatcher = [...]facts{
	policy.OnConditions:         {(*proposer).conditions, conditionsOf},
	policy.OnExitCodes:          {(*proposer).exitCodes, exitCodesOf},
	policy.OnTerminationMessage: {(*proposer).messages, nil},
	policy.OnFailureCategory: {
		func(p *proposer, rules []ruleSpec) {
			p.labels("category", named[string](rules, "onFailureCategory"), p.in.Failure.Category, func(f *policy.Failure, to string) { f.Category = to })
		},
		func(f *policy.Failure) []any { return labelOf(f.Category) },
	},
	policy.OnFailureSubcategory: {
		func(p *proposer, rules []ruleSpec) {
			p.labels("subcategory", named[string](rules, "onFailureSubcategory"), p.in.Failure.Subcategory, func(f *policy.Failure, to string) { f.Subcategory = to })
		},
		func(f *policy.Failure) []any { return labelOf(f.Subcategory) },
	},
	policy.OnRunDuration: {(*proposer).durations, nil},
}

// factsOf returns the facts that a field of rules is about.
func factsOf(f *policyfile.MatcherField) *facts {
	m, _ := policy.ParseMatcher(f.Path[0])
	return &byMatcher[m]
}

// named collects what rules name in a list, or in one value.
func named[T any](rules []ruleSpec, path ...string) (all []T) {
	for i := range rules {
		v := rules[i].at(path)
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, item := range list {
			if v, ok := item.(T); ok {
				all = append(all, v)
			}
		}
	}
	return all
}

// failure proposes other facts of the failure.
func (p *proposer) failure(applying []spec) {
	var rules []ruleSpec
	for _, s := range applying {
		rules = append(rules, s.Rules...)
	}
	for _, f := range byMatcher {
		if f.propose != nil { // there is none of NoMatcher
			f.propose(p, rules)
		}
	}
}

// exclusive are the conditions of which a failure has one.
var exclusive = policy.Conditions(0).With(policy.Evicted).With(policy.DeadlineExceeded).With(policy.Unschedulable).With(policy.LeaseReturned).With(policy.LeaseExpired)

// conditions proposes that each condition holds, or does not.
func (p *proposer) conditions([]ruleSpec) {
	f := &p.in.Failure
	have := conditionText(f)
	for c := policy.OOMKilled; c <= policy.LeaseExpired; c++ {
		switch {
		case c == policy.OOMKilled:
			p.fact(Failure, "condition OOMKilled", have, func(f *policy.Failure) {
				f.Conditions &^= exclusive
				if at := failed(f); at >= 0 {
					f.Containers[at].Reason, f.Containers[at].ExitCode = "OOMKilled", 137
				} else {
					f.PodOOM, f.Containers = true, nil
				}
			})
		case f.Conditions.Has(c):
			p.fact(Failure, "without condition "+c.String(), "", func(f *policy.Failure) { f.Conditions &^= policy.Conditions(0).With(c) })
		case c == policy.Preempted:
			p.fact(Failure, "condition Preempted", have, func(f *policy.Failure) { f.Conditions = f.Conditions.With(c) })
		default:
			p.fact(Failure, "condition "+c.String(), have, func(f *policy.Failure) {
				f.Conditions, f.PodOOM = (f.Conditions &^ exclusive).With(c), false
				if c == policy.Unschedulable || c == policy.LeaseReturned || c == policy.LeaseExpired {
					f.Containers = nil // no pod reported anything
				}
			})
		}
	}
}

// conditionsOf lists the conditions that hold.
func conditionsOf(f *policy.Failure) (all []any) {
	for c := policy.OOMKilled; c <= policy.LeaseExpired; c++ {
		if f.Conditions.Has(c) || c == policy.OOMKilled && oomKilled(f) {
			all = append(all, c.String())
		}
	}
	return all
}

func (p *proposer) labels(what string, all []string, have string, set func(*policy.Failure, string)) {
	slices.Sort(all)
	for _, to := range slices.Compact(all) {
		if to != have {
			p.fact(Failure, what+" "+to, have, func(f *policy.Failure) { set(f, to) })
		}
	}
	if have != "" {
		p.fact(Failure, "no "+what, have, func(f *policy.Failure) { set(f, "") })
	}
}

func labelOf(label string) []any {
	if label == "" {
		return nil
	}
	return []any{label}
}

// exitCodes proposes other exit codes of the first container that failed, or of one that is reported, and of those that
// rules name.
func (p *proposer) exitCodes(rules []ruleSpec) {
	name, have := container(&p.in.Failure)
	names, codes := append(named[string](rules, "containerName"), name), []int32{1}
	for _, code := range named[float64](rules, "onExitCodes", "values") {
		codes = append(codes, int32(code))
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	for unlisted := int32(2); ; unlisted++ {
		if !slices.Contains(codes, unlisted) {
			codes = append(codes, unlisted)
			break
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		for _, code := range codes {
			if strconv.Itoa(int(code)) != have {
				p.fact(Failure, fmt.Sprintf("exit code %d of container %s", code, name), have, func(f *policy.Failure) { exit(f, name, code) })
			}
		}
	}
}

func exitCodesOf(f *policy.Failure) (all []any) {
	for _, c := range f.Containers {
		if c.ExitCode != 0 {
			all = append(all, float64(c.ExitCode)) // as JSON has it
		}
	}
	return all
}

// messages proposes messages that patterns match, of the container that the rule names, or of the one that failed.
func (p *proposer) messages(rules []ruleSpec) {
	failedName, _ := container(&p.in.Failure)
	for i := range rules {
		for _, pattern := range named[string](rules[i:i+1], "onTerminationMessage", "pattern") {
			re, err := syntax.Parse(pattern, syntax.Perl)
			if err != nil {
				continue
			}
			if text := example(re.Simplify()); text != "" {
				p.message(append(named[string](rules[i:i+1], "containerName"), failedName)[0], text)
			}
		}
	}
}

func (p *proposer) message(name, text string) {
	p.fact(Failure, fmt.Sprintf("termination message %q of container %s", text, name), "", func(f *policy.Failure) {
		if failed(f) < 0 || !slices.ContainsFunc(f.Containers, func(c policy.Container) bool { return c.Name == name }) {
			exit(f, name, 1)
		}
		for i := range f.Containers {
			if f.Containers[i].Name == name {
				f.Containers[i].Message = text
			}
		}
	})
}

// container returns the name and exit code of the first container that failed, or of one that is reported.
func container(f *policy.Failure) (name, exitCode string) {
	if at := failed(f); at >= 0 {
		return f.Containers[at].Name, strconv.Itoa(int(f.Containers[at].ExitCode))
	}
	return "main", ""
}

// exit makes a container the one that failed.
func exit(f *policy.Failure, name string, code int32) {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.Name == name {
			c.ExitCode, c.Reason = code, "Error"
			return
		}
	}
	f.PodOOM = false
	f.Conditions &^= exclusive
	f.Containers = append(f.Containers, policy.Container{Name: name, ExitCode: code, Reason: "Error"})
}

// failed returns the index of the first container that failed, -1 if there is none.
func failed(f *policy.Failure) int {
	return slices.IndexFunc(f.Containers, func(c policy.Container) bool { return c.ExitCode != 0 })
}

func oomKilled(f *policy.Failure) bool {
	at := failed(f)
	return f.PodOOM || at >= 0 && f.Containers[at].Reason == "OOMKilled"
}

func conditionText(f *policy.Failure) string {
	var names []string
	for c := policy.Evicted; c <= policy.LeaseExpired; c++ {
		if f.Conditions.Has(c) {
			names = append(names, c.String())
		}
	}
	if oomKilled(f) {
		names = append(names, policy.OOMKilled.String())
	}
	return strings.Join(names, ", ")
}

// durations proposes that the run was running for as long as a rule requires, and for just less.
func (p *proposer) durations(rules []ruleSpec) {
	var all []time.Duration
	for _, bound := range append(named[string](rules, "onRunDuration", "lessThan"), named[string](rules, "onRunDuration", "atLeast")...) {
		if d, err := time.ParseDuration(bound); err == nil {
			all = append(all, d, max(0, d-time.Millisecond))
		}
	}
	have := ""
	if f := &p.in.Failure; f.Ran {
		have = f.RunDuration.String()
	}
	slices.Sort(all)
	for _, d := range slices.Compact(all) {
		if d.String() != have {
			p.fact(Failure, fmt.Sprintf("running for %v", d), have, func(f *policy.Failure) { f.Ran, f.RunDuration = true, d })
		}
	}
}

// example returns a text that a pattern probably matches.
func example(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		if len(re.Rune) > 0 {
			return string(re.Rune[0])
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "x"
	case syntax.OpCapture, syntax.OpPlus, syntax.OpAlternate:
		return example(re.Sub[0])
	case syntax.OpConcat:
		var b strings.Builder
		for _, sub := range re.Sub {
			b.WriteString(example(sub))
		}
		return b.String()
	default: // Simplify leaves no repetitions with counts; the rest matches the empty text
	}
	return ""
}
