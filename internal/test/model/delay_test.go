package model

import (
	"math/big"
	"testing"

	"github.com/refloat/refloat/events/pb"
)

// TestBackoff is §6: the delay without the grace. Of the SHA-256 of r0 the first
// four bytes are dd191696, of r1 they are 82f3e9c6: u = 3709408918/2³² = 0.86366…
// and 2197023174/2³² = 0.51153….
func TestBackoff(t *testing.T) {
	t.Parallel()
	ms := func(initial, limit, multiplier, jitter int64) Backoff { // -1: not stated
		stated := func(n int64) *int64 {
			if n < 0 {
				return nil
			}
			return &n
		}
		return Backoff{InitialDelayMs: stated(initial), MaxDelayMs: stated(limit), MultiplierMilli: stated(multiplier), JitterMilli: stated(jitter)}
	}
	constant := Backoff{Constant: true}
	for _, tc := range []struct {
		name   string
		levels []Backoff
		n      int
		run    string
		want   string
	}{
		{"nothing stated", nil, 1, "r0", "0"},
		{"the first", []Backoff{ms(10_000, -1, -1, -1)}, 1, "r0", "10000"},
		{"doubled", []Backoff{ms(10_000, -1, -1, -1)}, 3, "r0", "40000"},
		{"up to ten minutes", []Backoff{ms(10_000, -1, -1, -1)}, 7, "r0", "600000"},
		{"up to what is stated", []Backoff{ms(10_000, 35_000, -1, -1)}, 3, "r0", "35000"},
		{"never more than maxDelay", []Backoff{ms(10_000, 0, -1, -1)}, 1, "r0", "0"},
		{"1000 × 1.333² = 1776.889", []Backoff{ms(1000, -1, 1333, -1)}, 3, "r0", "1776"},
		{"1 × 1.001^1000 = 2.7169…", []Backoff{ms(1, -1, 1001, -1)}, 1001, "r0", "2"},
		{"3 × 1.5³ = 10.125, rounded once", []Backoff{ms(3, -1, 1500, -1)}, 4, "r0", "10"},
		{"a lot", []Backoff{ms(1, 9_223_372_036_854, 1_000_000, -1)}, 100, "r0", "9223372036854"},
		{"jitter of one half: 10000 × 0.5 × 0.86366 = 4318.3", []Backoff{ms(10_000, -1, -1, 500)}, 1, "r0", "14318"},
		{"of another run: 10000 × 0.5 × 0.51153 = 2557.7", []Backoff{ms(10_000, -1, -1, 500)}, 1, "r1", "12557"},
		{"on the rounded delay: 1776 × 0.333 × 0.86366 = 510.78", []Backoff{ms(1000, -1, 1333, 333)}, 3, "r0", "2286"},
		{"jitter passes maxDelay", []Backoff{ms(10_000, 10_000, -1, 1000)}, 1, "r0", "18636"},
		{"field by field", []Backoff{ms(1000, -1, -1, -1), ms(5000, 3000, 3000, -1), ms(7000, 9000, 4000, 500)}, 3, "r0", "4295"}, // 3000 × 1.43183 = 4295.5
		{"constant wins over what is below", []Backoff{ms(1000, -1, -1, -1), constant, ms(-1, -1, 4000, -1)}, 5, "r0", "1000"},
		{"a multiplier wins over a constant below", []Backoff{ms(1000, -1, 3000, -1), constant}, 2, "r0", "3000"},
	} {
		want, _ := new(big.Int).SetString(tc.want, 10)
		if got := backoff(tc.levels, tc.n, tc.run); got.Cmp(want) != 0 {
			t.Errorf("%s: backoff = %d, want %d", tc.name, got, want)
		}
	}
}

// TestDelay is §6: growth, grace and pause.
func TestDelay(t *testing.T) {
	growing := Policy{Name: "all", DefaultAction: "Retry", Backoff: Backoff{InitialDelayMs: new(int64(1000))}}
	ignoring := Policy{Name: "p", Rules: []Rule{{Name: "i", Action: "Ignore", OnConditions: []string{"Evicted"}}}, Backoff: growing.Backoff}
	gone := growing
	gone.Replacement = "WhenTerminated"
	ruled := Policy{Name: "p", Replacement: "WhenTerminated", Rules: []Rule{{Name: "f", Action: "Ignore", OnConditions: []string{"Evicted"}, Replacement: "WhenFailed"}}}
	ev := podReasonError(pb.KubernetesReason_EVICTED)
	first := func(settings Settings, p Policy, grace int64, err *pb.Error) playCase {
		return playCase{policies: ml(settings, p), messages: []timedMessage{at(0, withSpec(submit("j"), grace), fails("j", "a", err))}}
	}
	named := func(name string, c playCase, want string) playCase {
		c.name, c.want = name, []string{"0: JobRequeued j/a #1 " + want}
		return c
	}
	const tail = " pod=armada-j-0-1 global=1/20 job=1/20"
	queuePause := ml(Settings{PausedUntil: base + 10e9}, growing)
	queuePause.Queues[0].PausedUntil = base + 20e9
	playAll(t, []playCase{
		{
			"a rule grows by its own retries", ml(Settings{}, growing), failures(ev, ev, ev),
			[]string{
				"1: JobRequeued j/a #1 DefaultRetry all:default t=0s delay=1000 after=1s" + tail,
				"2: JobRequeued j/b #2 DefaultRetry all:default t=0s delay=2000 after=2s pod=armada-j-0-2 global=2/20 job=2/20",
				"3: JobRequeued j/c #3 DefaultRetry all:default t=0s delay=4000 after=4s pod=armada-j-0-3 global=3/20 job=3/20",
			},
		},
		{
			"and by its ignored failures", ml(Settings{}, ignoring), failures(ev, ev),
			[]string{
				"1: JobRequeued j/a #1 RuleIgnore p:i t=0s delay=1000 after=1s pod=armada-j-0-1 job=0/20",
				"2: JobRequeued j/b #2 RuleIgnore p:i t=0s delay=2000 after=2s pod=armada-j-0-2 job=0/20",
			},
		},
		named("grace of a preempted run", first(Settings{}, growing, 30, preemptedError()), "DefaultRetry all:default t=0s delay=30000 after=30s"+tail),
		named("and slack", first(Settings{TerminationSlackMs: new(int64(1500))}, growing, 30, leaseExpired()), "DefaultRetry all:default t=0s delay=31500 after=31.5s"+tail),
		named("grace unset", first(Settings{}, gone, 0, podError("")), "DefaultRetry all:default t=0s delay=1000 after=1s"+tail),
		named("grace unset, with slack", first(Settings{TerminationSlackMs: new(int64(1))}, gone, -3, podError("")), "DefaultRetry all:default t=0s delay=1001 after=1.001s"+tail),
		named("grace too long", first(Settings{}, gone, 1000, podError("")), "DefaultRetry all:default t=0s delay=300000 after=5m0s"+tail),
		named("no grace for others", first(Settings{}, growing, 30, podError("")), "DefaultRetry all:default t=0s delay=1000 after=1s"+tail),
		named("the rule before the policy", first(Settings{}, ruled, 30, ev), "RuleIgnore p:f t=0s delay=0 after=0s pod=armada-j-0-1 job=0/20"),
		named("paused", first(Settings{PausedUntil: base + 10e9}, growing, 0, podError("")), "DefaultRetry all:default t=0s delay=1000 after=10s"+tail),
		named("paused for less", first(Settings{PausedUntil: base + 5e8}, growing, 0, podError("")), "DefaultRetry all:default t=0s delay=1000 after=1s"+tail),
		named("both paused", playCase{policies: queuePause, messages: []timedMessage{at(0, submit("j"), fails("j", "a", podError("")))}}, "DefaultRetry all:default t=0s delay=1000 after=20s"+tail),
	})
}

// TestPlacement is §2 (node) and §7.
func TestPlacement(t *testing.T) {
	mode := func(policy, rule string) Policies {
		return ml(Settings{}, Policy{Name: "p", AntiAffinity: policy, Rules: []Rule{
			{Name: "i", Action: "Ignore", OnConditions: []string{"Evicted", "Unschedulable"}, AntiAffinity: rule},
		}})
	}
	const tail = " RuleIgnore p:i t=0s delay=0 after=0s pod=armada-j-0-"
	evicted := func(node string) *pb.Error {
		e := podReasonError(pb.KubernetesReason_EVICTED)
		e.GetPodError().NodeName = node
		return e
	}
	two := func(err *pb.Error) []timedMessage {
		return []timedMessage{at(0, submit("j"), fails("j", "a", evicted("n1"))), at(0, leased("j", "b", "n2"), fails("j", "b", err))}
	}
	playAll(t, []playCase{
		{"none", mode("", ""), two(evicted("n3")), []string{"0: JobRequeued j/a #1" + tail + "1 job=0/20", "1: JobRequeued j/b #2" + tail + "2 job=0/20"}},
		{"node of this failure, attempted or not", mode("allNodes", "node"), two(returned(false)), []string{"0: JobRequeued j/a #1" + tail + "1 avoid=n1 job=0/20", "1: JobRequeued j/b #2" + tail + "2 avoid=n2 job=0/20"}},
		{"all nodes, attempted", mode("allNodes", ""), two(evicted("n3")), []string{"0: JobRequeued j/a #1" + tail + "1 avoid=n1 job=0/20", "1: JobRequeued j/b #2" + tail + "2 avoid=n1,n3 job=0/20"}},
		{"all nodes, not attempted", mode("allNodes", ""), two(returned(false)), []string{"0: JobRequeued j/a #1" + tail + "1 avoid=n1 job=0/20", "1: JobRequeued j/b #2" + tail + "2 avoid=n1 job=0/20"}},
		{"the same node once", mode("allNodes", ""), two(evicted("n1")), []string{"0: JobRequeued j/a #1" + tail + "1 avoid=n1 job=0/20", "1: JobRequeued j/b #2" + tail + "2 avoid=n1 job=0/20"}},
		{
			"the node of the last JobRunRunning that names one", mode("node", ""),
			[]timedMessage{at(0, submit("j"), leased("j", "a", "n0"), running("j", "a", "n1"), running("j", "a", "n2"), running("j", "a", ""), fails("j", "a", evicted("")), running("j", "a", "n3"))},
			[]string{"0: JobRequeued j/a #1" + tail + "1 avoid=n2 job=0/20"},
		},
		{
			"the node of the first JobRunLeased, also after the failure in its message", mode("node", ""),
			[]timedMessage{at(0, submit("j"), fails("j", "a", evicted("")), leased("j", "a", "n1"), leased("j", "a", "n2"))},
			[]string{"0: JobRequeued j/a #1" + tail + "1 avoid=n1 job=0/20"},
		},
		{
			"fixed when decided", mode("allNodes", ""),
			[]timedMessage{at(0, submit("j"), fails("j", "a", evicted(""))), at(0, leased("j", "a", "n1")), at(0, fails("j", "b", evicted("n2")))},
			[]string{"0: JobRequeued j/a #1" + tail + "1 job=0/20", "2: JobRequeued j/b #2" + tail + "2 avoid=n2 job=0/20"},
		},
	})
}

// TestGone is §8.
func TestGone(t *testing.T) {
	p := ml(Settings{}, retryAll())
	gone := retryAll()
	gone.Replacement = "WhenTerminated"
	start := []*pb.Event{withSpec(submit("j"), 30), leased("j", "a", "")}
	lost := at(0, append(start, fails("j", "a", leaseExpired()))...)
	const requeued = "0: JobRequeued j/a #1 DefaultRetry all:default t=0s delay=30000 after=30s pod=armada-j-0-1 global=1/20 job=1/20"
	ready := "1: RetryReady j/a after=1s"
	shadow := ml(Settings{Mode: "Shadow"}, retryAll())
	playAll(t, []playCase{
		{"terminated", p, []timedMessage{lost, at(5, terminated("j", "a")), at(6, terminated("j", "a"))}, []string{requeued, ready}},
		{"succeeded", p, []timedMessage{lost, at(5, succeeded("j", "a"))}, []string{requeued, ready}},
		{"a pod error later", p, []timedMessage{lost, at(5, fails("j", "a", podError("")))}, []string{requeued, ready}},
		{"a returned lease later", p, []timedMessage{lost, at(5, fails("j", "a", returned(true)))}, []string{requeued, ready}},
		{"not terminal", p, []timedMessage{lost, at(5, fails("j", "a", transient(podError(""))))}, []string{requeued}},
		{"another lease expired", p, []timedMessage{lost, at(5, fails("j", "a", leaseExpired()))}, []string{requeued}},
		{"of another run", p, []timedMessage{lost, at(5, terminated("j", "b"))}, []string{requeued}},
		{"the failure itself is no proof", ml(Settings{}, gone), []timedMessage{at(0, append(start, fails("j", "a", podError("")), fails("j", "a", podError("")))...)}, []string{requeued}},
		{"but the same again is", ml(Settings{}, gone), []timedMessage{at(0, append(start, fails("j", "a", podError("")))...), at(0, fails("j", "a", podError("")))}, []string{requeued, ready}},
		{"in the same message", p, []timedMessage{at(0, append(start, terminated("j", "a"), fails("j", "a", leaseExpired()))...)}, []string{requeued, "0: RetryReady j/a after=1s"}},
		{"in the same message, afterwards", p, []timedMessage{at(0, append(start, preempted("j", "a"), succeeded("j", "a"))...)}, []string{requeued, "0: RetryReady j/a after=1s"}},
		{"before, and before the submit", p, []timedMessage{at(0, terminated("j", "a")), at(0, append(start, fails("j", "a", leaseExpired()))...)}, []string{
			"1: JobRequeued j/a #1 DefaultRetry all:default t=0s delay=30000 after=30s pod=armada-j-0-1 global=1/20 job=1/20", ready,
		}},
		{"a newer run", p, []timedMessage{lost, at(5, leased("j", "b", "")), at(6, terminated("j", "a"))}, []string{requeued}},
		{"a newer run in the same message", p, []timedMessage{lost, at(5, terminated("j", "a"), leased("j", "b", ""))}, []string{requeued}},
		{"cancelled", p, []timedMessage{lost, at(5, cancelJob("j")), at(6, terminated("j", "a"))}, []string{requeued}},
		{"ended", p, []timedMessage{lost, at(5, jobSucceeded("j")), at(6, terminated("j", "a"))}, []string{requeued}},
		{"nothing to gain", p, []timedMessage{at(0, submit("j"), fails("j", "a", podError(""))), at(5, terminated("j", "a"))}, []string{"0: JobRequeued j/a #1 DefaultRetry all:default t=0s delay=1000 after=1s pod=armada-j-0-1 global=1/20 job=1/20"}},
		{"in shadow", shadow, []timedMessage{lost, at(5, terminated("j", "a"))}, []string{"0: JobRequeued j/a #1 DefaultRetry all:default shadow t=0s delay=30000 after=30s pod=armada-j-0-1 global=1/20 job=1/20", ready}},
		{"paused beyond the grace", ml(Settings{PausedUntil: base + 60e9}, retryAll()), []timedMessage{lost, at(5, terminated("j", "a"))}, []string{
			"0: JobRequeued j/a #1 DefaultRetry all:default t=0s delay=30000 after=1m0s pod=armada-j-0-1 global=1/20 job=1/20",
		}},
		{"paused within the grace", ml(Settings{PausedUntil: base + 10e9}, retryAll()), []timedMessage{lost, at(5, terminated("j", "a"))}, []string{requeued, "1: RetryReady j/a after=10s"}},
		{
			"several, in order of their proofs", p,
			[]timedMessage{
				lost, at(0, withSpec(submit("k"), 30), fails("k", "a", leaseExpired())),
				at(5, terminated("k", "a"), jobSucceeded(""), terminated("j", "a"), fails("l", "a", podError(""))),
			},
			[]string{
				requeued, "1: JobRequeued k/a #2 DefaultRetry all:default t=0s delay=30000 after=30s pod=armada-k-0-1 global=1/20 job=1/20",
				"2: Parked event without job event=2", "2: NotDecided l/a UnknownJob t=5s", "2: RetryReady k/a after=1s", "2: RetryReady j/a after=1s",
			},
		},
	})
}

// TestPodName is §10.
func TestPodName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		index   int
		enabled bool
		want    string
	}{{0, true, "armada-j-0"}, {1, true, "armada-j-0-1"}, {12, true, "armada-j-0-12"}, {3, false, "armada-j-0"}} {
		if got := podName("j", tc.index, tc.enabled); got != tc.want {
			t.Errorf("podName(%d, %t) = %s, want %s", tc.index, tc.enabled, got, tc.want)
		}
	}
}
