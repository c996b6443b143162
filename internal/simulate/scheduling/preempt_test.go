package scheduling

import (
	"slices"
	"testing"
)

func TestPreemption(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name      string
		s         *situation
		want      string
		preempted string
	}{
		{"running jobs return if nothing else is to be scheduled", with(2, 2).jobs("a", "a1 2 on=n1", "a2 2 on=n0"), "a1=n1 a2=n0", ""},
		{"to fair share", with(4).jobs("a", "a1 1 on=n0", "a2 1 on=n0", "a3 1 on=n0", "a4 1 on=n0").jobs("b", "b1 1", "b2 1", "b3 1"), "a1=n0 a2=n0 b1=n0 b2=n0", "a3 a4"},
		{"one preemption makes room for several jobs", with(4).jobs("a", "a1 2 on=n0", "a2 2 on=n0").jobs("b", "b1 1", "b2 1"), "a1=n0 b1=n0 b2=n0", "a2"},
		{"not of a class that is not fair-share preemptible", with(2).jobs("a", "a1 1 class=keep on=n0", "a2 1 class=keep on=n0").jobs("b", "b1 1 class=keep"), "a1=n0 a2=n0", ""},
		{"by urgency, also of such a class", with(2).jobs("a", "a1 1 class=keep on=n0", "a2 1 class=keep on=n0").jobs("b", "b1 1 class=high"), "a1=n0 b1=n0", "a2"},
		{"never of a more urgent job, however unfair", with(2).jobs("a", "a1 1 class=high on=n0", "a2 1 class=high on=n0").jobs("b", "b1 1"), "a1=n0 a2=n0", ""},
		{"not among equals by urgency", with(1).jobs("a", "a1 1 class=top on=n0").jobs("b", "b1 1 class=top"), "a1=n0", ""},
		{"of the less urgent within a queue", with(1).jobs("a", "a1 1 on=n0", "a2 1 class=keep"), "a2=n0", "a1"},
		{"a requeued job precedes a running one of its queue", with(1).jobs("a", "new 1 at=2 on=n0", "old 1 at=1"), "old=n0", "new"},
		{"an evicted job returns to its own node only", with(2, 2).jobs("a", "a1 2 on=n0", "a2 2 on=n0"), "a1=n0", "a2"},
		{"no evicted job is prevented from returning if there is another node", with(2, 3).jobs("b", "b1 2 on=n0").jobs("a", "a1 2"), "a1=n1 b1=n0", ""},
		{"no preemption that helps nobody: J is displaced by K later", with(6).jobs("e", "e1 4 on=n0").jobs("j", "j1 6 class=keep").jobs("k", "k0 7 class=high priority=1", "k1 1 class=high priority=2").weigh("j", 1), "e1=n0 k1=n0", ""},
		{
			"not of an equal job that has returned", with(3, 9).jobs("a", "a1 1 on=n0", "a2 9 on=n1").jobs("b", "b1 1 avoid=n1").jobs("c", "c1 2 on=n0").weigh("c", 2000),
			"a1=n0 a2=n1 b1=n0", "c1",
		},
		{
			"jobs for which there was no room until another lost its node", with(3).jobs("f", "f1 3").weigh("f", 100).jobs("g", "g1 2").jobs("h", "h1 1 class=high").weigh("h", 5000),
			"g1=n0 h1=n0", "",
		},
		{"running on an unknown node: evicted, and cannot return", with(2).jobs("a", "a1 1 on=gone"), "", "a1"},
		{"running on an unknown node: stays, and counts", with(2).jobs("a", "a1 2 class=keep on=gone", "a2 2").jobs("b", "b1 2"), "a1=gone b1=n0", ""},
		{"an oversubscribed node", with(3).jobs("a", "a1 2 on=n0", "a2 2 on=n0"), "a1=n0", "a2"},
		{"a job without a request on an oversubscribed node", with(3).jobs("a", "a1 4 class=keep on=n0", "a2 0"), "a1=n0 a2=n0", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := row.s.expect(t, row.want)
			lists(t, "preempted", r.Preempted, row.preempted)
		})
	}
}

// Jobs that were preempted and are submitted again preempt nothing, and are not scheduled.
func TestPreemptionStability(t *testing.T) {
	t.Parallel()
	s := with(4).jobs("a", "a1 1 on=n0", "a2 1 on=n0", "a3 1 on=n0", "a4 1 on=n0").jobs("b", "b1 1", "b2 1", "b3 1")
	first := s.schedule(t)
	lists(t, "preempted", first.Preempted, "a3 a4")
	for _, id := range first.Preempted {
		s.queues[0].Jobs = slices.DeleteFunc(s.queues[0].Jobs, func(j Job) bool { return j.ID == id })
		s.jobs("a", id+"-again 1")
	}
	s.running = first.NodeByJob
	for range 2 {
		r := s.expect(t, "a1=n0 a2=n0 b1=n0 b2=n0")
		lists(t, "preempted by those that are submitted again", r.Preempted, "")
		lists(t, "scheduled", r.Scheduled, "")
		s.running = r.NodeByJob
	}
}

func TestChoiceOfNode(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		s    *situation
		want string
	}{
		{"the least free", with(4, 2, 3).jobs("a", "a1 2"), "a1=n1"},
		{"by name", with(2, 2).jobs("a", "a1 2"), "a1=n0"},
		{"the first resource first", &situation{
			config: config(), nodes: []Node{{Name: "n0", Total: Resources{1, 1}}, {Name: "n1", Total: Resources{0, 9}}},
			queues: []Queue{{"a", 1000, []Job{{ID: "a1", Request: cpu(1)}}}},
		}, "a1=n1"},
		{"not one that the job avoids", with(2, 2).jobs("a", "a1 2 avoid=n0,n9"), "a1=n1"},
		{"none if it avoids all", with(2, 2).jobs("a", "a1 2 avoid=n0,n1"), ""},
		{"avoided nodes do not matter for a running job", with(2).jobs("a", "a1 2 on=n0 avoid=n0"), "a1=n0"},
		{"without preemption before best fit", with(2, 9).jobs("a", "a1 1 on=n0").jobs("b", "b1 2"), "a1=n0 b1=n1"},
		{"the lowest class", with(2, 2).jobs("a", "a1 2 class=keep on=n0").jobs("b", "b1 2 on=n1").jobs("c", "c1 2 class=top"), "a1=n0 c1=n1"},
		{
			"the lowest class of the dearest job", with(2, 2).jobs("a", "a1 1 on=n0", "a2 1 class=keep on=n0").jobs("b", "b1 2 on=n1").jobs("c", "c1 2 class=top"),
			"a1=n0 a2=n0 c1=n1",
		},
		{
			"of equal classes, the queue with the largest fraction", with(2, 2, 2).jobs("a", "a1 2 class=keep on=n0").jobs("b", "b1 2 class=keep on=n1", "b2 2 class=keep on=n2").jobs("c", "c1 2 class=top"),
			"a1=n0 b2=n2 c1=n1",
		},
		{
			"the largest fraction by weight", with(2, 2, 2).jobs("a", "a1 2 class=keep on=n0").weigh("a", 3000).jobs("b", "b1 2 class=keep on=n1", "b2 2 class=keep on=n2").jobs("c", "c1 2 class=top"),
			"b1=n1 b2=n2 c1=n0",
		},
		{
			"jobs that need not go are spared", with(7).jobs("a", "a1 1 class=keep priority=9 on=n0", "a2 4 class=keep on=n0", "a3 2 class=keep priority=-1 on=n0").jobs("c", "c1 4 class=top").jobs("d", "d1 1"),
			"a1=n0 a3=n0 c1=n0",
		},
		{"of equal classes, the least free", with(3, 2).jobs("a", "a1 2 class=keep on=n0").jobs("b", "b1 2 class=keep on=n1").jobs("c", "c1 2 class=top"), "a1=n0 c1=n1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.s.expect(t, row.want)
		})
	}
}

func TestGangs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name                      string
		s                         *situation
		want                      string
		preempted, failed, queued string
	}{
		{"all", with(1, 1).jobs("a", "a1 1 gang=g,2", "a2 1 gang=g,2"), "a1=n0 a2=n1", "", "", ""},
		{"or nothing", with(1).jobs("a", "a1 1 gang=g,2", "a2 1 gang=g,2", "a3 1"), "a3=n0", "", "", "a1:NoRoom a2:NoRoom"},
		{"minimum cardinality", with(2).jobs("a", "a1 1 gang=g,3,2", "a2 1 gang=g,3,2", "a3 1 gang=g,3,2"), "a1=n0 a2=n0", "", "a3", ""},
		{"below the minimum", with(1).jobs("a", "a1 1 gang=g,3,2", "a2 1 gang=g,3,2", "a3 1 gang=g,3,2"), "", "", "", "a1:NoRoom a2:NoRoom a3:NoRoom"},
		{"a job that fits nowhere does not stop those after it", with(2).jobs("a", "a1 3 gang=g,3,2", "a2 1 gang=g,3,2", "a3 1 gang=g,3,2"), "a2=n0 a3=n0", "", "a1", ""},
		{"incomplete", with(9).jobs("a", "a1 1 gang=g,3", "a2 1 gang=g,3"), "", "", "", "a1:GangIncomplete a2:GangIncomplete"},
		{"a held member", with(9).jobs("a", "a1 1 gang=g,2", "a2 1 gang=g,2 held="), "", "", "", "a1:GangIncomplete a2:Held"},
		{"a member before its time", with(9).jobs("a", "a1 1 gang=g,2", "a2 1 gang=g,2 retry=1"), "", "", "", "a1:GangIncomplete a2:TooEarly"},
		{"a requeued member waits for the others", with(9).jobs("a", "a1 1 gang=g,2 on=n0", "a2 1 gang=g,2"), "a1=n0", "", "", "a2:GangIncomplete"},
		{"one ID in two queues", with(9).jobs("a", "a1 1 gang=g,2").jobs("b", "b1 1 gang=g,2"), "", "", "", "a1:GangIncomplete b1:GangIncomplete"},
		{"too large for the cluster", with(1, 1).jobs("a", "a1 1 gang=g,3", "a2 1 gang=g,3", "a3 1 gang=g,3"), "", "", "", "a1:NoRoom a2:NoRoom a3:NoRoom"},
		{"uniform nodes", with(2, 1, 1).label("rack=a", "rack=b", "rack=b").jobs("a", "a1 1 gang=g,2,2,rack", "a2 1 gang=g,2,2,rack"), "a1=n0 a2=n0", "", "", ""},
		{"nodes without the label are not used", with(1, 1, 1, 1).label("", "rack=b", "rack=c", "rack=c").jobs("a", "a1 1 gang=g,2,2,rack", "a2 1 gang=g,2,2,rack"), "a1=n2 a2=n3", "", "", ""},
		{"uniform or nothing", with(1, 1).label("rack=a", "rack=b").jobs("a", "a1 1 gang=g,2,2,rack", "a2 1 gang=g,2,2,rack"), "", "", "", "a1:NoRoom a2:NoRoom"},
		{"a label that no node has", with(9).jobs("a", "a1 1 gang=g,1,1,rack"), "", "", "", "a1:NoRoom"},
		{"the value with most jobs", with(2, 3).label("rack=a", "rack=b").jobs("a", "a1 1 gang=g,3,1,rack", "a2 1 gang=g,3,1,rack", "a3 1 gang=g,3,1,rack"), "a1=n1 a2=n1 a3=n1", "", "", ""},
		{"also below the cardinality", with(2, 3).label("rack=a", "rack=b").jobs("a", "a1 1 gang=g,4,1,rack", "a2 1 gang=g,4,1,rack", "a3 1 gang=g,4,1,rack", "a4 1 gang=g,4,1,rack"), "a1=n1 a2=n1 a3=n1", "", "a4", ""},
		{
			"the value without preemption", with(2, 2).label("rack=a", "rack=b").jobs("b", "b1 1 on=n0").jobs("c", "c1 1 gang=g,2,2,rack", "c2 1 gang=g,2,2,rack").weigh("c", 10),
			"b1=n0 c1=n1 c2=n1", "", "", "",
		},
		{
			"the value with the cheapest preemption", with(2, 2).label("rack=a", "rack=b").jobs("b", "b1 1 class=keep on=n0", "b2 1 class=low on=n1").jobs("c", "c1 1 class=top gang=g,2,2,rack", "c2 1 class=top gang=g,2,2,rack"),
			"b1=n0 c1=n1 c2=n1", "b2", "", "",
		},
		{"what a gang without room displaced comes back", with(2).jobs("a", "a1 1 class=top gang=g,3", "a2 1 class=top gang=g,3", "a3 1 class=top gang=g,3").jobs("b", "b1 1 class=keep on=n0"), "b1=n0", "", "", "a1:NoRoom a2:NoRoom a3:NoRoom"},
		{"a gang that loses a job loses all", with(1, 1).jobs("a", "a1 1 class=keep gang=g,2 on=n0", "a2 1 class=keep gang=g,2 on=n1").jobs("b", "b1 1 class=top"), "b1=n0", "a1 a2", "", ""},
		{"but not above its minimum", with(1, 1).jobs("a", "a1 1 class=keep gang=g,2,1 on=n0", "a2 1 class=keep gang=g,2,1 on=n1").jobs("b", "b1 1 class=top"), "a2=n1 b1=n0", "a1", "", ""},
		{"a running gang of which one succeeded", with(1, 1).jobs("a", "a1 1 gang=g,3 on=n0", "a2 1 gang=g,3 on=n1"), "a1=n0 a2=n1", "", "", ""},
		{"an evicted gang returns as a whole or not at all", with(1, 1).jobs("a", "a1 1 gang=g,2 on=n0", "a2 1 gang=g,2 on=n1").jobs("b", "b1 1", "b2 1"), "b1=n0 b2=n1", "a1 a2", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := row.s.expect(t, row.want)
			lists(t, "preempted", r.Preempted, row.preempted)
			lists(t, "failed", r.Failed, row.failed)
			var queued []string
			for _, u := range r.Unscheduled {
				queued = append(queued, u.Job+":"+u.Reason.String())
			}
			lists(t, "queued", queued, row.queued)
		})
	}
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	s := with(4).jobs("a", "a1 1 held=", "a2 1 retry=1", "a3 1 retry=0", "a4 9", "a5 1 avoid=n0", "a6 1 retry=9 held=", "a7 4")
	r := s.expect(t, "a3=n0")
	got := map[string]Reason{}
	for _, u := range r.Unscheduled {
		got[u.Job] = u.Reason
	}
	for id, want := range map[string]Reason{"a1": Held, "a2": TooEarly, "a4": FitsNoNode, "a5": FitsNoNode, "a6": Held, "a7": NoRoom} {
		if got[id] != want {
			t.Errorf("%s: %v, want %v", id, got[id], want)
		}
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	s := with(4).jobs("a", "a1 1", "a2 1 held=").jobs("b", "b1 2 held=").jobs("c")
	r := s.expect(t, "a1=n0")
	if want := []Share{{"a", "cpu", 1, 4}, {"b", "", 0, 0}}; len(r.Shares) != 2 || r.Shares[0] != want[0] || r.Shares[1] != want[1] {
		t.Errorf("shares %v, want %v: only queues with jobs are active", r.Shares, want)
	}
}
