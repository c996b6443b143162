package model

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refloat/refloat/events/pb"
)

// TestMatches is §2 and §4: facts and matchers.
func TestMatches(t *testing.T) {
	t.Parallel()
	on := func(conditions ...string) Rule { return Rule{OnConditions: conditions} }
	in := func(values ...int32) Rule { return Rule{OnExitCodes: &ExitCodes{"In", values}} }
	notIn := func(values ...int32) Rule { return Rule{OnExitCodes: &ExitCodes{"NotIn", values}} }
	message := func(pattern string) Rule { return Rule{OnTerminationMessage: pattern} }
	named := func(r Rule, name string) Rule { r.ContainerName = name; return r }
	withInit := func(r Rule) Rule { r.IncludeInitContainers = true; return r }

	initial := exited("init", 3, "OOMKilled", "init ECC")
	side := exited("side", 0, "Completed", "bye")
	main := exited("main", 137, "OOMKilled", "ECC error")
	other := exited("other", 5, "Error", "")
	killed := podReasonError(pb.KubernetesReason_OOM)

	for _, tc := range []struct {
		name string
		rule Rule
		err  *pb.Error // nil: only JobRunPreempted
		want bool
	}{
		{"oom: the targeted container", on("OOMKilled"), podError("", side, main, other), true},
		{"oom: another than the targeted", on("OOMKilled"), podError("", other, main), false},
		{"oom: an init container is left out", on("OOMKilled"), podError("", other, initial), false},
		{"oom: an init container is let in", withInit(on("OOMKilled")), podError("", side, initial), true},
		{"oom: but is not first", withInit(on("OOMKilled")), podError("", other, initial), false},
		{"oom: named", named(on("OOMKilled"), "main"), podError("", other, main), true},
		{"oom: exit code 0 is not targeted", on("OOMKilled"), podError("", exited("main", 0, "OOMKilled", "")), false},
		{"oom of the pod, no container", on("OOMKilled"), killed, true},
		{"oom of the pod, containers reported", on("OOMKilled"), podReasonError(pb.KubernetesReason_OOM, other), false},
		{"oom of the pod, only init containers reported", on("OOMKilled"), podReasonError(pb.KubernetesReason_OOM, initial), false},
		{"oom of the pod, but containerName", named(on("OOMKilled"), "main"), killed, false},
		{"evicted", on("Evicted"), podReasonError(pb.KubernetesReason_EVICTED, main), true},
		{"evicted, but containerName", named(on("Evicted"), "main"), podReasonError(pb.KubernetesReason_EVICTED, main), false},
		{"not evicted", on("Evicted"), podError("", main), false},
		{"one of several", on("Evicted", "OOMKilled"), podError("", main), true},
		{"deadline", on("DeadlineExceeded"), podReasonError(pb.KubernetesReason_DEADLINE_EXCEEDED), true},
		{"deadline by category", on("DeadlineExceeded"), category(leaseExpired(), "internal", "active-deadline"), true},
		{"another subcategory", on("DeadlineExceeded"), category(leaseExpired(), "internal", "pod-missing"), false},
		{"preempted by its error", on("Preempted"), preemptedError(), true},
		{"preempted without error", on("Preempted"), nil, true},
		{"unschedulable", on("Unschedulable"), returned(false), true},
		{"unschedulable, attempted", on("Unschedulable"), returned(true), false},
		{"lease returned", on("LeaseReturned"), returned(true), true},
		{"lease returned, not attempted", on("LeaseReturned"), returned(false), false},
		{"lease expired", on("LeaseExpired"), leaseExpired(), true},
		{"lease expired, of another", on("LeaseExpired"), podError(""), false},

		{"in", in(1, 137), podError("", side, main), true},
		{"in, of the targeted only", in(5), podError("", main, other), false},
		{"not in", notIn(1, 2), podError("", main), true},
		{"not in, but it is", notIn(137), podError("", main), false},
		{"not in, none targeted", notIn(1), podError("", side), false},
		{"not in, no container", notIn(1), podError(""), false},
		{"not in, not a pod error", notIn(1), leaseExpired(), false},
		{"not in, only an init container", notIn(1), podError("", initial), false},
		{"in, an init container", withInit(in(3)), podError("", initial), true},
		{"in, named", named(in(5), "other"), podError("", main, other), true},
		{"in, named as an init container", named(in(3), "init"), podError("", initial), false},
		{"in, so named and let in", withInit(named(in(3), "init")), podError("", initial), true},

		{"message", message("CC err"), podError("", main), true},
		{"message of a container that exited 0", message("^bye$"), podError("", side, main), true},
		{"message of an init container", message("init"), podError("", initial), false},
		{"an empty message", message(".*"), podError("", other), false},
		{"message, named", named(message("ECC"), "side"), podError("", side, main), false},

		{"category", Rule{OnFailureCategory: []string{"a", "b"}}, category(leaseExpired(), "b", "x"), true},
		{"category, another case", Rule{OnFailureCategory: []string{"a"}}, category(leaseExpired(), "A", ""), false},
		{"category of none", Rule{OnFailureCategory: []string{"a"}}, nil, false},
		{"subcategory", Rule{OnFailureCategory: []string{"a"}, OnFailureSubcategory: []string{"x", "y"}}, category(leaseExpired(), "a", "y"), true},
		{"another subcategory", Rule{OnFailureCategory: []string{"a"}, OnFailureSubcategory: []string{"x"}}, category(leaseExpired(), "a", ""), false},

		{"all that it has", Rule{OnConditions: []string{"OOMKilled"}, OnExitCodes: &ExitCodes{"In", []int32{137}}, OnTerminationMessage: "ECC"}, podError("", main), true},
		{"not all that it has", Rule{OnConditions: []string{"OOMKilled"}, OnExitCodes: &ExitCodes{"In", []int32{1}}, OnTerminationMessage: "ECC"}, podError("", main), false},
	} {
		r := &run{job: &job{initNames: []string{"init"}}, failure: &failure{err: tc.err, preempted: tc.err == nil}}
		if got := matches(&tc.rule, r); got != tc.want {
			t.Errorf("%s: matches = %t, want %t", tc.name, got, tc.want)
		}
	}
}

// TestOrder is §3: what decides first.
func TestOrder(t *testing.T) {
	evicted := Rule{Action: "Fail", OnConditions: []string{"Evicted"}}
	expired := Rule{Name: "expired", Action: "Retry", OnConditions: []string{"LeaseExpired"}}
	a := Policy{Name: "a", Rules: []Rule{evicted, evicted, expired}}
	b := Policy{Name: "b", DefaultAction: "Fail", Rules: []Rule{expired}}
	p := ml(Settings{}, a, b)
	play := func(ev *pb.Event, err *pb.Error) []timedMessage {
		return []timedMessage{at(0, ev, fails("j", "r", err))}
	}
	gang := func(id, cardinality string) *pb.Event {
		return submit("j", annotationGang, id, annotationCardinality, cardinality, annotationFailFast, "true")
	}
	const failFast, gangFail = "0: JobFailed j/r #1 FailFast t=0s job=0/20", "0: JobFailed j/r #1 GangFail t=0s job=0/20"
	playAll(t, []playCase{
		{"gang", p, play(gang("g", "2"), podError("")), []string{gangFail}},
		{"gang of 12", p, play(gang("g", "12"), podError("")), []string{gangFail}},
		{"gang of a lot", p, play(gang("g", "99999999999999999999"), podError("")), []string{gangFail}},
		{"gang of one", p, play(gang("g", "1"), podError("")), []string{failFast}},
		{"gang of +2", p, play(gang("g", "+2"), podError("")), []string{failFast}},
		{"gang without id", p, play(gang("", "2"), podError("")), []string{failFast}},
		{"gang while disabled", Policies{Settings: &Settings{Enabled: new(false)}}, play(gang("g", "2"), podError("")), []string{gangFail}},
		{"failFast True is not true", p, play(submit("j", annotationFailFast, "True"), leaseExpired()), []string{
			"0: JobRequeued j/r #1 RuleRetry a:expired t=0s delay=1000 after=1s pod=armada-j-0-1 global=1/20 job=1/20",
		}},
		{"the first rule", p, play(submit("j"), podReasonError(pb.KubernetesReason_EVICTED)), []string{"0: JobFailed j/r #1 RuleFail a:#0 t=0s job=0/20"}},
		{"the default of the first that states one", p, play(submit("j"), podError("")), []string{"0: JobFailed j/r #1 DefaultFail b:default t=0s job=0/20"}},
		{"no default is stated", ml(Settings{}, a), play(submit("j"), podError("")), []string{"0: JobFailed j/r #1 DefaultFail t=0s job=0/20"}},
		{"a returned lease without a rule", p, play(submit("j"), returned(false)), []string{"0: JobRequeued j/r #1 LeaseReturned t=0s delay=0 after=0s pod=armada-j-0-1 job=0/20"}},
		{"disabled", Policies{Settings: &Settings{Enabled: new(false)}, Policies: []Policy{a}, Queues: p.Queues}, play(submit("j"), returned(false)), []string{
			"0: JobRequeued j/r #1 LeaseReturned t=0s delay=0 after=0s pod=armada-j-0 job=0/20",
		}},
	})
}

// TestApplying is §3: which policies apply.
func TestApplying(t *testing.T) {
	t.Parallel()
	policies := []Policy{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "no", SelectableByJobs: new(false)}}
	for _, tc := range []struct {
		name       string
		queue      []string
		annotation string
		settings   Settings
		want, skip []string
	}{
		{name: "the queue's", queue: []string{"b", "a"}, want: []string{"b", "a"}},
		{name: "and the job's", queue: []string{"b", "a"}, annotation: "c", want: []string{"b", "a", "c"}},
		{name: "spaces, nothing between commas, twice", queue: []string{"b"}, annotation: "  c ,, b,a,c ,", want: []string{"b", "c", "a"}},
		{name: "unknown names", queue: []string{"x", "b", "x"}, annotation: "y, x,y,a", want: []string{"b", "a"}, skip: []string{"x", "y"}},
		{name: "not selectable", annotation: "no,a", want: []string{"a"}, skip: []string{"no"}},
		{name: "not selectable but the queue's", queue: []string{"no"}, annotation: "no", want: []string{"no"}},
		{name: "jobs may not select", annotation: "a", settings: Settings{JobsMaySelect: new(false), DefaultPolicyName: "b"}, want: []string{"b"}, skip: []string{"a"}},
		{name: "the default, unless something is left", queue: []string{"a"}, settings: Settings{DefaultPolicyName: "b"}, want: []string{"a"}},
		{name: "the default does not exist", queue: []string{"x"}, settings: Settings{DefaultPolicyName: "y"}, skip: []string{"x"}},
	} {
		m := New(Policies{Settings: &tc.settings, Policies: policies, Queues: []Queue{{Name: "ml", RetryPolicies: tc.queue}}})
		got, skipped := m.applying(&job{queue: "ml", annotations: map[string]string{annotationPolicies: tc.annotation}})
		var names []string
		for _, p := range got {
			names = append(names, p.Name)
		}
		if !cmp.Equal(names, tc.want) || !cmp.Equal(skipped, tc.skip) {
			t.Errorf("%s: applying = %q, skipped %q, want %q, %q", tc.name, names, skipped, tc.want, tc.skip)
		}
	}
}

// failures is a job whose runs fail one after the other, all in message 0.. of
// their own; errors says how.
func failures(errors ...*pb.Error) []timedMessage {
	messages := []timedMessage{at(0, submit("j"))}
	for i, e := range errors {
		messages = append(messages, at(0, fails("j", string(rune('a'+i)), e)))
	}
	return messages
}

func twice(list ...*pb.Error) []*pb.Error { return append(list, list...) }

// TestLimits is §5.
func TestLimits(t *testing.T) {
	zero := Backoff{InitialDelayMs: new(int64(0))}
	expired := func(limit *int) Rule {
		return Rule{Name: "expired", Action: "Retry", OnConditions: []string{"Evicted"}, RetryLimit: limit, Backoff: zero}
	}
	returns := Rule{Action: "Retry", OnConditions: []string{"LeaseReturned"}}
	ignore := Rule{Action: "Ignore", OnConditions: []string{"LeaseReturned"}}
	ev, ret := podReasonError(pb.KubernetesReason_EVICTED), returned(true)
	policy := func(limit *int, rules ...Rule) Policy { return Policy{Name: "p", RetryLimit: limit, Rules: rules} }
	const tail = " t=0s delay=0 after=0s pod="
	playAll(t, []playCase{
		{
			"the rule's limit", ml(Settings{}, policy(new(1), expired(new(2)))), failures(ev, ev, ev),
			[]string{
				"1: JobRequeued j/a #1 RuleRetry p:expired" + tail + "armada-j-0-1 rule=1/2 job=1/20",
				"2: JobRequeued j/b #2 RuleRetry p:expired" + tail + "armada-j-0-2 rule=2/2 job=2/20",
				"3: JobFailed j/c #3 RuleLimit p:expired t=0s rule=2/2 job=2/20",
			},
		},
		{
			"each rule counts by itself, against the policy's limit", ml(Settings{}, policy(new(1), expired(nil), returns)), failures(twice(ev, ret)...),
			[]string{
				"1: JobRequeued j/a #1 RuleRetry p:expired" + tail + "armada-j-0-1 policy=1/1 job=1/20",
				"2: JobRequeued j/b #2 RuleRetry p:#1" + tail + "armada-j-0-2 policy=1/1 job=2/20",
				"3: JobFailed j/c #3 PolicyLimit p:expired t=0s policy=1/1 job=2/20",
				"4: NotDecided j/d Ended t=0s",
			},
		},
		{
			"the global limit, inherited", ml(Settings{GlobalMaxRetries: new(1)}, policy(nil, expired(nil))), failures(ev, ev),
			[]string{
				"1: JobRequeued j/a #1 RuleRetry p:expired" + tail + "armada-j-0-1 global=1/1 job=1/1",
				"2: JobFailed j/b #2 GlobalLimit p:expired t=0s global=1/1 job=1/1",
			},
		},
		{
			"the global limit, of all retries", ml(Settings{GlobalMaxRetries: new(1)}, policy(new(5), expired(nil), returns)), failures(ev, ret),
			[]string{
				"1: JobRequeued j/a #1 RuleRetry p:expired" + tail + "armada-j-0-1 policy=1/5 job=1/1",
				"2: JobFailed j/b #2 GlobalLimit p:#1 t=0s policy=0/5 job=1/1",
			},
		},
		{
			"zero at the rule", ml(Settings{}, policy(new(3), expired(new(0)))), failures(ev),
			[]string{"1: JobFailed j/a #1 RuleLimit p:expired t=0s rule=0/0 job=0/20"},
		},
		{
			"zero at the policy", ml(Settings{}, policy(new(0), expired(nil))), failures(ev),
			[]string{"1: JobFailed j/a #1 PolicyLimit p:expired t=0s policy=0/0 job=0/20"},
		},
		{
			"an absent limit of the flat form is zero",
			ml(Settings{}, Policy{Name: "p", Flat: true, DefaultAction: "Fail", Rules: []Rule{{Action: "Retry", OnFailureCategory: []string{"a"}}}}),
			failures(category(podError(""), "a", "")),
			[]string{"1: JobFailed j/a #1 PolicyLimit p:#0 t=0s policy=0/0 job=0/20"},
		},
		{
			"zero globally", ml(Settings{GlobalMaxRetries: new(0)}, policy(nil, expired(new(0)), ignore)), failures(ev),
			[]string{"1: JobFailed j/a #1 KillSwitch p:expired t=0s job=0/0"},
		},
		{
			"zero globally, ignored", ml(Settings{GlobalMaxRetries: new(0)}, policy(nil, expired(new(0)), ignore)), failures(ret),
			[]string{"1: JobFailed j/a #1 KillSwitch p:#1 t=0s job=0/0"},
		},
		{
			"zero globally does not touch Armada's own rule", ml(Settings{GlobalMaxRetries: new(0)}), failures(ret),
			[]string{"1: JobRequeued j/a #1 LeaseReturned" + tail + "armada-j-0-1 job=0/0"},
		},
		{
			"a killed queue",
			Policies{Policies: []Policy{retryAll()}, Queues: []Queue{{Name: "ml", RetryPolicies: []string{"all"}, Killed: true}}},
			failures(ev),
			[]string{"1: JobFailed j/a #1 KillSwitch all:default t=0s job=0/20"},
		},
		{
			"a killed queue, a rule that fails",
			Policies{Policies: []Policy{policy(nil, Rule{Action: "Fail", OnConditions: []string{"Evicted"}})}, Queues: []Queue{{Name: "ml", RetryPolicies: []string{"p"}, Killed: true}}},
			failures(ev),
			[]string{"1: JobFailed j/a #1 RuleFail p:#0 t=0s job=0/20"},
		},
		{
			"ignored without counting", ml(Settings{GlobalMaxRetries: new(1)}, policy(new(0), ignore, expired(new(1)))), failures(ret, ret, ev, ret),
			[]string{
				"1: JobRequeued j/a #1 RuleIgnore p:#0" + tail + "armada-j-0-1 job=0/1",
				"2: JobRequeued j/b #2 RuleIgnore p:#0" + tail + "armada-j-0-2 job=0/1",
				"3: JobRequeued j/c #3 RuleRetry p:expired" + tail + "armada-j-0-3 rule=1/1 job=1/1",
				"4: JobRequeued j/d #4 RuleIgnore p:#0" + tail + "armada-j-0-4 job=1/1",
			},
		},
		{
			"the default counts as a rule", ml(Settings{}, policy(new(1), expired(nil)), Policy{Name: "q", RetryLimit: new(1), DefaultAction: "Retry"}),
			failures(leaseExpired(), ev, leaseExpired()),
			[]string{
				"1: JobRequeued j/a #1 DefaultRetry q:default t=0s delay=1000 after=1s pod=armada-j-0-1 policy=1/1 job=1/20",
				"2: JobRequeued j/b #2 RuleRetry p:expired" + tail + "armada-j-0-2 policy=1/1 job=2/20",
				"3: JobFailed j/c #3 PolicyLimit q:default t=0s policy=1/1 job=2/20",
			},
		},
	})
}

// TestLowered is §5: "a job already over the new cap fails at its next
// failure", and an edited rule keeps its count by its name, else by its matchers.
func TestLowered(t *testing.T) {
	t.Parallel()
	rule := Rule{Action: "Retry", OnConditions: []string{"Evicted", "Preempted"}, RetryLimit: new(2)}
	named := Rule{Name: "n", Action: "Retry", OnConditions: []string{"LeaseReturned"}, RetryLimit: new(2)}
	before := ml(Settings{}, Policy{Name: "p", Rules: []Rule{rule, named}})
	sameMatchers := Rule{Action: "Retry", OnConditions: []string{"Preempted", "Evicted"}, RetryLimit: new(1)}
	sameName := Rule{Name: "n", Action: "Retry", OnConditions: []string{"LeaseExpired"}, RetryLimit: new(1)}
	other := Rule{Action: "Retry", OnConditions: []string{"Evicted"}, RetryLimit: new(1)}
	for _, tc := range []struct {
		name  string
		after Policies
		err   *pb.Error
		want  string
	}{
		{"lowered", ml(Settings{GlobalMaxRetries: new(1)}, Policy{Name: "p", Rules: []Rule{rule}}), preemptedError(), "JobFailed j/c #3 GlobalLimit p:#0 t=0s rule=1/2 job=2/1"},
		{"same matchers", ml(Settings{}, Policy{Name: "p", Rules: []Rule{sameName, sameMatchers}}), preemptedError(), "JobFailed j/c #3 RuleLimit p:#1 t=0s rule=1/1 job=2/20"},
		{"same name", ml(Settings{}, Policy{Name: "p", Rules: []Rule{sameName, sameMatchers}}), leaseExpired(), "JobFailed j/c #3 RuleLimit p:n t=0s rule=1/1 job=2/20"},
		{"other matchers", ml(Settings{}, Policy{Name: "p", Rules: []Rule{other}}), podReasonError(pb.KubernetesReason_EVICTED), "JobRequeued j/c #3 RuleRetry p:#0 t=0s delay=0 after=0s pod=armada-j-0-3 rule=1/1 job=3/20"},
	} {
		m := New(before)
		messages := failures(podReasonError(pb.KubernetesReason_EVICTED), returned(true), tc.err)
		var last []Record
		for i, s := range messages {
			if i == 3 {
				m.Use(tc.after)
			}
			last = m.Step(s.message(t, i))
		}
		if len(last) != 1 || show(last[0]) != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, show(last[0]), tc.want)
		}
	}
}

// TestLegacy is §9.
func TestLegacy(t *testing.T) {
	shadowFail := ml(Settings{Mode: "Shadow", LegacyMaxAttempts: new(2)}, Policy{Name: "p", Rules: []Rule{{Action: "Fail", OnFailureCategory: []string{"a"}}}})
	const tail = " t=0s delay=0 after=0s pod=armada-j-0-"
	running := func(node string, s timedMessage) timedMessage {
		s.events = append([]*pb.Event{running("j", s.events[0].GetJobRunErrors().RunId, node)}, s.events...)
		return s
	}
	nodesOf := failures(returned(true), returned(false), returned(true), returned(true))
	for i, node := range []string{"n1", "n2", "n3", "n1"} {
		nodesOf[i+1] = running(node, nodesOf[i+1])
	}
	playAll(t, []playCase{
		{
			"attempted, up to legacyMaxAttempts", ml(Settings{}), failures(returned(true), returned(false), returned(true), returned(true), returned(true)),
			[]string{
				"1: JobRequeued j/a #1 LeaseReturned" + tail + "1 job=0/20",
				"2: JobRequeued j/b #2 LeaseReturned" + tail + "2 job=0/20",
				"3: JobRequeued j/c #3 LeaseReturned" + tail + "3 job=0/20",
				"4: JobRequeued j/d #4 LeaseReturned" + tail + "4 job=0/20",
				"5: JobFailed j/e #5 LegacyLimit t=0s job=0/20",
			},
		},
		{
			"whoever decided them", shadowFail, failures(category(returned(true), "a", ""), returned(true)),
			[]string{"1: JobFailed j/a #1 RuleFail p:#0 shadow t=0s job=0/20", "2: JobFailed j/b #2 LegacyLimit shadow t=0s job=0/20"},
		},
		{
			"avoids the nodes of attempted runs", ml(Settings{}), nodesOf,
			[]string{
				"1: JobRequeued j/a #1 LeaseReturned" + tail + "1 avoid=n1 job=0/20",
				"2: JobRequeued j/b #2 LeaseReturned" + tail + "2 avoid=n1 job=0/20",
				"3: JobRequeued j/c #3 LeaseReturned" + tail + "3 avoid=n1,n3 job=0/20",
				"4: JobRequeued j/d #4 LeaseReturned" + tail + "4 avoid=n1,n3 job=0/20",
			},
		},
		{
			"touched neither by grace nor by a pause", ml(Settings{PausedUntil: base + 1e9}),
			[]timedMessage{
				at(0, withSpec(submit("j"), 30), preempted("j", "a"), fails("j", "a", returned(false))),
			},
			[]string{"0: JobRequeued j/a #1 LeaseReturned" + tail + "1 job=0/20"},
		},
		{"anything else", ml(Settings{}), failures(leaseExpired()), []string{"1: JobFailed j/a #1 NoPolicy t=0s job=0/20"}},
	})
}
